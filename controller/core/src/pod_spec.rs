//! What the cluster is asked for: the agent Pod of an attempt, the workspace claim, the NetworkPolicy.
//!
//! Builders for effects, all pure: the same session, plan and settings make the same object. A Pod is made so that nothing in a session can
//! weaken it: security fields come from here alone, and what a session adds is filtered here once more although validation refused the same
//! things at the door.
//!
//! ```text
//! init install ── copies our program ──► bin (rw, then ro everywhere)
//! init setup   ── the user's, if any ──► work, home
//! agent        ── drive -- <command> ──► log rw · inbox ro · work, home
//! recorder     ── record ─────────────► log ro · inbox rw · :8787
//! ```

mod claim;
mod containers;
mod digest;
mod metadata;
mod network;
mod security;
mod volumes;

use std::collections::BTreeMap;

use crds::{AgentSession, PullPolicy, names};
use k8s_openapi::{
    api::core::v1::{LocalObjectReference, Pod, PodSpec, ResourceRequirements, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};
use transcript::Attempt;

pub use claim::workspace_claim;
pub use containers::{ENV_ATTEMPT, ENV_TOKEN_SHA256};
pub use digest::template_digest;
pub use metadata::owner_reference;
pub use network::{Egress, NetworkSettings, network_policy};

/// Grace of an agent Pod, in seconds: the window in which a Pod that somebody else deletes can still be read.
pub const GRACE_SECONDS: i64 = 60;
/// uid, gid and fsGroup of all containers unless the platform gives them out itself.
pub const RUN_AS_USER: i64 = 1000;

/// What one attempt adds to its session.
#[derive(Clone, Debug)]
pub struct PodPlan {
    /// The attempt.
    pub attempt: Attempt,
    /// The nonce that the store holds already.
    pub nonce: String,
    /// Lower-case hex SHA-256 of the token that the recorder's port asks for; `None` leaves the port closed to everybody.
    pub recorder_token_sha256: Option<String>,
}

/// What the installation decides for every agent Pod.
#[derive(Clone, Debug)]
pub struct PodSettings {
    /// Image of `agentsession-sandbox`; its entrypoint is the program.
    pub sandbox_image: String,
    /// When that image is pulled.
    pub sandbox_pull_policy: PullPolicy,
    /// Secret with the credentials of its registry; it must be in each namespace with sessions.
    pub sandbox_pull_secret: Option<String>,
    /// uid, gid and fsGroup; `None` where the platform gives them out (OpenShift).
    pub run_as_user: Option<i64>,
    /// Of `recorder` and `install`. No CPU limit by default: 100m would double the time of every read.
    pub sandbox_resources: ResourceRequirements,
    /// Requests of `agent` and `setup` for what the session neither requests nor limits.
    pub agent_requests: BTreeMap<String, Quantity>,
}

impl PodSettings {
    /// The defaults with this sandbox image.
    #[must_use]
    pub fn new(sandbox_image: impl Into<String>) -> Self {
        let quantities = |pairs: [(&str, &str); 2]| {
            pairs.into_iter().map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).collect()
        };
        Self {
            sandbox_image: sandbox_image.into(),
            sandbox_pull_policy: PullPolicy::IfNotPresent,
            sandbox_pull_secret: None,
            run_as_user: Some(RUN_AS_USER),
            sandbox_resources: ResourceRequirements {
                requests: Some(quantities([("cpu", "50m"), ("memory", "64Mi")])),
                limits: Some([("memory".to_owned(), Quantity("128Mi".to_owned()))].into()),
                ..ResourceRequirements::default()
            },
            agent_requests: quantities([("cpu", "100m"), ("memory", "256Mi")]),
        }
    }
}

/// The Pod of an attempt.
#[must_use]
pub fn agent_pod(session: &AgentSession, plan: &PodPlan, settings: &PodSettings) -> Pod {
    let template = session.spec.pod_template.clone().unwrap_or_default();
    let mut init_containers = vec![containers::install(settings)];
    init_containers.extend(containers::setup(session, settings));
    let pull_secrets: Vec<LocalObjectReference> = template
        .image_pull_secrets
        .iter()
        .map(LocalObjectReference::from)
        .chain(settings.sandbox_pull_secret.iter().map(|name| LocalObjectReference { name: name.clone() }))
        .collect();
    let tolerations: Vec<Toleration> = template.tolerations.iter().map(Toleration::from).collect();
    Pod {
        metadata: metadata::pod(session, plan),
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            containers: vec![containers::agent(session, plan, settings), containers::recorder(plan, settings)],
            enable_service_links: Some(false),
            image_pull_secrets: some(pull_secrets),
            init_containers: Some(init_containers),
            node_selector: (!template.node_selector.is_empty()).then_some(template.node_selector),
            restart_policy: Some("Never".to_owned()),
            runtime_class_name: template.runtime_class_name,
            security_context: Some(security::pod(settings.run_as_user)),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            tolerations: some(tolerations),
            volumes: Some(volumes::all(session)),
            ..PodSpec::default()
        }),
        status: None,
    }
}

/// `None` for an empty list, as the API server writes it.
fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Whether a label or annotation is ours to set.
fn is_ours(key: &str) -> bool {
    key.starts_with(names::KEY_PREFIX)
}

#[cfg(test)]
mod tests;
