//! The record of a settled turn: how it ended and what is missing, from what was seen.

use transcript::{
    AgentState, Outcome, Reason, Verdict,
    merge::{ContainerEnd, Evidence, Judgement, judge},
};

use super::Desk;
use crate::model::{ContainerState, Desired, PodPhase, PodView, Settle, Step, Trouble, TurnView};

/// Why a turn was cut off, by precedence: what people asked for, then the deadline, then what the cluster did.
pub(super) struct Cut {
    pub(super) outcome: Outcome,
    pub(super) reason: Reason,
}

/// What people or a deadline ask a running turn to stop for; `None` when nothing does.
pub(super) fn stop_reason(desk: &Desk<'_>, turn: &TurnView) -> Option<Cut> {
    let session = &desk.observed.session;
    let canceled = |reason| Some(Cut { outcome: Outcome::Canceled, reason });
    if session.deleting {
        return canceled(Reason::SessionDeleted);
    }
    if session.releasing {
        return canceled(Reason::Released);
    }
    match session.desired {
        Desired::Canceled => return canceled(Reason::CanceledByUser),
        Desired::Suspended => return canceled(Reason::Suspended),
        Desired::Active => {}
    }
    let overdue = turn.running_for.is_some_and(|age| age >= session.timeouts.turn);
    overdue.then_some(Cut { outcome: Outcome::Failed, reason: Reason::TurnTimeout })
}

/// Why a turn is cut off when its Pod goes or is gone.
pub(super) fn cut(desk: &Desk<'_>, turn: &TurnView, pod: Option<&PodView>) -> Cut {
    stop_reason(desk, turn).unwrap_or_else(|| Cut { outcome: Outcome::Lost, reason: loss(pod) })
}

/// Whether nobody takes the Pod away, as far as it shows.
pub(super) fn stands(pod: &PodView) -> bool {
    pod.deleting.is_none()
        && pod.disruption.is_none()
        && pod.recorder == ContainerState::Running
        && matches!(pod.phase, PodPhase::Pending | PodPhase::Running)
}

/// What took the Pod away.
pub(super) fn loss(pod: Option<&PodView>) -> Reason {
    let Some(pod) = pod else { return Reason::PodGone };
    match &pod.disruption {
        Some((reason, _)) => *reason,
        None if pod.node_ready == Some(false) => Reason::NodeLost,
        None if pod.deleting.is_some() => Reason::PodDeleted,
        None => Reason::PodTerminated,
    }
}

/// The end of the agent container, as far as it proves anything about this read.
fn agent_end(pod: Option<&PodView>, after_agent_end: bool) -> Option<&ContainerEnd> {
    match pod.map(|pod| &pod.agent) {
        Some(ContainerState::Ended(end)) if after_agent_end => Some(end),
        _ => None,
    }
}

/// What a read proves of the turn.
pub(super) fn judged(turn: &TurnView, pod: Option<&PodView>, evidence: &Evidence, after_agent_end: bool) -> Judgement {
    let attempt = turn.attempt.unwrap_or_default();
    judge(turn.turn, attempt, evidence, agent_end(pod, after_agent_end))
}

/// Settles a turn by what a read proved. An end that was forced on the agent is named after what forced it.
pub(super) fn by_judgement(desk: &Desk<'_>, turn: &TurnView, pod: Option<&PodView>, judgement: Judgement) -> Step {
    let Judgement { outcome, reason, verdict, verdict_reason, message, usage, pending } = judgement;
    let forced = pending || matches!(outcome, Outcome::Canceled | Outcome::Lost);
    let heard = if pending { heard_end(desk, turn, pod) } else { None };
    let (outcome, reason) = if let Some(heard) = heard {
        heard
    } else if !forced {
        (outcome, reason)
    } else if stop_reason(desk, turn).is_none() && pod.is_some_and(stands) {
        // It was told to stop by a wish that does not stand any more: nobody knows which.
        (Outcome::Canceled, None)
    } else {
        let cut = cut(desk, turn, pod);
        (cut.outcome, Some(cut.reason))
    };
    Step::Settle(Box::new(Settle {
        turn: turn.turn,
        attempt: turn.attempt,
        pod_uid: turn.pod_uid.clone(),
        outcome,
        reason,
        verdict,
        verdict_reason,
        message: message.or_else(|| words(pod)),
        usage,
    }))
}

/// How the turn ended by its driver's own word, as the follower heard it; `None` for an end that was forced on it.
fn heard_end(desk: &Desk<'_>, turn: &TurnView, pod: Option<&PodView>) -> Option<(Outcome, Option<Reason>)> {
    let status = desk.status_of(pod?).filter(|status| status.turn == turn.turn)?;
    match status.state {
        AgentState::Succeeded => Some((Outcome::Succeeded, None)),
        AgentState::Failed => {
            let said = status.reason.as_deref().and_then(|word| word.parse().ok());
            Some((Outcome::Failed, Some(said.unwrap_or(Reason::AgentError))))
        }
        AgentState::Canceled | AgentState::Starting | AgentState::Idle | AgentState::Running => None,
    }
}

/// Settles a turn that is over and whose log could not be read or stored in time: how it ended is known from its driver, when that was heard.
pub(super) fn unread(desk: &Desk<'_>, turn: &TurnView, pod: &PodView, trouble: &Trouble) -> Step {
    let (outcome, reason) = heard_end(desk, turn, Some(pod)).unwrap_or_else(|| {
        let cut = cut(desk, turn, Some(pod));
        let unknown = cut.outcome == Outcome::Lost && stands(pod);
        (cut.outcome, Some(if unknown { trouble.reason } else { cut.reason }))
    });
    Step::Settle(Box::new(Settle {
        turn: turn.turn,
        attempt: turn.attempt,
        pod_uid: turn.pod_uid.clone(),
        outcome,
        reason,
        verdict: Verdict::Incomplete,
        verdict_reason: Some(trouble.reason),
        message: Some(trouble.message.clone()),
        usage: None,
    }))
}

/// Settles a turn whose log cannot be read any more: what checkpoints stored stays, nothing is invented.
pub(super) fn incomplete(desk: &Desk<'_>, turn: &TurnView, pod: Option<&PodView>, verdict_reason: Reason) -> Step {
    let cut = cut(desk, turn, pod);
    Step::Settle(Box::new(Settle {
        turn: turn.turn,
        attempt: turn.attempt,
        pod_uid: turn.pod_uid.clone(),
        outcome: cut.outcome,
        reason: Some(cut.reason),
        verdict: Verdict::Incomplete,
        verdict_reason: Some(verdict_reason),
        message: words(pod),
        usage: None,
    }))
}

/// Settles a turn that no agent ever had.
pub(super) fn undelivered(
    turn: &TurnView,
    outcome: Outcome,
    reason: Reason,
    verdict_reason: Reason,
    message: Option<String>,
) -> Step {
    Step::Settle(Box::new(Settle {
        turn: turn.turn,
        attempt: turn.attempt,
        pod_uid: turn.pod_uid.clone(),
        outcome,
        reason: Some(reason),
        verdict: Verdict::Incomplete,
        verdict_reason: Some(verdict_reason),
        message,
        usage: None,
    }))
}

/// The cluster's own words about the Pod's end.
fn words(pod: Option<&PodView>) -> Option<String> {
    pod.and_then(|pod| pod.disruption.as_ref()).map(|(_, message)| message.clone()).filter(|text| !text.is_empty())
}
