//! What keeps a Pod from starting, and whether waiting can heal it.
//!
//! An image that is pushed late, a Secret that is made late and room on a node come by themselves, so these wait for the start deadline. A name that is
//! no image, a user that the Pod may not run as and an init container that failed do not.

use crds::names;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod};
use transcript::Reason;

use super::{WORDS_BYTES, pod::container_status};
use crate::{
    model::{ContainerState, StartError},
    text::{cut, words},
};

/// What a kubelet or runtime says of a user that it cannot or may not run as; no retry changes the image.
const IMPOSSIBLE_USER: [&str; 4] =
    ["runAsNonRoot", "run as root", "unable to find user", "no matching entries in passwd file"];
/// How a runtime's failure to start a container is called once it stands.
const START_FAILED: [&str; 2] = ["StartError", "ContainerCannotRun"];

/// Looks at init containers, our own containers and the scheduler, in this order: the first one that speaks is what holds the Pod up.
pub(super) fn start_error(pod: &Pod, agent: &ContainerState, recorder: &ContainerState) -> Option<StartError> {
    let ours =
        [names::CONTAINER_AGENT, names::CONTAINER_RECORDER].into_iter().filter_map(|name| container_status(pod, name));
    let started = [agent, recorder].into_iter().all(|state| *state != ContainerState::Waiting);
    if started {
        return ours.into_iter().find_map(never_ran);
    }
    let inits = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let untouched = [agent, recorder].into_iter().all(|state| *state == ContainerState::Waiting);
    inits
        .filter(|_| untouched)
        .find_map(|status| init_failed(pod, status).or_else(|| waiting(status)))
        .or_else(|| ours.into_iter().find_map(|status| never_ran(status).or_else(|| waiting(status))))
        .or_else(|| unschedulable(pod))
}

fn error(reason: Reason, heals: bool, text: &str) -> StartError {
    StartError { reason, message: cut(text, WORDS_BYTES).into_owned(), heals }
}

/// An init container of ours that failed is final. One that somebody injected may be restarted; there the Pod's own phase decides.
fn init_failed(pod: &Pod, status: &ContainerStatus) -> Option<StartError> {
    let end = status.state.as_ref()?.terminated.as_ref()?;
    let ours = [names::CONTAINER_INSTALL, names::CONTAINER_SETUP].contains(&status.name.as_str());
    let failed = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Failed");
    if end.exit_code == 0 || !(ours || failed) {
        return None;
    }
    let text = format!("init container {} {}", status.name, ending(end));
    Some(error(Reason::InitFailed, false, &text))
}

/// `exited with code 3: <the kubelet's words>`.
fn ending(end: &ContainerStateTerminated) -> String {
    let how = match end.reason.as_deref() {
        Some("OOMKilled") => "was killed for want of memory".to_owned(),
        _ => format!("exited with code {}", end.exit_code),
    };
    let reason = end.reason.as_deref().filter(|reason| !["Error", "OOMKilled"].contains(reason));
    words([Some(how.as_str()), reason, end.message.as_deref()])
}

/// A container that the runtime created and could not start: with `restartPolicy: Never` there is no second try.
fn never_ran(status: &ContainerStatus) -> Option<StartError> {
    let end = status.state.as_ref()?.terminated.as_ref()?;
    let reason = end.reason.as_deref().filter(|reason| START_FAILED.contains(reason))?;
    let text = words([Some(&*format!("container {}", status.name)), Some(reason), end.message.as_deref()]);
    Some(error(Reason::ContainerConfigError, false, &text))
}

fn waiting(status: &ContainerStatus) -> Option<StartError> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let (reason, heals) = classify(waiting)?;
    let text =
        words([Some(&*format!("container {}", status.name)), waiting.reason.as_deref(), waiting.message.as_deref()]);
    Some(error(reason, heals, &text))
}

/// `None` for the ordinary steps of a start.
fn classify(waiting: &ContainerStateWaiting) -> Option<(Reason, bool)> {
    let message = waiting.message.as_deref().unwrap_or_default();
    let impossible_user = || IMPOSSIBLE_USER.iter().any(|words| message.contains(words));
    match waiting.reason.as_deref().unwrap_or_default() {
        "InvalidImageName" => Some((Reason::ImagePullFailed, false)),
        "ErrImagePull"
        | "ImagePullBackOff"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => Some((Reason::ImagePullFailed, true)),
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => Some((Reason::ContainerConfigError, !impossible_user())),
        "CrashLoopBackOff" => Some((Reason::InitFailed, true)),
        _ => None,
    }
}

fn unschedulable(pod: &Pod) -> Option<StartError> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    let text = words([condition.reason.as_deref(), condition.message.as_deref()]);
    Some(error(Reason::Unschedulable, true, &text))
}
