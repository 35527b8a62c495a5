//! The second stage: what to do next, as a pure function.
//!
//! One call makes one [`Decision`] with one [`Step`]; the event that the step causes brings the next call. The order of the questions is the order of
//! importance: first no prompt may be lost, then no part, then the verdict, then the Pod, then the object.
//!
//! `accepted` decides for the turn that waits to run, `running` for the one that a Pod has, `teardown` when no turn is active, and
//! `without_store` when the ledger cannot be read. `pods` and `settle` are what they share.

mod accepted;
mod pods;
mod running;
mod settle;
mod teardown;
mod without_store;

use std::{collections::BTreeSet, time::Duration};

use transcript::{AgentStatus, Outcome, Reason, Turn, TurnState};

pub use pods::{is_terminal, pod_nonce};

use crate::model::{Clock, Decision, Follow, LedgerView, Observed, PodView, Step, TurnView};

/// Decides the next step for one session.
#[must_use]
pub fn decide(observed: &Observed) -> Decision {
    let mut desk = Desk::new(observed);
    let step = match &observed.ledger {
        Ok(ledger) => with_ledger(&mut desk, ledger),
        Err(trouble) => without_store::step(&mut desk, trouble),
    };
    desk.finish(step)
}

fn with_ledger(desk: &mut Desk<'_>, ledger: &LedgerView) -> Step {
    if let Some(step) = record_turns(desk, ledger) {
        return step;
    }
    match ledger.turns.iter().find(|turn| turn.state.is_active()) {
        None => teardown::step(desk, ledger),
        Some(turn) => match turn.state {
            TurnState::Accepted => accepted::step(desk, ledger, turn),
            TurnState::Running | TurnState::Harvesting => running::step(desk, ledger, turn),
            // Settled turns were passed over by the search above.
            TurnState::Settled => Step::Wait,
        },
    }
}

/// Turns in spec that the store does not know: a new one is accepted, one that was accepted once is recorded as lost and never run.
fn record_turns(desk: &Desk<'_>, ledger: &LedgerView) -> Option<Step> {
    let session = &desk.observed.session;
    // History that goes with its object is not recorded anew once it went.
    if session.deleting && session.reclaim_delete && !ledger.known {
        return None;
    }
    let known: BTreeSet<Turn> = ledger.turns.iter().map(|turn| turn.turn).collect();
    let unknown = session.turns.iter().enumerate().filter_map(|(i, spec)| {
        let turn = Turn(u32::try_from(i).unwrap_or(u32::MAX).saturating_add(1));
        (!known.contains(&turn)).then(|| (turn, spec.clone()))
    });
    let (lost, fresh): (Vec<_>, Vec<_>) = unknown.partition(|(turn, _)| turn.0 <= session.accepted_turns);
    if !lost.is_empty() {
        return Some(Step::RecordLostTurns(lost));
    }
    // Nothing new begins on an object that goes, is let go, or cannot be acted on.
    if fresh.is_empty() || session.deleting || session.releasing || session.invalid.is_some() {
        return None;
    }
    Some(Step::AcceptTurns(fresh))
}

/// Collects what a decision says beside its step.
struct Desk<'a> {
    observed: &'a Observed,
    clocks: BTreeSet<Clock>,
    requeue: Option<Duration>,
    waiting: Option<(Reason, String)>,
    follow: Option<Follow>,
    tearing_down: bool,
}

impl<'a> Desk<'a> {
    fn new(observed: &'a Observed) -> Self {
        Self { observed, clocks: BTreeSet::new(), requeue: None, waiting: None, follow: None, tearing_down: false }
    }

    /// How long a state has been held. Asking says that it holds now.
    fn since(&mut self, clock: Clock) -> Duration {
        let elapsed = self.observed.elapsed.get(&clock).copied().unwrap_or_default();
        self.clocks.insert(clock);
        elapsed
    }

    /// Lets those clocks run on that run already. For a step that only waits for an answer: the state that they measure is the same before and after.
    fn keep_clocks(&mut self, kept: impl Fn(&Clock) -> bool) {
        self.clocks.extend(self.observed.elapsed.keys().filter(|clock| kept(clock)).cloned());
    }

    /// The last word of a Pod's driver; a status of another attempt is none.
    fn status_of(&self, pod: &PodView) -> Option<&'a AgentStatus> {
        let status = self.observed.drivers.get(&pod.uid)?.status.as_ref()?;
        (status.attempt == pod.attempt).then_some(status)
    }

    /// Whether the time that is left of a bound is over; if not, looks again when it is.
    fn over(&mut self, elapsed: Duration, bound: Duration) -> bool {
        let left = bound.saturating_sub(elapsed);
        if !left.is_zero() {
            self.look_again(left);
        }
        left.is_zero()
    }

    /// Looks again after this time at the latest.
    fn look_again(&mut self, after: Duration) {
        self.requeue = Some(self.requeue.map_or(after, |sooner| sooner.min(after)));
    }

    fn wait_for(&mut self, reason: Reason, message: impl Into<String>) -> Step {
        self.waiting = Some((reason, message.into()));
        Step::Wait
    }

    fn finish(self, step: Step) -> Decision {
        let Self { observed: _, clocks, requeue, waiting, follow, tearing_down } = self;
        Decision { step, requeue, waiting, clocks, follow, tearing_down }
    }
}

/// Whether a Pod ever had a turn.
fn had_turn(ledger: &LedgerView, pod: &PodView) -> bool {
    ledger.turns.iter().any(|turn| turn.pod_uid.as_ref() == Some(&pod.uid))
}

/// The attempts that earlier turns have used up: the highest that ran one, and at least one more for each later turn that no Pod came up for.
fn used_attempts(ledger: &LedgerView) -> u32 {
    let ran = ledger.turns.iter().rev().find_map(|turn| Some((turn.turn, turn.attempt?)));
    let (last, attempt) = ran.map_or((Turn(0), 0), |(turn, attempt)| (turn, attempt.0));
    let failed = |turn: &&TurnView| {
        turn.turn > last
            && matches!(turn.outcome, Some(Outcome::Failed | Outcome::Lost))
            && turn.reason != Some(Reason::StoreLost)
    };
    let starts = ledger.turns.iter().filter(failed).count();
    attempt.saturating_add(u32::try_from(starts).unwrap_or(u32::MAX)).min(ledger.attempt.0)
}
