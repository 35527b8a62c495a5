//! A real SQLite store, and one in front of it that can be made to refuse.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use store::{
    Appended, Ledger, NewPart, NewSession, NewTurn, Options, PageLimit, PartPage, Progress, Result, SessionRecord,
    Settlement, SharedStore, Standing, StoreError, TranscriptStore, TurnRecord, Writer,
};
use tempfile::TempDir;
use transcript::{Attempt, PartIndex, PodUid, Seq, SessionUid, Turn};

use super::{SESSION, target};

/// A store with one session, its first turns running in the Pod of attempt 1.
pub struct Stored {
    pub store: SharedStore,
    _dir: TempDir,
}

impl Stored {
    pub async fn with_turns(turns: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", dir.path().join("store.db").display());
        let store = store::connect(&url, &Options::default()).await.unwrap();
        let session = NewSession {
            uid: SESSION.into(),
            namespace: "team-a".into(),
            namespace_uid: "ns-1".into(),
            name: "fix-login".into(),
            mode: "Autonomous".into(),
        };
        store.ensure_session(&session).await.unwrap();
        store.open_attempt(&SESSION.into(), Attempt(1), "nonce").await.unwrap();
        for turn in 1..=turns {
            let accepted =
                NewTurn { session: SESSION.into(), turn: Turn(turn), client_id: None, prompt: "Fix the login".into() };
            store.accept_turn(&accepted).await.unwrap();
            store.start_turn(&SESSION.into(), Turn(turn), Attempt(1), &target().uid, "agent:1").await.unwrap();
        }
        Self { store, _dir: dir }
    }

    /// The stored parts of a turn, in identity order.
    pub async fn parts(&self, turn: u32) -> Vec<(u32, String)> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = self.store.parts(&SESSION.into(), after, PageLimit::default()).await.unwrap();
            after = page.parts.last().map(|part| (part.turn, part.index));
            let of_turn = page.parts.into_iter().filter(|part| part.turn == Turn(turn));
            all.extend(of_turn.map(|part| (part.index.0, part.part)));
            if !page.has_more {
                return all;
            }
        }
    }

    /// Indexes of the stored parts of a turn.
    pub async fn indexes(&self, turn: u32) -> Vec<u32> {
        self.parts(turn).await.into_iter().map(|(index, _)| index).collect()
    }
}

/// What goes wrong with one append.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// The store cannot be reached.
    Unavailable,
    /// The store has no room.
    Full,
    /// The store accepts and never answers.
    Hangs,
    /// The store commits, and the answer is lost.
    AnswerLost,
}

/// A store whose appends can be made to fail.
#[derive(Debug)]
pub struct Flaky {
    inner: SharedStore,
    appends: Mutex<VecDeque<Refusal>>,
    always: Mutex<Option<Refusal>>,
    batches: Mutex<Vec<usize>>,
}

impl Flaky {
    /// A store whose first appends fail so, one each.
    pub fn over(inner: &SharedStore, refusals: impl IntoIterator<Item = Refusal>) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(inner),
            appends: Mutex::new(refusals.into_iter().collect()),
            always: Mutex::default(),
            batches: Mutex::default(),
        })
    }

    pub fn always(&self, refusal: Option<Refusal>) {
        *self.always.lock().unwrap() = refusal;
    }

    /// Sizes of the batches that were offered.
    pub fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }
}

fn refused(operation: &'static str) -> StoreError {
    StoreError::Unavailable { operation, source: "connection reset".into() }
}

#[async_trait]
impl TranscriptStore for Flaky {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    async fn ping(&self) -> Result<()> {
        self.inner.ping().await
    }

    async fn ensure_session(&self, session: &NewSession) -> Result<()> {
        self.inner.ensure_session(session).await
    }

    async fn ledger(&self, session: &SessionUid) -> Result<Ledger> {
        self.inner.ledger(session).await
    }

    async fn accept_turn(&self, turn: &NewTurn) -> Result<TurnRecord> {
        self.inner.accept_turn(turn).await
    }

    async fn record_lost_turn(&self, turn: &NewTurn) -> Result<TurnRecord> {
        self.inner.record_lost_turn(turn).await
    }

    async fn open_attempt(&self, session: &SessionUid, attempt: Attempt, nonce: &str) -> Result<(Attempt, String)> {
        self.inner.open_attempt(session, attempt, nonce).await
    }

    async fn start_turn(
        &self,
        session: &SessionUid,
        turn: Turn,
        attempt: Attempt,
        pod_uid: &PodUid,
        image: &str,
    ) -> Result<TurnRecord> {
        self.inner.start_turn(session, turn, attempt, pod_uid, image).await
    }

    async fn begin_harvest(&self, session: &SessionUid, turn: Turn, attempt: Attempt) -> Result<TurnRecord> {
        self.inner.begin_harvest(session, turn, attempt).await
    }

    async fn append(&self, writer: &Writer, parts: &[NewPart<'_>]) -> Result<Appended> {
        self.batches.lock().unwrap().push(parts.len());
        let queued = self.appends.lock().unwrap().pop_front();
        let refusal = queued.or(*self.always.lock().unwrap());
        match refusal {
            None => self.inner.append(writer, parts).await,
            Some(Refusal::Unavailable) => Err(refused("appending parts")),
            Some(Refusal::Full) => {
                Err(StoreError::Full { operation: "appending parts", source: "disk is full".into() })
            }
            Some(Refusal::Hangs) => std::future::pending().await,
            Some(Refusal::AnswerLost) => {
                self.inner.append(writer, parts).await?;
                Err(refused("appending parts"))
            }
        }
    }

    async fn progress(&self, session: &SessionUid, turn: Turn) -> Result<Progress> {
        self.inner.progress(session, turn).await
    }

    async fn settle(&self, settlement: &Settlement) -> Result<Standing> {
        self.inner.settle(settlement).await
    }

    async fn mark_deleted(&self, session: &SessionUid) -> Result<()> {
        self.inner.mark_deleted(session).await
    }

    async fn delete_session(&self, session: &SessionUid) -> Result<bool> {
        self.inner.delete_session(session).await
    }

    async fn sessions_with_active_turns(&self) -> Result<Vec<SessionRecord>> {
        self.inner.sessions_with_active_turns().await
    }

    async fn find_session(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&SessionUid>,
    ) -> Result<Option<SessionRecord>> {
        self.inner.find_session(namespace, name, uid).await
    }

    async fn list_sessions(&self, namespace: &str, limit: u32) -> Result<Vec<SessionRecord>> {
        self.inner.list_sessions(namespace, limit).await
    }

    async fn parts(
        &self,
        session: &SessionUid,
        after: Option<(Turn, PartIndex)>,
        limit: PageLimit,
    ) -> Result<PartPage> {
        self.inner.parts(session, after, limit).await
    }

    async fn rows(&self, session: &SessionUid, after: Seq, limit: PageLimit) -> Result<PartPage> {
        self.inner.rows(session, after, limit).await
    }
}
