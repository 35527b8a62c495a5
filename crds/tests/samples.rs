//! The samples are AgentSessions of this version, down to the last field.

#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure is the test's")]

use std::path::Path;

use agentsession_crds::AgentSession;
use serde::Deserialize;
use serde_json::Value;

/// Every AgentSession of every file, with the name of the file.
fn samples() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/samples");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let object = Value::deserialize(document).unwrap();
            if object["kind"] == "AgentSession" {
                found.push((path.file_name().unwrap().to_string_lossy().into_owned(), object));
            }
        }
    }
    found
}

/// The path of something that `whole` has and `part` has not, or has otherwise.
fn lost(whole: &Value, part: &Value, path: &str) -> Option<String> {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => whole
            .iter()
            .find_map(|(key, value)| lost(value, part.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"))),
        (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => whole
            .iter()
            .zip(part)
            .enumerate()
            .find_map(|(at, (whole, part))| lost(whole, part, &format!("{path}[{at}]"))),
        (whole, part) => (whole != part).then(|| path.to_owned()),
    }
}

#[test]
fn nothing_of_a_sample_is_unknown() {
    let samples = samples();
    assert!(samples.len() >= 3, "{} samples", samples.len());
    for (file, object) in samples {
        let session: AgentSession = serde_json::from_value(object.clone()).unwrap();
        let read = serde_json::to_value(&session).unwrap();
        assert_eq!(lost(&object, &read, ""), None, "{file}");
        assert!(session.spec.invalid_fields().is_empty(), "{file}");
    }
}
