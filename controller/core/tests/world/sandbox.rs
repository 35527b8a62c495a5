//! Kubelet, driver and recorder of one agent Pod: what really happens in it, which the API server learns of later or never.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod,
    PodCondition, PodStatus,
};
use transcript::{AgentState, AgentStatus, Attempt, PodUid, SessionUid, Turn, status::AgentExit, status::Usage};

use super::{
    event::Event,
    journal::Fact,
    sim::World,
    truth::{LogKey, TrueLog},
};

/// A container as it really is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Real {
    Waiting,
    Running,
    Ended { code: i32, oom: bool },
}

impl Real {
    pub fn ended(self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// How a Pod starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Well,
    Unschedulable {
        until: u64,
    },
    ImageTrouble {
        until: u64,
    },
    InvalidImage,
    InitFails,
    /// The driver says that its agent did not come up.
    AgentFails,
    /// The agent container ends before it is ready.
    ContainerEnds,
}

/// How a turn goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Succeeds {
        ready: bool,
    },
    Fails,
    /// The agent container is killed, the driver with it.
    Killed {
        oom: bool,
    },
    /// It goes on until it is told to stop.
    Hangs,
    /// It goes on until it is killed.
    Deaf,
}

/// Steps of kubelet and driver.
#[derive(Clone, Debug)]
pub enum Act {
    Schedule,
    Start,
    Report,
    DriverUp,
    Look,
    Emit(Turn),
    Finish(Turn),
    Abort(Turn),
    Terminate,
    Kill,
    RecorderEnds,
    NodeSilent,
    TaintEvict,
    NodeGone,
}

#[derive(Debug)]
pub struct Running {
    pub turn: Turn,
    pub left: u32,
    pub pace: u64,
    pub end: End,
}

#[derive(Debug)]
pub struct Sandbox {
    pub uid: PodUid,
    pub session: SessionUid,
    pub attempt: Attempt,
    pub bound: bool,
    pub agent: Real,
    pub recorder: Real,
    pub start: Start,
    pub files: BTreeMap<Turn, Vec<u8>>,
    pub status: Option<AgentStatus>,
    pub inbox: BTreeSet<Turn>,
    pub cancels: BTreeSet<Turn>,
    pub taken: BTreeSet<Turn>,
    pub running: Option<Running>,
    pub terminating: bool,
    pub term_grace: u64,
    pub node_up: bool,
    pub node_ready: bool,
    pub node_gone: bool,
    pub evicted: Option<(&'static str, &'static str)>,
}

impl Sandbox {
    /// Whether an exec into the recorder would reach it.
    pub fn answers(&self) -> bool {
        self.node_up && self.recorder == Real::Running
    }

    fn driver_runs(&self) -> bool {
        self.node_up && self.agent == Real::Running
    }
}

impl World {
    pub fn act_later(&mut self, pod: &PodUid, from: u64, to: u64, act: Act) {
        let after = self.rng.range(from, to);
        self.at(after, Event::Pod(pod.clone(), act));
    }

    /// A Pod of ours was made: the cluster takes it on.
    pub fn adopt_sandbox(&mut self, pod: &PodUid, session: &SessionUid, attempt: Attempt) {
        let start = self.plan_start();
        self.boxes.insert(
            pod.clone(),
            Sandbox {
                uid: pod.clone(),
                session: session.clone(),
                attempt,
                bound: false,
                agent: Real::Waiting,
                recorder: Real::Waiting,
                start,
                files: BTreeMap::new(),
                status: None,
                inbox: BTreeSet::new(),
                cancels: BTreeSet::new(),
                taken: BTreeSet::new(),
                running: None,
                terminating: false,
                term_grace: 0,
                node_up: true,
                node_ready: true,
                node_gone: false,
                evicted: None,
            },
        );
        self.act_later(pod, 5, 200, Act::Schedule);
    }

    pub fn pod_act(&mut self, pod: &PodUid, act: &Act) {
        let Some(sandbox) = self.boxes.get(pod) else { return };
        if sandbox.node_gone {
            return;
        }
        let exists = self.api.pod(pod).is_some();
        match *act {
            Act::Schedule if exists => self.schedule(pod),
            Act::Start if exists => self.start(pod),
            Act::Report => self.report(pod),
            Act::DriverUp => self.driver_up(pod),
            Act::Look => self.driver_look(pod),
            Act::Emit(turn) => self.emit(pod, turn),
            Act::Finish(turn) => self.finish(pod, turn),
            Act::Abort(turn) => self.abort(pod, turn),
            Act::Terminate => self.terminate(pod),
            Act::Kill => self.kill(pod),
            Act::RecorderEnds => self.recorder_ends(pod),
            Act::NodeSilent => self.node_silent(pod),
            Act::TaintEvict => self.taint_evict(pod),
            Act::NodeGone => self.node_gone(pod),
            Act::Schedule | Act::Start => {}
        }
    }

    fn schedule(&mut self, pod: &PodUid) {
        let now = self.now;
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if sandbox.bound || sandbox.terminating {
            return;
        }
        if let Start::Unschedulable { until } = sandbox.start
            && now < until
        {
            let condition = PodCondition {
                type_: "PodScheduled".into(),
                status: "False".into(),
                reason: Some("Unschedulable".into()),
                message: Some("0/1 nodes are available: 1 Insufficient cpu.".into()),
                ..PodCondition::default()
            };
            if self.api.pod(pod).is_some_and(|rev| rev.view.start_error.is_none()) {
                self.api.edit_pod(pod, |object| {
                    object.status.get_or_insert_default().conditions = Some(vec![condition]);
                });
                self.published();
            }
            self.at(until - now + 1, Event::Pod(pod.clone(), Act::Schedule));
            return;
        }
        sandbox.bound = true;
        self.api.edit_pod(pod, |object| {
            object.spec.as_mut().unwrap().node_name = Some("node-1".into());
            object.status.get_or_insert_default().conditions = None;
        });
        self.published();
        self.act_later(pod, 50, 1500, Act::Start);
    }

    fn start(&mut self, pod: &PodUid) {
        let now = self.now;
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if sandbox.terminating || !sandbox.node_up || sandbox.agent != Real::Waiting {
            return;
        }
        match sandbox.start {
            Start::InvalidImage | Start::InitFails => {}
            Start::ImageTrouble { until } if now < until => {
                sandbox.recorder = Real::Running;
                self.at(until - now + 1, Event::Pod(pod.clone(), Act::Start));
            }
            Start::ContainerEnds => {
                sandbox.recorder = Real::Running;
                sandbox.agent = Real::Ended { code: 1, oom: false };
            }
            Start::Well | Start::Unschedulable { .. } | Start::ImageTrouble { .. } | Start::AgentFails => {
                sandbox.recorder = Real::Running;
                sandbox.agent = Real::Running;
                self.act_later(pod, 50, 3000, Act::DriverUp);
            }
        }
        self.act_later(pod, 1, 1000, Act::Report);
    }

    /// The kubelet tells the API server how things stand.
    pub fn report(&mut self, pod: &PodUid) {
        let Some(sandbox) = self.boxes.get(pod) else { return };
        if !sandbox.node_up || !sandbox.bound {
            return;
        }
        let status = status_of(sandbox);
        let dead = sandbox.terminating
            && !matches!(sandbox.agent, Real::Running)
            && !matches!(sandbox.recorder, Real::Running);
        let Some(rev) = self.api.pod(pod) else { return };
        let changed = rev.object.status.as_ref() != Some(&status);
        if changed {
            self.api.edit_pod(pod, |object| object.status = Some(status));
            self.published();
        }
        if dead && self.api.pod(pod).is_some_and(|rev| rev.object.metadata.deletion_grace_period_seconds != Some(0)) {
            self.api.edit_pod(pod, |object| object.metadata.deletion_grace_period_seconds = Some(0));
            self.published();
        }
    }

    fn driver_status(&self, pod: &PodUid, state: AgentState, turn: Turn, parts: u32, ready: bool) -> AgentStatus {
        AgentStatus {
            state,
            turn,
            attempt: self.boxes[pod].attempt,
            parts,
            log_bytes: 0,
            truncated: false,
            truncated_reason: None,
            error: None,
            reason: None,
            exit: None,
            stderr_tail: String::new(),
            agent_ready: ready,
            agent_session_id: None,
            resume: None,
            continuity: None,
            usage: state.is_terminal().then(|| Usage { requests: 1, ..Usage::default() }),
        }
    }

    fn driver_up(&mut self, pod: &PodUid) {
        if !self.boxes[pod].driver_runs() {
            return;
        }
        let status = if self.boxes[pod].start == Start::AgentFails {
            let mut status = self.driver_status(pod, AgentState::Failed, Turn(0), 0, false);
            status.error = Some("agent: no such file".into());
            status
        } else {
            self.driver_status(pod, AgentState::Idle, Turn(0), 0, true)
        };
        self.boxes.get_mut(pod).unwrap().status = Some(status);
        self.status_changed(pod);
        self.act_later(pod, 1, 50, Act::Look);
    }

    fn status_changed(&mut self, pod: &PodUid) {
        for process in 0..self.procs.len() {
            let epoch = self.procs[process].epoch;
            if self.procs[process].followers.contains_key(pod) {
                let after = self.rng.range(5, 300);
                self.at(after, Event::Follow { process, epoch, pod: pod.clone(), kick: true, life: 0 });
            }
        }
    }

    /// The driver looks into its inbox.
    fn driver_look(&mut self, pod: &PodUid) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if !sandbox.driver_runs() {
            return;
        }
        if let Some(running) = &sandbox.running {
            let told = sandbox.terminating || sandbox.cancels.contains(&running.turn);
            if told && running.end != End::Deaf {
                let turn = running.turn;
                self.act_later(pod, 10, 2000, Act::Abort(turn));
            }
            return;
        }
        let ready = sandbox.status.as_ref().is_some_and(|status| status.agent_ready);
        let next = sandbox.inbox.iter().find(|turn| !sandbox.taken.contains(turn)).copied();
        let Some(turn) = next.filter(|_| ready && !sandbox.terminating) else { return };
        sandbox.taken.insert(turn);
        sandbox.files.retain(|of, _| *of >= turn);
        sandbox.files.insert(turn, Vec::new());
        let session = sandbox.session.clone();
        let (left, pace, end) = self.plan_turn(turn);
        self.fact(Fact::TurnRan { session: session.clone(), turn, pod: pod.clone() });
        self.truth.logs.insert(LogKey { session, turn, pod: pod.clone() }, TrueLog::default());
        let status = self.driver_status(pod, AgentState::Running, turn, 0, false);
        let sandbox = self.boxes.get_mut(pod).unwrap();
        sandbox.running = Some(Running { turn, left, pace, end });
        sandbox.status = Some(status);
        self.line(pod, turn, r#"{"type":"start"}"#);
        self.status_changed(pod);
        self.at(pace, Event::Pod(pod.clone(), Act::Emit(turn)));
        if self.boxes[pod].cancels.contains(&turn) {
            self.act_later(pod, 1, 50, Act::Look);
        }
    }

    /// Writes one part to the log, as the driver does: one write a line.
    fn line(&mut self, pod: &PodUid, turn: Turn, part: &str) {
        let session = self.boxes[pod].session.clone();
        let log = self.truth.logs.get_mut(&LogKey { session, turn, pod: pod.clone() }).unwrap();
        let index = log.parts.len();
        let raw = part.replace("$i", &index.to_string()).replace("$pod", pod.as_str());
        let text = format!(
            "{{\"at\":\"2026-11-30T18:00:00.000Z\",\"type\":\"ui-message\",\"turn\":{turn},\"partIndex\":{index},\"part\":{raw}}}\n"
        );
        log.parts.push(raw);
        let sandbox = self.boxes.get_mut(pod).unwrap();
        sandbox.files.entry(turn).or_default().extend_from_slice(text.as_bytes());
        if let Some(status) = sandbox.status.as_mut() {
            // Counts alone are not written with every part.
            status.parts = u32::try_from(index / 4 * 4).unwrap();
        }
    }

    fn emit(&mut self, pod: &PodUid, turn: Turn) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if !sandbox.driver_runs() {
            return;
        }
        let Some(running) = sandbox.running.as_mut().filter(|running| running.turn == turn) else { return };
        let (pace, end) = (running.pace, running.end);
        if running.left == 0 {
            match end {
                End::Hangs | End::Deaf => {}
                End::Succeeds { .. } | End::Fails | End::Killed { .. } => {
                    self.act_later(pod, 1, 500, Act::Finish(turn));
                }
            }
            return;
        }
        running.left -= 1;
        self.line(pod, turn, r#"{"type":"text-delta","id":"$pod","delta":"part $i"}"#);
        if self.plan.damage && self.rng.chance(20) {
            self.hostile_line(pod, turn);
        }
        self.at(pace, Event::Pod(pod.clone(), Act::Emit(turn)));
    }

    /// The agent writes into the log itself: rubbish, or a part of another turn.
    fn hostile_line(&mut self, pod: &PodUid, turn: Turn) {
        let session = self.boxes[pod].session.clone();
        let forged = turn.0 > 1 && self.rng.chance(700);
        let text = if forged {
            format!(
                "{{\"turn\":{},\"partIndex\":900,\"part\":{{\"type\":\"text-delta\",\"delta\":\"forged\"}}}}\n",
                turn.0 - 1
            )
        } else {
            "this is no part\n".to_owned()
        };
        if !forged {
            self.truth.logs.get_mut(&LogKey { session, turn, pod: pod.clone() }).unwrap().damaged = true;
        }
        self.boxes.get_mut(pod).unwrap().files.entry(turn).or_default().extend_from_slice(text.as_bytes());
    }

    fn finish(&mut self, pod: &PodUid, turn: Turn) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if !sandbox.driver_runs() || sandbox.running.as_ref().is_none_or(|running| running.turn != turn) {
            return;
        }
        match sandbox.running.take().map(|running| running.end) {
            Some(End::Succeeds { ready }) => {
                self.line(pod, turn, r#"{"type":"finish"}"#);
                self.end_turn(pod, turn, AgentState::Succeeded, ready);
            }
            Some(End::Fails) => {
                self.line(pod, turn, r#"{"type":"error","errorText":"exit 3"}"#);
                self.line(pod, turn, r#"{"type":"finish","finishReason":"error"}"#);
                self.end_turn(pod, turn, AgentState::Failed, false);
                let status = self.boxes.get_mut(pod).unwrap().status.as_mut().unwrap();
                status.exit = Some(AgentExit { code: Some(3), ..AgentExit::default() });
            }
            Some(End::Killed { oom }) => {
                self.boxes.get_mut(pod).unwrap().agent = Real::Ended { code: 137, oom };
                self.truth_ended(pod);
                self.act_later(pod, 1, 1000, Act::Report);
            }
            Some(End::Hangs | End::Deaf) | None => {}
        }
    }

    fn end_turn(&mut self, pod: &PodUid, turn: Turn, state: AgentState, ready: bool) {
        let session = self.boxes[pod].session.clone();
        let log = self.truth.logs.get_mut(&LogKey { session, turn, pod: pod.clone() }).unwrap();
        log.ended = true;
        log.state = Some(state);
        let parts = u32::try_from(log.parts.len()).unwrap();
        let status = self.driver_status(pod, state, turn, parts, ready);
        self.boxes.get_mut(pod).unwrap().status = Some(status);
        self.status_changed(pod);
        self.act_later(pod, 1, 50, Act::Look);
    }

    fn abort(&mut self, pod: &PodUid, turn: Turn) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if !sandbox.driver_runs() || sandbox.running.as_ref().is_none_or(|running| running.turn != turn) {
            return;
        }
        let ready = !sandbox.terminating;
        sandbox.running = None;
        self.line(pod, turn, r#"{"type":"abort"}"#);
        self.end_turn(pod, turn, AgentState::Canceled, ready);
        self.leave_if_told(pod);
    }

    /// A driver that was told to go and has nothing to do goes.
    fn leave_if_told(&mut self, pod: &PodUid) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if sandbox.terminating && sandbox.running.is_none() && sandbox.agent == Real::Running {
            sandbox.agent = Real::Ended { code: 143, oom: false };
            self.act_later(pod, 1, 1000, Act::Report);
        }
    }

    /// Whatever runs in the agent container has written its last byte.
    fn truth_ended(&mut self, pod: &PodUid) {
        for (key, log) in &mut self.truth.logs {
            if key.pod == *pod {
                log.ended = true;
            }
        }
    }

    /// The kubelet has seen the deletion: SIGTERM, and SIGKILL when the grace is over.
    fn terminate(&mut self, pod: &PodUid) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if sandbox.terminating || !sandbox.node_up {
            return;
        }
        sandbox.terminating = true;
        let grace = sandbox.term_grace;
        if sandbox.agent == Real::Waiting {
            sandbox.agent = Real::Ended { code: 137, oom: false };
        }
        if sandbox.recorder == Real::Waiting {
            sandbox.recorder = Real::Ended { code: 137, oom: false };
        }
        self.at(grace, Event::Pod(pod.clone(), Act::Kill));
        self.leave_if_told(pod);
        self.act_later(pod, 1, 100, Act::Look);
        self.act_later(pod, 1, 1000, Act::Report);
    }

    fn kill(&mut self, pod: &PodUid) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if !sandbox.node_up {
            return;
        }
        for container in [&mut sandbox.agent, &mut sandbox.recorder] {
            if !container.ended() {
                *container = Real::Ended { code: 137, oom: false };
            }
        }
        sandbox.running = None;
        sandbox.terminating = sandbox.terminating || sandbox.evicted.is_some();
        self.truth_ended(pod);
        self.act_later(pod, 1, 1000, Act::Report);
    }

    fn recorder_ends(&mut self, pod: &PodUid) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if sandbox.recorder == Real::Running {
            sandbox.recorder = Real::Ended { code: 0, oom: false };
            self.act_later(pod, 1, 1000, Act::Report);
        }
    }

    /// The node is found silent by the cluster, and later the Pod is asked away from it.
    fn node_silent(&mut self, pod: &PodUid) {
        let sandbox = self.boxes.get_mut(pod).unwrap();
        if !sandbox.node_up {
            sandbox.node_ready = false;
            self.act_later(pod, 60_000, 300_000, Act::TaintEvict);
        }
    }

    fn taint_evict(&mut self, pod: &PodUid) {
        if self.boxes[pod].node_up || self.api.pod(pod).is_none() {
            return;
        }
        self.disrupt(pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        self.delete_by_cluster(pod, 60);
    }

    /// The node object was deleted: the collector ends its Pods by force.
    fn node_gone(&mut self, pod: &PodUid) {
        self.boxes.get_mut(pod).unwrap().node_up = false;
        self.boxes.get_mut(pod).unwrap().node_ready = false;
        self.boxes.get_mut(pod).unwrap().node_gone = true;
        self.truth_ended(pod);
        if self.api.pod(pod).is_none() {
            return;
        }
        self.disrupt(pod, "DeletionByPodGC", "PodGC: node no longer exists");
        self.api.edit_pod(pod, |object| object.status.get_or_insert_default().phase = Some("Failed".into()));
        let now = self.now;
        self.api.delete_pod(pod, 0, now);
        self.published();
    }

    fn disrupt(&mut self, pod: &PodUid, reason: &str, message: &str) {
        let condition = PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            ..PodCondition::default()
        };
        self.api.edit_pod(pod, |object| {
            object.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        });
        self.published();
    }

    /// Somebody who is not us deletes a Pod.
    pub fn delete_by_cluster(&mut self, pod: &PodUid, grace: i64) {
        let now = self.now;
        self.api.delete_pod(pod, grace, now);
        self.published();
        self.kubelet_sees_deletion(pod);
    }

    pub fn kubelet_sees_deletion(&mut self, pod: &PodUid) {
        let object = self.api.pod(pod);
        let grace = object.and_then(|rev| rev.object.metadata.deletion_grace_period_seconds).unwrap_or(0);
        let Some(sandbox) = self.boxes.get_mut(pod) else { return };
        if !sandbox.bound {
            sandbox.terminating = true;
            return;
        }
        // A forced deletion is carried out within seconds.
        let grace = u64::try_from(grace).unwrap() * 1000;
        sandbox.term_grace = grace.max(1000);
        self.act_later(pod, 5, 1000, Act::Terminate);
    }

    pub fn evict_by_api(&mut self, pod: &PodUid) {
        self.disrupt(pod, "EvictionByEvictionAPI", "Eviction API: evicting");
        self.delete_by_cluster(pod, 60);
    }

    /// The kubelet takes the Pod's resources back: a second of grace, phase Failed, the object stays.
    pub fn evict_by_kubelet(&mut self, pod: &PodUid) {
        let Some(sandbox) = self.boxes.get_mut(pod) else { return };
        if !sandbox.node_up || !sandbox.bound || sandbox.terminating {
            return;
        }
        sandbox.evicted = Some(("Evicted", "The node was low on resource: memory."));
        self.at(1000, Event::Pod(pod.clone(), Act::Kill));
    }
}

fn container(name: &str, real: Real, waiting: Option<(&str, &str)>) -> ContainerStatus {
    let mut state = ContainerState::default();
    match real {
        Real::Waiting => {
            let (reason, message) = waiting.unwrap_or(("PodInitializing", ""));
            state.waiting = Some(ContainerStateWaiting { reason: Some(reason.into()), message: Some(message.into()) });
        }
        Real::Running => state.running = Some(ContainerStateRunning::default()),
        Real::Ended { code, oom } => {
            let reason = if oom {
                "OOMKilled"
            } else if code == 0 {
                "Completed"
            } else {
                "Error"
            };
            state.terminated = Some(ContainerStateTerminated {
                exit_code: code,
                reason: Some(reason.into()),
                ..ContainerStateTerminated::default()
            });
        }
    }
    ContainerStatus { name: name.into(), state: Some(state), ..ContainerStatus::default() }
}

fn status_of(sandbox: &Sandbox) -> PodStatus {
    let mut status = PodStatus::default();
    let waiting = match sandbox.start {
        Start::ImageTrouble { .. } => Some(("ImagePullBackOff", "Back-off pulling image")),
        Start::InvalidImage => Some(("InvalidImageName", "couldn't parse image name")),
        _ => None,
    };
    let ended = sandbox.agent.ended() && sandbox.recorder.ended();
    let well = [sandbox.agent, sandbox.recorder].iter().all(|real| *real == Real::Ended { code: 0, oom: false });
    let begun = sandbox.agent != Real::Waiting || sandbox.recorder != Real::Waiting;
    let phase = match (ended, well, begun) {
        (true, true, _) => "Succeeded",
        (true, false, _) => "Failed",
        (false, _, true) => "Running",
        (false, _, false) => "Pending",
    };
    status.phase = Some(phase.into());
    if sandbox.start == Start::InitFails {
        let mut install = container("install", Real::Ended { code: 3, oom: false }, None);
        install.name = "setup".into();
        status.init_container_statuses = Some(vec![install]);
        status.phase = Some("Failed".into());
    }
    if let Some((reason, message)) = sandbox.evicted {
        status.reason = Some(reason.into());
        status.message = Some(message.into());
        status.phase = Some("Failed".into());
    }
    if begun {
        status.pod_ip = Some("10.0.0.9".into());
    }
    status.container_statuses =
        Some(vec![container("agent", sandbox.agent, waiting), container("recorder", sandbox.recorder, None)]);
    status
}

/// A Pod of somebody else under our name.
pub fn foreign_pod(name: &str, session: &SessionUid, held: bool) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("team-a".to_owned());
    pod.metadata.labels = Some([(crds::names::LABEL_SESSION_UID.to_owned(), session.0.clone())].into());
    pod.metadata.annotations = Some([(crds::names::ANNOTATION_NONCE.to_owned(), "guessed".to_owned())].into());
    if held {
        pod.metadata.finalizers = Some(vec![crds::names::FINALIZER.to_owned()]);
    }
    pod.spec = Some(k8s_openapi::api::core::v1::PodSpec {
        node_name: Some("node-1".into()),
        ..k8s_openapi::api::core::v1::PodSpec::default()
    });
    pod.status = Some(PodStatus {
        phase: Some("Running".into()),
        container_statuses: Some(vec![
            container("agent", Real::Running, None),
            container("recorder", Real::Running, None),
        ]),
        ..PodStatus::default()
    });
    pod
}
