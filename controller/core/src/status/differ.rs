//! Whether a status is worth a write.

use crds::AgentSessionStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Whether two statuses differ in more than time. No status is the same as an empty one.
#[must_use]
pub fn differs(previous: Option<&AgentSessionStatus>, next: &AgentSessionStatus) -> bool {
    timeless(previous.cloned().unwrap_or_default()) != timeless(next.clone())
}

fn timeless(status: AgentSessionStatus) -> AgentSessionStatus {
    // Without `..`: whoever adds a field says here whether it is a time.
    let AgentSessionStatus {
        observed_generation,
        phase,
        reason,
        message,
        turn,
        accepted_turns,
        attempt,
        pod_name,
        pod_ip,
        transcript,
        usage,
        mut turns,
        mut conditions,
    } = status;
    for turn in &mut turns {
        turn.started_at = None;
        turn.completed_at = None;
    }
    for condition in &mut conditions {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    AgentSessionStatus {
        observed_generation,
        phase,
        reason,
        message,
        turn,
        accepted_turns,
        attempt,
        pod_name,
        pod_ip,
        transcript,
        usage,
        turns,
        conditions,
    }
}
