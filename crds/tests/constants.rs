//! The schema repeats numbers and names that stand elsewhere as constants, since CEL cannot read them: here they are compared.

#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure is the test's")]

use agentsession_crds::{names, resolve};
use serde_json::Value;
use transcript::limits;

fn crd() -> Value {
    serde_json::to_value(agentsession_crds::custom_resource_definition()).unwrap()
}

fn spec() -> Value {
    crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].take()
}

fn rules(schema: &Value) -> String {
    schema["x-kubernetes-validations"].to_string()
}

#[test]
fn the_resource_has_the_names_that_everybody_uses() {
    let crd = crd();
    assert_eq!(crd["spec"]["group"], names::GROUP);
    assert_eq!(crd["spec"]["versions"][0]["name"], names::VERSION);
    assert_eq!(crd["spec"]["names"]["plural"], names::PLURAL);
    assert_eq!(crd["spec"]["names"]["kind"], names::KIND);
    assert_eq!(names::API_VERSION, format!("{}/{}", names::GROUP, names::VERSION));
}

#[test]
fn bounds_of_turns_are_those_of_the_transcript() {
    let turns = &spec()["turns"];
    assert_eq!(turns["maxItems"], limits::TURNS);
    assert_eq!(turns["items"]["properties"]["prompt"]["maxLength"], limits::PROMPT_CHARS);
    assert!(rules(turns).contains(&format!("<= {}", limits::PROMPTS_CHARS)), "{}", rules(turns));
}

#[test]
fn what_is_ours_in_a_pod_cannot_be_taken() {
    let spec = spec();
    let name = rules(&spec["agent"]["properties"]["env"]["items"]["properties"]["name"]);
    assert!(name.contains(&format!("!self.startsWith('{}')", names::ENV_PREFIX)), "{name}");

    let pod = &spec["podTemplate"]["properties"];
    let volume = rules(&pod["volumes"]["items"]["properties"]["name"]);
    assert!(volume.contains(&format!("!self.startsWith('{}')", names::VOLUME_PREFIX)), "{volume}");
    for ours in [names::VOLUME_BIN, names::VOLUME_LOG, names::VOLUME_INBOX, names::VOLUME_WORK, names::VOLUME_HOME] {
        assert!(ours.starts_with(names::VOLUME_PREFIX), "{ours}");
    }

    let mount = rules(&pod["volumeMounts"]["items"]["properties"]["mountPath"]);
    for ours in [names::PATH_ROOT, names::PATH_WORK, names::PATH_HOME] {
        assert!(mount.contains(&format!("'{ours}'")), "{ours}: {mount}");
    }
    for ours in [names::PATH_BIN, names::PATH_LOG, names::PATH_INBOX, names::PATH_SANDBOX] {
        assert!(ours.starts_with(&format!("{}/", names::PATH_ROOT)), "{ours}");
    }
}

#[test]
fn the_defaults_that_are_explained_are_the_defaults() {
    let spec = spec();
    let told = |schema: &Value| schema["description"].as_str().unwrap().to_owned();
    let transcript = &spec["transcript"]["properties"];
    for (schema, default) in [
        (&spec["startTimeout"], resolve::START_TIMEOUT),
        (&spec["turnTimeout"], resolve::TURN_TIMEOUT),
        (&spec["idleTimeout"], resolve::IDLE_TIMEOUT_INTERACTIVE),
        (&spec["idleTimeout"], resolve::IDLE_TIMEOUT_AUTONOMOUS),
        (&transcript["checkpointInterval"], resolve::CHECKPOINT_INTERVAL),
        (&transcript["holdTimeout"], resolve::HOLD_TIMEOUT),
        (&transcript["harvestTimeout"], resolve::HARVEST_TIMEOUT),
    ] {
        let default = agentsession_crds::HumanDuration::from(default);
        assert!(told(schema).contains(&format!("{default}")), "{default} is not in: {}", told(schema));
    }
}

#[test]
fn columns_are_those_of_the_documentation() {
    let crd = crd();
    let columns: Vec<_> = crd["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            format!("{}{}", column["name"].as_str().unwrap(), if column["priority"] == 1 { " (wide)" } else { "" })
        })
        .collect();
    assert_eq!(
        columns,
        ["Phase", "Turn", "Transcript", "Reason", "Parts", "Age", "Pod (wide)", "Mode (wide)", "Message (wide)"]
    );
}
