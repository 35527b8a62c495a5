//! Objects for tests: a small one, and patches over it as they would stand in YAML.

use crds::AgentSession;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// UID of [`session`].
pub(crate) const UID: &str = "7f3c9a52-0d1e-4b6f-9c2a-1f2e3d4c5b6a";

/// The least session that validation lets in, with a patch merged over it: objects by key, everything else replaced.
pub(crate) fn session(patch: Value) -> AgentSession {
    let mut base = json!({
        "apiVersion": "agentsession.dev/v1alpha1",
        "kind": "AgentSession",
        "metadata": {"name": "fix-login", "namespace": "team-a", "uid": UID, "generation": 1},
        "spec": {
            "agent": {"image": "ghcr.io/acme/agent:1", "command": ["agent", "--acp"]},
            "turns": [{"prompt": "Fix the login bug"}],
        },
    });
    merge(&mut base, patch);
    serde_json::from_value(base).unwrap()
}

/// The Pod of attempt 1 of [`session`], just scheduled, with a patch merged over it.
pub(crate) fn pod(patch: Value) -> Pod {
    let mut base = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "agentsession-fix-login-7f3c9a52-1",
            "namespace": "team-a",
            "uid": "5d0b7f0e-53f5-4f0d-8f7c-6a3f7c1f9a01",
            "labels": {"agentsession.dev/session-uid": UID, "agentsession.dev/attempt": "1"},
            "annotations": {"agentsession.dev/nonce": "0123456789abcdef0123456789abcdef", "agentsession.dev/template": "t1"},
            "finalizers": ["agentsession.dev/transcript"],
            "ownerReferences": [{
                "apiVersion": "agentsession.dev/v1alpha1", "kind": "AgentSession", "name": "fix-login", "uid": UID,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "status": {"phase": "Pending"},
    });
    merge(&mut base, patch);
    serde_json::from_value(base).unwrap()
}

fn merge(base: &mut Value, patch: Value) {
    match (base, patch) {
        (Value::Object(base), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, patch) => *base = patch,
    }
}
