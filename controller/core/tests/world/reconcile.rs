//! The controller's loop: observe → decide → status → effect, with the real `decide` and the real projection.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use agentsession_controller_core::{
    Settled, decide,
    decide::{is_terminal, pod_nonce},
    model::{Decision, DriverView, LedgerView, Observed, PodRef, PodView, Step, Trouble},
    status,
};
use transcript::{Reason, SessionUid, TurnState};

use super::{
    api::timestamp,
    event::Event,
    memory::{Memory, STORE_RETRY},
    mutation::Mutation,
    process::{Op, Pass},
    sim::World,
};

const CATCH_UP: u64 = 50;

impl World {
    pub fn pass(&mut self, process: usize, session: &SessionUid) {
        let now = self.now;
        let proc = &mut self.procs[process];
        if proc.due.get(session).is_none_or(|due| *due > now) || proc.passes.contains_key(session) {
            return;
        }
        proc.due.remove(session);
        let Some(rev) = proc.sessions.get(session).map(Arc::clone) else { return };
        let memory = proc.memory.entry(session.clone()).or_default();
        let guard = self.mutation != Some(Mutation::NoOwnWritesGuard);
        if guard && !memory.caught_up(rev.rv, proc.seen, proc.listed) {
            self.due_in(process, session, CATCH_UP);
            return;
        }
        let pods = proc.pods.values().filter(|pod| pod.session == *session).cloned().collect();
        let pass =
            Pass { rev, pods, observed: None, ops: VecDeque::from([Op::Look]), step: "", waits: true, requeue: None };
        proc.passes.insert(session.clone(), pass);
        self.op_later(process, session);
    }

    pub fn op_later(&mut self, process: usize, session: &SessionUid) {
        let slow = self.faulty() && self.rng.chance(20);
        let lag = if slow { self.rng.range(50, 3000) } else { self.rng.range(1, 12) };
        let epoch = self.procs[process].epoch;
        self.at(lag, Event::Op { process, epoch, session: session.clone() });
    }

    /// Everything that a decision may know, at this moment.
    fn observe(&mut self, process: usize, session: &SessionUid) -> Option<Observed> {
        let now = self.now;
        let down = self.api_down();
        let trouble = self.procs[process].memory.get(session).and_then(|memory| memory.store_trouble.clone());
        let ledger = match trouble {
            Some((trouble, at)) if now < at + STORE_RETRY => Err(trouble),
            _ => self.read_ledger(session),
        };
        let pass = &self.procs[process].passes[session];
        let view = pass.rev.view.clone();
        let mut pods: Vec<PodView> = pass.pods.iter().map(|rev| rev.view.clone()).collect();
        if let Ok(ledger) = &ledger
            && let Some(missing) = missing_pod(ledger, &pods)
            && self.mutation != Some(Mutation::GoneByCache)
        {
            // The cache does not show the Pod that has the turn: gone, or not here yet. Only the API server knows.
            if down {
                return None;
            }
            if let Some(rev) = self.api.pod(&missing) {
                pods.push(rev.view.clone());
            }
        }
        for pod in &mut pods {
            if pod.deleting.is_some() {
                let ready = self.boxes.get(&pod.uid).map(|sandbox| sandbox.node_ready);
                pod.node_ready = if down { None } else { ready };
            }
            if self.mutation == Some(Mutation::AdoptByName)
                && let Ok(ledger) = &ledger
            {
                pod.nonce = pod_nonce(&ledger.seed, pod.attempt);
            }
        }
        let active = ledger.as_ref().ok().and_then(active_turn);
        let proc = &mut self.procs[process];
        let drivers = pods
            .iter()
            .filter_map(|pod| {
                let follower = proc.followers.get(&pod.uid)?;
                (follower.heard || follower.status.is_some()).then(|| {
                    (pod.uid.clone(), DriverView { status: follower.status.clone(), trouble: follower.trouble.clone() })
                })
            })
            .collect();
        let memory = proc.memory.entry(session.clone()).or_default();
        Some(Observed {
            drivers,
            harvest: memory.harvest(active, now),
            refusal: memory.refusal(now),
            elapsed: memory.elapsed(now),
            abandoned: memory.abandoned,
            done: memory.done.clone(),
            fresh_seed: format!("seed-{process}-{now}"),
            session: view,
            ledger,
            pods,
        })
    }

    fn read_ledger(&mut self, session: &SessionUid) -> Result<LedgerView, Trouble> {
        let flaky = self.faulty() && self.rng.chance(self.plan.store_errors);
        if flaky || self.store.can_read().is_err() {
            return Err(Trouble {
                reason: Reason::StoreUnavailable,
                message: "store unavailable while reading".into(),
            });
        }
        Ok(self.store.ledger(session, self.now))
    }

    /// The look of a pass: what it does and says from here on.
    pub fn look(&mut self, process: usize, session: &SessionUid) -> bool {
        let Some(observed) = self.observe(process, session) else { return false };
        let mut decision = decide(&observed);
        self.mutate(&observed, &mut decision);
        let now = self.now;
        let proc = &mut self.procs[process];
        let memory = proc.memory.entry(session.clone()).or_default();
        memory.hold(&decision.clocks, now);
        let memory_trouble = memory.store_trouble.is_some();
        self.follow(process, &observed, &decision);
        let proc = &mut self.procs[process];
        let pass = proc.passes.get_mut(session).unwrap();
        let object = &pass.rev.object;
        let next = status::project(object, &observed, &decision, timestamp(now));
        let mut ops = VecDeque::new();
        let tries_again = memory_trouble && observed.ledger.is_ok() && decision.step != Step::Wait;
        if status::differs(object.status.as_ref(), &next) && !tries_again {
            ops.push_back(Op::Status(Box::new(next)));
        }
        pass.step = decision.step.name();
        pass.waits = decision.step == Step::Wait;
        pass.requeue = decision.requeue.map(millis);
        ops.extend(operations(&observed, decision.step.clone()));
        let said = format!(
            "p{process} decides {}{}",
            describe(&decision.step),
            decision.waiting.as_ref().map(|(reason, _)| format!(" (waits: {reason})")).unwrap_or_default()
        );
        pass.ops = ops;
        pass.observed = Some(Box::new(observed));
        if decision.step != Step::Wait || self.verbose {
            self.say(|| said);
        }
        true
    }

    /// Keeps the follower that the decision wants, and no other.
    fn follow(&mut self, process: usize, observed: &Observed, decision: &Decision) {
        let wanted = decision.follow.as_ref();
        for pod in &observed.pods {
            let gone = is_terminal(pod, Duration::ZERO);
            if gone && wanted.is_none_or(|wanted| wanted.pod.uid != pod.uid) {
                self.procs[process].followers.remove(&pod.uid);
            }
        }
        if let Some(wanted) = wanted {
            self.ensure_follower(process, &observed.session.uid, wanted);
        }
    }

    /// A pass is over.
    pub fn pass_done(&mut self, process: usize, session: &SessionUid) {
        let proc = &mut self.procs[process];
        let Some(pass) = proc.passes.remove(session) else { return };
        proc.memory.entry(session.clone()).or_default().failures = 0;
        if pass.waits {
            if let Some(after) = pass.requeue {
                self.due_in(process, session, after);
            }
        } else {
            self.due_in(process, session, 0);
        }
        self.wake(process, session);
    }

    pub fn pass_failed(&mut self, process: usize, session: &SessionUid) {
        let proc = &mut self.procs[process];
        proc.passes.remove(session);
        let memory: &mut Memory = proc.memory.entry(session.clone()).or_default();
        memory.failures += 1;
        let pause = (500_u64 << memory.failures.min(8)).min(30_000);
        self.due_in(process, session, pause);
        self.wake(process, session);
    }

    pub fn pass_conflict(&mut self, process: usize, session: &SessionUid) {
        self.procs[process].passes.remove(session);
        self.due_in(process, session, CATCH_UP);
        self.wake(process, session);
    }

    /// A poke that came while the pass was under way was swallowed: it is due now.
    fn wake(&mut self, process: usize, session: &SessionUid) {
        let proc = &self.procs[process];
        let Some(due) = proc.due.get(session).copied() else { return };
        let epoch = proc.epoch;
        self.at(due.saturating_sub(self.now), Event::Pass { process, epoch, session: session.clone() });
    }

    fn mutate(&self, observed: &Observed, decision: &mut Decision) {
        let forged = |pod: &PodRef| Settled::for_pod(&LedgerView::default(), &pod.uid).unwrap();
        match (self.mutation, &decision.step) {
            (Some(Mutation::TeardownBeforeSettle), Step::Harvest { pod, .. }) => {
                decision.step = Step::DeletePod { pod: pod.clone(), proof: forged(pod) };
            }
            (Some(Mutation::ReleaseBeforeSettle), _) if observed.session.deleting && observed.session.has_finalizer => {
                let proof = Settled::for_pod(&LedgerView::default(), &"".into()).unwrap();
                decision.step = Step::ReleaseSession { proof };
            }
            (Some(Mutation::DeliverBeforeStart), Step::StartTurn { turn, pod, .. }) => {
                let delivered = agentsession_controller_core::model::Done::Delivered(pod.uid.clone(), *turn);
                if !observed.done.contains(&delivered) {
                    decision.step = Step::Deliver { turn: *turn, pod: pod.clone() };
                }
            }
            (Some(Mutation::NoHighWaterMark), Step::RecordLostTurns(turns)) => {
                decision.step = Step::AcceptTurns(turns.clone());
            }
            _ => {}
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

fn active_turn(ledger: &LedgerView) -> Option<transcript::Turn> {
    ledger.turns.iter().find(|turn| turn.state.is_active()).map(|turn| turn.turn)
}

/// The Pod that has the active turn, when the cache does not show it.
fn missing_pod(ledger: &LedgerView, pods: &[PodView]) -> Option<transcript::PodUid> {
    let turn = ledger.turns.iter().find(|turn| turn.state.is_active())?;
    let uid = turn.pod_uid.clone().filter(|_| turn.state != TurnState::Accepted)?;
    pods.iter().all(|pod| pod.uid != uid).then_some(uid)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Settle(settle) => format!(
            "settle turn {} {} {:?} {} {:?}",
            settle.turn, settle.outcome, settle.reason, settle.verdict, settle.verdict_reason
        ),
        Step::CreatePod { attempt, .. } | Step::OpenAttempt { attempt, .. } => {
            format!("{} attempt {attempt}", step.name())
        }
        Step::StartTurn { turn, pod, .. } | Step::Deliver { turn, pod } | Step::CancelTurn { turn, pod } => {
            format!("{} turn {turn} {}", step.name(), pod.name)
        }
        Step::DeletePod { pod, proof } | Step::ReleasePod { pod, proof } | Step::ReleaseRecorder { pod, proof } => {
            format!("{} {} {:?}", step.name(), pod.name, proof.abandonment())
        }
        other => other.name().to_owned(),
    }
}

/// Whether a store may have been emptied since turns were accepted.
fn is_doubtful(ledger: &LedgerView) -> bool {
    ledger.turns.is_empty() || ledger.turns.iter().any(|turn| turn.reason == Some(Reason::StoreLost))
}

/// A step as the operations that carry it out, in order.
fn operations(observed: &Observed, step: Step) -> Vec<Op> {
    let ensure = || {
        let known = observed.ledger.as_ref().is_ok_and(|ledger| ledger.known);
        if known { Vec::new() } else { vec![Op::EnsureSession] }
    };
    match step {
        Step::Wait => Vec::new(),
        Step::AcceptTurns(turns) => {
            let first = observed.ledger.as_ref().is_ok_and(is_doubtful);
            let ask = first.then_some(Op::AskAccepted);
            let accept = turns.into_iter().map(|(turn, spec)| Op::Accept(turn, spec));
            ask.into_iter().chain(ensure()).chain(accept).collect()
        }
        Step::RecordLostTurns(turns) => {
            let first = observed.ledger.as_ref().is_ok_and(is_doubtful);
            let ask = first.then_some(Op::AskAccepted);
            ask.into_iter()
                .chain(ensure())
                .chain(turns.into_iter().map(|(turn, spec)| Op::RecordLost(turn, spec)))
                .collect()
        }
        Step::AddFinalizer => vec![Op::AddFinalizer],
        Step::OpenAttempt { attempt, seed } => vec![Op::OpenAttempt(attempt, seed)],
        Step::CreatePod { attempt, nonce, fresh_workspace: _ } => {
            vec![Op::ListBeforeCreate(attempt), Op::Create(attempt, nonce)]
        }
        Step::StartTurn { turn, attempt, pod } => vec![Op::StartTurn(turn, attempt, pod)],
        Step::Deliver { turn, pod } => vec![Op::Deliver(turn, pod)],
        Step::CancelTurn { turn, pod } => vec![Op::Cancel(turn, pod)],
        Step::BeginHarvest { turn, attempt } => vec![Op::BeginHarvest(turn, attempt)],
        Step::Harvest { turn, attempt, pod, after_agent_end } => {
            vec![Op::Harvest(turn, attempt, pod, after_agent_end)]
        }
        Step::Settle(settle) => vec![Op::Settle(settle)],
        Step::ReleaseRecorder { pod, proof: _ } => vec![Op::ReleaseRecorder(pod)],
        Step::DeletePod { pod, proof } => vec![Op::DeletePod(pod, proof)],
        Step::ReleasePod { pod, proof } => vec![Op::GetPod(pod, proof)],
        Step::Reclaim { delete } => vec![Op::Reclaim(delete)],
        Step::ReleaseSession { proof } => vec![Op::GetSession(proof)],
        Step::DeleteSession => vec![Op::DeleteSession],
    }
}
