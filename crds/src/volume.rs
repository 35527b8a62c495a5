//! Volumes of a podTemplate: a closed list of kinds, convertible to the core type.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{claim::ClaimTemplate, env::Quantity, pod::LocalObjectReference, rules};

/// One volume: a name and exactly one kind. No hostPath, and no projected token: the agent must not reach the node or the API server.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(validation = rules::volume_one_kind())]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name, for volumeMounts.
    #[schemars(length(max = 63))]
    #[x_kube(validation = rules::volume_name())]
    pub name: String,
    /// Files from a ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapVolume>,
    /// Files from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretVolume>,
    /// An empty directory that goes with the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDirVolume>,
    /// A claim that is there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// A claim that is made with the Pod and goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<EphemeralVolume>,
    /// A volume of a CSI driver, made with the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csi: Option<CsiVolume>,
    /// The files of an image, read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageVolume>,
}

/// Files from a ConfigMap.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapVolume {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Unset: every key is a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub items: Vec<KeyToPath>,
    /// Mode of the files; default 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 511))]
    pub default_mode: Option<i32>,
    /// Whether the Pod may start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Files from a Secret.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolume {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// Unset: every key is a file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub items: Vec<KeyToPath>,
    /// Mode of the files; default 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 511))]
    pub default_mode: Option<i32>,
    /// Whether the Pod may start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A key as a file.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KeyToPath {
    /// The key.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Relative path of the file.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::sub_path("path"))]
    pub path: String,
    /// Mode of this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 511))]
    pub mode: Option<i32>,
}

/// An empty directory.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EmptyDirVolume {
    /// Memory: a tmpfs. Unset: the node's disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<Medium>,
    /// Over this size the Pod is evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,
}

/// Where an empty directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Medium {
    /// In memory, counted against the container.
    Memory,
}

/// A claim that is there already.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
    /// Whether the volume is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// A claim that goes with the Pod.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralVolume {
    /// The claim.
    pub volume_claim_template: ClaimTemplate,
}

/// A volume of a CSI driver.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CsiVolume {
    /// Name of the driver.
    #[schemars(length(min = 1, max = 63))]
    pub driver: String,
    /// File system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub fs_type: Option<String>,
    /// Whether the volume is read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// What the driver asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub volume_attributes: BTreeMap<String, String>,
    /// Secret that is handed to the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_publish_secret_ref: Option<LocalObjectReference>,
}

/// The files of an image.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ImageVolume {
    /// The image.
    #[schemars(length(max = 512))]
    #[x_kube(validation = rules::image("reference"))]
    pub reference: String,
    /// Default: Always for the tag latest, otherwise IfNotPresent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<PullPolicy>,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Each time.
    Always,
    /// Unless the node has it.
    IfNotPresent,
    /// Not at all.
    Never,
}

impl PullPolicy {
    /// The word of Kubernetes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

fn items(items: &[KeyToPath]) -> Option<Vec<core::KeyToPath>> {
    (!items.is_empty()).then(|| {
        items
            .iter()
            .map(|item| core::KeyToPath {
                key: item.key.clone(),
                path: item.path.clone(),
                mode: item.mode,
                ..core::KeyToPath::default()
            })
            .collect()
    })
}

impl From<&Volume> for core::Volume {
    fn from(volume: &Volume) -> Self {
        Self {
            name: volume.name.clone(),
            config_map: volume.config_map.as_ref().map(Into::into),
            secret: volume.secret.as_ref().map(Into::into),
            empty_dir: volume.empty_dir.as_ref().map(Into::into),
            persistent_volume_claim: volume.persistent_volume_claim.as_ref().map(Into::into),
            ephemeral: volume.ephemeral.as_ref().map(|ephemeral| core::EphemeralVolumeSource {
                volume_claim_template: Some((&ephemeral.volume_claim_template).into()),
            }),
            csi: volume.csi.as_ref().map(Into::into),
            image: volume.image.as_ref().map(|image| core::ImageVolumeSource {
                reference: Some(image.reference.clone()),
                pull_policy: image.pull_policy.map(|policy| policy.as_str().to_owned()),
            }),
            ..Self::default()
        }
    }
}

impl From<&ConfigMapVolume> for core::ConfigMapVolumeSource {
    fn from(volume: &ConfigMapVolume) -> Self {
        Self {
            name: volume.name.clone(),
            items: items(&volume.items),
            default_mode: volume.default_mode,
            optional: volume.optional,
            ..Self::default()
        }
    }
}

impl From<&SecretVolume> for core::SecretVolumeSource {
    fn from(volume: &SecretVolume) -> Self {
        Self {
            secret_name: Some(volume.secret_name.clone()),
            items: items(&volume.items),
            default_mode: volume.default_mode,
            optional: volume.optional,
            ..Self::default()
        }
    }
}

impl From<&EmptyDirVolume> for core::EmptyDirVolumeSource {
    fn from(volume: &EmptyDirVolume) -> Self {
        Self {
            medium: volume.medium.map(|Medium::Memory| "Memory".to_owned()),
            size_limit: volume.size_limit.as_ref().map(|limit| limit.0.clone()),
            ..Self::default()
        }
    }
}

impl From<&ClaimVolume> for core::PersistentVolumeClaimVolumeSource {
    fn from(volume: &ClaimVolume) -> Self {
        Self { claim_name: volume.claim_name.clone(), read_only: volume.read_only }
    }
}

impl From<&CsiVolume> for core::CSIVolumeSource {
    fn from(volume: &CsiVolume) -> Self {
        Self {
            driver: volume.driver.clone(),
            fs_type: volume.fs_type.clone(),
            read_only: volume.read_only,
            volume_attributes: (!volume.volume_attributes.is_empty()).then(|| volume.volume_attributes.clone()),
            node_publish_secret_ref: volume.node_publish_secret_ref.as_ref().map(Into::into),
        }
    }
}
