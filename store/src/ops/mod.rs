//! What each call of the store does inside its transaction, once for both backends.
//!
//! Every write locks the session's row first ([`Statements::lock_session`](crate::statements::Statements)), reads what stands, writes,
//! and reads back: the lock is the order of a session. A backend brings the transaction ([`Tx`]) and when it is committed.

mod parts;
mod sessions;
mod turns;

use async_trait::async_trait;
use jiff::Timestamp;
use transcript::{SessionUid, Turn};

pub(crate) use parts::{Append, ReadProgress};
pub(crate) use sessions::{Delete, Ensure, ListSessions, MarkDeleted, OpenAttempt, ReadLedger};
pub(crate) use turns::{Accept, BeginHarvest, RecordLost, Settle, StartTurn};

use crate::{
    PartPage, Result, StoreError, TurnRecord, pages::ReadPage, plan::Entry, row::SessionRow, statements::Statements,
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
