//! Operations take effect here, each numbered, each with its fate: done, refused, lost on the way there or on the way back, or the last of its process.

use std::time::Duration;

use agentsession_controller_core::{
    model::{Done, Observed, PodRef, PodRefusal, RefusalKind, Trouble},
    pod_spec::{PodPlan, PodSettings, agent_pod},
    view,
};
use crds::names;
use transcript::{Attempt, PodUid, Reason, SessionUid, Turn};

use super::{
    api::Refused, journal::Fact, memory::HarvestKey, mutation::Mutation, process::Op, sandbox::Act, sim::World,
    store::StoreFail,
};

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Fine,
    CrashBefore,
    CrashAfter,
    ReplyLost,
    Fails,
    /// The process stands still, and it comes about afterwards.
    StandsStill(u64),
}

/// What the answer makes the process remember or do.
#[derive(Debug)]
enum Reply {
    Nothing,
    Session(u64),
    Pod(u64),
    Made(u64),
    Refusal(PodRefusal),
    Mark(Done),
    Then(Op),
    /// Something newer stands: the pass is over.
    Stale,
    AttemptOpened,
}

/// The operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failed;

impl From<StoreFail> for Failed {
    fn from(_: StoreFail) -> Self {
        Self
    }
}

impl World {
    /// Numbers an effect and says what becomes of it.
    pub fn fate(&mut self, process: usize, name: &'static str) -> Fate {
        self.effects.push(name);
        let number = self.effects.len();
        if let Some(fate) = self.plan.fates.get(&number) {
            let fate = *fate;
            self.say(|| format!("p{process} effect {number} {name}: {fate:?}"));
            return fate;
        }
        if !self.faulty() {
            return Fate::Fine;
        }
        let roll = u32::try_from(self.rng.range(0, 1000)).unwrap();
        let [crash, lost, fails] = [self.plan.crashes, self.plan.lost_replies, self.plan.call_errors];
        let fate = if roll < crash {
            if self.rng.chance(500) { Fate::CrashBefore } else { Fate::CrashAfter }
        } else if roll < crash + lost {
            Fate::ReplyLost
        } else if roll < crash + lost + fails {
            Fate::Fails
        } else {
            Fate::Fine
        };
        if fate != Fate::Fine {
            self.say(|| format!("p{process} effect {number} {name}: {fate:?}"));
        }
        fate
    }

    pub fn op(&mut self, process: usize, session: &SessionUid) {
        if self.faulty() && self.rng.chance(self.plan.pauses) {
            let pause = self.rng.pick(&[2000, 20_000, 90_000]);
            self.procs[process].paused_until = self.now + pause;
            self.say(|| format!("p{process} stands still for {pause} ms"));
            return self.op_later(process, session);
        }
        let Some(pass) = self.procs[process].passes.get_mut(session) else { return };
        let Some(op) = pass.ops.pop_front() else {
            self.pass_done(process, session);
            return;
        };
        if matches!(op, Op::Look) {
            if self.look(process, session) {
                self.op_later(process, session);
            } else {
                self.pass_failed(process, session);
            }
            return;
        }
        let held = std::mem::take(&mut self.procs[process].held);
        let fate = if held { Fate::Fine } else { self.fate(process, op.name()) };
        match fate {
            Fate::StandsStill(pause) => {
                self.procs[process].paused_until = self.now + pause;
                self.procs[process].held = true;
                self.procs[process].passes.get_mut(session).unwrap().ops.push_front(op);
                return self.op_later(process, session);
            }
            Fate::CrashBefore => return self.crash(process, "before an effect"),
            Fate::Fails => return self.pass_failed(process, session),
            Fate::Fine | Fate::CrashAfter | Fate::ReplyLost => {}
        }
        self.truth.reply_lost |= fate == Fate::ReplyLost;
        let writes = op.writes_store();
        let result = self.apply(process, session, op);
        if writes
            && fate == Fate::Fine
            && self.procs[process].passes[session].observed.as_ref().is_some_and(|o| o.ledger.is_ok())
        {
            let now = self.now;
            let trouble = Trouble { reason: Reason::StoreUnavailable, message: "the store takes no writes".into() };
            let memory = self.procs[process].memory.entry(session.clone()).or_default();
            memory.store_trouble = result.is_err().then_some((trouble, now));
        }
        match (fate, result) {
            (Fate::CrashAfter, _) => self.crash(process, "after an effect"),
            (Fate::ReplyLost, _) | (_, Err(Failed)) => self.pass_failed(process, session),
            (_, Ok(Reply::Stale)) => self.pass_conflict(process, session),
            (_, Ok(reply)) => {
                self.remember(process, session, reply);
                let more = self.procs[process].passes.get(session).is_some_and(|pass| !pass.ops.is_empty());
                if more { self.op_later(process, session) } else { self.pass_done(process, session) }
            }
        }
    }

    fn remember(&mut self, process: usize, session: &SessionUid, reply: Reply) {
        let now = self.now;
        let proc = &mut self.procs[process];
        let memory = proc.memory.entry(session.clone()).or_default();
        match reply {
            Reply::Nothing | Reply::Stale => {}
            Reply::Session(rv) => memory.wrote_session(rv),
            Reply::Pod(rv) => memory.wrote_pod(rv, now),
            Reply::Made(rv) => {
                memory.wrote_pod(rv, now);
                memory.refusal = None;
            }
            Reply::Refusal(refusal) => memory.refusal = Some((refusal, now)),
            Reply::Mark(done) => {
                memory.done.insert(done);
            }
            Reply::AttemptOpened => memory.refusal = None,
            Reply::Then(op) => {
                if let Some(pass) = proc.passes.get_mut(session) {
                    pass.ops.push_front(op);
                }
            }
        }
    }

    fn apply(&mut self, process: usize, session: &SessionUid, op: Op) -> Result<Reply, Failed> {
        match op {
            Op::Look => Ok(Reply::Nothing),
            Op::AskAccepted
            | Op::EnsureSession
            | Op::Accept(..)
            | Op::RecordLost(..)
            | Op::OpenAttempt(..)
            | Op::StartTurn(..)
            | Op::BeginHarvest(..)
            | Op::Settle(_)
            | Op::Reclaim(_) => self.apply_store(process, session, op),
            Op::Deliver(turn, pod) => self.deliver(process, session, turn, &pod),
            Op::Cancel(turn, pod) => self.cancel(turn, &pod),
            Op::ReleaseRecorder(pod) => Ok(self.release_recorder(process, &pod)),
            Op::Harvest(turn, attempt, pod, after) => {
                let key = HarvestKey { turn, attempt, pod: pod.uid };
                self.begin_harvest(process, session, key, pod.name, after);
                Ok(Reply::Nothing)
            }
            op if self.api_down() => {
                let _ = op;
                Err(Failed)
            }
            op => self.apply_cluster(process, session, op),
        }
    }

    fn apply_store(&mut self, process: usize, session: &SessionUid, op: Op) -> Result<Reply, Failed> {
        let now = self.now;
        if matches!(op, Op::AskAccepted) {
            // A store that knows no turn may have been emptied: what was accepted is asked of the API server, not of the cache.
            if self.mutation == Some(Mutation::AcceptByCache) {
                return Ok(Reply::Nothing);
            }
            if self.api_down() {
                return Err(Failed);
            }
            let seen = self.procs[process].passes[session].rev.view.accepted_turns;
            let stale = self.api.session(session).is_none_or(|rev| rev.view.accepted_turns > seen);
            return if stale { Err(Failed) } else { Ok(Reply::Nothing) };
        }
        if self.faulty() && self.rng.chance(self.plan.store_errors) {
            return Err(Failed);
        }
        self.store.can_write()?;
        let before = self.store.rows.get(session).map(|row| row.turns.clone()).unwrap_or_default();
        let mut reply = Reply::Nothing;
        match op {
            Op::EnsureSession => self.store.ensure(session),
            Op::Accept(turn, spec) => self.store.accept(session, turn, &spec, now)?,
            Op::RecordLost(turn, spec) => self.store.record_lost(session, turn, &spec, now)?,
            Op::OpenAttempt(attempt, seed) => {
                self.store.open_attempt(session, attempt, &seed)?;
                reply = Reply::AttemptOpened;
            }
            Op::StartTurn(turn, attempt, pod) => self.store.start_turn(session, turn, attempt, &pod.uid, now)?,
            Op::BeginHarvest(turn, attempt) => self.store.begin_harvest(session, turn, attempt)?,
            Op::Settle(settle) => {
                self.store.settle(session, &settle, now)?;
            }
            Op::Reclaim(delete) => {
                if delete {
                    self.truth.reclaimed.insert(session.clone());
                    self.store.rows.remove(session);
                    self.truth.acknowledged.retain(|(of, ..), _| of != session);
                    self.truth.last_seq.remove(session);
                } else if let Some(row) = self.store.rows.get_mut(session) {
                    row.deleted = true;
                }
                reply = Reply::Mark(Done::Reclaimed);
            }
            _ => {}
        }
        self.note_turns(session, &before);
        Ok(reply)
    }

    /// The facts of a write to turn records.
    pub fn note_turns(
        &mut self,
        session: &SessionUid,
        before: &std::collections::BTreeMap<Turn, super::store::TurnRow>,
    ) {
        let after = self.store.rows.get(session).map(|row| row.turns.clone()).unwrap_or_default();
        for (turn, row) in after {
            let old = before.get(&turn).map(|row| Box::new(row.view.clone()));
            if old.as_deref() != Some(&row.view) {
                self.fact(Fact::TurnChanged { session: session.clone(), before: old, after: Box::new(row.view) });
            }
        }
    }

    /// Whether an exec into a Pod's recorder comes about; `Err(true)`: its recorder is over.
    pub fn exec(&mut self, pod: &PodUid, name: &str) -> Result<(), bool> {
        if self.api_down() || (self.faulty() && self.rng.chance(self.plan.exec_errors)) {
            return Err(false);
        }
        let Some(rev) = self.api.pod(pod) else { return Err(true) };
        if rev.view.name != name {
            return Err(true);
        }
        if self.truth.foreign.contains(pod) {
            self.fact(Fact::Executed { pod: pod.clone() });
            return Err(false);
        }
        let Some(sandbox) = self.boxes.get(pod) else { return Err(true) };
        if sandbox.recorder.ended() {
            return Err(true);
        }
        if sandbox.answers() { Ok(()) } else { Err(false) }
    }

    fn deliver(&mut self, process: usize, session: &SessionUid, turn: Turn, pod: &PodRef) -> Result<Reply, Failed> {
        let turns = self.procs[process].passes[session].rev.view.turns.len() as u64;
        if turns < u64::from(turn.0) {
            return Err(Failed);
        }
        self.exec(&pod.uid, &pod.name).map_err(|_| Failed)?;
        if let Some(sandbox) = self.boxes.get_mut(&pod.uid) {
            sandbox.inbox.insert(turn);
        }
        self.act_later(&pod.uid, 1, 300, Act::Look);
        Ok(Reply::Mark(Done::Delivered(pod.uid.clone(), turn)))
    }

    fn cancel(&mut self, turn: Turn, pod: &PodRef) -> Result<Reply, Failed> {
        self.exec(&pod.uid, &pod.name).map_err(|_| Failed)?;
        if let Some(sandbox) = self.boxes.get_mut(&pod.uid) {
            sandbox.cancels.insert(turn);
        }
        self.act_later(&pod.uid, 1, 300, Act::Look);
        Ok(Reply::Mark(Done::Canceled(pod.uid.clone(), turn)))
    }

    /// Told once, whether it listens or not.
    fn release_recorder(&mut self, process: usize, pod: &PodRef) -> Reply {
        self.procs[process].followers.remove(&pod.uid);
        if self.exec(&pod.uid, &pod.name).is_ok() {
            self.act_later(&pod.uid, 1, 300, Act::RecorderEnds);
        }
        Reply::Mark(Done::RecorderReleased(pod.uid.clone()))
    }

    fn apply_cluster(&mut self, process: usize, session: &SessionUid, op: Op) -> Result<Reply, Failed> {
        match op {
            Op::Status(status) => Ok(self.write_status(process, session, &status)),
            Op::AddFinalizer => Ok(self.add_finalizer(process, session)),
            Op::ListBeforeCreate(attempt) => self.list_before_create(process, session, attempt),
            Op::Create(attempt, nonce) => self.create(process, session, attempt, nonce),
            Op::Standing(attempt, nonce, message) => Ok(self.standing(process, session, attempt, &nonce, message)),
            Op::DeletePod(pod, proof) => Ok(self.delete(process, session, &pod, proof.abandonment().is_some())),
            Op::GetPod(pod, proof) => {
                let Some(rev) = self.api.pods.get(&pod.name) else { return Ok(Reply::Nothing) };
                if rev.view.uid != pod.uid {
                    return Ok(Reply::Nothing);
                }
                let at = finalizer_at(rev.object.metadata.finalizers.as_ref());
                Ok(at.map_or(Reply::Nothing, |at| Reply::Then(Op::PatchPod(pod, proof, at))))
            }
            Op::PatchPod(pod, proof, at) => {
                Ok(self.release_pod(process, session, &pod, proof.abandonment().is_some(), at))
            }
            Op::GetSession(proof) => {
                let Some(rev) = self.api.session(session) else { return Ok(Reply::Nothing) };
                // A wish that was withdrawn in the meantime is none.
                let wanted = rev.view.deleting || rev.view.releasing;
                let at = finalizer_at(rev.object.metadata.finalizers.as_ref()).filter(|_| wanted);
                Ok(at.map_or(Reply::Nothing, |at| Reply::Then(Op::PatchSession(proof, at, rev.rv))))
            }
            Op::PatchSession(proof, at, rv) => Ok(self.release_session(session, proof.abandonment().is_some(), at, rv)),
            Op::DeleteSession => {
                self.api.writes += 1;
                let now = self.now;
                let _ = self.api.delete_session(session, None, now);
                self.truth.stopped.insert(session.clone());
                self.truth.going_since.entry(session.0.clone()).or_insert(now);
                self.published();
                Ok(Reply::Nothing)
            }
            _ => Ok(Reply::Nothing),
        }
    }

    fn write_status(&mut self, process: usize, session: &SessionUid, status: &crds::AgentSessionStatus) -> Reply {
        let pass = &self.procs[process].passes[session];
        let blind = self.mutation == Some(Mutation::StatusWithoutVersion);
        let rv = (!blind).then_some(pass.rev.rv);
        let before = self.api.session(session).and_then(|rev| rev.object.status.clone()).map(Box::new);
        self.api.writes += 1;
        match self.api.apply_status(session, rv, status) {
            Ok(rev) => {
                self.fact(Fact::StatusWritten { before, after: Box::new(status.clone()) });
                for turn in 1..=status.accepted_turns.unwrap_or(0) {
                    let turn = Turn(u32::try_from(turn).unwrap());
                    if let Some(spec) = rev.view.turns.get(turn.0 as usize - 1) {
                        self.truth.prompts.entry((session.clone(), turn)).or_insert(spec.prompt.clone());
                    }
                }
                self.say(|| {
                    format!(
                        "p{process} status {:?} {:?} accepted {:?}",
                        status.phase, status.reason, status.accepted_turns
                    )
                });
                self.published();
                Reply::Session(rev.rv)
            }
            Err(Refused { .. }) => Reply::Stale,
        }
    }

    fn add_finalizer(&mut self, process: usize, session: &SessionUid) -> Reply {
        let Some(rev) = self.api.session(session) else { return Reply::Nothing };
        // The API server lets nobody add a finalizer to what is being deleted.
        if rev.view.deleting && !rev.view.has_finalizer {
            return Reply::Nothing;
        }
        self.api.writes += 1;
        self.effect_once(
            process,
            format!("finalizer {session} {:?} {}", rev_generation(self, session), self.truth.strips),
        );
        let edited = self.api.edit_session(session, |object| {
            let list = object.metadata.finalizers.get_or_insert_default();
            if !list.iter().any(|finalizer| finalizer == names::FINALIZER) {
                list.push(names::FINALIZER.to_owned());
            }
        });
        self.published();
        edited.map_or(Reply::Nothing, |rev| Reply::Session(rev.rv))
    }

    /// The last look before a Pod is made: an earlier one that the cache does not show any more, or not yet, is waited for.
    fn list_before_create(&mut self, process: usize, session: &SessionUid, attempt: Attempt) -> Result<Reply, Failed> {
        if self.mutation == Some(Mutation::CreateByCache) {
            return Ok(Reply::Nothing);
        }
        let observed: &Observed = self.procs[process].passes[session].observed.as_ref().unwrap();
        let seed = observed.ledger.as_ref().map(|ledger| ledger.seed.clone()).unwrap_or_default();
        let stands = self.api.pods.values().any(|rev| {
            let view = &rev.view;
            rev.session == *session
                && view.attempt != attempt
                && view.nonce == agentsession_controller_core::decide::pod_nonce(&seed, view.attempt)
        });
        if stands { Err(Failed) } else { Ok(Reply::Nothing) }
    }

    fn create(
        &mut self,
        process: usize,
        session: &SessionUid,
        attempt: Attempt,
        nonce: String,
    ) -> Result<Reply, Failed> {
        let rev = std::sync::Arc::clone(&self.procs[process].passes[session].rev);
        let plan = PodPlan { attempt, nonce: nonce.clone(), recorder_token_sha256: None };
        let pod = agent_pod(&rev.object, &plan, &PodSettings::new("sandbox:1"));
        self.api.writes += 1;
        match self.api.create_pod(pod) {
            Ok(made) => {
                let uid = made.view.uid.clone();
                self.effect_once(process, format!("made {uid}"));
                self.fact(Fact::PodMade { session: session.clone(), pod: uid.clone(), attempt });
                self.say(|| format!("p{process} made {} ({uid})", made.view.name));
                self.adopt_sandbox(&uid, session, attempt);
                self.published();
                self.collect_soon();
                Ok(Reply::Made(made.rv))
            }
            Err(answer) => match view::refusal(answer.code, answer.reason, &answer.message) {
                None => Err(Failed),
                Some(RefusalKind::NameTaken) => Ok(Reply::Then(Op::Standing(attempt, nonce, answer.message))),
                Some(kind) => {
                    Ok(Reply::Refusal(PodRefusal { attempt, kind, message: answer.message, age: Duration::ZERO }))
                }
            },
        }
    }

    fn standing(
        &mut self,
        process: usize,
        session: &SessionUid,
        attempt: Attempt,
        nonce: &str,
        message: String,
    ) -> Reply {
        let found = self.api.session(session).map(|rev| rev.view.name.clone()).unwrap_or_default();
        let name = agentsession_controller_core::names::pod_name(&found, session, attempt);
        let Some(rev) = self.api.pods.get(&name) else { return Reply::Nothing };
        if rev.view.nonce == nonce || self.mutation == Some(Mutation::AdoptByName) {
            let (uid, rv) = (rev.view.uid.clone(), rev.rv);
            self.effect_once(process, format!("made {uid}"));
            return Reply::Pod(rv);
        }
        Reply::Refusal(PodRefusal { attempt, kind: RefusalKind::NameTaken, message, age: Duration::ZERO })
    }

    fn delete(&mut self, process: usize, session: &SessionUid, pod: &PodRef, abandoned: bool) -> Reply {
        self.procs[process].followers.remove(&pod.uid);
        let by_name = self.mutation == Some(Mutation::DeleteByName);
        let Some(rev) = self.api.pods.get(&pod.name).filter(|rev| by_name || rev.view.uid == pod.uid) else {
            return Reply::Nothing;
        };
        let uid = rev.view.uid.clone();
        let deleting = rev.view.deleting.is_some();
        if uid != pod.uid {
            self.fact(Fact::WrongPod { meant: pod.uid.clone(), hit: uid.clone() });
        }
        self.api.writes += 1;
        self.effect_once(process, format!("delete {uid}"));
        self.fact(Fact::PodTakenDown {
            session: session.clone(),
            pod: uid.clone(),
            deleted: true,
            abandoned,
            deleting,
        });
        let now = self.now;
        let rv = self.api.delete_pod(&uid, 1, now).map(|rev| rev.rv);
        self.published();
        self.kubelet_sees_deletion(&uid);
        rv.map_or(Reply::Nothing, Reply::Pod)
    }

    fn release_pod(&mut self, process: usize, session: &SessionUid, pod: &PodRef, abandoned: bool, at: usize) -> Reply {
        let Some(rev) = self.api.pods.get(&pod.name).filter(|rev| rev.view.uid == pod.uid) else {
            return Reply::Nothing;
        };
        if finalizer_at(rev.object.metadata.finalizers.as_ref()) != Some(at) {
            return Reply::Nothing;
        }
        let deleting = rev.view.deleting.is_some();
        self.api.writes += 1;
        self.effect_once(process, format!("release {}", pod.uid));
        let (session, uid) = (session.clone(), pod.uid.clone());
        self.fact(Fact::PodTakenDown { session, pod: uid, deleted: false, abandoned, deleting });
        let edited = self.api.edit_pod(&pod.uid, |object| {
            object.metadata.finalizers.as_mut().unwrap().remove(at);
        });
        self.published();
        edited.map_or(Reply::Nothing, |rev| Reply::Pod(rev.rv))
    }

    fn release_session(&mut self, session: &SessionUid, abandoned: bool, at: usize, rv: u64) -> Reply {
        let Some(rev) = self.api.session(session) else { return Reply::Nothing };
        let before = rev.object.metadata.finalizers.clone().unwrap_or_default();
        if rev.rv != rv || before.get(at).is_none_or(|finalizer| finalizer != names::FINALIZER) {
            return Reply::Nothing;
        }
        self.api.writes += 1;
        let all = self.mutation == Some(Mutation::FinalizersReplaced);
        self.fact(Fact::SessionReleased { session: session.clone(), abandoned });
        let mut after = before.clone();
        if all {
            after.clear();
        } else {
            after.remove(at);
        }
        self.fact(Fact::FinalizersChanged { before, after: after.clone() });
        let edited = self.api.edit_session(session, |object| object.metadata.finalizers = Some(after));
        self.published();
        self.collect_soon();
        edited.map_or(Reply::Nothing, |rev| Reply::Session(rev.rv))
    }

    pub fn effect_once(&mut self, process: usize, key: String) {
        let epoch = self.procs[process].epoch;
        self.fact(Fact::Effect { process, epoch, key });
    }
}

fn finalizer_at(list: Option<&Vec<String>>) -> Option<usize> {
    list?.iter().position(|finalizer| finalizer == names::FINALIZER)
}

/// What tells one putting on of a finalizer from the next.
fn rev_generation(world: &World, session: &SessionUid) -> Option<i64> {
    world.api.session(session).and_then(|rev| rev.object.metadata.generation)
}
