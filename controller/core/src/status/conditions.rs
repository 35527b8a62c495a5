//! The four conditions. `crds::names` says what each means and when it is True.

use crds::{AgentSessionStatus, Phase, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use transcript::{Reason, Verdict};

use super::{Projection, condition, in_pod};
use crate::model::{ContainerState, Desired, LedgerView, PodPhase, PodView};

/// `True`, `False` or `Unknown`, why, and in a sentence.
struct Verb {
    status: &'static str,
    reason: Reason,
    message: String,
}

const TRUE: &str = "True";
const FALSE: &str = "False";
const UNKNOWN: &str = "Unknown";

fn verb(status: &'static str, reason: Reason, message: impl Into<String>) -> Verb {
    Verb { status, reason, message: message.into() }
}

impl Projection<'_> {
    pub(super) fn conditions(&self, ledger: &LedgerView, phase: Phase) -> Vec<Condition> {
        vec![
            self.condition(names::CONDITION_POD_READY, self.pod_ready(phase)),
            self.condition(names::CONDITION_TRANSCRIPT_COMPLETE, self.transcript_complete(ledger)),
            self.condition(names::CONDITION_FINISHED, self.finished(ledger)),
            self.condition(names::CONDITION_SUSPENDED, self.suspended(in_pod(ledger).is_some())),
        ]
    }

    /// Without the store only the Pod and the reason are news; what had been settled stays so, for the generation that it was settled for.
    pub(super) fn conditions_without_ledger(&self, status: &AgentSessionStatus) -> Vec<Condition> {
        let phase = status.phase.unwrap_or(Phase::Pending);
        let reason = status.reason.unwrap_or(Reason::StoreUnavailable);
        let message = status.message.clone().unwrap_or_default();
        let complete = match self.facts.abandoned {
            Some(reason) => verb(FALSE, reason, message.clone()),
            None => verb(UNKNOWN, reason, message.clone()),
        };
        let was_finished = self
            .previous
            .and_then(|previous| condition(previous, names::CONDITION_FINISHED))
            .filter(|finished| finished.status == TRUE);
        vec![
            self.condition(names::CONDITION_POD_READY, self.pod_ready(phase)),
            self.condition(names::CONDITION_TRANSCRIPT_COMPLETE, complete),
            was_finished
                .cloned()
                .unwrap_or_else(|| self.condition(names::CONDITION_FINISHED, verb(FALSE, reason, message.clone()))),
            self.condition(names::CONDITION_SUSPENDED, self.suspended(phase.is_active())),
        ]
    }

    /// `lastTransitionTime` moves with the status and with nothing else.
    fn condition(&self, type_: &'static str, verb: Verb) -> Condition {
        let Verb { status, reason, message } = verb;
        let before = self.previous.and_then(|previous| condition(previous, type_));
        let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
        Condition {
            last_transition_time: since.unwrap_or(Time(self.now)),
            message,
            observed_generation: Some(self.generation),
            reason: reason.as_str().to_owned(),
            status: status.to_owned(),
            type_: type_.to_owned(),
        }
    }

    fn pod_ready(&self, phase: Phase) -> Verb {
        if let Some((reason, message)) = self.facts.waiting.as_ref().filter(|(reason, _)| is_of_the_pod(*reason)) {
            return verb(FALSE, *reason, message.clone());
        }
        if phase == Phase::Provisioning {
            return verb(FALSE, Reason::PodStarting, "the agent Pod is being created, scheduled or started");
        }
        match self.pod.filter(|_| !self.facts.tearing_down) {
            None => verb(FALSE, Reason::NoPod, "there is no agent Pod"),
            Some(pod) => of_pod(pod),
        }
    }

    fn transcript_complete(&self, ledger: &LedgerView) -> Verb {
        let active = ledger.turns.iter().any(|turn| turn.state.is_active());
        if active || ledger.turns.is_empty() || (self.has_unaccepted(ledger) && !self.session.deleting) {
            return match &self.facts.waiting {
                Some((reason, message)) if !is_of_the_pod(*reason) => verb(UNKNOWN, *reason, message.clone()),
                _ => verb(UNKNOWN, Reason::TurnActive, "a turn is active"),
            };
        }
        let cut = ledger.turns.iter().find(|turn| turn.verdict != Some(Verdict::Complete));
        let Some(turn) = cut else {
            return verb(TRUE, Reason::AllTurnsComplete, "everything that the agent said is stored");
        };
        let verdict = turn.verdict.unwrap_or(Verdict::Incomplete);
        let message = match &turn.message {
            Some(message) => format!("turn {} is {verdict}: {message}", turn.turn),
            None => format!("turn {} is {verdict}", turn.turn),
        };
        verb(FALSE, turn.verdict_reason.unwrap_or(Reason::PartsMissing), message)
    }

    fn finished(&self, ledger: &LedgerView) -> Verb {
        let active = ledger.turns.iter().any(|turn| turn.state.is_active());
        if active || ledger.turns.is_empty() || self.has_unaccepted(ledger) {
            return match &self.facts.waiting {
                Some((reason, message)) => verb(FALSE, *reason, message.clone()),
                None => verb(FALSE, Reason::TurnActive, "a turn is active"),
            };
        }
        let last = ledger.turns.last();
        let reason = last.and_then(|turn| turn.reason).unwrap_or(Reason::AllTurnsSettled);
        let message = last.and_then(|turn| turn.message.clone());
        verb(TRUE, reason, message.unwrap_or_else(|| "every turn is settled".to_owned()))
    }

    /// Reached when nothing runs and the Pod is really gone: only then may somebody else mount its claim.
    fn suspended(&self, runs: bool) -> Verb {
        if self.session.desired != Desired::Suspended {
            return verb(FALSE, Reason::Active, "suspension is not asked for");
        }
        if runs {
            verb(FALSE, Reason::TurnActive, "the turn that runs is being stopped")
        } else if self.pod.is_some() {
            verb(FALSE, Reason::PodRunning, "the agent Pod is going")
        } else {
            verb(TRUE, Reason::Suspended, "no agent Pod is left")
        }
    }
}

/// Whether a reason to wait speaks of the Pod, and not of the store or of the user's wish.
fn is_of_the_pod(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ImagePullFailed
            | Reason::QuotaExceeded
            | Reason::Unschedulable
            | Reason::InitFailed
            | Reason::PodRefused
            | Reason::ContainerConfigError
            | Reason::NameTaken
            | Reason::StartTimeout
            | Reason::Evicted
            | Reason::NodeLost
    )
}

fn of_pod(pod: &PodView) -> Verb {
    match (&pod.agent, &pod.recorder) {
        (ContainerState::Running, ContainerState::Running) => verb(TRUE, Reason::PodRunning, "the agent Pod runs"),
        (_, ContainerState::Ended(_)) => verb(FALSE, Reason::PodTerminated, "the agent Pod has ended"),
        (ContainerState::Ended(end), _) => {
            let reason = if end.oom_killed { Reason::OOMKilled } else { Reason::AgentExited };
            let message = end.message.clone();
            verb(
                FALSE,
                reason,
                message.unwrap_or_else(|| format!("the agent container exited with code {}", end.exit_code)),
            )
        }
        (ContainerState::Waiting | ContainerState::Running, _) => match &pod.disruption {
            Some((reason, message)) => verb(FALSE, *reason, message.clone()),
            None => verb(FALSE, Reason::PodStarting, "the agent Pod is starting"),
        },
    }
}

/// Whether the recorder's port can be reached: the IP of a Pod that has ended means nothing.
pub(super) fn is_dialable(pod: &PodView) -> bool {
    pod.phase == PodPhase::Running && pod.recorder == ContainerState::Running
}
