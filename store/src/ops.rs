//! What each call of the store does inside its transaction, once for both backends.
//!
//! Every write locks the session's row first ([`Statements::lock_session`](crate::statements::Statements)), reads what stands, writes,
//! and reads back: the lock is the order of a session. A backend brings the transaction ([`Tx`]) and when it is committed.

use async_trait::async_trait;
use jiff::Timestamp;
use transcript::{Attempt, Outcome, PodUid, Reason, SessionUid, Turn, TurnState, Verdict};

use crate::{
    Appended, Ledger, NewSession, NewTurn, PartPage, Progress, Result, SessionRecord, Settlement, Standing, StoreError,
    TurnRecord, Won, Writer,
    pages::ReadPage,
    plan::{self, Batch, Entry},
    row::SessionRow,
    statements::Statements,
};

/// A value to bind. Texts are cleaned of U+0000 on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Int(i64),
    Text(&'a str),
    OptInt(Option<i64>),
    OptText(Option<&'a str>),
}

/// The parts of a turn that are there.
#[derive(Debug, Default)]
pub(crate) struct Present {
    /// Index and digest.
    pub parts: Vec<(u32, i64)>,
    /// The store's clock, in microseconds since 1970.
    pub now_micros: i64,
}

/// One open transaction of a backend.
#[async_trait]
pub(crate) trait Tx: Send {
    /// The dialect.
    fn statements(&self) -> &'static Statements;
    /// The store's clock.
    async fn now(&mut self) -> Result<Timestamp>;
    /// Runs a statement; how many rows it changed.
    async fn execute(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<u64>;
    /// Reads rows of `agent_sessions`.
    async fn sessions(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<SessionRow>>;
    /// Reads rows of `agent_session_turns`.
    async fn turns(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<TurnRecord>>;
    /// Reads runs of indexes, first and last of each.
    async fn runs(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<(u32, u32)>>;
    /// Reads which parts of a turn are there, between two indexes.
    async fn present(&mut self, session: &SessionUid, turn: Turn, first: u32, last: u32) -> Result<Present>;
    /// Reads a page of parts.
    async fn page(&mut self, page: &ReadPage) -> Result<PartPage>;
    /// Inserts parts that are known to be missing, numbered from `first_seq`.
    async fn insert(&mut self, at: Place<'_>, fresh: &[&Entry<'_>]) -> Result<()>;
}

/// Where parts go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub session: &'a SessionUid,
    pub turn: Turn,
    pub first_seq: i64,
    pub now_micros: i64,
}

/// One call of the store.
#[async_trait]
pub(crate) trait Op: Send + Sync {
    /// What it returns.
    type Out: Send + 'static;
    /// What it does, as the end of "… while".
    const NAME: &'static str;
    /// Whether it writes.
    const WRITES: bool = true;
    /// Bytes that it brings.
    fn bytes(&self) -> u64 {
        0
    }
    /// Does it.
    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Self::Out>;
}

fn int(value: u64) -> Arg<'static> {
    Arg::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

fn uid(session: &SessionUid) -> Arg<'_> {
    Arg::Text(session.as_str())
}

fn number(turn: Turn) -> Arg<'static> {
    Arg::Int(i64::from(turn.0))
}

async fn lock<T: Tx>(tx: &mut T, session: &SessionUid) -> Result<SessionRow> {
    let sql = tx.statements().lock_session;
    let found = tx.sessions(sql, &[uid(session)]).await?.pop();
    found.ok_or_else(|| StoreError::SessionUnknown(session.clone()))
}

async fn turn<T: Tx>(tx: &mut T, session: &SessionUid, row: &SessionRow, turn: Turn) -> Result<TurnRecord> {
    let sql = tx.statements().turn;
    let found = tx.turns(sql, &[uid(session), number(turn)]).await?.pop();
    let mut record = found.ok_or_else(|| StoreError::TurnUnknown { session: session.clone(), turn })?;
    record.parts = row.parts_of(turn);
    Ok(record)
}

/// Runs a write to a turn, notes the session's activity when it changed something, and reads the record that stands.
async fn change<T: Tx>(
    tx: &mut T,
    session: &SessionUid,
    at: Turn,
    sql: &'static str,
    args: &[Arg<'_>],
) -> Result<(TurnRecord, bool)> {
    let row = lock(tx, session).await?;
    let changed = tx.execute(sql, args).await? > 0;
    if changed {
        let touch = tx.statements().touch_session;
        tx.execute(touch, &[uid(session)]).await?;
    }
    Ok((turn(tx, session, &row, at).await?, changed))
}

/// [`ensure_session`](crate::TranscriptStore::ensure_session).
pub(crate) struct Ensure(pub NewSession);

#[async_trait]
impl Op for Ensure {
    type Out = ();
    const NAME: &'static str = "making a session's row";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<()> {
        let NewSession { uid: session, namespace, namespace_uid, name, mode } = &self.0;
        let args = [uid(session), Arg::Text(namespace), Arg::Text(namespace_uid), Arg::Text(name), Arg::Text(mode)];
        let sql = tx.statements().insert_session;
        tx.execute(sql, &args).await.map(drop)
    }
}

/// [`ledger`](crate::TranscriptStore::ledger).
pub(crate) struct ReadLedger(pub SessionUid);

#[async_trait]
impl Op for ReadLedger {
    type Out = Ledger;
    const NAME: &'static str = "reading a session's ledger";
    const WRITES: bool = false;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Ledger> {
        let statements = tx.statements();
        let session = tx.sessions(statements.session, &[uid(&self.0)]).await?.pop();
        let mut turns = tx.turns(statements.turns, &[uid(&self.0)]).await?;
        if let Some(row) = &session {
            for record in &mut turns {
                record.parts = row.parts_of(record.turn);
            }
        }
        let now = tx.now().await?;
        Ok(Ledger { session: session.map(|row| row.record), turns, now })
    }
}

/// [`accept_turn`](crate::TranscriptStore::accept_turn).
pub(crate) struct Accept(pub NewTurn);

#[async_trait]
impl Op for Accept {
    type Out = TurnRecord;
    const NAME: &'static str = "recording a turn";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<TurnRecord> {
        let new = &self.0;
        let args =
            [uid(&new.session), number(new.turn), Arg::OptText(new.client_id.as_deref()), Arg::Text(&new.prompt)];
        let sql = tx.statements().insert_turn;
        Ok(change(tx, &new.session, new.turn, sql, &args).await?.0)
    }
}

/// [`record_lost_turn`](crate::TranscriptStore::record_lost_turn).
pub(crate) struct RecordLost(pub NewTurn);

#[async_trait]
impl Op for RecordLost {
    type Out = TurnRecord;
    const NAME: &'static str = "recording a lost turn";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<TurnRecord> {
        let new = &self.0;
        let args = [
            uid(&new.session),
            number(new.turn),
            Arg::OptText(new.client_id.as_deref()),
            Arg::Text(&new.prompt),
            Arg::Text(Outcome::Lost.as_str()),
            Arg::Text(Reason::StoreLost.as_str()),
            Arg::Text(Verdict::Incomplete.as_str()),
        ];
        let sql = tx.statements().insert_lost_turn;
        Ok(change(tx, &new.session, new.turn, sql, &args).await?.0)
    }
}

/// [`open_attempt`](crate::TranscriptStore::open_attempt).
pub(crate) struct OpenAttempt {
    pub session: SessionUid,
    pub attempt: Attempt,
    pub nonce: String,
}

#[async_trait]
impl Op for OpenAttempt {
    type Out = (Attempt, String);
    const NAME: &'static str = "opening an attempt";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<(Attempt, String)> {
        let standing = lock(tx, &self.session).await?.record;
        if standing.attempt.0.checked_add(1) != Some(self.attempt.0) {
            return Ok((standing.attempt, standing.nonce));
        }
        let args = [
            uid(&self.session),
            Arg::Int(i64::from(self.attempt.0)),
            Arg::Text(&self.nonce),
            Arg::Int(i64::from(standing.attempt.0)),
        ];
        let sql = tx.statements().open_attempt;
        tx.execute(sql, &args).await?;
        let opened = lock(tx, &self.session).await?.record;
        Ok((opened.attempt, opened.nonce))
    }
}

/// [`start_turn`](crate::TranscriptStore::start_turn).
pub(crate) struct StartTurn {
    pub session: SessionUid,
    pub turn: Turn,
    pub attempt: Attempt,
    pub pod_uid: PodUid,
    pub image: String,
}

#[async_trait]
impl Op for StartTurn {
    type Out = TurnRecord;
    const NAME: &'static str = "claiming a turn";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<TurnRecord> {
        let row = lock(tx, &self.session).await?;
        // A Pod of an attempt that a later one has replaced claims nothing: whoever asks for it has slept.
        if self.attempt < row.record.attempt {
            return turn(tx, &self.session, &row, self.turn).await;
        }
        let args = [
            uid(&self.session),
            number(self.turn),
            Arg::Int(i64::from(self.attempt.0)),
            Arg::Text(self.pod_uid.as_str()),
            Arg::Text(&self.image),
        ];
        let sql = tx.statements().start_turn;
        Ok(change(tx, &self.session, self.turn, sql, &args).await?.0)
    }
}

/// [`begin_harvest`](crate::TranscriptStore::begin_harvest).
pub(crate) struct BeginHarvest {
    pub session: SessionUid,
    pub turn: Turn,
    pub attempt: Attempt,
}

#[async_trait]
impl Op for BeginHarvest {
    type Out = TurnRecord;
    const NAME: &'static str = "beginning a harvest";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<TurnRecord> {
        let args = [uid(&self.session), number(self.turn), Arg::Int(i64::from(self.attempt.0))];
        let sql = tx.statements().begin_harvest;
        Ok(change(tx, &self.session, self.turn, sql, &args).await?.0)
    }
}

/// [`append`](crate::TranscriptStore::append).
pub(crate) struct Append<'a> {
    pub writer: Writer,
    pub batch: Batch<'a>,
}

impl Append<'_> {
    /// Whether this writer may still add to the turn.
    fn fence(&self, record: &TurnRecord) -> Result<()> {
        if record.attempt != Some(self.writer.attempt) {
            return Err(StoreError::AttemptSuperseded {
                turn: record.turn,
                attempt: self.writer.attempt,
                current: record.attempt,
            });
        }
        if record.state == TurnState::Settled && record.verdict == Some(Verdict::Complete) {
            return Err(StoreError::TurnComplete(record.turn));
        }
        Ok(())
    }
}

#[async_trait]
impl Op for Append<'_> {
    type Out = Appended;
    const NAME: &'static str = "storing parts";

    fn bytes(&self) -> u64 {
        self.batch.bytes
    }

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Appended> {
        let Writer { session, turn: at, attempt: _, quota_bytes } = &self.writer;
        let mut row = lock(tx, session).await?;
        self.fence(&turn(tx, session, &row, *at).await?)?;
        let last_seq = row.record.last_seq;
        let Some((first, last)) = self.batch.range() else {
            return Ok(Appended { last_seq, ..Appended::default() });
        };
        let present = tx.present(session, *at, first, last).await?;
        let plan::Plan { fresh, mut appended } =
            plan::plan(&self.batch, &present.parts, row.record.bytes, *quota_bytes);
        appended.last_seq = last_seq;
        if fresh.is_empty() {
            return Ok(appended);
        }
        let first_seq = i64::try_from(last_seq.0 + 1).unwrap_or(i64::MAX);
        tx.insert(Place { session, turn: *at, first_seq, now_micros: present.now_micros }, &fresh).await?;
        appended.last_seq.0 += u64::from(appended.inserted);
        *row.turn_parts.entry(at.0).or_default() += appended.inserted;
        let turn_parts =
            serde_json::to_string(&row.turn_parts).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let args = [
            uid(session),
            int(row.record.parts + u64::from(appended.inserted)),
            int(row.record.bytes + appended.bytes),
            int(appended.last_seq.0),
            Arg::Text(&turn_parts),
        ];
        let sql = tx.statements().advance_session;
        tx.execute(sql, &args).await?;
        Ok(appended)
    }
}

/// [`progress`](crate::TranscriptStore::progress).
pub(crate) struct ReadProgress {
    pub session: SessionUid,
    pub turn: Turn,
}

#[async_trait]
impl Op for ReadProgress {
    type Out = Progress;
    const NAME: &'static str = "reading which parts are stored";
    const WRITES: bool = false;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Progress> {
        let statements = tx.statements();
        let found = tx.sessions(statements.session, &[uid(&self.session)]).await?.pop();
        let row = found.ok_or_else(|| StoreError::SessionUnknown(self.session.clone()))?;
        let runs = tx.runs(statements.runs, &[uid(&self.session), number(self.turn)]).await?;
        let present = runs.into_iter().flat_map(|(first, last)| first..=last).map(transcript::PartIndex).collect();
        Ok(Progress { present, session_bytes: row.record.bytes })
    }
}

/// [`settle`](crate::TranscriptStore::settle).
pub(crate) struct Settle(pub Settlement);

#[async_trait]
impl Op for Settle {
    type Out = Standing;
    const NAME: &'static str = "settling a turn";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Standing> {
        let Settlement {
            session,
            turn: at,
            attempt,
            pod_uid,
            outcome,
            reason,
            verdict,
            verdict_reason,
            message,
            usage,
        } = &self.0;
        let usage = usage
            .map(|usage| serde_json::to_string(&usage))
            .transpose()
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let args = [
            uid(session),
            number(*at),
            Arg::OptInt(attempt.map(|attempt| i64::from(attempt.0))),
            Arg::OptText(pod_uid.as_ref().map(PodUid::as_str)),
            Arg::Text(outcome.as_str()),
            Arg::OptText(reason.map(Reason::as_str)),
            Arg::Text(verdict.as_str()),
            Arg::OptText(verdict_reason.map(Reason::as_str)),
            Arg::OptText(message.as_deref()),
            Arg::OptText(usage.as_deref()),
        ];
        let statements = tx.statements();
        let (record, settled) = change(tx, session, *at, statements.settle, &args).await?;
        if settled {
            return Ok(Standing { record, won: Won::Settled });
        }
        if *verdict != Verdict::Complete {
            return Ok(Standing { record, won: Won::No });
        }
        let (record, upgraded) = change(tx, session, *at, statements.upgrade, &args).await?;
        Ok(Standing { record, won: if upgraded { Won::Upgraded } else { Won::No } })
    }
}

/// [`mark_deleted`](crate::TranscriptStore::mark_deleted).
pub(crate) struct MarkDeleted(pub SessionUid);

#[async_trait]
impl Op for MarkDeleted {
    type Out = ();
    const NAME: &'static str = "noting that a session is gone";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<()> {
        let sql = tx.statements().mark_deleted;
        tx.execute(sql, &[uid(&self.0)]).await.map(drop)
    }
}

/// [`delete_session`](crate::TranscriptStore::delete_session).
pub(crate) struct Delete(pub SessionUid);

#[async_trait]
impl Op for Delete {
    type Out = bool;
    const NAME: &'static str = "deleting a session";

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<bool> {
        let sql = tx.statements().delete_session;
        Ok(tx.execute(sql, &[uid(&self.0)]).await? > 0)
    }
}

/// Lists sessions in one statement.
pub(crate) enum ListSessions {
    /// [`sessions_with_active_turns`](crate::TranscriptStore::sessions_with_active_turns).
    Active,
    /// [`find_session`](crate::TranscriptStore::find_session).
    Named { namespace: String, name: String, uid: Option<SessionUid> },
    /// [`list_sessions`](crate::TranscriptStore::list_sessions).
    Newest { namespace: String, limit: u32 },
}

#[async_trait]
impl Op for ListSessions {
    type Out = Vec<SessionRecord>;
    const NAME: &'static str = "listing sessions";
    const WRITES: bool = false;

    async fn run<T: Tx>(&self, tx: &mut T) -> Result<Vec<SessionRecord>> {
        let statements = tx.statements();
        let rows = match self {
            Self::Active => tx.sessions(statements.active_sessions, &[]).await?,
            Self::Named { namespace, name, uid: None } => {
                tx.sessions(statements.find_session, &[Arg::Text(namespace), Arg::Text(name)]).await?
            }
            Self::Named { namespace, name, uid: Some(session) } => {
                let args = [Arg::Text(namespace), Arg::Text(name), uid(session)];
                tx.sessions(statements.find_session_by_uid, &args).await?
            }
            Self::Newest { namespace, limit } => {
                let args = [Arg::Text(namespace), Arg::Int(i64::from(*limit))];
                tx.sessions(statements.list_sessions, &args).await?
            }
        };
        Ok(rows.into_iter().map(|row| row.record).collect())
    }
}
