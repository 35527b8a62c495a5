//! What goes wrong and what people do: drawn from the seed before the world begins, so that a world is replayed by its seed alone.

use std::collections::BTreeMap;

use crds::{AgentSession, DesiredState, TurnSpec, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use transcript::{PodUid, SessionUid, Turn};

use super::{
    api::timestamp,
    effects::Fate,
    event::Watch,
    rng::Rng,
    sandbox::{Act, End, Start, foreign_pod},
    sim::World,
    store::Health,
};

/// One fault, or one thing that somebody does.
#[derive(Clone, Debug)]
pub enum Fault {
    Create,
    Append,
    Desired(DesiredState),
    Delete {
        finalizer: Option<&'static str>,
    },
    Release {
        on: bool,
    },
    NewImage,
    Churn,
    /// Somebody takes our finalizer off by force.
    StripSession,
    DeletePod {
        grace: i64,
    },
    EvictApi,
    EvictKubelet,
    NodeDown,
    NodeUp,
    NodeGone,
    Foreign {
        held: bool,
    },
    Quota(Option<usize>),
    NamespaceGoes,
    Store(Health),
    EmptyStore,
    Api {
        down: bool,
    },
    Crash {
        process: usize,
    },
    Pause {
        process: usize,
        millis: u64,
    },
    Stall {
        process: usize,
        watch: Watch,
        millis: u64,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub processes: usize,
    pub spec: serde_json::Value,
    /// Per mille of effects.
    pub crashes: u32,
    pub lost_replies: u32,
    pub call_errors: u32,
    pub store_errors: u32,
    pub exec_errors: u32,
    pub cut_reads: u32,
    /// Longest ordinary lag of a watch, in milliseconds.
    pub lag: u64,
    /// Per mille of operations before which the process stands still for long.
    pub pauses: u32,
    pub stale_lists: bool,
    pub damage: bool,
    pub checkpoint: u64,
    pub heal_at: u64,
    /// Nothing of the cluster and the agent is left to chance.
    pub calm: bool,
    pub fates: BTreeMap<usize, Fate>,
    pub script: Vec<(u64, Fault)>,
}

const NAME: &str = "hello";

impl Plan {
    /// A life without faults: turns by and by, then the object is deleted.
    pub fn reference() -> Self {
        Self {
            processes: 1,
            spec: spec(2, [600, 600, 5, 600, 120], None, "Retain"),
            checkpoint: 15_000,
            calm: true,
            heal_at: 1,
            script: vec![(10, Fault::Create), (40_000, Fault::Append), (90_000, Fault::Delete { finalizer: None })],
            ..Self::default()
        }
    }

    /// A life of two controllers, in which something happens at some time, and one of them stands still before an effect.
    pub fn disrupted(fault: &Fault, at: u64, deaf: bool, number: usize, pause: u64) -> Self {
        let mut plan = Self { processes: 2, heal_at: 200_000, ..Self::reference() };
        plan.fates = [(number, Fate::StandsStill(pause))].into();
        plan.script = vec![(10, Fault::Create), (at, fault.clone()), (60_000, Fault::Append)];
        if deaf {
            plan.script.push((15, Fault::Stall { process: 1, watch: Watch::Pods, millis: 40_000 }));
        }
        plan
    }

    /// The plan of a seed.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x00C0_FFEE);
        let heal_at = rng.range(30, 900) * 1000;
        let some = |rng: &mut Rng, of: &[u32]| rng.pick(of);
        let timeouts = [
            rng.pick(&[20, 60, 300]),
            rng.pick(&[30, 120, 600]),
            rng.pick(&[0, 5, 60]),
            rng.pick(&[30, 120, 600]),
            rng.pick(&[10, 30, 120]),
        ];
        let ttl = rng.chance(100).then(|| rng.range(5, 100));
        let policy = if rng.chance(150) { "Delete" } else { "Retain" };
        let turns = rng.pick(&[1, 1, 2, 3]);
        let mut plan = Self {
            processes: rng.pick(&[1, 2]),
            spec: spec(turns, timeouts, ttl, policy),
            crashes: some(&mut rng, &[0, 0, 10, 60]),
            lost_replies: some(&mut rng, &[0, 10, 60]),
            call_errors: some(&mut rng, &[0, 10, 100]),
            store_errors: some(&mut rng, &[0, 10, 60]),
            exec_errors: some(&mut rng, &[0, 30, 300]),
            cut_reads: some(&mut rng, &[0, 50, 300]),
            lag: rng.pick(&[0, 200, 5000, 60_000]),
            pauses: rng.pick(&[0, 0, 20, 60]),
            stale_lists: rng.chance(300),
            damage: rng.chance(200),
            checkpoint: rng.pick(&[1000, 5000, 15_000]),
            heal_at,
            calm: rng.chance(300),
            fates: BTreeMap::new(),
            script: vec![(10, Fault::Create)],
        };
        let count = rng.range(0, 9);
        for _ in 0..count {
            let at = rng.range(20, heal_at);
            let at = if rng.chance(500) { at % 30_000 + 20 } else { at };
            let fault = fault(&mut rng, plan.processes);
            plan.script.push((at, fault.clone()));
            if let Some((after, end)) = undo(&mut rng, &fault) {
                plan.script.push((at + after, end));
            }
        }
        plan
    }
}

fn fault(rng: &mut Rng, processes: usize) -> Fault {
    let process = rng.range(0, processes as u64) as usize;
    match rng.range(0, 100) {
        0..=11 => Fault::Append,
        12..=16 => {
            Fault::Desired(rng.pick(&[DesiredState::Suspended, DesiredState::Suspended, DesiredState::Canceled]))
        }
        17..=26 => Fault::Delete { finalizer: rng.pick(&[None, None, Some("foregroundDeletion"), Some("orphan")]) },
        27..=29 => Fault::Release { on: true },
        30..=32 => Fault::NewImage,
        33..=35 => Fault::Churn,
        36 => Fault::StripSession,
        37..=41 => Fault::DeletePod { grace: rng.pick(&[0, 1, 30, 60]) },
        42..=45 => Fault::EvictApi,
        46..=49 => Fault::EvictKubelet,
        50 => Fault::EmptyStore,
        51..=54 => Fault::NodeDown,
        55..=56 => Fault::NodeGone,
        57..=60 => Fault::Foreign { held: rng.chance(500) },
        61..=62 => Fault::Quota(Some(0)),
        63 => Fault::NamespaceGoes,
        64..=72 => Fault::Store(rng.pick(&[Health::Down, Health::Down, Health::ReadOnly, Health::Full])),
        73 => Fault::EmptyStore,
        74..=77 => Fault::Api { down: true },
        78..=85 => Fault::Crash { process },
        86..=93 => Fault::Pause { process, millis: rng.pick(&[500, 5000, 40_000, 200_000]) },
        _ => Fault::Stall {
            process,
            watch: rng.pick(&[Watch::Sessions, Watch::Pods]),
            millis: rng.pick(&[1000, 20_000, 120_000]),
        },
    }
}

/// What ends by itself before everything heals.
fn undo(rng: &mut Rng, fault: &Fault) -> Option<(u64, Fault)> {
    let after = rng.pick(&[500, 5000, 60_000, 400_000]);
    let end = match fault {
        Fault::Store(_) => Fault::Store(Health::Up),
        Fault::Api { .. } => Fault::Api { down: false },
        Fault::NodeDown => Fault::NodeUp,
        Fault::Quota(_) => Fault::Quota(None),
        Fault::Desired(DesiredState::Suspended) if rng.chance(600) => Fault::Desired(DesiredState::Active),
        Fault::Release { .. } if rng.chance(600) => Fault::Release { on: false },
        // A new object under the same name, as soon as there is room.
        Fault::Delete { .. } if rng.chance(400) => Fault::Create,
        _ => return None,
    };
    Some((after, end))
}

fn spec(
    turns: usize,
    [start, turn, idle, hold, harvest]: [u64; 5],
    ttl: Option<u64>,
    policy: &str,
) -> serde_json::Value {
    let turns: Vec<_> = (1..=turns).map(|n| json!({"prompt": format!("prompt {n}")})).collect();
    let mut spec = json!({
        "mode": "Interactive",
        "agent": {"image": "agent:1", "command": ["agent"]},
        "turns": turns,
        "startTimeout": format!("{start}s"), "turnTimeout": format!("{turn}s"), "idleTimeout": format!("{idle}s"),
        "transcript": {
            "holdTimeout": format!("{hold}s"), "harvestTimeout": format!("{harvest}s"), "reclaimPolicy": policy,
        },
    });
    if let Some(ttl) = ttl {
        spec["ttlAfterFinished"] = json!(format!("{ttl}s"));
    }
    spec
}

impl World {
    /// The live object, if there is one.
    fn current(&self) -> Option<SessionUid> {
        self.api.session_named(NAME).map(|rev| rev.uid().clone())
    }

    /// A Pod of ours that the cluster has, chosen by chance.
    fn some_pod(&mut self) -> Option<PodUid> {
        let pods: Vec<PodUid> = self.api.pods.values().map(|rev| rev.view.uid.clone()).collect();
        let ours: Vec<PodUid> = pods.into_iter().filter(|uid| self.boxes.contains_key(uid)).collect();
        self.rng.choose(&ours).cloned()
    }

    pub fn strike(&mut self, fault: &Fault) {
        self.say(|| format!("-- {fault:?}"));
        match *fault {
            Fault::Create => self.create_session(),
            Fault::Append
            | Fault::Desired(_)
            | Fault::Delete { .. }
            | Fault::Release { .. }
            | Fault::NewImage
            | Fault::Churn
            | Fault::StripSession => self.user(fault),
            Fault::DeletePod { grace } => {
                if let Some(pod) = self.some_pod() {
                    self.delete_by_cluster(&pod, grace);
                }
            }
            Fault::EvictApi => {
                if let Some(pod) = self.some_pod() {
                    self.evict_by_api(&pod);
                }
            }
            Fault::EvictKubelet => {
                if let Some(pod) = self.some_pod() {
                    self.evict_by_kubelet(&pod);
                }
            }
            Fault::NodeDown => {
                if let Some(pod) = self.some_pod() {
                    self.boxes.get_mut(&pod).unwrap().node_up = false;
                    self.act_later(&pod, 40_000, 41_000, Act::NodeSilent);
                }
            }
            Fault::NodeUp => self.node_up(),
            Fault::NodeGone => {
                if let Some(pod) = self.some_pod() {
                    self.boxes.get_mut(&pod).unwrap().node_up = false;
                    self.boxes.get_mut(&pod).unwrap().node_ready = false;
                    self.act_later(&pod, 1000, 200_000, Act::NodeGone);
                }
            }
            Fault::Foreign { held } => self.foreign(held),
            Fault::Quota(room) => self.api.quota = room,
            Fault::NamespaceGoes => {
                self.api.namespace_going = true;
                self.collect_soon();
            }
            Fault::Store(health) => {
                self.store.health = health;
                self.store.troubled_since = match health {
                    Health::Up => None,
                    _ => self.store.troubled_since.or(Some(self.now)),
                };
            }
            Fault::EmptyStore => {
                self.store.rows.clear();
                self.fact(super::journal::Fact::Emptied);
            }
            Fault::Api { down } => self.is_api_down = down,
            Fault::Crash { process } => self.crash(process, "at random"),
            Fault::Pause { process, millis } => self.procs[process].paused_until = self.now + millis,
            Fault::Stall { process, watch, millis } => {
                self.procs[process].stalled_until[watch as usize] = self.now + millis;
            }
        }
    }

    fn create_session(&mut self) {
        if self.current().is_some() || self.api.namespace_going {
            return;
        }
        let uid = self.api.new_uid("session");
        let object: AgentSession = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": names::KIND,
            "metadata": {"name": NAME, "namespace": "team-a", "uid": uid, "generation": 1},
            "spec": self.plan.spec,
        }))
        .unwrap();
        let mut object = object;
        object.metadata.creation_timestamp = Some(Time(timestamp(self.now)));
        self.api.put_session(object);
        self.published();
    }

    fn user(&mut self, fault: &Fault) {
        let Some(uid) = self.current() else { return };
        let now = self.now;
        match fault {
            Fault::Delete { finalizer } => {
                self.truth.stopped.insert(uid.clone());
                self.truth.going_since.entry(uid.0.clone()).or_insert(now);
                let _ = self.api.delete_session(&uid, *finalizer, now);
            }
            Fault::Append => {
                let _ = self.api.edit_session(&uid, |object| {
                    let n = object.spec.turns.len() + 1;
                    object.spec.turns.push(TurnSpec::new(format!("prompt {n}")));
                });
            }
            Fault::Desired(desired) => {
                if *desired != DesiredState::Active {
                    self.truth.stopped.insert(uid.clone());
                }
                let _ = self.api.edit_session(&uid, |object| {
                    if object.spec.desired_state != DesiredState::Canceled {
                        object.spec.desired_state = *desired;
                    }
                });
            }
            Fault::Release { on } => {
                self.truth.stopped.insert(uid.clone());
                self.truth.going_since.entry(uid.0.clone()).or_insert(now);
                let _ = self.api.edit_session(&uid, |object| {
                    let map = object.metadata.annotations.get_or_insert_default();
                    if *on {
                        map.insert(names::ANNOTATION_RELEASE.to_owned(), "now".to_owned());
                    } else {
                        map.remove(names::ANNOTATION_RELEASE);
                    }
                });
            }
            Fault::NewImage => {
                let image = format!("agent:{now}");
                let _ = self.api.edit_session(&uid, |object| object.spec.agent.image = image);
            }
            Fault::Churn => {
                let _ = self.api.edit_session(&uid, |object| {
                    let labels = object.metadata.labels.get_or_insert_default();
                    labels.insert("churn".to_owned(), now.to_string());
                    let list = object.metadata.finalizers.get_or_insert_default();
                    if object.metadata.deletion_timestamp.is_none() && !list.iter().any(|f| f == "example.com/hold") {
                        list.insert(0, "example.com/hold".to_owned());
                    } else {
                        list.retain(|finalizer| finalizer != "example.com/hold");
                    }
                });
            }
            Fault::StripSession => {
                self.truth.stopped.insert(uid.clone());
                self.truth.strips += 1;
                let _ = self.api.edit_session(&uid, |object| object.metadata.finalizers = None);
            }
            _ => {}
        }
        self.published();
        self.collect_soon();
    }

    fn node_up(&mut self) {
        let down: Vec<PodUid> = self
            .boxes
            .values()
            .filter(|sandbox| !sandbox.node_up && !sandbox.node_gone)
            .map(|s| s.uid.clone())
            .collect();
        for pod in down {
            let sandbox = self.boxes.get_mut(&pod).unwrap();
            sandbox.node_up = true;
            sandbox.node_ready = true;
            if sandbox.terminating {
                self.act_later(&pod, 100, 2000, Act::Kill);
            }
            match self.api.pod(&pod).map(|rev| rev.view.deleting.is_some()) {
                None => self.act_later(&pod, 100, 2000, Act::Kill),
                Some(true) => self.kubelet_sees_deletion(&pod),
                Some(false) => self.act_later(&pod, 1, 500, Act::Start),
            }
            self.act_later(&pod, 500, 1500, Act::Report);
        }
        for sandbox in self.boxes.values_mut().filter(|sandbox| !sandbox.node_gone) {
            sandbox.node_ready = true;
        }
    }

    fn foreign(&mut self, held: bool) {
        let Some(uid) = self.current() else { return };
        let attempt = self.store.rows.get(&uid).map_or(0, |row| row.attempt.0) + 1;
        let name = agentsession_controller_core::names::pod_name(NAME, &uid, transcript::Attempt(attempt));
        if self.api.pods.contains_key(&name) || self.api.namespace_going {
            return;
        }
        if let Ok(rev) = self.api.create_pod(foreign_pod(&name, &uid, held)) {
            self.truth.foreign.insert(rev.view.uid.clone());
            self.published();
        }
    }

    /// How the next Pod starts.
    pub fn plan_start(&mut self) -> Start {
        if self.plan.calm || !self.faulty() {
            return Start::Well;
        }
        let until = self.now + self.rng.pick(&[5000, 30_000, 400_000]);
        match self.rng.range(0, 40) {
            0 => Start::Unschedulable { until },
            1 => Start::ImageTrouble { until },
            2 => Start::InvalidImage,
            3 => Start::InitFails,
            4 => Start::AgentFails,
            5 => Start::ContainerEnds,
            _ => Start::Well,
        }
    }

    /// How a turn goes: parts, pace in milliseconds, end.
    pub fn plan_turn(&mut self, turn: Turn) -> (u32, u64, End) {
        if self.plan.calm {
            return (4 + turn.0, 800, End::Succeeds { ready: true });
        }
        let parts = u32::try_from(self.rng.range(0, 14)).unwrap();
        let pace = self.rng.pick(&[30, 300, 1500]);
        let end = match self.rng.range(0, 20) {
            0..=9 => End::Succeeds { ready: true },
            10..=11 => End::Succeeds { ready: false },
            12..=13 => End::Fails,
            14..=15 => End::Killed { oom: self.rng.chance(500) },
            16..=18 => End::Hangs,
            _ => End::Deaf,
        };
        (parts, pace, end)
    }
}
