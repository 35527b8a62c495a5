//! Calls about a session as a whole.

use async_trait::async_trait;
use transcript::{Attempt, SessionUid};

use super::{Arg, Op, Tx, lock, uid};
use crate::{Ledger, NewSession, Result, SessionRecord};

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
