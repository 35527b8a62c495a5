//! Calls that store parts and say which are there.

use async_trait::async_trait;
use transcript::{SessionUid, Turn, TurnState, Verdict};

use super::{Arg, Op, Place, Tx, int, lock, number, turn, uid};
use crate::{
    Appended, Progress, Result, StoreError, TurnRecord, Writer,
    plan::{self, Batch},
};

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
        let mut present = tx.present(session, *at, first, last).await?;
        present.parts.sort_unstable();
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
