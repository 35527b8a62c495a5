//! Parts into the store: only what is missing, in bounded batches, each its own transaction. Shared by harvest and follower.

use std::time::Duration;

use store::{Appended, Category, NewPart, StoreError, TranscriptStore, Writer};
use tokio::time::timeout;
use transcript::{Attempt, IndexSet, PartIndex, SessionUid, Turn, merge::BatchLimit, parse::Part};

/// Who deposits, and within which bounds.
#[derive(Clone, Debug)]
pub(crate) struct DepositSpec {
    pub session: SessionUid,
    pub turn: Turn,
    pub attempt: Attempt,
    /// Bytes that the whole session may hold.
    pub quota_bytes: u64,
    /// Bound of one transaction.
    pub batch: BatchLimit,
    /// How long one call of the store may take.
    pub call: Duration,
}

/// What was stored so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub inserted: u32,
    pub bytes: u64,
    pub conflicts: u32,
    pub over_quota: u32,
    pub batches: u32,
    /// Parts of other turns that the store would not take.
    pub strangers_refused: u32,
}

/// One part on its way.
#[derive(Debug)]
struct Waiting {
    turn: Turn,
    index: PartIndex,
    raw: Box<str>,
}

/// Takes parts as they are scanned and stores those that are missing.
#[derive(Debug)]
pub(crate) struct Deposit {
    spec: DepositSpec,
    /// Indexes of the turn that the store has, as far as it said.
    present: IndexSet,
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    tally: Tally,
    /// Whether `present` may say too much or too little, so that only another look tells.
    uncertain: bool,
}

impl Deposit {
    /// A deposit that knows the store has `present`.
    pub(crate) fn new(spec: DepositSpec, present: IndexSet) -> Self {
        Self { spec, present, waiting: Vec::new(), waiting_bytes: 0, tally: Tally::default(), uncertain: false }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes one part; the scanner gives each identity of the turn once.
    pub(crate) fn offer(&mut self, part: &Part<'_>) {
        if part.turn == self.spec.turn && self.present.contains(part.index) {
            return;
        }
        self.waiting_bytes += part.raw.len();
        self.waiting.push(Waiting { turn: part.turn, index: part.index, raw: part.raw.as_ref().into() });
    }

    /// Stores whole batches; what is less than one waits for more.
    ///
    /// # Errors
    /// The store's; what was not stored still waits, so the call may be repeated.
    pub(crate) async fn flush_full(&mut self, store: &dyn TranscriptStore) -> Result<(), StoreError> {
        let BatchLimit { rows, bytes } = self.spec.batch;
        while self.waiting.len() >= rows || self.waiting_bytes >= bytes {
            self.store_one(store).await?;
        }
        Ok(())
    }

    /// Stores all that waits.
    ///
    /// # Errors
    /// See [`Deposit::flush_full`].
    pub(crate) async fn flush(&mut self, store: &dyn TranscriptStore) -> Result<(), StoreError> {
        while !self.waiting.is_empty() {
            self.store_one(store).await?;
        }
        Ok(())
    }

    /// Drops what waits: the store has said that it is not to have it.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.uncertain = true;
    }

    /// The indexes of the turn that the store has now. Asks again only where the answers so far leave a doubt.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn stored(mut self, store: &dyn TranscriptStore) -> Result<(IndexSet, Tally), StoreError> {
        if self.uncertain {
            let look = store.progress(&self.spec.session, self.spec.turn);
            self.present = bounded(self.spec.call, "reading progress", look).await?.present;
        }
        Ok((self.present, self.tally))
    }

    /// Stores the first batch of what waits: parts of one turn that stand together.
    async fn store_one(&mut self, store: &dyn TranscriptStore) -> Result<(), StoreError> {
        let count = self.next_batch();
        let Some(first) = self.waiting.first() else { return Ok(()) };
        let turn = first.turn;
        let own = turn == self.spec.turn;
        if own && self.tally.over_quota > 0 {
            // The store refuses from the first part that does not fit; a later, smaller one must not slip in behind the hole.
            self.tally.over_quota += self.drop_front(count);
            return Ok(());
        }
        let parts: Vec<NewPart<'_>> =
            self.waiting[..count].iter().map(|part| NewPart { index: part.index, part: &part.raw }).collect();
        let writer = Writer {
            session: self.spec.session.clone(),
            turn,
            attempt: self.spec.attempt,
            quota_bytes: self.spec.quota_bytes,
        };
        let appending = bounded(self.spec.call, "appending parts", store.append(&writer, &parts));
        let appended = match appending.await {
            Ok(appended) => appended,
            Err(error) if !own && error.category() == Category::Fenced => {
                // A line may name any turn; the fence decides whether this attempt may write there.
                self.tally.strangers_refused += self.drop_front(count);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.account(own, count, appended);
        self.drop_front(count);
        Ok(())
    }

    fn account(&mut self, own: bool, count: usize, appended: Appended) {
        let Appended { inserted, bytes, already, conflicts, over_quota, last_seq: _ } = appended;
        self.tally.inserted += inserted;
        self.tally.bytes += bytes;
        self.tally.conflicts += conflicts;
        self.tally.batches += 1;
        if !own {
            return;
        }
        self.tally.over_quota += over_quota;
        let held = u64::from(inserted) + u64::from(already) + u64::from(conflicts);
        if held == count as u64 {
            for part in &self.waiting[..count] {
                self.present.insert(part.index);
            }
        } else {
            self.uncertain = true;
        }
    }

    /// How many of the first parts make a batch: of one turn, within the bounds, and at least one.
    fn next_batch(&self) -> usize {
        let Some(turn) = self.waiting.first().map(|part| part.turn) else { return 0 };
        let mut bytes = 0;
        let fitting = self.waiting.iter().take(self.spec.batch.rows.max(1)).take_while(|part| {
            bytes += part.raw.len();
            part.turn == turn && bytes <= self.spec.batch.bytes
        });
        fitting.count().max(1)
    }

    fn drop_front(&mut self, count: usize) -> u32 {
        let bytes: usize = self.waiting.drain(..count).map(|part| part.raw.len()).sum();
        self.waiting_bytes -= bytes;
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// A store call with a deadline of its own: a database that accepts and says nothing must not hold whoever asks.
pub(crate) async fn bounded<T>(
    limit: Duration,
    operation: &'static str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, call)
        .await
        .unwrap_or_else(|elapsed| Err(StoreError::Unavailable { operation, source: Box::new(elapsed) }))
}
