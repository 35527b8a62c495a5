//! What an ordinary session costs the API server: its whole life, pass by pass, with real decisions and real projections over a cluster that does what it is
//! told. The budget of a one-turn session is eight writes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that does not hold is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agentsession_controller_core::{
    decide,
    model::{Done, DriverView, HarvestView, LedgerView, Observed, PodView, Step, TurnView},
    names::pod_name,
    pod_spec::{PodPlan, PodSettings, agent_pod},
    status,
    view::{pod_view, session_view},
};
use crds::AgentSession;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use transcript::{
    AgentState, AgentStatus, Attempt, IndexSet, Outcome, PartIndex, SessionUid, Turn, TurnState,
    merge::{Evidence, LogFacts},
};

const UID: &str = "7f3c9a52-0d1e-4b6f-9c2a-1f2e3d4c5b6a";
/// Parts of every turn.
const PARTS: u32 = 200;
/// Passes after which a session that has not come to rest never will.
const PASSES: usize = 200;

/// A cluster, a store and a driver without faults.
struct World {
    session: AgentSession,
    pod: Option<Pod>,
    ledger: LedgerView,
    driver: Option<AgentStatus>,
    harvest: HarvestView,
    done: BTreeSet<Done>,
    now: i64,
    /// Names of the API writes, in order.
    writes: Vec<String>,
}

impl World {
    fn new(spec: &serde_json::Value) -> Self {
        let session = json!({
            "apiVersion": "agentsession.dev/v1alpha1", "kind": "AgentSession",
            "metadata": {"name": "hello", "namespace": "team-a", "uid": UID, "generation": 1},
            "spec": spec,
        });
        Self {
            session: serde_json::from_value(session).unwrap(),
            pod: None,
            ledger: LedgerView::default(),
            driver: None,
            harvest: HarvestView::None,
            done: BTreeSet::new(),
            now: 1_796_000_000,
            writes: Vec::new(),
        }
    }

    fn view_of_pod(&self) -> Option<PodView> {
        Some(pod_view(self.pod.as_ref()?, &SessionUid::from(UID), Some(true)))
    }

    fn observe(&self) -> Observed {
        let pods: Vec<_> = self.view_of_pod().into_iter().collect();
        let drivers: BTreeMap<_, _> = pods
            .iter()
            .map(|pod| (pod.uid.clone(), DriverView { status: self.driver.clone(), trouble: None }))
            .collect();
        Observed {
            session: session_view(&self.session),
            ledger: Ok(self.ledger.clone()),
            pods,
            drivers,
            harvest: self.harvest.clone(),
            refusal: None,
            elapsed: BTreeMap::new(),
            abandoned: None,
            done: self.done.clone(),
            fresh_seed: "seed".to_owned(),
        }
    }

    /// Runs until nothing more happens by itself.
    fn settle(&mut self) {
        for _ in 0..PASSES {
            self.now += 1;
            let observed = self.observe();
            let decision = decide(&observed);
            let next = status::project(&self.session, &observed, &decision, self.time());
            let news = status::differs(self.session.status.as_ref(), &next);
            if news {
                self.writes.push(format!("status {}", next.phase.unwrap().as_str()));
                self.session.status = Some(next);
            }
            // The event of our own write brings the next pass.
            if !self.carry_out(decision.step) && !news && !self.time_passes() {
                return;
            }
        }
        panic!("no rest after {PASSES} passes: {:?}", self.writes);
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_second(self.now).unwrap()
    }

    fn turn(&mut self, turn: Turn) -> &mut TurnView {
        self.ledger.turns.iter_mut().find(|record| record.turn == turn).unwrap()
    }

    /// `false` for a step that changes nothing.
    fn carry_out(&mut self, step: Step) -> bool {
        let name = step.name().to_owned();
        match step {
            Step::Wait => return false,
            Step::AddFinalizer => {
                self.session.metadata.finalizers = Some(vec![crds::names::FINALIZER.to_owned()]);
                self.writes.push(name);
            }
            Step::CreatePod { attempt, nonce, fresh_workspace: _ } => self.create(attempt, nonce),
            Step::Deliver { turn, pod } => {
                self.done.insert(Done::Delivered(pod.uid, turn));
                self.say(AgentState::Running, turn, 0);
            }
            Step::Harvest { turn, .. } => self.read(turn),
            Step::ReleaseRecorder { pod, .. } => {
                self.done.insert(Done::RecorderReleased(pod.uid));
            }
            Step::DeletePod { .. } => {
                self.writes.push(name);
                self.patch_pod(json!({"metadata": {
                    "deletionTimestamp": "2026-11-30T18:00:00Z", "deletionGracePeriodSeconds": 1,
                }}));
            }
            Step::ReleasePod { .. } => {
                self.writes.push(name);
                self.pod = None;
            }
            step => self.record(step),
        }
        true
    }

    /// The steps of the store.
    fn record(&mut self, step: Step) {
        let now = self.time();
        match step {
            Step::AcceptTurns(turns) => {
                self.ledger.known = true;
                self.ledger.turns.extend(turns.into_iter().map(|(turn, _)| accepted(turn, now)));
            }
            Step::OpenAttempt { attempt, seed } => {
                self.ledger.attempt = attempt;
                if self.ledger.seed.is_empty() {
                    self.ledger.seed = seed;
                }
            }
            Step::StartTurn { turn, attempt, pod } => {
                let record = self.turn(turn);
                record.state = TurnState::Running;
                record.attempt = Some(attempt);
                record.pod_uid = Some(pod.uid);
                record.started_at = Some(now);
                record.running_for = Some(Duration::ZERO);
            }
            Step::BeginHarvest { turn, .. } => self.turn(turn).state = TurnState::Harvesting,
            Step::Settle(settle) => {
                self.harvest = HarvestView::None;
                let record = self.turn(settle.turn);
                record.state = TurnState::Settled;
                record.outcome = Some(settle.outcome);
                record.reason = settle.reason;
                record.verdict = Some(settle.verdict);
                record.verdict_reason = settle.verdict_reason;
                record.usage = settle.usage;
                record.settled_at = Some(now);
                record.settled_for = Some(Duration::ZERO);
            }
            step => panic!("not in an ordinary life: {step:?}"),
        }
    }

    /// What the cluster and the agent do while the controller waits; `false` when they wait too.
    fn time_passes(&mut self) -> bool {
        let Some(view) = self.view_of_pod() else { return false };
        let terminated = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        if view.deleting.is_some() {
            self.containers("Succeeded", &terminated);
        } else if view.ip.is_none() {
            self.patch_pod(json!({"status": {"podIP": "10.1.2.3"}}));
        } else if self.driver.is_none() {
            self.containers("Running", &json!({"running": {}}));
            self.say(AgentState::Idle, Turn(0), 0);
        } else if let Some(AgentStatus { state: AgentState::Running, turn, parts, .. }) = self.driver.clone() {
            let parts = (parts + PARTS / 4).min(PARTS);
            // A checkpoint.
            self.turn(turn).parts = parts;
            self.ledger.parts = self.ledger.turns.iter().map(|turn| u64::from(turn.parts)).sum();
            self.ledger.last_seq = self.ledger.parts;
            self.say(if parts == PARTS { AgentState::Succeeded } else { AgentState::Running }, turn, parts);
        } else {
            return false;
        }
        true
    }

    fn create(&mut self, attempt: Attempt, nonce: String) {
        self.writes.push("create".to_owned());
        let plan = PodPlan { attempt, nonce, recorder_token_sha256: None };
        let mut pod = agent_pod(&self.session, &plan, &PodSettings::new("sandbox:1"));
        assert_eq!(pod.metadata.name.as_deref(), Some(pod_name("hello", &SessionUid::from(UID), attempt).as_str()));
        pod.metadata.uid = Some(format!("pod-{attempt}"));
        pod.status = Some(serde_json::from_value(json!({"phase": "Pending"})).unwrap());
        self.driver = None;
        self.pod = Some(pod);
    }

    fn containers(&mut self, phase: &str, state: &serde_json::Value) {
        let status =
            |name| json!({"name": name, "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        self.patch_pod(json!({"status": {"phase": phase, "containerStatuses": [status("agent"), status("recorder")]}}));
    }

    fn patch_pod(&mut self, patch: serde_json::Value) {
        fn merge(base: &mut serde_json::Value, patch: serde_json::Value) {
            match (base, patch) {
                (serde_json::Value::Object(base), serde_json::Value::Object(patch)) => {
                    for (key, value) in patch {
                        merge(base.entry(key).or_insert(serde_json::Value::Null), value);
                    }
                }
                (base, patch) => *base = patch,
            }
        }
        let mut pod = serde_json::to_value(self.pod.take().unwrap()).unwrap();
        merge(&mut pod, patch);
        self.pod = Some(serde_json::from_value(pod).unwrap());
    }

    fn say(&mut self, state: AgentState, turn: Turn, parts: u32) {
        let attempt = self.ledger.attempt;
        let status = json!({
            "state": state, "turn": turn, "attempt": attempt, "parts": parts, "logBytes": parts * 100, "agentReady": true,
            "usage": {"requests": 1, "inputTokens": 10, "outputTokens": 5, "totalTokens": 15},
        });
        self.driver = Some(serde_json::from_value(status).unwrap());
    }

    fn read(&mut self, turn: Turn) {
        let mut indexes = IndexSet::default();
        for index in 0..PARTS {
            indexes.insert(PartIndex(index));
        }
        let size = u64::from(PARTS) * 100;
        let facts = LogFacts { exists: true, size, read_to: size, indexes: indexes.clone(), ..LogFacts::default() };
        self.turn(turn).parts = PARTS;
        self.harvest = HarvestView::Read {
            evidence: Box::new(Evidence { status: self.driver.clone(), facts, stored: indexes, ..Evidence::default() }),
            after_agent_end: false,
            age: Duration::ZERO,
        };
    }
}

fn accepted(turn: Turn, now: Timestamp) -> TurnView {
    TurnView {
        turn,
        state: TurnState::Accepted,
        attempt: None,
        pod_uid: None,
        outcome: None,
        reason: None,
        verdict: None,
        verdict_reason: None,
        message: None,
        parts: 0,
        usage: None,
        accepted_at: now,
        started_at: None,
        settled_at: None,
        running_for: None,
        settled_for: None,
    }
}

fn spec(mode: &str, turns: usize) -> serde_json::Value {
    let turns: Vec<_> = (1..=turns).map(|n| json!({"prompt": format!("prompt {n}")})).collect();
    json!({"mode": mode, "agent": {"image": "agent:1", "command": ["agent"]}, "turns": turns})
}

#[test]
fn a_one_turn_session_costs_seven_writes() {
    let mut world = World::new(&spec("Autonomous", 1));
    world.settle();
    let status = world.session.status.clone().unwrap();
    assert_eq!(world.ledger.turns[0].outcome, Some(Outcome::Succeeded));
    assert_eq!(
        world.writes,
        [
            "status Provisioning",
            "add-finalizer",
            "create",
            "status Running",
            "status Completed",
            "delete",
            "release-pod",
        ]
    );
    assert_eq!(status.transcript.map(|transcript| transcript.parts), Some(i64::from(PARTS)));
    assert_eq!((status.pod_name, status.pod_ip), (None, None));
}

#[test]
fn a_settled_session_costs_nothing() {
    let mut world = World::new(&spec("Autonomous", 1));
    world.settle();
    let before = world.writes.len();
    for _ in 0..20 {
        world.settle();
    }
    assert_eq!(world.writes.len(), before, "{:?}", world.writes);
}

#[test]
fn a_turn_on_a_pod_that_waits_costs_two_statuses() {
    let mut world = World::new(&spec("Interactive", 1));
    world.settle();
    assert_eq!(world.writes.last().map(String::as_str), Some("status Idle"));
    let before = world.writes.len();
    world.session.spec.turns.push(crds::TurnSpec::new("and now?"));
    world.session.metadata.generation = Some(2);
    world.settle();
    assert_eq!(world.writes[before..], ["status Running", "status Idle"]);
    let status = world.session.status.unwrap();
    assert_eq!((status.accepted_turns, status.observed_generation, status.turns.len()), (Some(2), Some(2), 2));
}

#[test]
fn three_turns_accepted_together_run_on_one_pod() {
    let mut world = World::new(&spec("Autonomous", 3));
    world.settle();
    assert_eq!(world.writes.iter().filter(|write| *write == "create").count(), 1, "{:?}", world.writes);
    let statuses: Vec<_> = world.writes.iter().filter_map(|write| write.strip_prefix("status ")).collect();
    assert_eq!(statuses, ["Provisioning", "Running", "Running", "Running", "Completed"]);
    let status = world.session.status.unwrap();
    assert_eq!(status.usage.map(|usage| (usage.requests, usage.total_tokens)), Some((3, 45)));
    assert_eq!(status.turns.iter().filter(|turn| turn.outcome == Some(Outcome::Succeeded)).count(), 3);
}
