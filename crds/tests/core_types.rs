//! Our slim types say the same as the core types that they become: the same JSON, field by field.

#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure is the test's")]

use agentsession_crds::{AgentSessionSpec, EnvVar, Resources, Toleration, Volume, VolumeMount};
use k8s_openapi::api::core::v1 as core;
use serde::Serialize;
use serde_json::{Value, json};

fn same<Ours: Serialize, Core: Serialize + for<'a> From<&'a Ours>>(ours: &Ours) {
    let core = Core::from(ours);
    assert_eq!(serde_json::to_value(ours).unwrap(), serde_json::to_value(core).unwrap());
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn volumes_of_every_kind() {
    let claim = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}, "spec": {
        "accessModes": ["ReadWriteOncePod"], "storageClassName": "fast",
        "resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "2Gi"}},
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}}});
    let items = json!([{"key": "k", "path": "p", "mode": 256}]);
    for volume in [
        json!({"name": "v", "configMap": {"name": "c", "items": items, "defaultMode": 420, "optional": true}}),
        json!({"name": "v", "secret": {"secretName": "s", "items": items, "defaultMode": 420, "optional": true}}),
        json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}),
        json!({"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": true}}),
        json!({"name": "v", "ephemeral": {"volumeClaimTemplate": claim}}),
        json!({"name": "v", "csi": {"driver": "d", "fsType": "ext4", "readOnly": true, "volumeAttributes": {"a": "b"},
            "nodePublishSecretRef": {"name": "s"}}}),
        json!({"name": "v", "image": {"reference": "r", "pullPolicy": "Always"}}),
    ] {
        let ours: Volume = read(volume.clone());
        same::<_, core::Volume>(&ours);
        assert_eq!(serde_json::to_value(&ours).unwrap(), volume, "nothing is lost on reading");
    }
}

#[test]
fn variables_of_every_source() {
    for variable in [
        json!({"name": "A", "value": ""}),
        json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}}),
        json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "k", "optional": false}}}),
        json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
    ] {
        let ours: EnvVar = read(variable.clone());
        same::<_, core::EnvVar>(&ours);
        assert_eq!(serde_json::to_value(&ours).unwrap(), variable);
    }
}

#[test]
fn mounts_tolerations_and_resources() {
    same::<_, core::VolumeMount>(&read::<VolumeMount>(
        json!({"name": "v", "mountPath": "/a", "readOnly": true, "subPath": "b"}),
    ));
    for (operator, effect) in [("Exists", "NoSchedule"), ("Equal", "PreferNoSchedule"), ("Equal", "NoExecute")] {
        same::<_, core::Toleration>(&read::<Toleration>(
            json!({"key": "k", "operator": operator, "value": "v", "effect": effect, "tolerationSeconds": 5}),
        ));
    }
    let resources: Resources = read(json!({"limits": {"cpu": 2, "memory": "4Gi"}, "requests": {"cpu": "500m"}}));
    same::<_, core::ResourceRequirements>(&resources);
}

#[test]
fn a_number_is_a_quantity_too() {
    let resources: Resources = read(json!({"limits": {"cpu": 2}}));
    assert_eq!(resources.limits["cpu"].0.0, "2");
}

#[test]
fn neither_prompts_nor_values_are_in_the_debug_text() {
    let spec: AgentSessionSpec = read(json!({
        "agent": {"image": "i", "command": ["c"], "env": [{"name": "TOKEN", "value": "hunter2"}]},
        "turns": [{"prompt": "my secret plan", "id": "one"}],
    }));
    let debug = format!("{spec:?}");
    assert!(!debug.contains("hunter2") && !debug.contains("secret plan"), "{debug}");
    assert!(debug.contains("TOKEN") && debug.contains("<14 bytes>") && debug.contains("one"), "{debug}");
}
