//! The table of accepted and refused objects (`e2e/cases/validation.yaml`, run against a real API server by the end-to-end tests) and the rules of
//! the schema know each other: no rule without a case, no case for a sentence that no rule says.

#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure is the test's")]

use std::path::Path;

use serde_json::Value;

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/cases/validation.yaml");
    let table: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    ["create", "update"].iter().flat_map(|list| table[list].as_array().unwrap().clone()).collect()
}

/// Fragments that our own sentences are expected to have.
fn fragments(case: &Value) -> Vec<&str> {
    if case["by"] != "rule" {
        return Vec::new();
    }
    case["says"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .filter(|says| !says.starts_with("spec."))
        .collect()
}

/// Every message of every rule in a schema.
fn messages(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::Array(rules)) = map.get("x-kubernetes-validations") {
                found.extend(rules.iter().map(|rule| rule["message"].as_str().unwrap().to_owned()));
            }
            map.values().for_each(|value| messages(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| messages(value, found)),
        _ => {}
    }
}

fn all_messages() -> Vec<String> {
    let mut found = Vec::new();
    messages(&serde_json::to_value(agentsession_crds::custom_resource_definition()).unwrap(), &mut found);
    found.sort();
    found.dedup();
    found
}

#[test]
fn every_rule_has_a_case_that_it_refuses() {
    let cases = cases();
    for message in all_messages() {
        assert!(
            cases.iter().any(|case| fragments(case).iter().any(|fragment| message.contains(fragment))),
            "no case in e2e/cases/validation.yaml is refused with: {message}"
        );
    }
}

#[test]
fn every_expected_sentence_is_said_by_a_rule() {
    let messages = all_messages();
    for case in cases() {
        for fragment in fragments(&case) {
            assert!(
                messages.iter().any(|message| message.contains(fragment)),
                "{}: no rule says {fragment:?}",
                case["case"]
            );
        }
    }
}

#[test]
fn every_case_has_a_name_of_its_own_and_says_by_whom_it_is_refused() {
    let mut names: Vec<_> = cases().iter().map(|case| case["case"].as_str().unwrap().to_owned()).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "a name stands twice");
    for case in cases() {
        let refused = case.get("says").is_some();
        assert_eq!(refused, matches!(case["by"].as_str(), Some("rule" | "server")), "{}", case["case"]);
        assert!(!refused || !case["says"].as_array().unwrap().is_empty(), "{}", case["case"]);
    }
}

#[test]
fn sentences_are_of_one_line_and_say_something() {
    for message in all_messages() {
        assert!(!message.contains('\n') && message.len() > 30 && message.len() < 300, "{message}");
        assert!(!message.ends_with('.'), "{message}");
    }
}
