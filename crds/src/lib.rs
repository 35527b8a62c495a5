//! API types of agentsession.dev: the AgentSession resource, its rules, its conditions and reasons.
//!
//! Everybody reads these; only the controller writes `status`, only users and the gateway write `spec`. The schema is made from the types, and
//! the committed `agentsession.dev_agentsessions.yaml` from the schema.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub mod claim;
pub mod duration;
pub mod env;
pub mod names;
pub mod pod;
pub mod resolve;
mod rules;
pub mod spec;
pub mod status;
pub mod volume;
pub mod yaml;

pub use claim::{AccessMode, ClaimResources, ClaimSpec, ClaimTemplate, DataSource, TemplateMetadata};
pub use duration::{HumanDuration, InvalidDuration};
pub use env::{EnvSource, EnvVar, FieldSelector, KeySelector, Quantity, Resources};
pub use pod::{LocalObjectReference, PodTemplate, TaintEffect, Toleration, TolerationOperator, VolumeMount};
pub use resolve::InvalidField;
pub use spec::{
    AgentSession, AgentSessionSpec, AgentSpec, Capture, DesiredState, Mode, Protocol, ReclaimPolicy, Setup,
    TranscriptSpec, TurnSpec, Word, Workspace,
};
pub use status::{AgentSessionStatus, Phase, STATUS_TURNS, TranscriptStatus, TurnStatus, UsageStatus};
pub use transcript::Reason;
pub use volume::{PullPolicy, Volume};

/// First line of the generated file.
const GENERATED: &str = "# Generated from the types in crds/src by `make crds`. Do not edit.\n";

/// The CustomResourceDefinition of AgentSession.
#[must_use]
pub fn custom_resource_definition() -> CustomResourceDefinition {
    AgentSession::crd()
}

/// The same as a file for kubectl; its first line says that it is generated.
///
/// # Errors
/// [`yaml::Error`], which would be a mistake in the types.
pub fn custom_resource_definition_yaml() -> Result<String, yaml::Error> {
    Ok(format!("{GENERATED}{}", yaml::to_string(&custom_resource_definition())?))
}
