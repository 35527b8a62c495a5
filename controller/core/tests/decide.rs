//! What happens next in each situation of the table in docs/ARCHITECTURE.md: situation → step, what is waited for, when to look again. One snapshot, to be
//! read as a whole.

#![expect(clippy::unwrap_used, reason = "a fixture that does not hold is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    time::Duration,
};

use agentsession_controller_core::{
    decide,
    decide::pod_nonce,
    model::{
        Clock, ContainerState, Desired, Done, DriverView, HarvestView, LedgerView, Observed, PodPhase, PodRefusal,
        PodView, RefusalKind, SessionView, SpecTurn, StartError, Step, Timeouts, Trouble, TurnView,
    },
};
use jiff::Timestamp;
use transcript::{
    AgentState, AgentStatus, Attempt, IndexSet, Outcome, PartIndex, PodUid, Reason, Turn, TurnState, Verdict,
    merge::{ContainerEnd, Evidence, LogFacts},
};

const SEED: &str = "seed";

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A session of one turn that nothing has happened to.
fn fresh() -> Observed {
    Observed {
        session: SessionView {
            uid: "uid".into(),
            namespace: "team-a".into(),
            name: "hello".into(),
            deleting: false,
            has_finalizer: false,
            releasing: false,
            desired: Desired::Active,
            turns: vec![SpecTurn { id: None, prompt: "Hello".into() }],
            image: "agent:1".into(),
            template_digest: "t1".into(),
            accepted_turns: 0,
            timeouts: Timeouts {
                start: seconds(600),
                turn: seconds(1800),
                idle: seconds(900),
                hold: seconds(3600),
                harvest: seconds(120),
                ttl: None,
            },
            reclaim_delete: false,
            invalid: None,
        },
        ledger: Ok(LedgerView::default()),
        pods: Vec::new(),
        drivers: BTreeMap::new(),
        harvest: HarvestView::None,
        refusal: None,
        elapsed: BTreeMap::new(),
        abandoned: None,
        done: BTreeSet::new(),
        fresh_seed: SEED.into(),
    }
}

fn turn(turn: u32, state: TurnState) -> TurnView {
    TurnView {
        turn: Turn(turn),
        state,
        attempt: None,
        pod_uid: None,
        outcome: None,
        reason: None,
        verdict: None,
        verdict_reason: None,
        message: None,
        parts: 0,
        usage: None,
        accepted_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        settled_at: None,
        running_for: None,
        settled_for: None,
    }
}

/// Its turn is accepted, the finalizer is on, attempt 1 is open.
fn accepted() -> Observed {
    let mut observed = fresh();
    observed.session.has_finalizer = true;
    observed.session.accepted_turns = 1;
    observed.ledger = Ok(LedgerView {
        known: true,
        attempt: Attempt(1),
        seed: SEED.into(),
        turns: vec![turn(1, TurnState::Accepted)],
        ..LedgerView::default()
    });
    observed
}

fn pod(attempt: u32) -> PodView {
    PodView {
        name: format!("pod-{attempt}"),
        uid: PodUid(format!("uid-{attempt}")),
        attempt: Attempt(attempt),
        nonce: pod_nonce(SEED, Attempt(attempt)),
        owned: true,
        template_digest: "t1".into(),
        has_finalizer: true,
        deleting: None,
        ip: Some("10.0.0.9".into()),
        phase: PodPhase::Running,
        agent: ContainerState::Running,
        recorder: ContainerState::Running,
        disruption: None,
        start_error: None,
        node_ready: None,
    }
}

fn says(observed: &mut Observed, state: AgentState, turn: u32) {
    let status = AgentStatus {
        state,
        turn: Turn(turn),
        attempt: Attempt(1),
        parts: 3,
        log_bytes: 30,
        truncated: false,
        truncated_reason: None,
        error: None,
        reason: None,
        exit: None,
        stderr_tail: String::new(),
        agent_ready: state != AgentState::Running,
        agent_session_id: None,
        resume: None,
        continuity: None,
        usage: None,
    };
    observed.drivers.insert("uid-1".into(), DriverView { status: Some(status), trouble: None });
}

/// Its Pod is up and its driver waits.
fn idle() -> Observed {
    let mut observed = accepted();
    observed.pods = vec![pod(1)];
    says(&mut observed, AgentState::Idle, 0);
    observed
}

fn record(observed: &mut Observed) -> &mut TurnView {
    &mut observed.ledger.as_mut().unwrap().turns[0]
}

/// Its turn runs.
fn running() -> Observed {
    let mut observed = idle();
    let record = record(&mut observed);
    record.state = TurnState::Running;
    record.attempt = Some(Attempt(1));
    record.pod_uid = Some("uid-1".into());
    record.running_for = Some(seconds(10));
    says(&mut observed, AgentState::Running, 1);
    observed
}

/// Its turn is over and its log is to be read.
fn harvesting() -> Observed {
    let mut observed = running();
    record(&mut observed).state = TurnState::Harvesting;
    says(&mut observed, AgentState::Succeeded, 1);
    observed
}

/// Its turn is settled, and the Pod waits for another one.
fn settled() -> Observed {
    let mut observed = harvesting();
    let record = record(&mut observed);
    record.state = TurnState::Settled;
    record.outcome = Some(Outcome::Succeeded);
    record.verdict = Some(Verdict::Complete);
    record.settled_at = Some(Timestamp::UNIX_EPOCH);
    record.settled_for = Some(seconds(10));
    observed
}

fn whole(observed: &Observed) -> HarvestView {
    let indexes: IndexSet = (0..3).map(PartIndex).collect();
    let facts = LogFacts { exists: true, size: 30, read_to: 30, indexes: indexes.clone(), ..LogFacts::default() };
    let status = observed.drivers.get(&PodUid::from("uid-1")).and_then(|driver| driver.status.clone());
    HarvestView::Read {
        evidence: Box::new(Evidence { status, facts, stored: indexes, ..Evidence::default() }),
        after_agent_end: false,
        age: seconds(0),
    }
}

fn failed(reason: Reason) -> HarvestView {
    let trouble = Trouble { reason, message: "not this time".into() };
    HarvestView::Failed { trouble, tries: 3, age: seconds(60) }
}

fn with(mut observed: Observed, change: impl FnOnce(&mut Observed)) -> Observed {
    change(&mut observed);
    observed
}

fn away(observed: &mut Observed) {
    observed.ledger = Err(Trouble { reason: Reason::StoreUnavailable, message: "connection refused".into() });
}

fn ended(code: i32) -> ContainerState {
    ContainerState::Ended(ContainerEnd { exit_code: code, ..ContainerEnd::default() })
}

fn line(situation: &str, observed: &Observed) -> String {
    let decision = decide(observed);
    let mut line = format!("{situation}\n    → {}", said(&decision.step));
    if let Some((reason, _)) = &decision.waiting {
        write!(line, ", waits for {reason}").unwrap();
    }
    if let Some(after) = decision.requeue {
        write!(line, ", again in {} s", after.as_secs_f64()).unwrap();
    }
    if let Some(follow) = &decision.follow {
        write!(line, ", follows turn {}", follow.turn).unwrap();
    }
    if decision.tearing_down {
        line.push_str(", tears down");
    }
    line
}

fn said(step: &Step) -> String {
    match step {
        Step::Settle(settle) => format!(
            "settle turn {}: {}{}, {}{}",
            settle.turn,
            settle.outcome,
            settle.reason.map(|reason| format!(" {reason}")).unwrap_or_default(),
            settle.verdict,
            settle.verdict_reason.map(|reason| format!(" {reason}")).unwrap_or_default(),
        ),
        Step::OpenAttempt { attempt, .. } | Step::CreatePod { attempt, .. } => format!("{} {attempt}", step.name()),
        Step::Reclaim { delete } => format!("reclaim, delete {delete}"),
        Step::DeletePod { pod, proof } | Step::ReleasePod { pod, proof } | Step::ReleaseRecorder { pod, proof } => {
            let basis = proof.abandonment().map(|reason| format!(", abandoned: {reason}")).unwrap_or_default();
            format!("{} {}{basis}", step.name(), pod.name)
        }
        Step::ReleaseSession { proof } => {
            let basis = proof.abandonment().map(|reason| format!(", abandoned: {reason}")).unwrap_or_default();
            format!("release{basis}")
        }
        step => step.name().to_owned(),
    }
}

fn table(rows: &[(&str, Observed)]) -> String {
    rows.iter().map(|(situation, observed)| line(situation, observed)).collect::<Vec<_>>().join("\n")
}

#[test]
fn before_the_agent_has_the_turn() {
    let refused = |kind| {
        with(accepted(), |o| {
            o.refusal = Some(PodRefusal { attempt: Attempt(1), kind, message: "no".into(), age: Duration::ZERO });
        })
    };
    let start_error = |heals| {
        with(idle(), |o| {
            o.drivers.clear();
            o.pods[0].start_error =
                Some(StartError { reason: Reason::ImagePullFailed, message: "no such image".into(), heals });
        })
    };
    let rows = table(&[
        ("a new object", fresh()),
        (
            "a turn that was accepted once and that the store does not know",
            with(fresh(), |o| o.session.accepted_turns = 1),
        ),
        ("accepted, no finalizer", with(accepted(), |o| o.session.has_finalizer = false)),
        ("accepted, no attempt", with(accepted(), |o| o.ledger.as_mut().unwrap().attempt = Attempt(0))),
        ("accepted, attempt open, no Pod", accepted()),
        ("no room in the quota", refused(RefusalKind::Quota)),
        (
            "no room in the quota for longer than startTimeout",
            with(refused(RefusalKind::Quota), |o| {
                o.elapsed.insert(Clock::Next(Turn(1)), seconds(601));
            }),
        ),
        ("the name is taken", refused(RefusalKind::NameTaken)),
        ("the API server refuses the Pod for good", refused(RefusalKind::Fatal)),
        ("the namespace goes", refused(RefusalKind::NamespaceTerminating)),
        ("the Pod starts", with(idle(), |o| o.drivers.clear())),
        (
            "the Pod starts for longer than startTimeout",
            with(idle(), |o| {
                o.drivers.clear();
                o.elapsed.insert(Clock::Next(Turn(1)), seconds(601));
            }),
        ),
        ("a start error that may heal", start_error(true)),
        ("a start error that cannot heal", start_error(false)),
        (
            "the driver waits and the object does not say yet that the turn was accepted",
            with(idle(), |o| {
                o.session.accepted_turns = 0;
            }),
        ),
        ("the driver waits", idle()),
        ("the driver says that its agent did not start", with(idle(), |o| says(o, AgentState::Failed, 0))),
        (
            "the agent container ended before it was ready",
            with(idle(), |o| {
                o.drivers.clear();
                o.pods[0].agent = ended(1);
            }),
        ),
        ("the Pod was made from another template", with(idle(), |o| o.session.template_digest = "t2".into())),
        ("the Pod is being deleted before it had the turn", with(idle(), |o| o.pods[0].deleting = Some(seconds(60)))),
        (
            "the same for the fifth time",
            with(idle(), |o| {
                o.ledger.as_mut().unwrap().attempt = Attempt(5);
                o.pods = vec![PodView { deleting: Some(seconds(60)), ..pod(5) }];
            }),
        ),
        (
            "an earlier attempt's Pod is still going",
            with(accepted(), |o| {
                o.ledger.as_mut().unwrap().attempt = Attempt(2);
                o.pods =
                    vec![PodView { deleting: Some(seconds(60)), has_finalizer: false, recorder: ended(0), ..pod(1) }];
            }),
        ),
        (
            "a Pod of somebody else has our name",
            with(accepted(), |o| {
                o.pods = vec![PodView { nonce: "guessed".into(), owned: false, ..pod(1) }];
            }),
        ),
        ("deleted before a Pod ran", with(accepted(), |o| o.session.deleting = true)),
        ("canceled before a Pod ran", with(accepted(), |o| o.session.desired = Desired::Canceled)),
        ("suspended while the Pod starts", with(idle(), |o| o.session.desired = Desired::Suspended)),
        (
            "an earlier turn of those accepted together failed",
            with(settled(), |o| {
                record(o).outcome = Some(Outcome::Failed);
                o.ledger.as_mut().unwrap().turns.push(turn(2, TurnState::Accepted));
                o.session.turns.push(SpecTurn { id: None, prompt: "again".into() });
            }),
        ),
    ]);
    insta::assert_snapshot!(rows);
}

#[test]
fn while_a_pod_has_the_turn() {
    let taken_away = |o: &mut Observed| o.pods[0].deleting = Some(seconds(60));
    let suspended = |o: &mut Observed| o.session.desired = Desired::Suspended;
    let told = |o: &mut Observed| {
        o.done.insert(Done::Canceled("uid-1".into(), Turn(1)));
    };
    let rows = table(&[
        ("the store says running and the driver still waits", with(running(), |o| says(o, AgentState::Idle, 0))),
        (
            "the prompt was delivered and is not taken yet",
            with(running(), |o| {
                says(o, AgentState::Idle, 0);
                o.done.insert(Done::Delivered("uid-1".into(), Turn(1)));
            }),
        ),
        (
            "the same for 15 s",
            with(running(), |o| {
                says(o, AgentState::Idle, 0);
                o.done.insert(Done::Delivered("uid-1".into(), Turn(1)));
                o.elapsed.insert(Clock::Untaken(Turn(1)), seconds(15));
            }),
        ),
        ("the turn runs", running()),
        ("turnTimeout is over", with(running(), |o| record(o).running_for = Some(seconds(1801)))),
        ("suspended", with(running(), suspended)),
        ("suspended, told", with(with(running(), suspended), told)),
        (
            "suspended, told 20 s ago",
            with(with(with(running(), suspended), told), |o| {
                o.elapsed.insert(Clock::Stopping(Turn(1)), seconds(20));
            }),
        ),
        ("the driver says that the turn is over", with(running(), |o| says(o, AgentState::Succeeded, 1))),
        ("the agent container ended", with(running(), |o| o.pods[0].agent = ended(137))),
        ("the Pod is being deleted", with(running(), taken_away)),
        ("harvesting, not read yet", harvesting()),
        ("harvesting, a read is under way", with(harvesting(), |o| o.harvest = HarvestView::Running)),
        ("harvesting, the whole log is read", with(harvesting(), |o| o.harvest = whole(o))),
        ("harvesting, the read failed", with(harvesting(), |o| o.harvest = failed(Reason::ReadFailed))),
        (
            "the same until holdTimeout",
            with(harvesting(), |o| {
                o.harvest = failed(Reason::ReadFailed);
                o.elapsed.insert(Clock::Holding, seconds(3600));
            }),
        ),
        (
            "the session is being deleted and the store full until harvestTimeout",
            with(harvesting(), |o| {
                o.session.deleting = true;
                o.harvest = failed(Reason::StoreFull);
                o.elapsed.insert(Clock::Forced, seconds(120));
            }),
        ),
        (
            "the driver was stopped and nothing says by whom",
            with(harvesting(), |o| {
                says(o, AgentState::Canceled, 1);
                o.harvest = whole(o);
            }),
        ),
        (
            "the same, and the Pod is being deleted",
            with(with(harvesting(), taken_away), |o| {
                says(o, AgentState::Canceled, 1);
                o.harvest = whole(o);
            }),
        ),
        (
            "the Pod is terminal",
            with(harvesting(), |o| {
                o.pods[0].phase = PodPhase::Failed;
                o.pods[0].disruption = Some((Reason::Evicted, "The node was low on resource: memory.".into()));
            }),
        ),
        (
            "the Pod is terminal and was read in time",
            with(harvesting(), |o| {
                o.harvest = whole(o);
                o.pods[0].phase = PodPhase::Failed;
            }),
        ),
        (
            "its node is silent for longer than its grace",
            with(with(running(), taken_away), |o| {
                o.pods[0].node_ready = Some(false);
                o.elapsed.insert(Clock::PodDeleting("uid-1".into()), seconds(70));
            }),
        ),
        ("the Pod is gone", with(running(), |o| o.pods.clear())),
        (
            "the Pod is gone and the session canceled",
            with(running(), |o| {
                o.pods.clear();
                o.session.desired = Desired::Canceled;
            }),
        ),
        ("the store is away while the turn runs", with(running(), away)),
        (
            "the store is away, the turn over until holdTimeout",
            with(harvesting(), |o| {
                away(o);
                o.elapsed.insert(Clock::Holding, seconds(3600));
            }),
        ),
        (
            "the store is away, the session being deleted until harvestTimeout",
            with(harvesting(), |o| {
                away(o);
                o.session.deleting = true;
                o.elapsed.insert(Clock::Forced, seconds(120));
            }),
        ),
    ]);
    insta::assert_snapshot!(rows);
}

#[test]
fn when_every_turn_is_settled() {
    let deleted = |o: &mut Observed| o.session.deleting = true;
    let gone = |o: &mut Observed| o.pods.clear();
    let released = |o: &mut Observed| {
        o.done.insert(Done::RecorderReleased("uid-1".into()));
    };
    let rows = table(&[
        ("the Pod waits for another turn", settled()),
        (
            "another turn is in spec",
            with(settled(), |o| o.session.turns.push(SpecTurn { id: None, prompt: "b".into() })),
        ),
        ("idleTimeout is over", with(settled(), |o| record(o).settled_for = Some(seconds(900)))),
        (
            "the agent can take no other",
            with(settled(), |o| {
                o.drivers.get_mut(&PodUid::from("uid-1")).unwrap().status.as_mut().unwrap().agent_ready = false;
            }),
        ),
        ("suspended", with(settled(), |o| o.session.desired = Desired::Suspended)),
        ("deleted, the Pod is up", with(settled(), deleted)),
        ("its recorder was told", with(with(settled(), deleted), released)),
        (
            "the Pod is being deleted",
            with(with(with(settled(), deleted), released), |o| {
                o.pods[0].deleting = Some(seconds(1));
            }),
        ),
        (
            "the Pod is let go and does not end",
            with(with(with(settled(), deleted), released), |o| {
                o.pods[0].deleting = Some(seconds(1));
                o.pods[0].has_finalizer = false;
            }),
        ),
        (
            "the same for 10 s",
            with(with(with(settled(), deleted), released), |o| {
                o.pods[0].deleting = Some(seconds(1));
                o.pods[0].has_finalizer = false;
                o.elapsed.insert(Clock::PodDeleting("uid-1".into()), seconds(10));
            }),
        ),
        ("deleted, the Pod is gone", with(with(settled(), deleted), gone)),
        (
            "deleted, history goes with it",
            with(with(with(settled(), deleted), gone), |o| o.session.reclaim_delete = true),
        ),
        (
            "deleted, history is gone",
            with(with(with(settled(), deleted), gone), |o| {
                o.session.reclaim_delete = true;
                o.ledger = Ok(LedgerView::default());
                o.done.insert(Done::Reclaimed);
            }),
        ),
        (
            "deleted, noted",
            with(with(with(settled(), deleted), gone), |o| {
                o.done.insert(Done::Reclaimed);
            }),
        ),
        ("released", with(with(settled(), gone), |o| o.session.releasing = true)),
        (
            "finished for longer than ttlAfterFinished",
            with(with(settled(), gone), |o| {
                o.session.timeouts.ttl = Some(seconds(5));
            }),
        ),
        ("finished, nothing to do", with(settled(), gone)),
    ]);
    insta::assert_snapshot!(rows);
}
