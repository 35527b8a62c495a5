//! `spec.podTemplate`: what a session may add to its agent Pod.
//!
//! Our own types instead of the core ones: a closed list is what keeps the Pod within Pod Security "restricted", and the core schema of
//! volumes alone is larger than the whole of this resource may be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{rules, volume::Volume};

/// What the agent Pod has beside our containers.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = rules::mounts_have_volumes())]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// RuntimeClass of the Pod, such as gvisor or kata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub runtime_class_name: Option<String>,

    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that the Pod tolerates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,

    /// Secrets with credentials for the registries of the agent's and the setup's image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Labels of the Pod. Ours win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the Pod. Ours win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,

    /// Further volumes, of a closed list of kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub volumes: Vec<Volume>,

    /// Where those volumes are mounted in the agent container and the setup container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["mountPath".into()]))]
    pub volume_mounts: Vec<VolumeMount>,
}

/// A taint that the Pod tolerates.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(validation = rules::toleration())]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint; unset with operator Exists: every taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub key: Option<String>,
    /// Default Equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Unset: every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// With effect NoExecute: how long the Pod stays; unset: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How a toleration compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    /// The taint is there.
    Exists,
    /// The taint has this value.
    Equal,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// New Pods are not scheduled there.
    NoSchedule,
    /// New Pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Pods are evicted from there.
    NoExecute,
}

/// A name in the session's namespace.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectReference {
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Where a volume is mounted.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount {
    /// Name of a volume in podTemplate.volumes.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Absolute path in the container, not over the Pod's own.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::mount_path_shape(), validation = rules::mount_path_not_ours())]
    pub mount_path: String,
    /// Whether it is mounted read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Path in the volume to mount instead of its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = rules::sub_path("subPath"))]
    pub sub_path: Option<String>,
}

impl From<&Toleration> for core::Toleration {
    fn from(toleration: &Toleration) -> Self {
        Self {
            key: toleration.key.clone(),
            operator: toleration.operator.map(|operator| {
                match operator {
                    TolerationOperator::Exists => "Exists",
                    TolerationOperator::Equal => "Equal",
                }
                .to_owned()
            }),
            value: toleration.value.clone(),
            effect: toleration.effect.map(|effect| {
                match effect {
                    TaintEffect::NoSchedule => "NoSchedule",
                    TaintEffect::PreferNoSchedule => "PreferNoSchedule",
                    TaintEffect::NoExecute => "NoExecute",
                }
                .to_owned()
            }),
            toleration_seconds: toleration.toleration_seconds,
        }
    }
}

impl From<&LocalObjectReference> for core::LocalObjectReference {
    fn from(reference: &LocalObjectReference) -> Self {
        Self { name: reference.name.clone() }
    }
}

impl From<&VolumeMount> for core::VolumeMount {
    fn from(mount: &VolumeMount) -> Self {
        Self {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            sub_path: mount.sub_path.clone(),
            ..Self::default()
        }
    }
}
