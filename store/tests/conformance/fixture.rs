//! A store to test, and short words for what tests do with it.

use std::sync::OnceLock;

use agentsession_store::{
    Appended, NewPart, NewSession, NewTurn, Options, PageLimit, Result, Settlement, SharedStore, StoredPart, Writer,
    connect, migrate, testing::TestPostgres,
};
use transcript::{Attempt, Outcome, PartIndex, PodUid, Seq, SessionUid, Turn, Verdict};

/// Bytes that no test reaches by accident.
pub const PLENTY: u64 = 64 << 20;

/// One store under test.
pub struct World {
    pub store: SharedStore,
    pub namespace: String,
    _folder: Option<tempfile::TempDir>,
}

fn server() -> &'static (TestPostgres, String) {
    static SERVER: OnceLock<(TestPostgres, String)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server =
            TestPostgres::start().unwrap_or_else(|error| panic!("a real Postgres is part of this suite: {error}"));
        let url = server.database().unwrap();
        (server, url)
    })
}

/// A namespace of this test's own, in a database that all tests of the run share.
pub async fn postgres() -> World {
    let url = tokio::task::spawn_blocking(|| server().1.clone()).await.unwrap();
    migrate(&url, &Options::default()).await.unwrap();
    world(connect(&url, &Options::default()).await.unwrap(), None)
}

/// A file of this test's own.
pub async fn sqlite() -> World {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/store.db", folder.path().display());
    world(connect(&url, &Options::default()).await.unwrap(), Some(folder))
}

fn world(store: SharedStore, folder: Option<tempfile::TempDir>) -> World {
    World { store, namespace: format!("team-{}", uuid::Uuid::new_v4()), _folder: folder }
}

impl World {
    pub fn new_session(&self, name: &str) -> NewSession {
        NewSession {
            uid: SessionUid(uuid::Uuid::new_v4().to_string()),
            namespace: self.namespace.clone(),
            namespace_uid: "ns-uid".to_owned(),
            name: name.to_owned(),
            mode: "Interactive".to_owned(),
        }
    }

    /// A session with nothing in it.
    pub async fn session(&self) -> SessionUid {
        let session = self.new_session("fix-login");
        self.store.ensure_session(&session).await.unwrap();
        session.uid
    }

    pub async fn accept(&self, session: &SessionUid, turn: u32) {
        self.store.accept_turn(&new_turn(session, turn, "Fix the login bug.")).await.unwrap();
    }

    /// A turn that runs, and who may write to it.
    pub async fn running(&self, session: &SessionUid, turn: u32, attempt: u32) -> Writer {
        self.accept(session, turn).await;
        self.store.start_turn(session, Turn(turn), Attempt(attempt), &pod(attempt), "image:1").await.unwrap();
        Writer { session: session.clone(), turn: Turn(turn), attempt: Attempt(attempt), quota_bytes: PLENTY }
    }

    /// A session whose first turn runs.
    pub async fn writer(&self) -> Writer {
        let session = self.session().await;
        self.running(&session, 1, 1).await
    }

    pub async fn append(&self, writer: &Writer, parts: &[(u32, &str)]) -> Result<Appended> {
        let parts: Vec<_> = parts.iter().map(|&(index, part)| NewPart { index: PartIndex(index), part }).collect();
        self.store.append(writer, &parts).await
    }

    /// Everything stored, in insertion order.
    pub async fn all_rows(&self, session: &SessionUid) -> Vec<StoredPart> {
        let mut rows: Vec<StoredPart> = Vec::new();
        loop {
            let after = rows.last().map_or(Seq(0), |row| row.seq);
            let page = self.store.rows(session, after, PageLimit::default()).await.unwrap();
            rows.extend(page.parts);
            if !page.has_more {
                return rows;
            }
        }
    }

    /// Everything stored, in identity order.
    pub async fn all_parts(&self, session: &SessionUid) -> Vec<StoredPart> {
        let mut parts: Vec<StoredPart> = Vec::new();
        loop {
            let after = parts.last().map(|part| (part.turn, part.index));
            let page = self.store.parts(session, after, PageLimit::default()).await.unwrap();
            parts.extend(page.parts);
            if !page.has_more {
                return parts;
            }
        }
    }

    /// The counters of the session's row and every row agree, and seq is 1..n.
    pub async fn assert_dense(&self, session: &SessionUid) {
        let rows = self.all_rows(session).await;
        let seqs: Vec<_> = rows.iter().map(|row| row.seq.0).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
        let ledger = self.store.ledger(session).await.unwrap();
        let record = ledger.session.unwrap();
        assert_eq!(record.parts, rows.len() as u64);
        assert_eq!(record.last_seq.0, rows.len() as u64);
        assert_eq!(record.bytes, rows.iter().map(|row| row.part.len() as u64).sum::<u64>());
        for turn in &ledger.turns {
            assert_eq!(turn.parts as usize, rows.iter().filter(|row| row.turn == turn.turn).count());
        }
    }
}

pub fn pod(attempt: u32) -> PodUid {
    PodUid(format!("pod-{attempt}"))
}

pub fn new_turn(session: &SessionUid, turn: u32, prompt: &str) -> NewTurn {
    NewTurn {
        session: session.clone(),
        turn: Turn(turn),
        client_id: Some(format!("client-{turn}")),
        prompt: prompt.to_owned(),
    }
}

/// The settlement that the attempt of a writer would make.
pub fn settlement(writer: &Writer, verdict: Verdict) -> Settlement {
    Settlement {
        session: writer.session.clone(),
        turn: writer.turn,
        attempt: Some(writer.attempt),
        pod_uid: Some(pod(writer.attempt.0)),
        outcome: Outcome::Succeeded,
        reason: None,
        verdict,
        verdict_reason: None,
        message: None,
        usage: None,
    }
}
