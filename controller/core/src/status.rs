//! The last stage: what the object should say, projected from the ledger, the Pod and the decision.
//!
//! The store is the ledger and status only repeats it, so a projection may be dropped, repeated and come late. The rules beside that:
//!
//! - **Few writes.** The life of a one-turn session is three statuses: Provisioning, Running and its end. A step of milliseconds that the next pass
//!   will speak of (accepting, beginning a harvest, settling) leaves the status as it is; the Pod is named from the moment the turn runs, or earlier
//!   when something keeps it from starting; counters of a running turn are refreshed with whatever else is written, and do not cause a write.
//! - **A status that differs only in time is not written** ([`differs`]).
//! - **`acceptedTurns` never goes down**, since it is what keeps a prompt from being run again by an emptied store.
//! - **All four conditions** are there, once set, each with the generation that it speaks of.
//! - **Under 16 KiB**, whatever happens.

mod bounds;
mod conditions;
mod differ;
mod phase;
mod records;

use crds::{AgentSession, AgentSessionStatus, Phase, names};
use jiff::Timestamp;
use transcript::{Reason, Turn, TurnState};

pub use bounds::STATUS_BYTES;
pub use differ::differs;

use crate::model::{Clock, Decision, HarvestView, LedgerView, Observed, PodView, SessionView, Step, TurnView};

/// What the decision says that the projection needs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What the session waits for, if it is more than the ordinary start of a Pod.
    pub waiting: Option<(Reason, String)>,
    /// Whether the Pod is on its way out.
    pub tearing_down: bool,
    /// Whether a turn is over and reading or storing its log takes long.
    pub slow_harvest: bool,
    /// Whether the step is one that the next pass speaks of.
    pub brief: bool,
    /// Why records were abandoned, the store being out of reach until the deadline.
    pub abandoned: Option<Reason>,
}

impl Facts {
    /// The facts of a decision.
    #[must_use]
    pub fn new(observed: &Observed, decision: &Decision) -> Self {
        let harvesting = [Clock::Holding, Clock::Forced].iter().any(|clock| decision.clocks.contains(clock));
        Self {
            waiting: decision.waiting.clone().filter(|(reason, _)| *reason != Reason::PodStarting),
            tearing_down: decision.tearing_down,
            slow_harvest: harvesting && decision.waiting.is_some(),
            // A read that is tried again has no trouble of its own yet: until it ends, what was said of the last one stands.
            // And of history that went before its object there is nothing to say any more.
            brief: (harvesting && matches!(observed.harvest, HarvestView::Running))
                || (observed.session.deleting && observed.ledger.as_ref().is_ok_and(|ledger| !ledger.known))
                || matches!(
                    decision.step,
                    Step::AcceptTurns(_) | Step::RecordLostTurns(_) | Step::BeginHarvest { .. } | Step::Settle(_)
                ),
            abandoned: abandonment(&decision.step).or(observed.abandoned),
        }
    }
}

/// The reason of a teardown that has no record behind it.
fn abandonment(step: &Step) -> Option<Reason> {
    match step {
        Step::ReleaseRecorder { proof, .. }
        | Step::DeletePod { proof, .. }
        | Step::ReleasePod { proof, .. }
        | Step::ReleaseSession { proof } => proof.abandonment(),
        _ => None,
    }
}

/// What a projection is made from.
#[derive(Clone, Copy, Debug)]
pub struct Projection<'a> {
    /// The status that the object has.
    pub previous: Option<&'a AgentSessionStatus>,
    /// The session.
    pub session: &'a SessionView,
    /// `metadata.generation` of the object that `session` was made from.
    pub generation: i64,
    /// What the store says; `None` when it does not answer.
    pub ledger: Option<&'a LedgerView>,
    /// The Pod of the latest attempt.
    pub pod: Option<&'a PodView>,
    /// What the decision says.
    pub facts: &'a Facts,
    /// The time that a condition changes at.
    pub now: Timestamp,
}

/// The status that the object should have after a decision. Compare with [`differs`] before writing it.
#[must_use]
pub fn project(session: &AgentSession, observed: &Observed, decision: &Decision, now: Timestamp) -> AgentSessionStatus {
    let facts = Facts::new(observed, decision);
    let ledger = observed.ledger.as_ref().ok();
    let previous = session.status.as_ref();
    let projection = Projection {
        previous,
        session: &observed.session,
        generation: session.metadata.generation.unwrap_or(0),
        ledger,
        pod: current_pod(ledger, &observed.pods, previous),
        facts: &facts,
        now,
    };
    projection.status()
}

/// The Pod that the status speaks of: the one with the active turn, else ours of the latest attempt. Without a ledger, the one that it named before.
fn current_pod<'a>(
    ledger: Option<&LedgerView>,
    pods: &'a [PodView],
    previous: Option<&AgentSessionStatus>,
) -> Option<&'a PodView> {
    let Some(ledger) = ledger else {
        let name = previous?.pod_name.as_deref()?;
        return pods.iter().find(|pod| pod.name == name);
    };
    let runs = ledger.turns.iter().filter(|turn| turn.state.is_active()).find_map(|turn| turn.pod_uid.as_ref());
    let nonce = crate::decide::pod_nonce(&ledger.seed, ledger.attempt);
    pods.iter()
        .find(|pod| runs == Some(&pod.uid))
        .or_else(|| pods.iter().find(|pod| pod.attempt == ledger.attempt && pod.nonce == nonce))
}

impl Projection<'_> {
    /// The status, within its bounds.
    #[must_use]
    pub fn status(&self) -> AgentSessionStatus {
        bounds::fit(match self.ledger {
            None => self.without_ledger(),
            Some(_) if self.facts.brief && self.facts.waiting.is_none() => self.previous.cloned().unwrap_or_default(),
            Some(ledger) => self.with_ledger(ledger),
        })
    }

    fn with_ledger(&self, ledger: &LedgerView) -> AgentSessionStatus {
        let fresh = self.build(ledger, records::counters(ledger), records::turns(ledger, self.taken(ledger)));
        let Some(previous) = self.previous.filter(|_| in_pod(ledger).is_some()) else { return fresh };
        // A checkpoint alone is no reason to write: with the counters of before, is there one?
        let quiet = AgentSessionStatus {
            transcript: previous.transcript.clone(),
            turns: records::with_counters_of(previous, fresh.turns.clone()),
            ..fresh.clone()
        };
        if differs(Some(previous), &quiet) { fresh } else { quiet }
    }

    fn build(
        &self,
        ledger: &LedgerView,
        transcript: crds::TranscriptStatus,
        turns: Vec<crds::TurnStatus>,
    ) -> AgentSessionStatus {
        let phase = self.phase(ledger);
        let (reason, message) = self.reason(ledger, phase);
        let pod = self.shown_pod(phase);
        AgentSessionStatus {
            observed_generation: Some(self.generation),
            phase: Some(phase),
            reason,
            message,
            turn: current_turn(ledger).map(|turn| number(turn.0)),
            accepted_turns: Some(number(self.accepted(ledger))),
            attempt: self.shown_attempt(ledger, phase),
            pod_name: pod.map(|pod| pod.name.clone()),
            pod_ip: pod.and_then(|pod| conditions::is_dialable(pod).then(|| pod.ip.clone()).flatten()),
            transcript: Some(transcript),
            usage: records::usage(ledger),
            turns,
            conditions: self.conditions(ledger, phase),
        }
    }

    /// The store is away: what was said stands, but for the reason and for the Pod. A session that has nothing active is left alone: what it says of its
    /// turns came from the store and is not lost with it.
    fn without_ledger(&self) -> AgentSessionStatus {
        let mut status = self.previous.cloned().unwrap_or_default();
        if !status.phase.is_none_or(Phase::is_active) {
            return status;
        }
        match (self.facts.abandoned, &self.facts.waiting) {
            (Some(reason), _) => self.abandon(&mut status, reason),
            // A connection that is refused now and times out then is one outage: its first words stand.
            (None, Some((reason, message))) if status.reason != Some(*reason) => {
                status.reason = Some(*reason);
                status.message = Some(message.clone());
            }
            (None, _) => {}
        }
        if self.facts.slow_harvest && status.phase == Some(Phase::Running) {
            status.phase = Some(Phase::Harvesting);
        }
        status.phase.get_or_insert(Phase::Pending);
        if self.facts.tearing_down || self.pod.is_none() {
            status.pod_name = None;
            status.pod_ip = None;
        }
        status.conditions = self.conditions_without_ledger(&status);
        status
    }

    /// Nothing stands in the store; the object itself says what is lost, until the store is back and says it too. Afterwards its phase is not an active one,
    /// so this stands.
    fn abandon(&self, status: &mut AgentSessionStatus, reason: Reason) {
        status.phase = Some(Phase::Failed);
        status.reason = Some(reason);
        status.message = self.facts.waiting.as_ref().map(|(_, message)| message.clone()).or(status.message.take());
        status.transcript.get_or_insert_default().verdict = Some(transcript::Verdict::Incomplete);
        for turn in status.turns.iter_mut().filter(|turn| turn.transcript.is_none()) {
            turn.transcript = Some(transcript::Verdict::Incomplete);
            turn.transcript_reason = Some(reason);
        }
    }

    /// The high-water mark: whatever any source has seen.
    fn accepted(&self, ledger: &LedgerView) -> u32 {
        let stored = ledger.turns.iter().map(|turn| turn.turn.0).max().unwrap_or(0);
        let before = self.previous.and_then(|status| status.accepted_turns).and_then(|n| u32::try_from(n).ok());
        stored.max(self.session.accepted_turns).max(before.unwrap_or(0))
    }

    /// The Pod as status names it. While it starts as Pods do, nobody needs its name; once it was named it stays so.
    fn shown_pod(&self, phase: Phase) -> Option<&PodView> {
        let pod = self.pod.filter(|_| !self.facts.tearing_down)?;
        let named = self.previous.is_some_and(|status| status.pod_name.as_ref() == Some(&pod.name));
        (phase != Phase::Provisioning || named || self.facts.waiting.is_some()).then_some(pod)
    }

    fn shown_attempt(&self, ledger: &LedgerView, phase: Phase) -> Option<i32> {
        let before = self.previous.and_then(|status| status.attempt);
        let latest = (ledger.attempt.0 > 0).then(|| number(ledger.attempt.0));
        if phase == Phase::Provisioning && self.facts.waiting.is_none() { before } else { latest.or(before) }
    }

    /// Why the phase is what it is.
    fn reason(&self, ledger: &LedgerView, phase: Phase) -> (Option<Reason>, Option<String>) {
        if let Some((reason, message)) = &self.facts.waiting {
            return (Some(*reason), Some(message.clone()));
        }
        match phase {
            Phase::Pending | Phase::Provisioning | Phase::Running | Phase::Harvesting => (None, None),
            Phase::Suspended => (Some(Reason::Suspended), None),
            Phase::Idle | Phase::Completed | Phase::Failed | Phase::Canceled => match ledger.turns.last() {
                Some(turn) => (turn.reason.or(turn.verdict_reason), turn.message.clone()),
                None => (None, None),
            },
        }
    }

    /// The accepted turn that a Pod takes at once, having had an earlier one: it is as good as running, and told so in one write instead of two.
    fn taken(&self, ledger: &LedgerView) -> Option<Turn> {
        let pod = self.pod.filter(|pod| !self.pod_is_leaving() && conditions::is_dialable(pod))?;
        let knows = ledger.turns.iter().any(|turn| turn.pod_uid.as_ref() == Some(&pod.uid));
        let next = ledger.turns.iter().find(|turn| turn.state.is_active())?;
        (knows && next.state == TurnState::Accepted && self.facts.waiting.is_none()).then_some(next.turn)
    }

    /// Whether spec has turns that the store has not.
    fn has_unaccepted(&self, ledger: &LedgerView) -> bool {
        self.session.turns.len() > ledger.turns.len()
    }
}

/// The turn that a Pod has.
fn in_pod(ledger: &LedgerView) -> Option<&TurnView> {
    ledger.turns.iter().find(|turn| matches!(turn.state, TurnState::Running | TurnState::Harvesting))
}

/// The turn that is active, or the last one that was.
fn current_turn(ledger: &LedgerView) -> Option<Turn> {
    let next = || ledger.turns.iter().find(|turn| turn.state.is_active());
    in_pod(ledger).or_else(next).or(ledger.turns.last()).map(|turn| turn.turn)
}

/// Counts in status are signed, as the API conventions want them.
fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Whether any of the four conditions stands yet.
fn condition<'a>(
    status: &'a AgentSessionStatus,
    type_: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    debug_assert!(names::CONDITIONS.contains(&type_));
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

#[cfg(test)]
mod tests;
