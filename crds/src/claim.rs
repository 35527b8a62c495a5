//! Templates of PersistentVolumeClaims: the part that a session may set.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    env::{Quantity, quantities},
    rules,
};

/// A claim to be made.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimTemplate {
    /// Labels and annotations of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// What is claimed. It counts when the claim is made; a claim that is there already stays as it is.
    pub spec: ClaimSpec,
}

/// Labels and annotations.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
}

/// Spec of a claim.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[x_kube(validation = rules::claim_has_storage())]
#[serde(rename_all = "camelCase")]
pub struct ClaimSpec {
    /// Default ReadWriteOnce.
    #[serde(default = "default_access_modes")]
    #[schemars(length(max = 4))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = rules::access_modes())]
    pub access_modes: Vec<AccessMode>,
    /// How much; requests.storage is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ClaimResources>,
    /// Unset: the cluster's default class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// A snapshot or claim to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_source: Option<DataSource>,
}

fn default_access_modes() -> Vec<AccessMode> {
    vec![AccessMode::ReadWriteOnce]
}

impl Default for ClaimSpec {
    fn default() -> Self {
        Self { access_modes: default_access_modes(), resources: None, storage_class_name: None, data_source: None }
    }
}

/// How a claim may be mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AccessMode {
    /// By the Pods of one node.
    #[default]
    ReadWriteOnce,
    /// By one Pod.
    ReadWriteOncePod,
    /// By Pods of many nodes.
    ReadWriteMany,
    /// By Pods of many nodes, to read.
    ReadOnlyMany,
}

impl AccessMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::ReadWriteOnce => "ReadWriteOnce",
            Self::ReadWriteOncePod => "ReadWriteOncePod",
            Self::ReadWriteMany => "ReadWriteMany",
            Self::ReadOnlyMany => "ReadOnlyMany",
        }
    }
}

/// Size of a claim.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimResources {
    /// requests.storage is needed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 4))]
    pub requests: BTreeMap<String, Quantity>,
    /// What the claim may grow to, where the storage supports it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 4))]
    pub limits: BTreeMap<String, Quantity>,
}

/// What a claim starts from.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DataSource {
    /// snapshot.storage.k8s.io for a VolumeSnapshot; unset for a PersistentVolumeClaim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_group: Option<String>,
    /// VolumeSnapshot or PersistentVolumeClaim.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name, in the session's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl From<&ClaimSpec> for core::PersistentVolumeClaimSpec {
    fn from(spec: &ClaimSpec) -> Self {
        Self {
            access_modes: Some(spec.access_modes.iter().map(|mode| mode.as_str().to_owned()).collect()),
            resources: spec.resources.as_ref().map(|resources| core::VolumeResourceRequirements {
                requests: quantities(&resources.requests),
                limits: quantities(&resources.limits),
            }),
            storage_class_name: spec.storage_class_name.clone(),
            data_source: spec.data_source.as_ref().map(|source| core::TypedLocalObjectReference {
                api_group: source.api_group.clone(),
                kind: source.kind.clone(),
                name: source.name.clone(),
            }),
            ..Self::default()
        }
    }
}

impl From<&TemplateMetadata> for ObjectMeta {
    fn from(metadata: &TemplateMetadata) -> Self {
        Self {
            labels: Some(metadata.labels.clone()),
            annotations: Some(metadata.annotations.clone()),
            ..Self::default()
        }
    }
}

impl From<&ClaimTemplate> for core::PersistentVolumeClaimTemplate {
    fn from(template: &ClaimTemplate) -> Self {
        Self { metadata: template.metadata.as_ref().map(Into::into), spec: (&template.spec).into() }
    }
}
