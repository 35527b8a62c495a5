//! What must hold, one function each: after every event, and when the world has come to rest.

use std::fmt;

use agentsession_controller_core::{
    decide::pod_nonce,
    model::{PodView, TurnView},
};
use crds::DesiredState;
use transcript::{AgentState, Outcome, PartIndex, Reason, SessionUid, Turn, TurnState, Verdict};

use super::{api::SessionRev, journal::Fact, sandbox::Real, sim::World, truth::LogKey};

/// An invariant that did not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    pub invariant: &'static str,
    pub what: String,
}

impl Violation {
    pub fn new(invariant: &'static str, what: &str) -> Self {
        Self { invariant, what: what.to_owned() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

type Check = Result<(), Violation>;

fn fail(invariant: &'static str, what: String) -> Check {
    Err(Violation { invariant, what })
}

pub fn after_event(world: &mut World, facts: &[Fact]) -> Check {
    for fact in facts {
        teardown_comes_after_the_record(world, fact)?;
        a_delivered_turn_runs_once(world, fact)?;
        identities_once_and_seq_dense(world, fact)?;
        one_verdict_that_never_gets_worse(world, fact)?;
        complete_is_proven(world, fact)?;
        made_alone(world, fact)?;
        what_is_missing_is_true(world, fact)?;
        a_turn_keeps_its_pod(fact)?;
        outcomes_are_true(world, fact)?;
        status_never_goes_back(fact)?;
        foreign_pods_are_left_alone(world, fact)?;
        other_finalizers_are_left_alone(fact)?;
        no_effect_is_done_twice(world, fact)?;
        if matches!(fact, Fact::Emptied) {
            world.truth.emptied = true;
            world.truth.acknowledged.clear();
            world.truth.last_seq.clear();
        }
    }
    if !facts.is_empty() {
        acknowledged_parts_stay(world)?;
    }
    one_live_pod(world)
}

/// 1: no Pod is deleted and no finalizer removed without a settled turn or, past the deadline, a recorded abandonment.
fn teardown_comes_after_the_record(world: &World, fact: &Fact) -> Check {
    const NAME: &str = "1 teardown comes after the record";
    let (session, held, abandoned, what) = match fact {
        Fact::PodTakenDown { session, pod, abandoned, .. } => {
            let held = active(world, session).any(|turn| turn.pod_uid.as_ref() == Some(pod));
            (session, held, *abandoned, format!("Pod {pod}"))
        }
        Fact::SessionReleased { session, abandoned } => {
            let held = active(world, session).any(|turn| turn.state != TurnState::Accepted)
                || (world.api.session(session).is_some_and(|rev| rev.view.deleting)
                    && active(world, session).next().is_some());
            (session, held, *abandoned, format!("session {session}"))
        }
        _ => return Ok(()),
    };
    if !held {
        return Ok(());
    }
    if !abandoned {
        return fail(NAME, format!("{what} let go with an active turn"));
    }
    let Some(rev) = world.api.session(session) else { return Ok(()) };
    let bound = rev.view.timeouts.harvest.min(rev.view.timeouts.hold).as_millis() as u64;
    let earliest = world.plan.script.iter().map(|(at, _)| *at).min().unwrap_or(0);
    if world.now < earliest + bound {
        return fail(NAME, format!("{what} abandoned before any deadline"));
    }
    Ok(())
}

/// 1: no delivered turn is ever run again.
fn a_delivered_turn_runs_once(world: &mut World, fact: &Fact) -> Check {
    let Fact::TurnRan { session, turn, pod } = fact else { return Ok(()) };
    let runs = world.truth.runs.entry((session.clone(), *turn)).or_default();
    runs.push(pod.clone());
    if runs.len() > 1 {
        return fail("1 a delivered turn runs once", format!("turn {turn} ran in {runs:?}"));
    }
    Ok(())
}

/// 2: an identity is stored at most once, and seq is dense in commit order.
fn identities_once_and_seq_dense(world: &mut World, fact: &Fact) -> Check {
    const NAME: &str = "2 identities once, seq dense";
    let Fact::Acknowledged { session, turn, attempt, index, seq, raw } = fact else { return Ok(()) };
    let last = world.truth.last_seq.entry(session.clone()).or_default();
    if *seq != *last + 1 {
        return fail(NAME, format!("seq {seq} after {last}"));
    }
    *last = *seq;
    let key = (session.clone(), *turn, *index);
    if world.truth.acknowledged.insert(key, (*seq, raw.clone())).is_some() {
        return fail(NAME, format!("turn {turn} part {index} stored twice"));
    }
    let owner = world.store.rows.get(session).and_then(|row| row.turns.get(turn)).and_then(|turn| turn.view.attempt);
    if owner != Some(*attempt) {
        return fail(
            "7 a write of an old attempt is refused",
            format!("attempt {attempt} wrote to turn {turn} of {owner:?}"),
        );
    }
    Ok(())
}

/// 3: a part that was acknowledged is never lost.
fn acknowledged_parts_stay(world: &World) -> Check {
    for ((session, turn, index), (seq, raw)) in &world.truth.acknowledged {
        let stored = world.store.rows.get(session).and_then(|row| row.parts.get(&(*turn, *index)));
        if stored.is_none_or(|(stored, text)| stored != seq || text != raw) {
            return fail("3 an acknowledged part stays", format!("turn {turn} part {index} is {stored:?}"));
        }
    }
    Ok(())
}

/// 4: exactly one standing verdict, which only ever rises to Complete.
fn one_verdict_that_never_gets_worse(_: &World, fact: &Fact) -> Check {
    const NAME: &str = "4 one verdict, never worse";
    let Fact::TurnChanged { before, after, .. } = fact else { return Ok(()) };
    let Some(before) = before.as_ref().filter(|before| before.state == TurnState::Settled) else { return Ok(()) };
    let raised = before.verdict != Some(Verdict::Complete) && after.verdict == Some(Verdict::Complete);
    if !raised {
        return fail(NAME, format!("turn {}: {before:?} became {after:?}", after.turn));
    }
    Ok(())
}

fn newly_settled(fact: &Fact) -> Option<(&SessionUid, &TurnView)> {
    match fact {
        Fact::TurnChanged { session, after, .. } if after.state == TurnState::Settled => Some((session, after)),
        _ => None,
    }
}

/// 4: what is missing is said truly: a Pod is gone when it is, and parts are missing when they are.
fn what_is_missing_is_true(world: &World, fact: &Fact) -> Check {
    const NAME: &str = "4 what is missing is true";
    let Some((session, turn)) = newly_settled(fact) else { return Ok(()) };
    let there = turn.pod_uid.as_ref().is_some_and(|pod| world.api.pod(pod).is_some());
    match turn.verdict_reason {
        Some(Reason::PodGone) if there && world.api.session(session).is_some() => {
            fail(NAME, format!("turn {}: its Pod is there", turn.turn))
        }
        Some(Reason::PartsMissing) => fail(NAME, format!("turn {}: no driver leaves a hole", turn.turn)),
        _ => Ok(()),
    }
}

/// 4 and 7: a turn belongs to the Pod that it was given to.
fn a_turn_keeps_its_pod(fact: &Fact) -> Check {
    let Fact::TurnChanged { before: Some(before), after, .. } = fact else { return Ok(()) };
    if before.pod_uid.is_some() && before.pod_uid != after.pod_uid {
        return fail(
            "7 a turn keeps its Pod",
            format!("turn {}: {:?} then {:?}", after.turn, before.pod_uid, after.pod_uid),
        );
    }
    Ok(())
}

/// 4: Complete implies that the true log is over, undamaged, and stored part by part.
fn complete_is_proven(world: &World, fact: &Fact) -> Check {
    const NAME: &str = "4 Complete is proven";
    let Some((session, turn)) = newly_settled(fact) else { return Ok(()) };
    if turn.verdict != Some(Verdict::Complete) {
        return Ok(());
    }
    let Some(pod) = &turn.pod_uid else { return fail(NAME, format!("turn {} ran nowhere", turn.turn)) };
    let key = LogKey { session: session.clone(), turn: turn.turn, pod: pod.clone() };
    let Some(log) = world.truth.logs.get(&key) else { return fail(NAME, format!("turn {} has no log", turn.turn)) };
    if !log.ended || log.damaged {
        return fail(NAME, format!("turn {} ended {} damaged {}", turn.turn, log.ended, log.damaged));
    }
    let parts = &world.store.rows[session].parts;
    for (index, raw) in (0_u32..).zip(&log.parts) {
        if parts.get(&(turn.turn, PartIndex(index))).is_none_or(|(_, stored)| stored != raw) {
            return fail(NAME, format!("turn {} part {index} of {} is not stored", turn.turn, log.parts.len()));
        }
    }
    Ok(())
}

/// The outcome is what really happened.
fn outcomes_are_true(world: &World, fact: &Fact) -> Check {
    const NAME: &str = "outcomes are true";
    let Some((session, turn)) = newly_settled(fact) else { return Ok(()) };
    let log = turn
        .pod_uid
        .as_ref()
        .and_then(|pod| world.truth.logs.get(&LogKey { session: session.clone(), turn: turn.turn, pod: pod.clone() }));
    let ended = log.and_then(|log| log.state);
    let sane = match turn.outcome {
        Some(Outcome::Succeeded) => ended == Some(AgentState::Succeeded),
        Some(Outcome::Canceled) => {
            let forced =
                turn.reason.is_none() && (ended == Some(AgentState::Canceled) || turn.verdict_reason.is_some());
            world.truth.stopped.contains(session) || turn.reason == Some(Reason::EarlierTurnFailed) || forced
        }
        Some(Outcome::Failed) => turn.reason.is_some(),
        Some(Outcome::Lost) => turn.reason.is_some(),
        None => false,
    };
    let reasoned = (turn.verdict == Some(Verdict::Complete)) == turn.verdict_reason.is_none();
    if !sane || !reasoned {
        return fail(NAME, format!("{turn:?}, truly {ended:?}"));
    }
    Ok(())
}

/// Status never goes back: neither its high-water mark nor a record that was settled.
fn status_never_goes_back(fact: &Fact) -> Check {
    const NAME: &str = "7 status never goes back";
    let Fact::StatusWritten { before: Some(before), after } = fact else { return Ok(()) };
    if after.accepted_turns.unwrap_or(0) < before.accepted_turns.unwrap_or(0) {
        return fail(NAME, format!("acceptedTurns {:?} after {:?}", after.accepted_turns, before.accepted_turns));
    }
    for old in before.turns.iter().filter(|turn| turn.outcome.is_some()) {
        let new = after.turns.iter().find(|turn| turn.turn == old.turn);
        let lost = new.is_some_and(|new| new.reason == Some(Reason::StoreLost));
        let kept = new.is_some_and(|new| new.outcome.is_some());
        if !kept && !lost && after.turns.len() < 20 {
            return fail(NAME, format!("turn {} was {:?} and is {new:?}", old.turn, old.outcome));
        }
    }
    Ok(())
}

/// A Pod of somebody else is never deleted, executed into, or let go of but for a finalizer of ours that holds its deletion up.
fn foreign_pods_are_left_alone(world: &World, fact: &Fact) -> Check {
    const NAME: &str = "foreign Pods are left alone";
    match fact {
        Fact::WrongPod { meant, hit } => fail("every effect names its Pod", format!("{hit} instead of {meant}")),
        Fact::Executed { pod } if world.truth.foreign.contains(pod) => fail(NAME, format!("exec into {pod}")),
        Fact::PodTakenDown { session, pod, deleted, deleting, .. } if world.truth.foreign.contains(pod) => {
            // What has our finalizer and no session is let go of.
            let spared = *deleting || world.api.session(session).is_none();
            if *deleted || !spared { fail(NAME, format!("{pod} taken down")) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

fn other_finalizers_are_left_alone(fact: &Fact) -> Check {
    let Fact::FinalizersChanged { before, after } = fact else { return Ok(()) };
    let others = |list: &[String]| list.iter().filter(|f| *f != crds::names::FINALIZER).cloned().collect::<Vec<_>>();
    if others(before) != others(after) {
        return fail("other finalizers are left alone", format!("{before:?} became {after:?}"));
    }
    Ok(())
}

/// 6: no process does the same thing to the same object twice.
fn no_effect_is_done_twice(world: &mut World, fact: &Fact) -> Check {
    let Fact::Effect { process, epoch, key } = fact else { return Ok(()) };
    if !world.truth.effects.insert((*process, *epoch, key.clone())) && !world.truth.reply_lost {
        return fail("6 no effect is done twice", format!("process {process}: {key}"));
    }
    Ok(())
}

/// One live Pod a session: none of the latest attempt is made while another of ours is there. What a process that stood still makes of an earlier
/// attempt gets no turn and goes.
fn made_alone(world: &World, fact: &Fact) -> Check {
    let Fact::PodMade { session, pod, attempt } = fact else { return Ok(()) };
    let Some(row) = world.store.rows.get(session).filter(|row| row.attempt == *attempt) else { return Ok(()) };
    let ours = |view: &PodView| view.nonce == pod_nonce(&row.seed, view.attempt) && view.uid != *pod;
    match world.api.pods.values().find(|rev| rev.session == *session && ours(&rev.view)) {
        Some(other) => fail("one live Pod a session", format!("{pod} beside {}", other.view.name)),
        None => Ok(()),
    }
}

/// One driver at a time runs a turn of a session.
fn one_live_pod(world: &World) -> Check {
    const NAME: &str = "one live Pod a session";
    for session in world.store.rows.keys() {
        let stands = |pod| world.api.pod(pod).is_some_and(|rev| rev.view.deleting.is_none());
        let running = world.boxes.values().filter(|sandbox| {
            sandbox.session == *session
                && sandbox.running.is_some()
                && stands(&sandbox.uid)
                && sandbox.agent == Real::Running
                && sandbox.node_up
        });
        if running.count() > 1 {
            return fail(NAME, format!("two drivers of {session} run a turn"));
        }
    }
    Ok(())
}

fn active<'a>(world: &'a World, session: &SessionUid) -> impl Iterator<Item = &'a TurnView> {
    let row = world.store.rows.get(session);
    row.into_iter().flat_map(|row| row.turns.values()).map(|turn| &turn.view).filter(|turn| turn.state.is_active())
}

/// 5: from any state, when the world behaves again, the finalizers go; and everything else has come to its end.
pub fn at_rest(world: &World) -> Check {
    const NAME: &str = "5 everything comes to its end";
    for rev in world.api.sessions.values() {
        session_at_rest(world, rev)?;
    }
    for (uid, row) in &world.store.rows {
        if world.api.session(uid).is_none()
            && let Some(turn) = row.turns.values().find(|turn| turn.view.state.is_active())
        {
            return fail(NAME, format!("turn {} of a session that is gone is {}", turn.view.turn, turn.view.state));
        }
    }
    for rev in world.api.pods.values() {
        // An emptied store knows no Pod of before: whoever orphaned one keeps it, and one that is made later than that is taken for somebody else's.
        let row = world.store.rows.get(&rev.session);
        let unknown = row.is_none_or(|row| rev.view.nonce != pod_nonce(&row.seed, rev.view.attempt));
        let kept = world.truth.emptied && unknown && !(rev.view.deleting.is_some() && rev.view.has_finalizer);
        if !world.truth.foreign.contains(&rev.view.uid) && !kept {
            return fail(NAME, format!("Pod {} is left: {:?}", rev.view.name, rev.view));
        }
        if rev.view.has_finalizer && rev.view.deleting.is_some() {
            return fail(NAME, format!("foreign Pod {} is held by our finalizer", rev.view.name));
        }
    }
    prompts_are_kept(world)
}

fn session_at_rest(world: &World, rev: &SessionRev) -> Check {
    const NAME: &str = "5 everything comes to its end";
    let held = rev.object.metadata.finalizers.iter().flatten().any(|f| f == "example.com/hold");
    if rev.view.deleting && (rev.view.has_finalizer || !held) {
        return fail(NAME, format!("session {} is still there", rev.uid()));
    }
    let turns = world.store.rows.get(rev.uid()).map(|row| row.turns.clone()).unwrap_or_default();
    let spec = &rev.object.spec;
    let quiet = rev.view.deleting || rev.view.releasing;
    if !quiet && turns.len() < rev.view.turns.len() {
        return fail(NAME, format!("{} of {} turns accepted", turns.len(), rev.view.turns.len()));
    }
    for turn in turns.values().map(|turn| &turn.view) {
        let waits = turn.state == TurnState::Accepted && spec.desired_state == DesiredState::Suspended && !quiet;
        if turn.state.is_active() && !waits {
            return fail(NAME, format!("turn {} is {}", turn.turn, turn.state));
        }
    }
    if !quiet && spec.desired_state != DesiredState::Suspended && !world.truth.emptied {
        let finished = rev.object.status.iter().flat_map(|status| &status.conditions);
        let finished = finished.filter(|c| c.type_ == "Finished" && c.status == "True").count();
        if finished != 1 {
            return fail(NAME, format!("not Finished: {:?}", rev.object.status));
        }
    }
    status_tells_the_record(rev, &turns)
}

/// The status of a session at rest says what the store says.
fn status_tells_the_record(rev: &SessionRev, turns: &std::collections::BTreeMap<Turn, super::store::TurnRow>) -> Check {
    if rev.view.deleting {
        return Ok(());
    }
    let said = rev.object.status.as_ref().map(|status| status.turns.clone()).unwrap_or_default();
    for turn in turns.values().map(|turn| &turn.view).filter(|turn| turn.state == TurnState::Settled) {
        let line = said.iter().find(|line| line.turn == i32::try_from(turn.turn.0).unwrap());
        if line.is_none_or(|line| line.outcome != turn.outcome || line.transcript != turn.verdict) {
            return fail("9 status tells the record", format!("{turn:?} is told as {line:?}"));
        }
    }
    Ok(())
}

/// A prompt that was accepted is in the store, whatever happened later.
fn prompts_are_kept(world: &World) -> Check {
    for ((session, turn), prompt) in &world.truth.prompts {
        let Some(row) = world.store.rows.get(session).filter(|_| !world.truth.reclaimed.contains(session)) else {
            continue;
        };
        let stored = row.turns.get(turn).map(|turn| &turn.prompt);
        if stored != Some(prompt) && !world.truth.emptied {
            return fail("prompts are kept", format!("turn {turn}: {stored:?} instead of {prompt:?}"));
        }
    }
    Ok(())
}
