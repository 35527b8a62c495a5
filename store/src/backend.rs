//! The store's interface over any backend: each call becomes an [`Op`] that a backend performs in one transaction.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use futures::future::BoxFuture;
use transcript::{Attempt, PartIndex, PodUid, Seq, SessionUid, Turn};

use crate::{
    Appended, Ledger, NewPart, NewSession, NewTurn, Options, PageLimit, PartPage, Progress, Result, Role,
    SessionRecord, Settlement, Standing, StoreError, TranscriptStore, TurnRecord, Writer,
    classify::about,
    ops::{
        Accept, BeginHarvest, Delete, Ensure, ListSessions, MarkDeleted, Op, OpenAttempt, ReadLedger, ReadProgress,
        RecordLost, Settle, StartTurn,
    },
    pages::{After, ReadPage},
    plan::Batch,
};

/// What a database does for the store.
#[async_trait]
pub(crate) trait Backend: Send + Sync + fmt::Debug {
    const NAME: &'static str;
    /// Runs a call in one transaction and commits it, all within its time.
    async fn perform<O: Op + 'static>(&self, op: O) -> Result<O::Out>;
    /// Runs an append, likewise.
    async fn append(&self, writer: &Writer, batch: Batch<'_>) -> Result<Appended>;
    async fn ping(&self) -> Result<()>;
    async fn check(&self, role: Role) -> Result<()>;
}

/// How long a write may take that brings so many bytes: a slow database gets a second more for each MiB, so that a whole log can be stored
/// at all, and a hung one still ends.
pub(crate) fn write_limit(options: &Options, bytes: u64) -> Duration {
    options.append_timeout + Duration::from_secs(bytes >> 20)
}

/// A [`TranscriptStore`] on a backend.
#[derive(Debug)]
pub(crate) struct Store<B>(pub B);

impl<B: Backend> Store<B> {
    /// One transaction; when the database refuses what is in it, its halves are tried, so that one part never keeps out its neighbours. The
    /// first refusal is returned after all others are stored.
    fn append_what_is_taken<'f>(
        &'f self,
        writer: &'f Writer,
        parts: &'f [NewPart<'f>],
    ) -> BoxFuture<'f, Result<Appended>> {
        Box::pin(async move {
            let refused = match self.0.append(writer, Batch::new(parts)).await {
                Err(error @ StoreError::Refused { .. }) => error,
                other => return other,
            };
            let [_, _, ..] = parts else {
                let names = parts.first().map(|part| format!("part {}.{}", writer.turn, part.index));
                return Err(about(&names.unwrap_or_default(), refused));
            };
            let (left, right) = parts.split_at(parts.len() / 2);
            let left = self.append_what_is_taken(writer, left).await;
            // What comes after a part that did not fit does not fit either.
            let full = matches!(&left, Ok(appended) if appended.over_quota > 0);
            let bounded = Writer { quota_bytes: if full { 0 } else { writer.quota_bytes }, ..writer.clone() };
            let right = self.append_what_is_taken(&bounded, right).await;
            let (left, right) = (left?, right?);
            Ok(Appended {
                inserted: left.inserted + right.inserted,
                bytes: left.bytes + right.bytes,
                already: left.already + right.already,
                conflicts: left.conflicts + right.conflicts,
                over_quota: left.over_quota + right.over_quota,
                last_seq: right.last_seq,
            })
        })
    }
}

#[async_trait]
impl<B: Backend> TranscriptStore for Store<B> {
    fn backend(&self) -> &'static str {
        B::NAME
    }

    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }

    async fn check(&self, role: Role) -> Result<()> {
        self.0.check(role).await
    }

    async fn ensure_session(&self, session: &NewSession) -> Result<()> {
        self.0.perform(Ensure(session.clone())).await
    }

    async fn ledger(&self, session: &SessionUid) -> Result<Ledger> {
        self.0.perform(ReadLedger(session.clone())).await
    }

    async fn accept_turn(&self, turn: &NewTurn) -> Result<TurnRecord> {
        self.0.perform(Accept(turn.clone())).await
    }

    async fn record_lost_turn(&self, turn: &NewTurn) -> Result<TurnRecord> {
        self.0.perform(RecordLost(turn.clone())).await
    }

    async fn open_attempt(&self, session: &SessionUid, attempt: Attempt, nonce: &str) -> Result<(Attempt, String)> {
        self.0.perform(OpenAttempt { session: session.clone(), attempt, nonce: nonce.to_owned() }).await
    }

    async fn start_turn(
        &self,
        session: &SessionUid,
        turn: Turn,
        attempt: Attempt,
        pod_uid: &PodUid,
        image: &str,
    ) -> Result<TurnRecord> {
        let start =
            StartTurn { session: session.clone(), turn, attempt, pod_uid: pod_uid.clone(), image: image.to_owned() };
        self.0.perform(start).await
    }

    async fn begin_harvest(&self, session: &SessionUid, turn: Turn, attempt: Attempt) -> Result<TurnRecord> {
        self.0.perform(BeginHarvest { session: session.clone(), turn, attempt }).await
    }

    async fn append(&self, writer: &Writer, parts: &[NewPart<'_>]) -> Result<Appended> {
        self.append_what_is_taken(writer, parts).await
    }

    async fn progress(&self, session: &SessionUid, turn: Turn) -> Result<Progress> {
        self.0.perform(ReadProgress { session: session.clone(), turn }).await
    }

    async fn settle(&self, settlement: &Settlement) -> Result<Standing> {
        self.0.perform(Settle(settlement.clone())).await
    }

    async fn mark_deleted(&self, session: &SessionUid) -> Result<()> {
        self.0.perform(MarkDeleted(session.clone())).await
    }

    async fn delete_session(&self, session: &SessionUid) -> Result<bool> {
        self.0.perform(Delete(session.clone())).await
    }

    async fn sessions_with_active_turns(&self) -> Result<Vec<SessionRecord>> {
        self.0.perform(ListSessions::Active).await
    }

    async fn find_session(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&SessionUid>,
    ) -> Result<Option<SessionRecord>> {
        let named = ListSessions::Named { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.cloned() };
        Ok(self.0.perform(named).await?.pop())
    }

    async fn list_sessions(&self, namespace: &str, limit: u32) -> Result<Vec<SessionRecord>> {
        self.0.perform(ListSessions::Newest { namespace: namespace.to_owned(), limit }).await
    }

    async fn parts(
        &self,
        session: &SessionUid,
        after: Option<(Turn, PartIndex)>,
        limit: PageLimit,
    ) -> Result<PartPage> {
        self.0.perform(ReadPage { session: session.clone(), after: After::Identity(after), limit }).await
    }

    async fn rows(&self, session: &SessionUid, after: Seq, limit: PageLimit) -> Result<PartPage> {
        self.0.perform(ReadPage { session: session.clone(), after: After::Seq(after), limit }).await
    }
}
