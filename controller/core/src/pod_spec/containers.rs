//! The four containers.

use std::collections::BTreeMap;

use crds::{AgentSession, EnvVar as SessionVar, names};
use k8s_openapi::{
    api::core::v1::{Container, ContainerPort, EnvVar, ResourceRequirements, VolumeMount},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{PodPlan, PodSettings, security, volumes};

/// Environment variable of the driver: the attempt that it writes into its status.
pub const ENV_ATTEMPT: &str = "AGENTSESSION_ATTEMPT";
/// Environment variable of the recorder: lower-case hex SHA-256 of the token that its port asks for.
pub const ENV_TOKEN_SHA256: &str = "AGENTSESSION_TOKEN_SHA256";

/// Agents read `HOME`; images often have none that this user may write to.
const ENV_HOME: &str = "HOME";
const IF_NOT_PRESENT: &str = "IfNotPresent";
/// A container that fails takes its log with it when the Pod goes; this keeps the end of it in the status, in the kubelet's own bounds.
const KEEP_LAST_WORDS: &str = "FallbackToLogsOnError";

/// Copies our program to where the other containers find it.
pub(super) fn install(settings: &PodSettings) -> Container {
    Container {
        args: Some(vec!["install".to_owned()]),
        image: Some(settings.sandbox_image.clone()),
        image_pull_policy: Some(settings.sandbox_pull_policy.as_str().to_owned()),
        name: names::CONTAINER_INSTALL.to_owned(),
        resources: Some(settings.sandbox_resources.clone()),
        security_context: Some(security::container(false)),
        termination_message_policy: Some(KEEP_LAST_WORDS.to_owned()),
        volume_mounts: Some(vec![mount(names::VOLUME_BIN, names::PATH_BIN, false)]),
        ..Container::default()
    }
}

/// Fills the workspace. Its root is as writable as the agent's, whose image it is by default.
pub(super) fn setup(session: &AgentSession, settings: &PodSettings) -> Option<Container> {
    let setup = session.spec.workspace.as_ref()?.setup.as_ref()?;
    let mut mounts = workspace_mounts().to_vec();
    mounts.extend(volumes::user_mounts(session));
    Some(Container {
        command: Some(setup.argv()),
        env: Some(environment(&[], &setup.env)),
        image: Some(setup.image.clone().unwrap_or_else(|| session.spec.agent.image.clone())),
        image_pull_policy: Some(IF_NOT_PRESENT.to_owned()),
        name: names::CONTAINER_SETUP.to_owned(),
        resources: Some(agent_resources(session, settings)),
        security_context: Some(security::container(true)),
        termination_message_policy: Some(KEEP_LAST_WORDS.to_owned()),
        volume_mounts: Some(mounts),
        working_dir: Some(names::PATH_WORK.to_owned()),
        ..Container::default()
    })
}

/// The user's image with the driver as its pid 1. It may write the log and nothing else of ours.
pub(super) fn agent(session: &AgentSession, plan: &PodPlan, settings: &PodSettings) -> Container {
    let agent = &session.spec.agent;
    let mut command = vec![names::PATH_SANDBOX.to_owned(), "drive".to_owned(), "--".to_owned()];
    command.extend(agent.argv());
    let mut mounts = vec![
        mount(names::VOLUME_BIN, names::PATH_BIN, true),
        mount(names::VOLUME_LOG, names::PATH_LOG, false),
        mount(names::VOLUME_INBOX, names::PATH_INBOX, true),
    ];
    mounts.extend(workspace_mounts());
    mounts.extend(volumes::user_mounts(session));
    Container {
        command: Some(command),
        env: Some(environment(&[var(ENV_ATTEMPT, &plan.attempt.to_string())], &agent.env)),
        image: Some(agent.image.clone()),
        image_pull_policy: Some(IF_NOT_PRESENT.to_owned()),
        name: names::CONTAINER_AGENT.to_owned(),
        resources: Some(agent_resources(session, settings)),
        security_context: Some(security::container(true)),
        volume_mounts: Some(mounts),
        working_dir: Some(names::PATH_WORK.to_owned()),
        ..Container::default()
    }
}

/// Outlives the agent, so that the log of a crash can be read. It reads the log and writes the inbox.
pub(super) fn recorder(plan: &PodPlan, settings: &PodSettings) -> Container {
    let token = plan.recorder_token_sha256.as_ref();
    Container {
        command: Some(vec![names::PATH_SANDBOX.to_owned(), "record".to_owned()]),
        env: token.map(|token| vec![var(ENV_TOKEN_SHA256, token)]),
        image: Some(settings.sandbox_image.clone()),
        image_pull_policy: Some(settings.sandbox_pull_policy.as_str().to_owned()),
        name: names::CONTAINER_RECORDER.to_owned(),
        ports: Some(vec![ContainerPort {
            container_port: names::PORT_RECORDER,
            name: Some(names::PORT_RECORDER_NAME.to_owned()),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        resources: Some(settings.sandbox_resources.clone()),
        security_context: Some(security::container(false)),
        volume_mounts: Some(vec![
            mount(names::VOLUME_BIN, names::PATH_BIN, true),
            mount(names::VOLUME_LOG, names::PATH_LOG, true),
            mount(names::VOLUME_INBOX, names::PATH_INBOX, false),
        ]),
        ..Container::default()
    }
}

fn workspace_mounts() -> [VolumeMount; 2] {
    [mount(names::VOLUME_WORK, names::PATH_WORK, false), mount(names::VOLUME_HOME, names::PATH_HOME, false)]
}

fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        mount_path: path.to_owned(),
        name: volume.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn var(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

/// Ours first, so that the user's may refer to them. The user's never takes the place of one of ours, but for `HOME`, which is theirs to move.
fn environment(ours: &[EnvVar], theirs: &[SessionVar]) -> Vec<EnvVar> {
    let home = (!theirs.iter().any(|var| var.name == ENV_HOME)).then(|| var(ENV_HOME, names::PATH_HOME));
    let theirs = theirs.iter().filter(|var| !var.name.starts_with(names::ENV_PREFIX)).map(EnvVar::from);
    home.into_iter().chain(ours.iter().cloned()).chain(theirs).collect()
}

/// What the session says, with requests for what it says nothing of: a quota on requests would refuse the Pod without them.
fn agent_resources(session: &AgentSession, settings: &PodSettings) -> ResourceRequirements {
    let said = session.spec.agent.resources.clone().unwrap_or_default();
    let mut resources = ResourceRequirements::from(&said);
    let missing = settings
        .agent_requests
        .iter()
        .filter(|(name, _)| !said.requests.contains_key(*name) && !said.limits.contains_key(*name))
        .map(|(name, quantity)| (name.clone(), quantity.clone()));
    let mut requests: BTreeMap<String, Quantity> = missing.collect();
    requests.extend(resources.requests.take().unwrap_or_default());
    resources.requests = (!requests.is_empty()).then_some(requests);
    resources
}
