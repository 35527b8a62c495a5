//! An agent that nobody here wrote: codex, against a fake model in the cluster, with a real shell tool call in the workspace.

use agentsession_e2e::{Draft, Operator, aisdk, replay, run, wait::seconds};
use anyhow::{Context as _, Result};
use serde_json::json;

use crate::common::{WELL, check_replay, stored};

const PROMPT: &str = "Leave a note in the workspace and read it back.";

/// The model, and where codex finds it.
fn surroundings() -> String {
    let security = "allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 1000, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}";
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: model, labels: {{app: model}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: model
    image: {}
    args: [model, --listen, "0.0.0.0:9911"]
    securityContext: {{{security}}}
    readinessProbe: {{tcpSocket: {{port: 9911}}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {{name: model}}
spec: {{selector: {{app: model}}, ports: [{{port: 9911}}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: codex}}
data:
  config.toml: |
    model = "fake"
    model_provider = "fake"
    approval_policy = "never"
    sandbox_mode = "danger-full-access"
    [model_providers.fake]
    name = "fake"
    base_url = "http://model:9911/v1"
    wire_api = "responses"
    env_key = "FAKE_KEY"
"#,
        agentsession_e2e::test::AGENT_IMAGE
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_runs_a_tool_and_its_conversation_outlives_it() {
    run("codex", async |t| {
        t.apply_yaml(&surroundings()).await?;
        t.kubectl(&["wait", "--for=condition=Ready", "pod/model", "--timeout=60s"]).await?;
        let to_model = json!([{"to": [{"podSelector": {"matchLabels": {"app": "model"}}}], "ports": [{"port": 9911}]}]);
        let settings = t.settings().argument("--agent-egress-extra").argument(&to_model.to_string());
        let operator = Operator::start(t, settings).await?;
        // Codex writes beside its configuration, which a ConfigMap does not allow.
        let start = "mkdir -p $HOME/.codex && cp /etc/codex/config.toml $HOME/.codex/ && exec codex-acp";
        let draft = Draft::new("codex")
            .set("spec/agent/image", "localhost/codex-acp:0.16.0")
            .set("spec/agent/command", json!(["sh", "-c", start]))
            .set("spec/agent/env", json!([{"name": "FAKE_KEY", "value": "none"}]))
            .set("spec/podTemplate/volumes", json!([{"name": "codex", "configMap": {"name": "codex"}}]))
            .set("spec/podTemplate/volumeMounts", json!([{"name": "codex", "mountPath": "/etc/codex"}]));
        let session = t.apply(draft.turn(PROMPT)).await?;
        let status = session.finished_within(seconds(120)).await?;
        assert_eq!(status.turn(1)?.summary(), WELL);
        let stored = stored(t, &session).await?;
        let parts = stored.values(1);
        let of = |kind: &str| {
            parts
                .iter()
                .find(|part| part["type"] == kind)
                .with_context(|| format!("no {kind}"))
                .map(ToString::to_string)
        };
        assert!(of("tool-input-available")?.contains("made-by-agent.txt"));
        assert!(of("tool-output-available")?.contains("hello-from-tool"), "the tool really ran");
        assert!(
            stored.text(1).contains("I will run a command.") && stored.text(1).ends_with("All done."),
            "{}",
            stored.text(1)
        );
        let stream = check_replay(t, &operator, &session, &stored).await?;
        assert_eq!(stream.of_type("data-user-prompt")[0]["data"]["text"], PROMPT);
        let url = replay::url(&operator, &session, "stream");
        let token = replay::reader_token(t).await?;
        for major in aisdk::MAJORS {
            let messages = aisdk::messages(major, &url, &token).await?;
            let text = json!(messages).to_string();
            assert!(text.contains("hello-from-tool") && text.contains("All done."), "AI SDK {major}: {text}");
        }
        Result::Ok(())
    })
    .await;
}
