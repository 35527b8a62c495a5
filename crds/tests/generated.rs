//! The committed CustomResourceDefinition is the one that the types make, and of a size that every way of applying it can bear.

use std::path::Path;

/// Client-side apply keeps the object in an annotation, which ends at 256 KiB; this leaves room.
const MAX_BYTES: usize = 150 * 1000;

/// The file itself, and the chart's copy of it: a chart can only read what lies in it.
const FILES: [&str; 2] = [
    "crds/agentsession.dev_agentsessions.yaml",
    "manifests/chart/agentsession/files/agentsession.dev_agentsessions.yaml",
];

#[test]
fn the_committed_files_are_the_generated_one() {
    let generated = agentsession_crds::custom_resource_definition_yaml().unwrap();
    for file in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == generated, "{file} is not what the types make: run `make crds` and commit what changed");
    }
}

#[test]
fn the_file_stays_under_its_bound() {
    let json = serde_json::to_string(&agentsession_crds::custom_resource_definition()).unwrap();
    let yaml = agentsession_crds::custom_resource_definition_yaml().unwrap();
    assert!(json.len() < MAX_BYTES, "{} bytes of JSON", json.len());
    assert!(yaml.len() < MAX_BYTES, "{} bytes of YAML", yaml.len());
}

#[test]
fn the_first_line_says_that_it_is_generated() {
    let yaml = agentsession_crds::custom_resource_definition_yaml().unwrap();
    assert!(yaml.lines().next().unwrap().starts_with("# Generated from"), "{:.80}", yaml);
    let parsed: serde_json::Value = serde_yaml::from_str(&yaml).unwrap();
    assert_eq!(parsed, serde_json::to_value(agentsession_crds::custom_resource_definition()).unwrap());
}
