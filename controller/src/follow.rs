//! The followers: one task per live agent Pod, outside of reconcile, that hears at once what the driver says and stores what the log gains.
//!
//! A follower holds one `read --follow`. Of each verified frame it first publishes the status and pokes the session's reconcile, then stores the parts, then
//! acknowledges. It decides nothing: reconciles read its [`FollowView`] and do what follows. When its connection breaks it begins again at
//! its last whole stored line, with backoff; when the recorder is over it ends and is never started again for that Pod.
//!
//! Invariant: an acknowledged byte is in the store, or in a line that is not whole yet and will be read again, or the store's fence keeps it out.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use store::SharedStore;
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use transcript::{AgentStatus, Attempt, PodUid, Reason, SessionUid, Turn};

use crate::{
    exec::{Execs, MemoryBudget, PodTarget},
    harvest::{Checkpoint, HarvestSettings},
};

mod task;

/// The session whose reconcile is poked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Where followers say that a session should be looked at again. Must not block.
pub trait Poke: Send + Sync {
    /// Asks for a reconcile of the session.
    fn poke(&self, session: &SessionRef);
}

impl<F: Fn(&SessionRef) + Send + Sync> Poke for F {
    fn poke(&self, session: &SessionRef) {
        self(session);
    }
}

/// What to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowSpec {
    /// Whose reconcile is poked.
    pub session: SessionRef,
    /// The session.
    pub session_uid: SessionUid,
    /// The Pod.
    pub pod: PodTarget,
    /// The turn whose log is read: the one that runs, or the next to be delivered.
    pub turn: Turn,
    /// The attempt whose Pod it is.
    pub attempt: Attempt,
    /// At most this long between two frames: `checkpointInterval`.
    pub interval: Duration,
    /// Bytes that the whole session may hold.
    pub quota_bytes: u64,
}

/// Why a follower makes no headway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowTrouble {
    /// `ReadFailed`, `StoreUnavailable` or `StoreFull`.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// Since when, without a break.
    pub since: Instant,
}

/// What a follower last heard and did.
#[derive(Clone, Debug)]
pub struct FollowView {
    /// The turn that it follows.
    pub turn: Turn,
    /// Status of the last verified frame that had one. It may be of an earlier turn.
    pub status: Option<AgentStatus>,
    /// Everything before this byte of the turn's log is stored.
    pub offset: u64,
    /// Parts that this follower has stored.
    pub parts_stored: u32,
    /// When the last verified frame came.
    pub last_frame_at: Option<Instant>,
    /// When this follower was started.
    pub since: Instant,
    /// What keeps it from reading or storing, if anything does.
    pub trouble: Option<FollowTrouble>,
    /// Whether the recorder was found to be over: nothing more will come.
    pub ended: bool,
    /// Where a harvest may read on from.
    pub checkpoint: Option<Checkpoint>,
    /// Verified frames.
    pub frames: u64,
    /// Connections after the first.
    pub restarts: u64,
}

/// Settings of followers.
#[derive(Clone, Debug)]
pub struct FollowSettings {
    /// Bounds of frames, transactions and store calls.
    pub harvest: HarvestSettings,
    /// Bytes of frames that followers may hold in memory, all together, while the store takes them.
    pub memory_bytes: u64,
    /// First pause after a failure.
    pub backoff_min: Duration,
    /// Longest pause between two tries.
    pub backoff_max: Duration,
}

impl Default for FollowSettings {
    fn default() -> Self {
        Self {
            harvest: HarvestSettings::default(),
            memory_bytes: 64 << 20,
            backoff_min: Duration::from_millis(250),
            backoff_max: Duration::from_secs(10),
        }
    }
}

/// What all followers share.
struct Shared {
    execs: Execs,
    store: SharedStore,
    settings: FollowSettings,
    memory: MemoryBudget,
    poke: Box<dyn Poke>,
}

/// All followers of this process. Cheap to clone.
#[derive(Clone)]
pub struct Followers {
    shared: Arc<Shared>,
    entries: Arc<Mutex<HashMap<PodUid, Entry>>>,
    tasks: TaskTracker,
    stopped: CancellationToken,
}

struct Entry {
    spec: FollowSpec,
    view: watch::Receiver<FollowView>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl fmt::Debug for Followers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Followers").field("count", &self.len()).finish_non_exhaustive()
    }
}

impl Followers {
    /// A registry without followers.
    #[must_use]
    pub fn new(execs: Execs, store: SharedStore, settings: FollowSettings, poke: impl Poke + 'static) -> Self {
        let memory = MemoryBudget::new(settings.memory_bytes);
        Self {
            shared: Arc::new(Shared { execs, store, settings, memory, poke: Box::new(poke) }),
            entries: Arc::default(),
            tasks: TaskTracker::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// Sees to it that this Pod is followed for this turn. Nothing happens when it is already, or when its recorder is known to be over; a follower
    /// of another turn is replaced, and what it last heard of the driver stays in view.
    pub fn ensure(&self, spec: FollowSpec) {
        if self.stopped.is_cancelled() {
            return;
        }
        let mut entries = self.lock();
        let known = entries.get(&spec.pod.uid);
        if let Some(entry) = known {
            let ended = entry.view.borrow().ended;
            if ended || (entry.spec.turn == spec.turn && !entry.task.is_finished()) {
                return;
            }
        }
        let status = known.and_then(|entry| entry.view.borrow().status.clone());
        let (publish, view) = watch::channel(FollowView::new(spec.turn, status));
        let stop = self.stopped.child_token();
        let follower = task::Follower::new(Arc::clone(&self.shared), spec.clone(), publish);
        let cancelled = stop.clone();
        let task = self.tasks.spawn(async move {
            // Dropping the follower at any await cuts its connection and rolls a transaction back.
            cancelled.run_until_cancelled(follower.run()).await;
        });
        entries.insert(spec.pod.uid.clone(), Entry { spec, view, stop, task });
    }

    /// What the follower of a Pod last heard; `None` when there is none.
    #[must_use]
    pub fn view(&self, pod: &PodUid) -> Option<FollowView> {
        self.lock().get(pod).map(|entry| entry.view.borrow().clone())
    }

    /// A receiver of what the follower of a Pod hears, for who waits for it.
    #[must_use]
    pub fn watch(&self, pod: &PodUid) -> Option<watch::Receiver<FollowView>> {
        self.lock().get(pod).map(|entry| entry.view.clone())
    }

    /// Stops the follower of a Pod and forgets what it heard.
    pub fn stop(&self, pod: &PodUid) {
        self.lock().remove(pod);
    }

    /// Stops the followers of all Pods but these.
    pub fn retain(&self, live: &HashSet<PodUid>) {
        self.lock().retain(|pod, _| live.contains(pod));
    }

    /// How many Pods are followed, ended ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no Pod is followed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Followers whose last try to read or to store failed, for metrics.
    #[must_use]
    pub fn troubled(&self) -> usize {
        self.lock().values().filter(|entry| entry.view.borrow().trouble.is_some()).count()
    }

    /// Stops all followers for good and waits until the last one is gone.
    pub async fn shutdown(&self) {
        self.stopped.cancel();
        self.lock().clear();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Entry>> {
        // Nothing panics while it holds the lock half-way through a change.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowView {
    fn new(turn: Turn, status: Option<AgentStatus>) -> Self {
        Self {
            turn,
            status,
            offset: 0,
            parts_stored: 0,
            last_frame_at: None,
            since: Instant::now(),
            trouble: None,
            ended: false,
            checkpoint: None,
            frames: 0,
            restarts: 0,
        }
    }
}
