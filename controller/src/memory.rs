//! What this process remembers of each session between two reconciles: clocks, marks, the settling read, its own last writes.
//!
//! All of it may be lost at any moment: a restart begins with none and ends up in the same place, only later.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_core::model::{Clock, Done, HarvestView, PodRefusal, Trouble};
use tokio::time::Instant;
use transcript::{Attempt, PodUid, Reason, SessionUid, Turn, merge::Evidence};

/// So many status writes of one session within [`STATUS_WINDOW`], and no more: two writers that disagree, a second controller with another store say,
/// must not write at the speed of the API server.
const STATUS_BURST: usize = 12;
/// See [`STATUS_BURST`].
const STATUS_WINDOW: Duration = Duration::from_secs(30);
/// Pause between two writes to a store that takes none.
const STORE_RETRY: Duration = Duration::from_secs(2);

/// The memory of all sessions.
#[derive(Debug, Default)]
pub struct Memory {
    sessions: Mutex<HashMap<SessionUid, Arc<SessionMemory>>>,
}

impl Memory {
    /// The memory of one session, made when it is first asked for.
    pub fn of(&self, uid: &SessionUid) -> Arc<SessionMemory> {
        Arc::clone(lock(&self.sessions).entry(uid.clone()).or_default())
    }

    /// Drops the memory of a session that is gone.
    pub fn forget(&self, uid: &SessionUid) {
        lock(&self.sessions).remove(uid);
    }

    /// Sessions remembered.
    pub fn len(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The memory of one session. Reconciles of one session never overlap; the lock is for its harvest task.
#[derive(Debug, Default)]
pub struct SessionMemory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    clocks: BTreeMap<Clock, Instant>,
    done: BTreeSet<Done>,
    refusal: Option<(PodRefusal, Instant)>,
    harvest: Option<Harvest>,
    abandoned: Option<Reason>,
    session_written: Option<u64>,
    pod_written: Option<(u64, Instant)>,
    failures: u32,
    store_trouble: Option<(Trouble, Instant)>,
    status_writes: VecDeque<Instant>,
}

/// Whose log is being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarvestKey {
    /// The turn.
    pub turn: Turn,
    /// The attempt.
    pub attempt: Attempt,
    /// The Pod.
    pub pod: PodUid,
}

#[derive(Debug)]
struct Harvest {
    key: HarvestKey,
    tries: u32,
    state: HarvestState,
}

#[derive(Debug)]
enum HarvestState {
    Running,
    Failed(Trouble, Instant),
    Read(Box<Evidence>, bool, Instant),
}

impl SessionMemory {
    /// How long each state has been held.
    pub fn elapsed(&self) -> BTreeMap<Clock, Duration> {
        self.lock().clocks.iter().map(|(clock, since)| (clock.clone(), since.elapsed())).collect()
    }

    /// Keeps the clocks of states that hold, starts those of new ones, drops the others. While the store takes no writes none is dropped: a pass that only
    /// tries again says nothing of what holds.
    pub fn hold(&self, clocks: &BTreeSet<Clock>) {
        let now = Instant::now();
        let mut inner = self.lock();
        if inner.store_trouble.is_none() {
            inner.clocks.retain(|clock, _| clocks.contains(clock));
        }
        for clock in clocks {
            inner.clocks.entry(clock.clone()).or_insert(now);
        }
    }

    /// Marks of effects.
    pub fn done(&self) -> BTreeSet<Done> {
        self.lock().done.clone()
    }

    /// Marks an effect as carried out.
    pub fn mark(&self, done: Done) {
        self.lock().done.insert(done);
    }

    /// The last refusal to make a Pod, until one is made.
    pub fn refusal(&self) -> Option<PodRefusal> {
        let inner = self.lock();
        inner.refusal.as_ref().map(|(refusal, at)| PodRefusal { age: at.elapsed(), ..refusal.clone() })
    }

    /// Notes what the API server said of a Pod; `None` when it was made.
    pub fn set_refusal(&self, refusal: Option<PodRefusal>) {
        self.lock().refusal = refusal.map(|refusal| (refusal, Instant::now()));
    }

    /// Why records of this session were abandoned.
    pub fn abandoned(&self) -> Option<Reason> {
        self.lock().abandoned
    }

    /// Notes that records were abandoned; `true` the first time.
    pub fn abandon(&self, reason: Reason) -> bool {
        self.lock().abandoned.replace(reason).is_none()
    }

    /// The settling read of one turn as decisions see it. One of another turn, attempt or Pod is none.
    pub fn harvest(&self, turn: Option<Turn>) -> HarvestView {
        let inner = self.lock();
        let Some(harvest) = inner.harvest.as_ref().filter(|harvest| Some(harvest.key.turn) == turn) else {
            return HarvestView::None;
        };
        match &harvest.state {
            HarvestState::Running => HarvestView::Running,
            HarvestState::Failed(trouble, at) => {
                HarvestView::Failed { trouble: trouble.clone(), tries: harvest.tries, age: at.elapsed() }
            }
            HarvestState::Read(evidence, after_agent_end, at) => {
                HarvestView::Read { evidence: evidence.clone(), after_agent_end: *after_agent_end, age: at.elapsed() }
            }
        }
    }

    /// Notes that a read begins; `false` when one is under way.
    pub fn begin_harvest(&self, key: HarvestKey) -> bool {
        let mut inner = self.lock();
        let tries = match &inner.harvest {
            Some(Harvest { state: HarvestState::Running, .. }) => return false,
            Some(harvest) if harvest.key == key => harvest.tries,
            _ => 0,
        };
        inner.harvest = Some(Harvest { key, tries, state: HarvestState::Running });
        true
    }

    /// Notes how a read ended.
    pub fn end_harvest(&self, key: &HarvestKey, result: Result<(Box<Evidence>, bool), Trouble>) {
        let mut inner = self.lock();
        let Some(harvest) = inner.harvest.as_mut().filter(|harvest| harvest.key == *key) else { return };
        match result {
            Ok((evidence, after_agent_end)) => {
                harvest.tries = 0;
                harvest.state = HarvestState::Read(evidence, after_agent_end, Instant::now());
            }
            Err(trouble) => {
                harvest.tries = harvest.tries.saturating_add(1);
                harvest.state = HarvestState::Failed(trouble, Instant::now());
            }
        }
    }

    /// Whether the status may be written now, and notes that it is; else how long to wait.
    pub fn may_write_status(&self) -> Result<(), Duration> {
        let mut inner = self.lock();
        while inner.status_writes.front().is_some_and(|at| at.elapsed() >= STATUS_WINDOW) {
            inner.status_writes.pop_front();
        }
        match inner.status_writes.front() {
            Some(first) if inner.status_writes.len() >= STATUS_BURST => {
                Err(STATUS_WINDOW.saturating_sub(first.elapsed()))
            }
            _ => {
                inner.status_writes.push_back(Instant::now());
                Ok(())
            }
        }
    }

    /// Notes that the store did not take a write, or that it did.
    pub fn set_store_trouble(&self, trouble: Option<Trouble>) {
        self.lock().store_trouble = trouble.map(|trouble| (trouble, Instant::now()));
    }

    /// Why the store takes no writes, and whether it is time to try again. A store that can be read and not written is one that is away.
    pub fn store_trouble(&self) -> Option<(Trouble, bool)> {
        let inner = self.lock();
        inner.store_trouble.as_ref().map(|(trouble, at)| (trouble.clone(), at.elapsed() >= STORE_RETRY))
    }

    /// Notes that a pass failed; returns how many have in a row.
    pub fn failed(&self) -> u32 {
        let mut inner = self.lock();
        inner.failures = inner.failures.saturating_add(1);
        inner.failures
    }

    /// Notes that a pass went through.
    pub fn succeeded(&self) {
        self.lock().failures = 0;
    }

    /// Notes the resourceVersion of our last write to the session.
    pub fn wrote_session(&self, version: Option<&str>) {
        if let Some(version) = parse_version(version) {
            let mut inner = self.lock();
            inner.session_written = inner.session_written.max(Some(version));
        }
    }

    /// Notes the resourceVersion of our last write to one of its Pods.
    pub fn wrote_pod(&self, version: Option<&str>) {
        if let Some(version) = parse_version(version) {
            let mut inner = self.lock();
            if inner.pod_written.is_none_or(|(last, _)| last < version) {
                inner.pod_written = Some((version, Instant::now()));
            }
        }
    }

    /// Whether the caches have reached our own last writes. Acting on an older view would do twice what was done once.
    pub fn caught_up(&self, session_version: Option<&str>, pods: &Seen) -> bool {
        let inner = self.lock();
        let session =
            inner.session_written.is_none_or(|written| parse_version(session_version).is_none_or(|v| v >= written));
        let pod = inner.pod_written.is_none_or(|(written, at)| pods.reached(written, at));
        session && pod
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

/// How far a watch has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The highest resourceVersion of any event.
    pub version: u64,
    /// When the last complete list was asked for.
    pub listed: Option<Instant>,
}

impl Seen {
    fn reached(&self, version: u64, written: Instant) -> bool {
        self.version >= version || self.listed.is_some_and(|listed| listed > written)
    }
}

/// A resourceVersion as the number that it is since Kubernetes 1.35 promises that it can be compared.
pub fn parse_version(version: Option<&str>) -> Option<u64> {
    version?.parse().ok()
}

/// A poisoned lock means that a task of ours panicked; what it guards is still a value of its type.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use controller_core::model::RefusalKind;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_runs_while_its_state_holds_and_starts_anew_after_a_gap() {
        let memory = SessionMemory::default();
        let clock = Clock::Next(Turn(1));
        memory.hold(&BTreeSet::from([clock.clone()]));
        tokio::time::advance(Duration::from_secs(3)).await;
        memory.hold(&BTreeSet::from([clock.clone()]));
        assert_eq!(memory.elapsed()[&clock], Duration::from_secs(3));
        memory.hold(&BTreeSet::new());
        memory.hold(&BTreeSet::from([clock.clone()]));
        assert_eq!(memory.elapsed()[&clock], Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_older_than_our_own_write_is_not_acted_on() {
        let memory = SessionMemory::default();
        assert!(memory.caught_up(Some("5"), &Seen::default()));
        memory.wrote_session(Some("9"));
        assert!(!memory.caught_up(Some("8"), &Seen::default()));
        assert!(memory.caught_up(Some("9"), &Seen::default()));
        memory.wrote_pod(Some("12"));
        assert!(!memory.caught_up(Some("9"), &Seen { version: 11, listed: None }));
        assert!(memory.caught_up(Some("9"), &Seen { version: 12, listed: None }));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.caught_up(Some("9"), &Seen { version: 3, listed: Some(Instant::now()) }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_grows_older_until_a_pod_is_made() {
        let memory = SessionMemory::default();
        let refusal =
            PodRefusal { attempt: Attempt(1), kind: RefusalKind::Quota, message: String::new(), age: Duration::ZERO };
        memory.set_refusal(Some(refusal.clone()));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(memory.refusal(), Some(PodRefusal { age: Duration::from_secs(7), ..refusal }));
        memory.set_refusal(None);
        assert_eq!(memory.refusal(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_not_written_at_the_speed_of_a_quarrel() {
        let memory = SessionMemory::default();
        for _ in 0..STATUS_BURST {
            assert_eq!(memory.may_write_status(), Ok(()));
        }
        assert_eq!(memory.may_write_status(), Err(STATUS_WINDOW));
        tokio::time::advance(STATUS_WINDOW).await;
        assert_eq!(memory.may_write_status(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn clocks_run_on_while_the_store_takes_no_writes() {
        let memory = SessionMemory::default();
        let trouble = Trouble { reason: Reason::StoreUnavailable, message: "read-only".to_owned() };
        memory.set_store_trouble(Some(trouble.clone()));
        memory.hold(&BTreeSet::from([Clock::Holding]));
        assert_eq!(memory.store_trouble(), Some((trouble, false)));
        tokio::time::advance(STORE_RETRY).await;
        memory.hold(&BTreeSet::new());
        assert_eq!(memory.elapsed()[&Clock::Holding], STORE_RETRY);
        assert!(memory.store_trouble().is_some_and(|(_, again)| again));
        memory.set_store_trouble(None);
        memory.hold(&BTreeSet::new());
        assert!(memory.elapsed().is_empty());
    }

    #[test]
    fn only_one_read_of_a_session_is_under_way_and_its_result_counts_for_its_own_key() {
        let memory = SessionMemory::default();
        let key = HarvestKey { turn: Turn(1), attempt: Attempt(1), pod: "a".into() };
        assert!(memory.begin_harvest(key.clone()));
        assert!(!memory.begin_harvest(key.clone()));
        let other = HarvestKey { turn: key.turn, attempt: key.attempt, pod: "b".into() };
        memory.end_harvest(&other, Ok((Box::default(), false)));
        assert!(matches!(memory.harvest(Some(Turn(1))), HarvestView::Running));
        memory.end_harvest(&key, Ok((Box::default(), true)));
        assert!(matches!(memory.harvest(Some(Turn(1))), HarvestView::Read { after_agent_end: true, .. }));
        assert!(matches!(memory.harvest(Some(Turn(2))), HarvestView::None));
    }
}
