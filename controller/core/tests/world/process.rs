//! A controller process: its caches, what it remembers, and the passes that are under way.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use agentsession_controller_core::model::{Observed, Settle, SpecTurn};
use crds::AgentSessionStatus;
use transcript::{Attempt, PodUid, SessionUid, Turn};

use agentsession_controller_core::{Settled, model::PodRef};

use super::{
    api::{Change, PodRev, SessionRev},
    event::{Event, Watch},
    follower::{Follower, HarvestTask},
    memory::Memory,
    sim::World,
};

/// One operation: what crosses the border of the process at one moment.
#[derive(Clone, Debug)]
pub enum Op {
    /// Reads the ledger, and the Pod that should be there and is not; then decides.
    Look,
    Status(Box<AgentSessionStatus>),
    AskAccepted,
    EnsureSession,
    Accept(Turn, SpecTurn),
    RecordLost(Turn, SpecTurn),
    OpenAttempt(Attempt, String),
    StartTurn(Turn, Attempt, PodRef),
    BeginHarvest(Turn, Attempt),
    Settle(Box<Settle>),
    Reclaim(bool),
    AddFinalizer,
    ListBeforeCreate(Attempt),
    Create(Attempt, String),
    Standing(Attempt, String, String),
    Deliver(Turn, PodRef),
    Cancel(Turn, PodRef),
    ReleaseRecorder(PodRef),
    Harvest(Turn, Attempt, PodRef, bool),
    DeletePod(PodRef, Settled),
    GetPod(PodRef, Settled),
    PatchPod(PodRef, Settled, usize),
    GetSession(Settled),
    PatchSession(Settled, usize, u64),
    DeleteSession,
}

impl Op {
    pub fn writes_store(&self) -> bool {
        matches!(
            self,
            Self::EnsureSession
                | Self::Accept(..)
                | Self::RecordLost(..)
                | Self::OpenAttempt(..)
                | Self::StartTurn(..)
                | Self::BeginHarvest(..)
                | Self::Settle(_)
                | Self::Reclaim(_)
        )
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Status(_) => "status",
            Self::AskAccepted => "ask-accepted",
            Self::EnsureSession => "ensure-session",
            Self::Accept(..) => "accept",
            Self::RecordLost(..) => "record-lost",
            Self::OpenAttempt(..) => "open-attempt",
            Self::StartTurn(..) => "start",
            Self::BeginHarvest(..) => "begin-harvest",
            Self::Settle(_) => "settle",
            Self::Reclaim(_) => "reclaim",
            Self::AddFinalizer => "add-finalizer",
            Self::ListBeforeCreate(..) => "list-pods",
            Self::Create(..) => "create",
            Self::Standing(..) => "get-standing",
            Self::Deliver(..) => "deliver",
            Self::Cancel(..) => "cancel",
            Self::ReleaseRecorder(_) => "release-recorder",
            Self::Harvest(..) => "harvest",
            Self::DeletePod(..) => "delete",
            Self::GetPod(..) => "get-pod",
            Self::PatchPod(..) => "release-pod",
            Self::GetSession(_) => "get-session",
            Self::PatchSession(..) => "release",
            Self::DeleteSession => "delete-session",
        }
    }
}

/// A pass that is under way.
#[derive(Debug)]
pub struct Pass {
    pub rev: Arc<SessionRev>,
    pub pods: Vec<Arc<PodRev>>,
    pub observed: Option<Box<Observed>>,
    pub ops: VecDeque<Op>,
    pub step: &'static str,
    pub waits: bool,
    pub requeue: Option<u64>,
}

#[derive(Debug, Default)]
pub struct Process {
    pub up: bool,
    pub epoch: u32,
    pub paused_until: u64,
    /// The next operation was held up before and has its fate.
    pub held: bool,
    pub sessions: BTreeMap<SessionUid, Arc<SessionRev>>,
    pub pods: BTreeMap<PodUid, Arc<PodRev>>,
    pub session_at: usize,
    pub pod_at: usize,
    pub seen: u64,
    pub listed: Option<u64>,
    pub stalled_until: [u64; 2],
    pub memory: BTreeMap<SessionUid, Memory>,
    pub passes: BTreeMap<SessionUid, Pass>,
    /// When each session is looked at next.
    pub due: BTreeMap<SessionUid, u64>,
    pub followers: BTreeMap<PodUid, Follower>,
    pub harvests: BTreeMap<SessionUid, HarvestTask>,
    pub ids: u64,
    pub restarts: u32,
}

impl World {
    /// The history has grown: every watch will hear of it.
    pub fn published(&mut self) {
        for process in 0..self.procs.len() {
            if !self.procs[process].up {
                continue;
            }
            for watch in [Watch::Sessions, Watch::Pods] {
                self.expect(process, watch);
            }
        }
    }

    fn expect(&mut self, process: usize, watch: Watch) {
        let (at, upto) = match watch {
            Watch::Sessions => (self.procs[process].session_at, self.api.session_log.len()),
            Watch::Pods => (self.procs[process].pod_at, self.api.pod_log.len()),
        };
        if at >= upto {
            return;
        }
        let slow = self.plan.lag > 0 && self.faulty() && self.rng.chance(100);
        let lag = if slow { self.rng.range(1, self.plan.lag + 2) } else { self.rng.range(1, 20) };
        let epoch = self.procs[process].epoch;
        self.at(lag, Event::Watch { process, epoch, watch, upto });
    }

    /// A watch moves on.
    pub fn watch(&mut self, process: usize, watch: Watch, upto: usize) {
        let stalled = self.procs[process].stalled_until[watch as usize];
        if self.now < stalled && self.faulty() {
            let epoch = self.procs[process].epoch;
            self.at(stalled - self.now + 1, Event::Watch { process, epoch, watch, upto });
            return;
        }
        match watch {
            Watch::Sessions => {
                let from = self.procs[process].session_at;
                for i in from..upto.max(from) {
                    let change = self.api.session_log[i].clone();
                    self.take_session(process, change);
                }
                self.procs[process].session_at = from.max(upto);
            }
            Watch::Pods => {
                let from = self.procs[process].pod_at;
                let relist = upto > from + 1 && self.faulty() && self.rng.chance(200);
                if relist {
                    self.relist_pods(process, upto);
                } else {
                    for i in from..upto.max(from) {
                        let change = self.api.pod_log[i].clone();
                        self.take_pod(process, &change);
                    }
                }
                self.procs[process].pod_at = from.max(upto);
            }
        }
    }

    fn take_session(&mut self, process: usize, change: Change<SessionRev>) {
        match change {
            Change::Put(rev) => {
                let uid = rev.uid().clone();
                self.procs[process].sessions.insert(uid.clone(), rev);
                self.poke(process, &uid);
            }
            Change::Gone(rev, _) => {
                let uid = rev.uid().clone();
                self.procs[process].sessions.remove(&uid);
                let epoch = self.procs[process].epoch;
                self.at(1, Event::Gone { process, epoch, session: uid, tries: 0 });
            }
        }
    }

    fn take_pod(&mut self, process: usize, change: &Change<PodRev>) {
        let proc = &mut self.procs[process];
        let session = match change {
            Change::Put(rev) => {
                proc.seen = proc.seen.max(rev.rv);
                proc.pods.insert(rev.view.uid.clone(), Arc::clone(rev));
                rev.session.clone()
            }
            Change::Gone(rev, rv) => {
                proc.seen = proc.seen.max(*rv);
                proc.pods.remove(&rev.view.uid);
                proc.followers.remove(&rev.view.uid);
                rev.session.clone()
            }
        };
        self.poke(process, &session);
    }

    /// The watch was answered with 410: a complete list instead of the changes.
    fn relist_pods(&mut self, process: usize, upto: usize) {
        let pods = pods_at(&self.api.pod_log[..upto]);
        let head = upto == self.api.pod_log.len();
        let proc = &mut self.procs[process];
        let before: Vec<SessionUid> = proc.pods.values().chain(pods.values()).map(|rev| rev.session.clone()).collect();
        proc.seen = pods.values().map(|rev| rev.rv).max().unwrap_or(0).max(proc.seen);
        proc.pods = pods;
        if head {
            proc.listed = Some(self.now);
        }
        for session in before {
            self.poke(process, &session);
        }
    }

    /// A process comes up: it lists, perhaps from a server that is behind, and looks at everything.
    pub fn restart(&mut self, process: usize) {
        if self.procs[process].up {
            return;
        }
        let old = std::mem::take(&mut self.procs[process]);
        let behind = if self.plan.stale_lists && self.faulty() { self.rng.range(0, 6) as usize } else { 0 };
        let sessions_upto = self.api.session_log.len() - behind.min(self.api.session_log.len());
        let pods_upto = self.api.pod_log.len() - behind.min(self.api.pod_log.len());
        let proc = &mut self.procs[process];
        proc.up = true;
        proc.epoch = old.epoch + 1;
        proc.restarts = old.restarts + 1;
        proc.sessions = sessions_at(&self.api.session_log[..sessions_upto]);
        proc.pods = pods_at(&self.api.pod_log[..pods_upto]);
        proc.session_at = sessions_upto;
        proc.pod_at = pods_upto;
        proc.seen = proc.pods.values().map(|rev| rev.rv).max().unwrap_or(0);
        proc.listed = (behind == 0).then_some(self.now);
        let known: Vec<SessionUid> = proc.sessions.keys().cloned().collect();
        let epoch = proc.epoch;
        self.say(|| format!("process {process} up (epoch {epoch}, {behind} changes behind)"));
        for session in known {
            self.poke(process, &session);
        }
        self.expect(process, Watch::Sessions);
        self.expect(process, Watch::Pods);
        self.at(2000, Event::Sweep { process, epoch });
    }

    /// A process ends without warning and comes back after a while.
    pub fn crash(&mut self, process: usize, why: &str) {
        let proc = &mut self.procs[process];
        if !proc.up {
            return;
        }
        let (epoch, restarts) = (proc.epoch, proc.restarts);
        *proc = Process { epoch: epoch + 1, restarts, ..Process::default() };
        self.say(|| format!("process {process} crashes {why}"));
        let after = self.rng.range(100, 8000);
        self.at(after, Event::Restart { process });
    }

    pub fn poke(&mut self, process: usize, session: &SessionUid) {
        self.due_in(process, session, 0);
    }

    /// Looks at a session after this time, or sooner when that was said before.
    pub fn due_in(&mut self, process: usize, session: &SessionUid, after: u64) {
        let at = self.now + after;
        let proc = &mut self.procs[process];
        if !proc.up || proc.due.get(session).is_some_and(|due| *due <= at) {
            return;
        }
        proc.due.insert(session.clone(), at);
        let epoch = proc.epoch;
        self.at(after, Event::Pass { process, epoch, session: session.clone() });
    }
}

pub fn pods_at(log: &[Change<PodRev>]) -> BTreeMap<PodUid, Arc<PodRev>> {
    let mut pods = BTreeMap::new();
    for change in log {
        match change {
            Change::Put(rev) => {
                pods.insert(rev.view.uid.clone(), Arc::clone(rev));
            }
            Change::Gone(rev, _) => {
                pods.remove(&rev.view.uid);
            }
        }
    }
    pods
}

fn sessions_at(log: &[Change<SessionRev>]) -> BTreeMap<SessionUid, Arc<SessionRev>> {
    let mut sessions = BTreeMap::new();
    for change in log {
        match change {
            Change::Put(rev) => {
                sessions.insert(rev.uid().clone(), Arc::clone(rev));
            }
            Change::Gone(rev, _) => {
                sessions.remove(rev.uid());
            }
        }
    }
    sessions
}
