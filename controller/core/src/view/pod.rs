//! Pod → [`PodView`].

use std::time::Duration;

use crds::names;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};
use transcript::{Attempt, PodUid, SessionUid, merge::ContainerEnd};

use super::{
    WORDS_BYTES,
    disruption::{disruption, with_node},
    start_error::start_error,
};
use crate::{
    model::{ContainerState, PodPhase, PodView},
    names::attempt_of,
    text::{cut, words},
};

/// What decisions see of a Pod. `node_ready` is what the shell knows of its node.
#[must_use]
pub fn pod_view(pod: &Pod, session: &SessionUid, node_ready: Option<bool>) -> PodView {
    let metadata = &pod.metadata;
    let status = pod.status.as_ref();
    let name = metadata.name.clone().unwrap_or_default();
    let annotation =
        |key: &str| metadata.annotations.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default();
    let agent = container_state(pod, names::CONTAINER_AGENT);
    let recorder = container_state(pod, names::CONTAINER_RECORDER);
    let disruption = disruption(pod);
    let going = metadata.deletion_timestamp.is_some() || disruption.is_some();
    let start_error = if going { None } else { start_error(pod, &agent, &recorder) };
    let view = PodView {
        attempt: attempt(pod, &name, session),
        uid: PodUid(metadata.uid.clone().unwrap_or_default()),
        nonce: annotation(names::ANNOTATION_NONCE),
        owned: metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| owner.controller == Some(true) && owner.uid == session.0),
        template_digest: annotation(names::ANNOTATION_TEMPLATE),
        has_finalizer: metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::FINALIZER),
        deleting: metadata.deletion_timestamp.as_ref().map(|_| grace(metadata.deletion_grace_period_seconds)),
        ip: status.and_then(|status| status.pod_ip.clone()).filter(|ip| !ip.is_empty()),
        phase: phase(status.and_then(|status| status.phase.as_deref())),
        agent,
        recorder,
        disruption,
        start_error,
        node_ready: None,
        name,
    };
    with_node(view, node_ready)
}

/// The name cannot be changed, the label can: it only speaks for a Pod whose name says nothing.
fn attempt(pod: &Pod, name: &str, session: &SessionUid) -> Attempt {
    let label = || pod.metadata.labels.as_ref()?.get(names::LABEL_ATTEMPT)?.parse().ok().map(Attempt);
    attempt_of(name, session).or_else(label).unwrap_or_default()
}

fn grace(seconds: Option<i64>) -> Duration {
    Duration::from_secs(seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0))
}

/// A Pod without a phase has just been made.
fn phase(word: Option<&str>) -> PodPhase {
    match word {
        None | Some("" | "Pending") => PodPhase::Pending,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some(_) => PodPhase::Unknown,
    }
}

/// The status of one of the Pod's regular containers.
pub(super) fn container_status<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|status| status.name == name)
}

/// A container that ended once has ended: nothing in our Pods restarts by intent, so `lastState` counts whatever `state` says by now.
fn container_state(pod: &Pod, name: &str) -> ContainerState {
    let Some(status) = container_status(pod, name) else { return ContainerState::Waiting };
    let terminated = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state.as_ref().and_then(|state| state.terminated.as_ref()).map(container_end)
    };
    if let Some(end) = terminated(&status.state).or_else(|| terminated(&status.last_state)) {
        return ContainerState::Ended(end);
    }
    match status.state.as_ref().and_then(|state| state.running.as_ref()) {
        Some(_) => ContainerState::Running,
        None => ContainerState::Waiting,
    }
}

/// How a container ended, in the kubelet's words.
pub(super) fn container_end(end: &ContainerStateTerminated) -> ContainerEnd {
    let reason = end.reason.as_deref();
    let text = words([reason.filter(|reason| *reason != "Error" && *reason != "Completed"), end.message.as_deref()]);
    ContainerEnd {
        exit_code: end.exit_code,
        signal: signal(end),
        oom_killed: reason == Some("OOMKilled"),
        message: (!text.is_empty()).then(|| cut(&text, WORDS_BYTES).into_owned()),
    }
}

/// Runtimes seldom fill `signal` and say 128 + n instead. The 137 of a container that the kubelet could not find again is made up.
fn signal(end: &ContainerStateTerminated) -> Option<i32> {
    if end.reason.as_deref() == Some("ContainerStatusUnknown") {
        return None;
    }
    let named = end.signal.filter(|signal| *signal > 0);
    named.or_else(|| (129..=192).contains(&end.exit_code).then_some(end.exit_code - 128))
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
