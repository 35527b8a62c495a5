//! The settling read of a turn: its whole log out of the Pod and into the store, and the evidence for its verdict. An effect; decides nothing.
//!
//! ```text
//! recorder ──frames──► LogReader ──proven frames──► LogScanner ──parts──► Deposit ──batches──► store
//!                      (bounded by what is read)    (bytes → parts)       (only what is missing)
//! ```
//!
//! Both halves run at once, and the store is never behind the socket: frames wait in memory, and there are no more of them than a log may be long.
//! What a verified frame proved is stored even when the read fails later; the error still says that the log was not read to its end, so nothing
//! short is ever taken for whole. Running it twice changes nothing.

use std::time::Duration;

use store::{Category, SharedStore, StoreError};
use tokio::{sync::mpsc, time::Instant};
use transcript::{
    AgentStatus, Attempt, IndexSet, Reason, SessionUid, Turn, limits,
    line::Position,
    merge::{BatchLimit, Evidence, LogFacts},
    scan::LogScanner,
};

use crate::exec::{ExecError, Execs, MemoryBudget, PodTarget, frames::Frame};

pub(crate) mod deposit;
mod read;

use self::{
    deposit::{Deposit, DepositSpec, Tally, bounded},
    read::{LogReader, ReadFigures},
};

/// Bytes that are scanned between two looks at the batch.
const SCAN_BYTES: usize = 256 << 10;

/// Settings of harvests.
#[derive(Clone, Debug)]
pub struct HarvestSettings {
    /// Bytes of one frame, at most: what a broken connection costs.
    pub frame_bytes: u64,
    /// Bound of one transaction.
    pub batch: BatchLimit,
    /// How long one call of the store may take.
    pub store_call: Duration,
    /// Bytes of logs that harvests may hold in memory, all together.
    pub memory_bytes: u64,
}

impl Default for HarvestSettings {
    fn default() -> Self {
        Self {
            frame_bytes: 4 << 20,
            batch: BatchLimit { rows: 5000, bytes: 4 << 20 },
            store_call: Duration::from_secs(30),
            memory_bytes: 256 << 20,
        }
    }
}

/// A line of the log before which everything is known to be whole and in the store, because one follower saw all of it and stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where the line begins.
    pub at: Position,
    /// The turn's indexes before it. There was no damage, no marker and no part of another turn among them.
    pub seen: IndexSet,
}

/// One harvest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarvestRequest {
    /// The session.
    pub session: SessionUid,
    /// The Pod.
    pub pod: PodTarget,
    /// The turn.
    pub turn: Turn,
    /// The attempt whose Pod it is.
    pub attempt: Attempt,
    /// Bytes that the whole session may hold.
    pub quota_bytes: u64,
    /// Read on from here if the store still has every index before it; the whole file otherwise.
    pub checkpoint: Option<Checkpoint>,
}

/// What a harvest brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Harvested {
    /// For [`judge`](transcript::merge::judge).
    pub evidence: Evidence,
    /// For metrics.
    pub figures: Figures,
}

/// What a harvest took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Execs.
    pub execs: u32,
    /// Bytes of the log read and proven.
    pub read_bytes: u64,
    /// From the first exec to the last frame.
    pub read: Duration,
    /// From the beginning to the last commit.
    pub whole: Duration,
    /// Bytes of parts inserted.
    pub stored_bytes: u64,
    /// Transactions.
    pub batches: u32,
    /// Parts that named another turn and that the store would not take.
    pub strangers_refused: u32,
}

/// A harvest that did not come through. What it stored before stays. `Display` leaves the cause to the error chain.
#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    /// The log could not be read to its end.
    #[error("the log could not be read to its end")]
    Read(#[source] ExecError),
    /// The store did not take it.
    #[error("the log could not be stored")]
    Store(#[source] StoreError),
}

impl HarvestError {
    /// What a verdict says of it, should it stand at the deadline.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ReadFailed,
            Self::Store(error) => store_reason(error),
        }
    }

    /// Whether the recorder is over for good, so that no harvest can come through any more.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Read(error) if error.is_ended())
    }

    /// Bounded label for metrics.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Read(error) => error.category().as_str(),
            Self::Store(error) => match error.category() {
                Category::Unavailable => "store_unavailable",
                Category::Full => "store_full",
                Category::Unusable => "store_unusable",
                Category::Refused => "store_refused",
                Category::Fenced => "store_fenced",
            },
        }
    }

    /// The error with its causes, in one line for people.
    #[must_use]
    pub fn chain(&self) -> String {
        crate::exec::error_chain(self)
    }
}

/// The reason that stands for a store error.
pub(crate) fn store_reason(error: &StoreError) -> Reason {
    match error {
        StoreError::Full { .. } => Reason::StoreFull,
        StoreError::SessionUnknown(_) | StoreError::TurnUnknown { .. } => Reason::StoreLost,
        StoreError::Unavailable { .. }
        | StoreError::Unusable(_)
        | StoreError::Refused { .. }
        | StoreError::Corrupt(_)
        | StoreError::AttemptSuperseded { .. }
        | StoreError::TurnComplete(_) => Reason::StoreUnavailable,
    }
}

/// Runs harvests.
#[derive(Clone, Debug)]
pub struct Harvester {
    execs: Execs,
    store: SharedStore,
    settings: HarvestSettings,
    memory: MemoryBudget,
}

impl Harvester {
    /// Harvests through `execs` into `store`.
    #[must_use]
    pub fn new(execs: Execs, store: SharedStore, settings: HarvestSettings) -> Self {
        let memory = MemoryBudget::new(settings.memory_bytes);
        Self { execs, store, settings, memory }
    }

    /// Reads the turn's log to its end as it is now, stores what is missing, and says what was found.
    ///
    /// # Errors
    /// [`HarvestError`]: the log was not read to its end, or not all of it was stored. May be repeated.
    pub async fn harvest(&self, request: &HarvestRequest) -> Result<Harvested, HarvestError> {
        let begin = Instant::now();
        let progress = self.store.progress(&request.session, request.turn);
        let present =
            bounded(self.settings.store_call, "reading progress", progress).await.map_err(HarvestError::Store)?.present;
        let checkpoint = request.checkpoint.as_ref().filter(|point| point.seen.is_subset(&present));
        let first = self.pass(request, checkpoint, present.clone(), begin).await;
        match (first, checkpoint) {
            // The file ends before the checkpoint: it is not the file that the follower read.
            (Ok(Pass::Elsewhere), Some(_)) | (Err(HarvestError::Read(ExecError::Protocol(_))), Some(_)) => {
                match self.pass(request, None, present, begin).await? {
                    Pass::Whole(harvested) => Ok(*harvested),
                    Pass::Elsewhere => Err(elsewhere()),
                }
            }
            (Ok(Pass::Whole(harvested)), _) => Ok(*harvested),
            (Ok(Pass::Elsewhere), None) => Err(elsewhere()),
            (Err(error), _) => Err(error),
        }
    }

    async fn pass(
        &self,
        request: &HarvestRequest,
        checkpoint: Option<&Checkpoint>,
        present: IndexSet,
        begin: Instant,
    ) -> Result<Pass, HarvestError> {
        let deadline = Instant::now() + self.execs.settings().read_whole;
        let memory = self.memory.take(limits::READ_BUFFER_BYTES, Some(deadline)).await.map_err(HarvestError::Read)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let reader = LogReader {
            execs: &self.execs,
            pod: &request.pod,
            turn: request.turn,
            frame_bytes: self.settings.frame_bytes,
            deadline,
            frames: Some(sender),
            memory,
        };
        let from = checkpoint.map_or(0, |point| point.at.offset);
        let reading = async {
            let done = reader.run(from).await;
            Ok((done, begin.elapsed()))
        };
        let intake = Intake::new(self.deposit(request, present), request.turn, checkpoint);
        let storing = async { self.store_frames(intake, receiver).await.map_err(HarvestError::Store) };
        // A store that fails ends the whole at once: dropping the reader cuts its connection.
        let (((read, memory, read_result), read_time), taken) = tokio::try_join!(reading, storing)?;
        drop(memory);
        read_result.map_err(HarvestError::Read)?;
        if taken.size < from {
            return Ok(Pass::Elsewhere);
        }
        Ok(Pass::Whole(Box::new(taken.finish(read, read_time, begin.elapsed()))))
    }

    fn deposit(&self, request: &HarvestRequest, present: IndexSet) -> Deposit {
        let spec = DepositSpec {
            session: request.session.clone(),
            turn: request.turn,
            attempt: request.attempt,
            quota_bytes: request.quota_bytes,
            batch: self.settings.batch,
            call: self.settings.store_call,
        };
        Deposit::new(spec, present)
    }

    /// Takes frames until there are no more, and stores what is missing of them.
    async fn store_frames(
        &self,
        mut intake: Intake,
        mut frames: mpsc::UnboundedReceiver<Frame>,
    ) -> Result<Taken, StoreError> {
        let store = self.store.as_ref();
        let mut settled_complete = false;
        while let Some(frame) = frames.recv().await {
            for chunk in frame.body.chunks(SCAN_BYTES) {
                intake.scan(chunk);
                if !settled_complete {
                    settled_complete = complete(intake.deposit.flush_full(store).await)?;
                }
            }
            intake.header(frame);
        }
        if !settled_complete {
            settled_complete = complete(intake.deposit.flush(store).await)?;
        }
        if settled_complete {
            // Settled `Complete` by somebody else: it has all there is, and another look says what.
            intake.deposit.forget();
        }
        let (stored, tally) = intake.deposit.stored(store).await?;
        let facts = intake.scanner.facts(intake.exists, intake.size);
        Ok(Taken { status: intake.status, facts, before: intake.before, stored, tally, size: intake.size })
    }
}

/// Whether the store refused because the turn is settled `Complete`.
fn complete(result: Result<(), StoreError>) -> Result<bool, StoreError> {
    match result {
        Ok(()) => Ok(false),
        Err(StoreError::TurnComplete(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

fn elsewhere() -> HarvestError {
    HarvestError::Read(ExecError::Protocol("the log is shorter than what was read of it".into()))
}

/// What one pass over the log was.
enum Pass {
    Whole(Box<Harvested>),
    /// The file is shorter than where the pass began.
    Elsewhere,
}

/// The state of the storing half.
struct Intake {
    scanner: LogScanner,
    deposit: Deposit,
    /// Indexes before the place where the scanner began.
    before: IndexSet,
    status: Option<AgentStatus>,
    exists: bool,
    size: u64,
}

impl Intake {
    fn new(deposit: Deposit, turn: Turn, checkpoint: Option<&Checkpoint>) -> Self {
        Self {
            scanner: checkpoint.map_or_else(|| LogScanner::new(turn), |point| LogScanner::resume(turn, point.at)),
            deposit,
            before: checkpoint.map(|point| point.seen.clone()).unwrap_or_default(),
            status: None,
            exists: false,
            size: 0,
        }
    }

    fn scan(&mut self, chunk: &[u8]) {
        let Self { scanner, deposit, .. } = self;
        scanner.push(chunk, |part| deposit.offer(&part));
    }

    /// The last header counts: its status was read before its size.
    fn header(&mut self, frame: Frame) {
        self.status = frame.header.status;
        self.exists = frame.header.exists;
        self.size = if frame.header.exists { frame.header.size } else { 0 };
    }
}

/// What the storing half found and did.
struct Taken {
    status: Option<AgentStatus>,
    facts: LogFacts,
    before: IndexSet,
    stored: IndexSet,
    tally: Tally,
    size: u64,
}

impl Taken {
    fn finish(mut self, read: ReadFigures, read_time: Duration, whole: Duration) -> Harvested {
        self.facts.indexes.extend_from(&self.before);
        Harvested {
            evidence: Evidence {
                status: self.status,
                facts: self.facts,
                stored: self.stored,
                over_quota: self.tally.over_quota,
                inserted: self.tally.inserted,
                conflicts: self.tally.conflicts,
            },
            figures: Figures {
                execs: read.execs,
                read_bytes: read.bytes,
                read: read_time,
                whole,
                stored_bytes: self.tally.bytes,
                batches: self.tally.batches,
                strangers_refused: self.tally.strangers_refused,
            },
        }
    }
}
