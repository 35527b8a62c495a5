//! Why the cluster takes a Pod away, when it says so.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use transcript::Reason;

use super::WORDS_BYTES;
use crate::{
    model::PodView,
    text::{cut, words},
};

/// The condition that every part of Kubernetes sets on a Pod before it ends it for reasons of its own.
const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Its reason for a Pod that does not tolerate a taint of its node.
const TAINT: &str = "DeletionByTaintManager";

/// The reason with the cluster's words; `None` for a Pod that nobody disturbs and for one that somebody simply deleted.
pub(super) fn disruption(pod: &Pod) -> Option<(Reason, String)> {
    let status = pod.status.as_ref()?;
    let (reason, text) = by_condition(status).or_else(|| by_status(status))?;
    Some((reason, cut(&text, WORDS_BYTES).into_owned()))
}

fn by_condition(status: &PodStatus) -> Option<(Reason, String)> {
    let condition = status.conditions.as_ref()?.iter().find(|c| c.type_ == DISRUPTION_TARGET && c.status == "True")?;
    let reason = match condition.reason.as_deref().unwrap_or_default() {
        // The collector ends Pods of nodes that are gone or out of service.
        "DeletionByPodGC" => Reason::NodeLost,
        // EvictionByEvictionAPI, PreemptionByScheduler, TerminationByKubelet, DeletionByTaintManager, and what newer versions may add.
        _ => Reason::Evicted,
    };
    Some((reason, words([condition.reason.as_deref(), condition.message.as_deref()])))
}

/// What the kubelet and the node controller write into the status itself.
fn by_status(status: &PodStatus) -> Option<(Reason, String)> {
    let word = status.reason.as_deref().filter(|word| !word.is_empty())?;
    let failed = status.phase.as_deref() == Some("Failed");
    let reason = match word {
        "NodeLost" => Reason::NodeLost,
        // Node pressure; a critical Pod took the room; the node shut down, with and without a Pod that had started.
        "Evicted" | "Preempting" | "Terminated" | "NodeShutdown" | "Shutdown" if failed => Reason::Evicted,
        // UnexpectedAdmissionError, OutOfcpu, NodeAffinity and their kind: the node changed between scheduling and start.
        _ if failed => Reason::PodRefused,
        _ => return None,
    };
    Some((reason, words([Some(word), status.message.as_deref()])))
}

/// Adds what is known of the Pod's node. A taint is put on silent nodes by the node controller and on any other by people: only the node tells which.
#[must_use]
pub fn with_node(mut view: PodView, ready: Option<bool>) -> PodView {
    view.node_ready = ready;
    if let Some((reason, words)) = &mut view.disruption
        && words.starts_with(TAINT)
    {
        *reason = if ready == Some(false) { Reason::NodeLost } else { Reason::Evicted };
    }
    view
}
