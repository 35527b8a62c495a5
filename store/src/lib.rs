//! Where transcripts live. One trait, [`TranscriptStore`], two backends, one conformance suite over both.
//!
//! The store is the ledger: turn records here are the truth, the status of an AgentSession is their projection. It guarantees that an
//! identity `(session, turn, part index)` is stored at most once (the first stays), that seq is dense and strictly increasing in commit order, and
//! that a turn is settled exactly once.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use transcript::{
    Attempt, IndexSet, Outcome, PartIndex, PodUid, Reason, Seq, SessionUid, Turn, TurnState, Verdict, status::Usage,
};

mod backend;
mod classify;
mod error;
mod lease;
mod migrations;
mod open;
mod ops;
mod options;
mod pages;
mod plan;
mod postgres;
mod row;
mod sqlite;
mod statements;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Category, StoreError};
pub use open::{connect, migrate};
pub use options::{Options, Role, Roles};

/// Result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A store that can be shared between tasks.
pub type SharedStore = Arc<dyn TranscriptStore>;

/// What identifies and describes a session when its row is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// `metadata.uid`.
    pub uid: SessionUid,
    /// `metadata.namespace`.
    pub namespace: String,
    /// UID of that namespace, so that a later namespace of the name does not inherit the history.
    pub namespace_uid: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.mode`.
    pub mode: String,
}

/// A session as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// `metadata.uid`.
    pub uid: SessionUid,
    /// Namespace.
    pub namespace: String,
    /// UID of the namespace.
    pub namespace_uid: String,
    /// Name.
    pub name: String,
    /// `Interactive` or `Autonomous`.
    pub mode: String,
    /// The latest attempt that was opened; 0 before the first.
    pub attempt: Attempt,
    /// The nonce that the Pod of that attempt must carry; empty before the first.
    pub nonce: String,
    /// Parts stored.
    pub parts: u64,
    /// Bytes of their JSON text.
    pub bytes: u64,
    /// The last seq given out; 0 before the first.
    pub last_seq: Seq,
    /// When the row was made (store clock).
    pub created_at: Timestamp,
    /// When something was last written (store clock).
    pub last_activity_at: Timestamp,
    /// When the AgentSession was seen to be gone, if it is.
    pub deleted_at: Option<Timestamp>,
}

/// A turn when it is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTurn {
    /// The session.
    pub session: SessionUid,
    /// The turn.
    pub turn: Turn,
    /// The id that the client gave it.
    pub client_id: Option<String>,
    /// The prompt.
    pub prompt: String,
}

/// A turn as the store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnRecord {
    /// The turn.
    pub turn: Turn,
    /// The id that the client gave it.
    pub client_id: Option<String>,
    /// The prompt.
    pub prompt: String,
    /// State.
    pub state: TurnState,
    /// The attempt that ran it; `None` until it is `running`.
    pub attempt: Option<Attempt>,
    /// The Pod that ran it; `None` until it is `running`.
    pub pod_uid: Option<PodUid>,
    /// The image that ran it.
    pub image: Option<String>,
    /// How it ended; `None` while active.
    pub outcome: Option<Outcome>,
    /// Why it ended so.
    pub reason: Option<Reason>,
    /// How much of its transcript is held; `None` while active.
    pub verdict: Option<Verdict>,
    /// What is missing.
    pub verdict_reason: Option<Reason>,
    /// For people.
    pub message: Option<String>,
    /// Parts stored of this turn.
    pub parts: u32,
    /// Usage, as the turn's final status reported it.
    pub usage: Option<Usage>,
    /// When it was accepted (store clock).
    pub accepted_at: Timestamp,
    /// When it became `running` (store clock).
    pub started_at: Option<Timestamp>,
    /// When it was settled (store clock).
    pub settled_at: Option<Timestamp>,
}

/// All turns of a session and the store's clock in the same snapshot: ages are `now` minus the record's times, never another clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    /// The session row; `None` when the store does not know it.
    pub session: Option<SessionRecord>,
    /// Turns in order.
    pub turns: Vec<TurnRecord>,
    /// The store's clock when it was read.
    pub now: Timestamp,
}

/// One part to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPart<'a> {
    /// Index within the turn.
    pub index: PartIndex,
    /// The JSON text of the part, verbatim.
    pub part: &'a str,
}

/// Who appends, to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The session.
    pub session: SessionUid,
    /// The turn.
    pub turn: Turn,
    /// The attempt whose log this comes from.
    pub attempt: Attempt,
    /// Bytes that the whole session may hold.
    pub quota_bytes: u64,
}

/// What an append did. It is one transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Parts inserted.
    pub inserted: u32,
    /// Bytes inserted.
    pub bytes: u64,
    /// Parts that were there already, with the same bytes.
    pub already: u32,
    /// Parts that were there already with other bytes: kept out.
    pub conflicts: u32,
    /// Parts refused since the session's quota is reached; from the first one that does not fit, all are.
    pub over_quota: u32,
    /// The session's last seq afterwards.
    pub last_seq: Seq,
}

/// Which parts of a turn are stored: one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Indexes present.
    pub present: IndexSet,
    /// Bytes that the whole session holds.
    pub session_bytes: u64,
}

/// The final record of a turn, to be written by the one compare-and-set.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// The session.
    pub session: SessionUid,
    /// The turn.
    pub turn: Turn,
    /// Must be what the record has: the attempt that ran it, or `None` for a turn that never ran.
    pub attempt: Option<Attempt>,
    /// Must be what the record has.
    pub pod_uid: Option<PodUid>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<Reason>,
    /// How much is held.
    pub verdict: Verdict,
    /// What is missing.
    pub verdict_reason: Option<Reason>,
    /// For people; U+0000 is replaced before it is bound.
    pub message: Option<String>,
    /// Usage from the final status.
    pub usage: Option<Usage>,
}

/// What a settle found or made.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The record that stands, whoever wrote it.
    pub record: TurnRecord,
    /// Whether this call wrote it.
    pub won: Won,
}

/// Whether a settle wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Won {
    /// This call closed the turn: count it and say it.
    Settled,
    /// This call raised `Incomplete` or `Truncated` to `Complete`.
    Upgraded,
    /// Another record stands.
    No,
}

/// One stored part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// Insertion order.
    pub seq: Seq,
    /// The turn.
    pub turn: Turn,
    /// Index within the turn.
    pub index: PartIndex,
    /// The JSON text, verbatim.
    pub part: String,
    /// When it was stored (store clock).
    pub created_at: Timestamp,
}

/// A page of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartPage {
    /// The parts.
    pub parts: Vec<StoredPart>,
    /// Whether more follow.
    pub has_more: bool,
}

/// The bound of a page: at most so many rows and bytes, and at least one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// Rows.
    pub rows: u32,
    /// Bytes of JSON text.
    pub bytes: u64,
}

impl Default for PageLimit {
    fn default() -> Self {
        Self { rows: 1000, bytes: 4 << 20 }
    }
}

/// The one interface to stored transcripts.
///
/// Every method is one transaction, may be repeated, and may be called by any number of processes at once.
#[async_trait]
pub trait TranscriptStore: Send + Sync + std::fmt::Debug {
    /// `sqlite` or `postgres`.
    fn backend(&self) -> &'static str;

    /// Whether the store answers and takes writes.
    async fn ping(&self) -> Result<()>;

    /// Whether schema and rights are what `role` needs; asked at start. A store without roles has nothing to say.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] names what is missing and the way out; [`StoreError::Unavailable`] says that nobody could be asked.
    async fn check(&self, role: Role) -> Result<()> {
        let _ = role;
        Ok(())
    }

    /// Makes the session's row unless it is there.
    async fn ensure_session(&self, session: &NewSession) -> Result<()>;

    /// The session, its turns and the store's clock, in one snapshot.
    async fn ledger(&self, session: &SessionUid) -> Result<Ledger>;

    /// Records an accepted turn; a turn that is there already stays as it is. Returns the record that stands.
    async fn accept_turn(&self, turn: &NewTurn) -> Result<TurnRecord>;

    /// Records a turn that the object says was accepted once and the store does not know: settled at once as `Lost`,
    /// `Incomplete`, `StoreLost`. A turn that is there already stays as it is.
    async fn record_lost_turn(&self, turn: &NewTurn) -> Result<TurnRecord>;

    /// Opens attempt `attempt` with the nonce of its Pod if the latest is `attempt - 1`. Returns the latest `(attempt, nonce)` that stands.
    async fn open_attempt(&self, session: &SessionUid, attempt: Attempt, nonce: &str) -> Result<(Attempt, String)>;

    /// Claims an accepted turn for an attempt's Pod: `accepted` → `running`. Repeating it for the same attempt and Pod is fine; a claim of a
    /// turn that another Pod has, or that is settled, changes nothing. Returns the record that stands.
    async fn start_turn(
        &self,
        session: &SessionUid,
        turn: Turn,
        attempt: Attempt,
        pod_uid: &PodUid,
        image: &str,
    ) -> Result<TurnRecord>;

    /// `running` → `harvesting`, of this attempt only. Returns the record that stands.
    async fn begin_harvest(&self, session: &SessionUid, turn: Turn, attempt: Attempt) -> Result<TurnRecord>;

    /// Stores what is missing, in the order given, in one transaction. Only when the database refuses a part for a reason of its own, it is
    /// more than one: the others are stored, and the error names the part.
    ///
    /// # Errors
    /// [`StoreError::SessionUnknown`], [`StoreError::AttemptSuperseded`] when the turn belongs to another attempt, and
    /// [`StoreError::TurnComplete`] when it is settled `Complete`; nothing is stored then.
    async fn append(&self, writer: &Writer, parts: &[NewPart<'_>]) -> Result<Appended>;

    /// Which parts of a turn are there.
    ///
    /// # Errors
    /// [`StoreError::SessionUnknown`].
    async fn progress(&self, session: &SessionUid, turn: Turn) -> Result<Progress>;

    /// The compare-and-set: writes the record where the turn is active and attempt and Pod match (none matches none), or where a later
    /// harvest of the same attempt raises a settled `Incomplete` or `Truncated` to `Complete`. Returns what stands.
    async fn settle(&self, settlement: &Settlement) -> Result<Standing>;

    /// Notes that the AgentSession is gone. Keeps the first time. Fine for a session that the store does not know.
    async fn mark_deleted(&self, session: &SessionUid) -> Result<()>;

    /// Deletes a session with all that it has. `false` when it was not there.
    async fn delete_session(&self, session: &SessionUid) -> Result<bool>;

    /// Sessions that have an active turn, for the sweep.
    async fn sessions_with_active_turns(&self) -> Result<Vec<SessionRecord>>;

    /// The session of that name: with a UID that one or none, without it the newest.
    async fn find_session(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&SessionUid>,
    ) -> Result<Option<SessionRecord>>;

    /// Sessions of a namespace, newest first.
    async fn list_sessions(&self, namespace: &str, limit: u32) -> Result<Vec<SessionRecord>>;

    /// Parts in identity order after an identity.
    async fn parts(&self, session: &SessionUid, after: Option<(Turn, PartIndex)>, limit: PageLimit)
    -> Result<PartPage>;

    /// Parts in insertion order after a seq.
    async fn rows(&self, session: &SessionUid, after: Seq, limit: PageLimit) -> Result<PartPage>;
}
