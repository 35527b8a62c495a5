//! The next turn is accepted and no Pod has it yet: get a Pod up, or say why it never ran.

use std::time::Duration;

use transcript::{AgentState, AgentStatus, Attempt, Outcome, Reason};

use super::{Desk, had_turn, pods, settle, used_attempts};
use crate::model::{Clock, ContainerState, Desired, LedgerView, PodView, RefusalKind, Step, TurnView};

/// Attempts that an undelivered turn may use up when its Pods are taken away.
const MAX_ATTEMPTS: u32 = 5;
/// Wait before the second attempt; doubled for each further one.
const BACKOFF: Duration = Duration::from_secs(10);
/// How soon a Pod that was refused and may not be next time is asked for again.
const REFUSAL_RETRY: Duration = Duration::from_secs(5);

pub(super) fn step(desk: &mut Desk<'_>, ledger: &LedgerView, turn: &TurnView) -> Step {
    if let Some(step) = never_runs(desk, ledger, turn) {
        return step;
    }
    let current = pods::current(desk, ledger);
    let session = &desk.observed.session;
    if session.desired == Desired::Suspended {
        return suspended(desk, ledger, current);
    }
    if let Some(message) = &session.invalid {
        return desk.wait_for(Reason::PodRefused, message.clone());
    }
    // What is done first, clearing up, is part of the start.
    let waited = desk.since(Clock::Next(turn.turn));
    if let Some(step) = desk.strays(ledger, current) {
        return step;
    }
    match current {
        Some(pod) => with_pod(desk, ledger, turn, pod, waited),
        None => without_pod(desk, ledger, turn, waited),
    }
}

/// What ends a turn before any agent has it.
fn never_runs(desk: &Desk<'_>, ledger: &LedgerView, turn: &TurnView) -> Option<Step> {
    let never = |reason| Some(settle::undelivered(turn, Outcome::Canceled, reason, Reason::NeverStarted, None));
    if let Some(cut) = settle::stop_reason(desk, turn)
        && cut.reason != Reason::Suspended
    {
        return never(cut.reason);
    }
    let earlier_failed = ledger.turns.iter().any(|earlier| {
        earlier.turn < turn.turn
            && earlier.outcome.is_some_and(|outcome| outcome != Outcome::Succeeded)
            && earlier.settled_at.is_some_and(|settled| settled >= turn.accepted_at)
    });
    if earlier_failed { never(Reason::EarlierTurnFailed) } else { None }
}

fn suspended(desk: &mut Desk<'_>, ledger: &LedgerView, current: Option<&PodView>) -> Step {
    desk.waiting = Some((Reason::Suspended, "spec.desiredState is Suspended; set it to Active to go on".to_owned()));
    desk.tearing_down = true;
    if let Some(step) = desk.strays(ledger, current) {
        return step;
    }
    current.and_then(|pod| desk.tear_down(ledger, pod)).unwrap_or(Step::Wait)
}

fn without_pod(desk: &mut Desk<'_>, ledger: &LedgerView, turn: &TurnView, waited: Duration) -> Step {
    let session = &desk.observed.session;
    let used = used_attempts(ledger);
    // What was said of an attempt that is over says nothing of the next one.
    let refusal = desk.observed.refusal.as_ref();
    let refusal = refusal.filter(|refusal| refusal.attempt == ledger.attempt && ledger.attempt.0 > used);
    let mut patient = false;
    if let Some(refusal) = refusal {
        let message = refusal.message.clone();
        match refusal.kind {
            RefusalKind::Fatal => return failed(turn, Reason::PodRefused, message),
            RefusalKind::NameTaken => return next_attempt(desk, ledger),
            RefusalKind::Quota => {
                // The one start error that waits without end: its clock does not run.
                desk.clocks.remove(&Clock::Next(turn.turn));
                patient = true;
                desk.waiting = Some((Reason::QuotaExceeded, message));
            }
            RefusalKind::NamespaceTerminating => desk.waiting = Some((Reason::PodRefused, message)),
        }
        // Asked for again now and then, with the same words in the status until the Pod is made.
        if !desk.over(refusal.age, REFUSAL_RETRY) {
            return Step::Wait;
        }
    }
    if !patient && desk.over(waited, session.timeouts.start) {
        let message = format!("no Pod of it ran within startTimeout ({} s)", session.timeouts.start.as_secs());
        return failed(turn, Reason::StartTimeout, message);
    }
    if !session.has_finalizer {
        return Step::AddFinalizer;
    }
    if ledger.attempt.0 <= used {
        return next_attempt(desk, ledger);
    }
    if desk.observed.pods.iter().any(|pod| pod.attempt != ledger.attempt && pods::is_ours(ledger, pod)) {
        // The Pod of an earlier attempt is on its way out; two would share a workspace.
        return desk.wait_for(Reason::PodStarting, "the Pod of an earlier attempt is still going");
    }
    let tried = ledger.attempt.0 - used;
    if tried > 1 {
        let backoff = BACKOFF.saturating_mul(1 << (tried - 2).min(8));
        let waited = desk.since(Clock::Backoff(ledger.attempt));
        if !desk.over(waited, backoff) {
            return desk.wait_for(Reason::PodStarting, format!("attempt {} begins after a pause", ledger.attempt));
        }
    }
    Step::CreatePod {
        attempt: ledger.attempt,
        nonce: pods::pod_nonce(&ledger.seed, ledger.attempt),
        fresh_workspace: used > 0,
    }
}

fn with_pod(desk: &mut Desk<'_>, ledger: &LedgerView, turn: &TurnView, pod: &PodView, waited: Duration) -> Step {
    let session = &desk.observed.session;
    let late = desk.over(waited, session.timeouts.start);
    if let Some(error) = &pod.start_error {
        if !error.heals || late {
            return failed(turn, error.reason, error.message.clone());
        }
        if pod.deleting.is_none() {
            let (reason, message) = (error.reason, error.message.clone());
            return outdated(desk, ledger, pod).unwrap_or_else(|| desk.wait_for(reason, message));
        }
    }
    let status = desk.status_of(pod);
    let spent = had_turn(ledger, pod)
        && (matches!(pod.agent, ContainerState::Ended(_)) || status.is_some_and(|status| is_spent(status, turn)));
    if spent {
        // It ran earlier turns and its agent takes no other: it goes, and the next attempt begins after it.
        return clear_away(desk, ledger, turn, pod, late);
    }
    if let Some(step) = start_failed(turn, pod, status) {
        return step;
    }
    if pod.deleting.is_some() || desk.is_terminal(pod) {
        return taken_away(desk, ledger, turn, pod, late);
    }
    if let Some(step) = outdated(desk, ledger, pod) {
        return step;
    }
    desk.follow(pod, turn.turn);
    match status {
        // What an emptied store must not run again stands in the object first; the status of this very pass says it.
        Some(status) if is_ready_for(status, turn) && session.accepted_turns < turn.turn.0 => Step::Wait,
        Some(status) if is_ready_for(status, turn) && pod.agent == ContainerState::Running => {
            Step::StartTurn { turn: turn.turn, attempt: pod.attempt, pod: pod.reference() }
        }
        _ if late => {
            let message =
                format!("the agent was not ready within startTimeout ({} s)", session.timeouts.start.as_secs());
            failed(turn, Reason::StartTimeout, message)
        }
        _ => desk.wait_for(Reason::PodStarting, "the agent is starting"),
    }
}

/// Whether the driver waits for this turn.
pub(super) fn is_ready_for(status: &AgentStatus, turn: &TurnView) -> bool {
    match status.state {
        AgentState::Idle => true,
        state => state.is_terminal() && status.turn.0 > 0 && status.turn < turn.turn && status.agent_ready,
    }
}

/// Whether the driver ended an earlier turn and its agent can take no other.
fn is_spent(status: &AgentStatus, turn: &TurnView) -> bool {
    status.state.is_terminal() && status.turn < turn.turn && !status.agent_ready
}

/// The agent never came up.
fn start_failed(turn: &TurnView, pod: &PodView, status: Option<&AgentStatus>) -> Option<Step> {
    let failed_start = status.filter(|status| status.state == AgentState::Failed && status.turn.0 == 0);
    if let Some(status) = failed_start {
        let error = status.error.clone().unwrap_or_else(|| "the agent did not start".to_owned());
        let message =
            if status.stderr_tail.is_empty() { error } else { format!("{error}; stderr: {}", status.stderr_tail) };
        return Some(failed(turn, Reason::AgentStartFailed, message));
    }
    match &pod.agent {
        ContainerState::Ended(end) if pod.deleting.is_none() && pod.disruption.is_none() => {
            let words = end.message.clone().unwrap_or_default();
            let message =
                format!("the agent container ended with exit code {} before it was ready {words}", end.exit_code);
            Some(failed(turn, Reason::AgentStartFailed, message.trim_end().to_owned()))
        }
        _ => None,
    }
}

/// A Pod that got no turn yet and was made from another template is replaced under the same attempt.
fn outdated(desk: &mut Desk<'_>, ledger: &LedgerView, pod: &PodView) -> Option<Step> {
    if had_turn(ledger, pod) || pod.template_digest == desk.observed.session.template_digest {
        return None;
    }
    desk.tearing_down = true;
    desk.tear_down(ledger, pod)
}

/// The Pod goes before it had the turn: the next attempt, a bounded number of times.
fn taken_away(desk: &mut Desk<'_>, ledger: &LedgerView, turn: &TurnView, pod: &PodView, late: bool) -> Step {
    let had_turn = had_turn(ledger, pod);
    let tried = ledger.attempt.0.saturating_sub(used_attempts(ledger));
    if !had_turn && tried >= MAX_ATTEMPTS {
        let message = format!("its Pod was taken away {tried} times before the agent had the prompt");
        return settle::undelivered(turn, Outcome::Lost, settle::loss(Some(pod)), Reason::NeverStarted, Some(message));
    }
    if had_turn {
        // The Pod of an earlier turn: it goes first, the attempt after it is opened then.
        return clear_away(desk, ledger, turn, pod, late);
    }
    next_attempt(desk, ledger)
}

/// Takes the Pod of earlier turns down. One that never goes, on a node that is silent for good, is not waited for longer than for any other start.
fn clear_away(desk: &mut Desk<'_>, ledger: &LedgerView, turn: &TurnView, pod: &PodView, late: bool) -> Step {
    desk.tearing_down = true;
    match desk.tear_down(ledger, pod) {
        Some(step) => step,
        None if late => {
            let seconds = desk.observed.session.timeouts.start.as_secs();
            let message = format!("the Pod of an earlier attempt was still going after startTimeout ({seconds} s)");
            failed(turn, Reason::StartTimeout, message)
        }
        None => Step::Wait,
    }
}

fn next_attempt(desk: &Desk<'_>, ledger: &LedgerView) -> Step {
    let seed = if ledger.seed.is_empty() { desk.observed.fresh_seed.clone() } else { ledger.seed.clone() };
    Step::OpenAttempt { attempt: Attempt(ledger.attempt.0.saturating_add(1)), seed }
}

fn failed(turn: &TurnView, reason: Reason, message: String) -> Step {
    settle::undelivered(turn, Outcome::Failed, reason, reason, Some(message))
}
