//! Environment variables and resources of a container: the part of the core types that a session may set, with a schema of a tenth of
//! the size.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::api::resource as k8s};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::rules;

/// One variable.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Default, PartialEq, Eq)]
#[x_kube(validation = rules::env_one_source())]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name.
    #[schemars(length(max = 256))]
    #[x_kube(validation = rules::env_name())]
    pub name: String,

    /// The value itself; readable by everyone who may get this object, so not for secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32768))]
    #[x_kube(validation = rules::no_nul("value"))]
    pub value: Option<String>,

    /// Where the value comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// Without the value: people put secrets there all the same.
impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvVar")
            .field("name", &self.name)
            .field("value", &self.value.as_ref().map(|_| format_args!("<redacted>")))
            .field("value_from", &self.value_from)
            .finish()
    }
}

/// Source of a variable: exactly one.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(validation = rules::env_value_from())]
#[serde(rename_all = "camelCase")]
pub struct EnvSource {
    /// A key of a Secret in the session's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeySelector>,

    /// A key of a ConfigMap in the session's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeySelector>,

    /// A field of the agent Pod, such as metadata.name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldSelector>,
}

/// A key of a Secret or ConfigMap.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct KeySelector {
    /// Name of the Secret or ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// Whether the agent may start without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the agent Pod.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Path of the field, such as metadata.name.
    #[schemars(length(min = 1, max = 253))]
    pub field_path: String,
}

impl From<&EnvVar> for core::EnvVar {
    fn from(var: &EnvVar) -> Self {
        Self { name: var.name.clone(), value: var.value.clone(), value_from: var.value_from.as_ref().map(Into::into) }
    }
}

impl From<&EnvSource> for core::EnvVarSource {
    fn from(source: &EnvSource) -> Self {
        Self {
            secret_key_ref: source.secret_key_ref.as_ref().map(|key| core::SecretKeySelector {
                name: key.name.clone(),
                key: key.key.clone(),
                optional: key.optional,
            }),
            config_map_key_ref: source.config_map_key_ref.as_ref().map(|key| core::ConfigMapKeySelector {
                name: key.name.clone(),
                key: key.key.clone(),
                optional: key.optional,
            }),
            field_ref: source
                .field_ref
                .as_ref()
                .map(|field| core::ObjectFieldSelector { api_version: None, field_path: field.field_path.clone() }),
            ..Self::default()
        }
    }
}

/// Requests and limits.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the container may use at most.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub limits: BTreeMap<String, Quantity>,
    /// What the scheduler sets aside for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub requests: BTreeMap<String, Quantity>,
}

impl From<&Resources> for core::ResourceRequirements {
    fn from(resources: &Resources) -> Self {
        Self { limits: quantities(&resources.limits), requests: quantities(&resources.requests), claims: None }
    }
}

/// `None` for an empty map, as the API server writes it.
pub(crate) fn quantities(map: &BTreeMap<String, Quantity>) -> Option<BTreeMap<String, k8s::Quantity>> {
    (!map.is_empty()).then(|| map.iter().map(|(name, quantity)| (name.clone(), quantity.0.clone())).collect())
}

/// A Kubernetes quantity, such as 500m, 2 or 4Gi.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(pub k8s::Quantity);

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self(k8s::Quantity(text.to_owned()))
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 64,
            "x-kubernetes-validations": [rules::quantity()],
        })
    }
}
