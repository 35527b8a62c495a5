//! Calls that move a turn from accepted to settled.

use async_trait::async_trait;
use transcript::{Attempt, Outcome, PodUid, Reason, SessionUid, Turn, Verdict};

use super::{Arg, Op, Tx, change, lock, number, turn, uid};
use crate::{NewTurn, Result, Settlement, Standing, StoreError, TurnRecord, Won};

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
