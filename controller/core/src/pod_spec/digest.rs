//! A digest of what a Pod is made from, to tell an outdated Pod.

use crds::AgentSessionSpec;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Lower-case hex SHA-256 over `agent`, `podTemplate` and `workspace` as JSON with sorted keys. An absent template is the same as an empty one.
#[must_use]
pub fn template_digest(spec: &AgentSessionSpec) -> String {
    let value = json!({
        "agent": spec.agent,
        "podTemplate": spec.pod_template.clone().unwrap_or_default(),
        "workspace": spec.workspace.clone().unwrap_or_default(),
    });
    let mut text = String::new();
    canonical(&value, &mut text);
    hex::encode(Sha256::digest(text))
}

/// Sorts keys itself: whether a map of serde_json does is decided by the features of whatever else is linked.
fn canonical(value: &Value, into: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            into.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    into.push(',');
                }
                into.push_str(&Value::from(key.as_str()).to_string());
                into.push(':');
                canonical(value, into);
            }
            into.push('}');
        }
        Value::Array(list) => {
            into.push('[');
            for (i, value) in list.iter().enumerate() {
                if i > 0 {
                    into.push(',');
                }
                canonical(value, into);
            }
            into.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => into.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth_and_lists_are_not() {
        let mut text = String::new();
        canonical(&json!({"b": [{"z": 1, "a": "\"\u{1}"}, null], "a": {}, "B": [2, 1]}), &mut text);
        assert_eq!(text, r#"{"B":[2,1],"a":{},"b":[{"a":"\"\u0001","z":1},null]}"#);
    }
}
