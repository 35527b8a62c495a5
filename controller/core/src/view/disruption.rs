//! Why the cluster takes a Pod away, when it says so.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use transcript::Reason;

use super::WORDS_BYTES;
use crate::text::{cut, words};

/// The condition that every part of Kubernetes sets on a Pod before it ends it for reasons of its own.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The reason with the cluster's words; `None` for a Pod that nobody disturbs and for one that somebody simply deleted.
pub(super) fn disruption(pod: &Pod, node_ready: Option<bool>) -> Option<(Reason, String)> {
    let status = pod.status.as_ref()?;
    let (reason, text) = by_condition(status, node_ready).or_else(|| by_status(status))?;
    Some((reason, cut(&text, WORDS_BYTES).into_owned()))
}

fn by_condition(status: &PodStatus, node_ready: Option<bool>) -> Option<(Reason, String)> {
    let condition = status.conditions.as_ref()?.iter().find(|c| c.type_ == DISRUPTION_TARGET && c.status == "True")?;
    let reason = match condition.reason.as_deref().unwrap_or_default() {
        // A taint is put on silent nodes by the node controller, and on any other by people.
        "DeletionByTaintManager" if node_ready == Some(false) => Reason::NodeLost,
        // The collector ends Pods of nodes that are gone or out of service.
        "DeletionByPodGC" => Reason::NodeLost,
        // EvictionByEvictionAPI, PreemptionByScheduler, TerminationByKubelet, and what newer versions may add.
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
