//! No turn is active: the Pod waits for another one or goes, then the object may.

use std::time::Duration;

use transcript::{AgentState, Turn};

use super::{Desk, pods};
use crate::{
    model::{Clock, Desired, Done, LedgerView, PodView, Step},
    settled::Settled,
};

/// How long an object that is deleted waits for a Pod of it that nothing of ours holds.
const LINGER: Duration = Duration::from_secs(10);

pub(super) fn step(desk: &mut Desk<'_>, ledger: &LedgerView) -> Step {
    let current = pods::current(desk, ledger);
    if let Some(step) = desk.strays(ledger, current) {
        desk.tearing_down = current.is_none();
        return step;
    }
    match current {
        Some(pod) => with_pod(desk, ledger, pod),
        None => without_pod(desk, ledger),
    }
}

fn with_pod(desk: &mut Desk<'_>, ledger: &LedgerView, pod: &PodView) -> Step {
    if keeps(desk, ledger, pod) {
        let next = ledger.turns.last().map_or(1, |turn| turn.turn.0.saturating_add(1));
        desk.follow(pod, Turn(next));
        return Step::Wait;
    }
    desk.tearing_down = true;
    if let Some(step) = desk.tear_down(ledger, pod) {
        return step;
    }
    let session = &desk.observed.session;
    if session.deleting || session.releasing {
        // The record is safe and the Pod is on its way, held by nothing of ours: it usually goes first, but a node that never answers again must not
        // hold the object.
        let going = desk.since(Clock::PodDeleting(pod.uid.clone()));
        if desk.over(going, LINGER) {
            return without_pod(desk, ledger);
        }
    }
    Step::Wait
}

/// Whether a Pod is worth keeping: it is up, its agent can take another turn, nobody wants it gone, and its idle time is not over.
fn keeps(desk: &mut Desk<'_>, ledger: &LedgerView, pod: &PodView) -> bool {
    let session = &desk.observed.session;
    let wanted = !session.deleting && !session.releasing && session.desired == Desired::Active;
    if !wanted || pod.deleting.is_some() || !desk.reachable(pod) || pod.start_error.is_some() {
        return false;
    }
    let ready = desk
        .status_of(pod)
        .is_some_and(|status| status.state == AgentState::Idle || (status.state.is_terminal() && status.agent_ready));
    // A driver that was not heard yet, after a restart of ours, is given the benefit of the doubt for as long as the idle time lasts.
    let unheard = desk.status_of(pod).is_none();
    let idle_for = ledger.turns.iter().filter_map(|turn| turn.settled_for).min().unwrap_or(Duration::MAX);
    (ready || unheard) && !desk.over(idle_for, session.timeouts.idle)
}

fn without_pod(desk: &mut Desk<'_>, ledger: &LedgerView) -> Step {
    let session = &desk.observed.session;
    if session.deleting {
        if !desk.observed.done.contains(&Done::Reclaimed) {
            return Step::Reclaim { delete: session.reclaim_delete };
        }
        return release(desk, ledger);
    }
    if session.releasing {
        return release(desk, ledger);
    }
    if let Some(message) = &session.invalid {
        return desk.wait_for(transcript::Reason::PodRefused, message.clone());
    }
    let Some(ttl) = session.timeouts.ttl else { return Step::Wait };
    let finished = ledger.turns.iter().filter_map(|turn| turn.settled_for).min();
    match finished {
        Some(age) if ledger.turns.len() >= session.turns.len() && desk.over(age, ttl) => Step::DeleteSession,
        _ => Step::Wait,
    }
}

fn release(desk: &Desk<'_>, ledger: &LedgerView) -> Step {
    match Settled::for_session(ledger) {
        Some(proof) if desk.observed.session.has_finalizer => Step::ReleaseSession { proof },
        _ => Step::Wait,
    }
}
