//! A scripted store for faults: what is in it is put there by the test, it can fail, hang or be slow at the n-th read, and it has no writes, so a gateway
//! that wrote would fail every test.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use store::{
    Appended, Ledger, NewPart, NewSession, NewTurn, PageLimit, PartPage, Progress, Result, SessionRecord, Settlement,
    Standing, StoreError, StoredPart, TranscriptStore, TurnRecord, Writer,
};
use transcript::{Attempt, Outcome, PartIndex, PodUid, Reason, Seq, SessionUid, Turn, TurnState, Verdict};

pub fn noon() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

/// A session of `team-a`, whose namespace has the UID `ns-1`.
pub fn record(name: &str, uid: &str) -> SessionRecord {
    SessionRecord {
        uid: uid.into(),
        namespace: "team-a".to_owned(),
        namespace_uid: "ns-1".to_owned(),
        name: name.to_owned(),
        mode: "Autonomous".to_owned(),
        attempt: Attempt(1),
        nonce: "n0nce".to_owned(),
        parts: 0,
        bytes: 0,
        last_seq: Seq(0),
        created_at: noon(),
        last_activity_at: noon(),
        deleted_at: None,
    }
}

/// A turn that was accepted.
pub fn turn(number: u32, prompt: &str) -> TurnRecord {
    TurnRecord {
        turn: Turn(number),
        client_id: None,
        prompt: prompt.to_owned(),
        state: TurnState::Accepted,
        attempt: None,
        pod_uid: None,
        image: None,
        outcome: None,
        reason: None,
        verdict: None,
        verdict_reason: None,
        message: None,
        parts: 0,
        usage: None,
        accepted_at: noon(),
        started_at: None,
        settled_at: None,
    }
}

/// A turn that runs.
pub fn running(number: u32, prompt: &str) -> TurnRecord {
    TurnRecord {
        state: TurnState::Running,
        attempt: Some(Attempt(1)),
        pod_uid: Some("pod-1".into()),
        started_at: Some(noon()),
        ..turn(number, prompt)
    }
}

/// A turn that is over.
pub fn settled(
    number: u32,
    prompt: &str,
    outcome: Outcome,
    reason: Option<Reason>,
    verdict: Verdict,
    verdict_reason: Option<Reason>,
) -> TurnRecord {
    TurnRecord {
        state: TurnState::Settled,
        outcome: Some(outcome),
        reason,
        verdict: Some(verdict),
        verdict_reason,
        settled_at: Some(noon()),
        ..running(number, prompt)
    }
}

#[derive(Clone, Debug)]
struct Session {
    record: SessionRecord,
    turns: Vec<TurnRecord>,
    parts: Vec<StoredPart>,
}

/// What reads of parts do, by their ordinal from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Fine,
    Down,
    Corrupt,
    Slow(Duration),
    Hang,
}

#[derive(Debug, Default)]
pub struct Memory {
    sessions: Mutex<Vec<Session>>,
    /// Every call fails while this is not 0.
    down: AtomicU32,
    /// `(first read, what it and the later ones do)`.
    script: Mutex<Vec<(u64, Read)>>,
    reads: AtomicU64,
}

impl Memory {
    pub fn put(&self, mut record: SessionRecord, turns: Vec<TurnRecord>, parts: &[(u32, u32, &str)]) {
        let parts: Vec<StoredPart> = (1..)
            .zip(parts)
            .map(|(seq, (turn, index, part))| StoredPart {
                seq: Seq(seq),
                turn: Turn(*turn),
                index: PartIndex(*index),
                part: (*part).to_owned(),
                created_at: noon(),
            })
            .collect();
        record.parts = parts.len() as u64;
        record.bytes = parts.iter().map(|part| part.part.len() as u64).sum();
        record.last_seq = Seq(parts.len() as u64);
        let mut turns = turns;
        for turn in &mut turns {
            turn.parts = u32::try_from(parts.iter().filter(|part| part.turn == turn.turn).count()).unwrap();
        }
        self.sessions.lock().unwrap().push(Session { record, turns, parts });
    }

    pub fn set_down(&self, down: bool) {
        self.down.store(u32::from(down), Ordering::SeqCst);
    }

    /// From the n-th read of parts on, reads do this.
    pub fn reads_from(&self, n: u64, what: Read) {
        self.script.lock().unwrap().push((n, what));
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<()> {
        if self.down.load(Ordering::SeqCst) == 0 { Ok(()) } else { Err(unavailable()) }
    }

    async fn read(&self) -> Result<()> {
        self.check()?;
        let n = self.reads.fetch_add(1, Ordering::SeqCst);
        let what = self.script.lock().unwrap().iter().rev().find(|(from, _)| *from <= n).map(|(_, what)| *what);
        match what.unwrap_or(Read::Fine) {
            Read::Fine => Ok(()),
            Read::Down => Err(unavailable()),
            Read::Corrupt => Err(StoreError::Corrupt("state \"limbo\" of db.internal".to_owned())),
            Read::Slow(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Read::Hang => std::future::pending().await,
        }
    }

    fn with<T>(&self, session: &SessionUid, f: impl FnOnce(&Session) -> T) -> Option<T> {
        self.sessions.lock().unwrap().iter().find(|s| s.record.uid == *session).map(f)
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { operation: "reading", source: "scripted outage of db.internal:5432".into() }
}

/// The first of these that fit the limit, and one at least.
fn page(parts: &[&StoredPart], limit: PageLimit) -> PartPage {
    let mut bytes = 0;
    let fit = parts.iter().take(limit.rows as usize).take_while(|part| {
        bytes += part.part.len() as u64;
        bytes <= limit.bytes
    });
    let fit = fit.count().max(1).min(parts.len());
    PartPage { parts: parts[..fit].iter().map(|part| (*part).clone()).collect(), has_more: parts.len() > fit }
}

#[async_trait]
impl TranscriptStore for Memory {
    fn backend(&self) -> &'static str {
        "memory"
    }

    async fn ping(&self) -> Result<()> {
        self.check()
    }

    async fn ledger(&self, session: &SessionUid) -> Result<Ledger> {
        self.check()?;
        let found = self.with(session, |s| (s.record.clone(), s.turns.clone()));
        let (session, turns) = found.map_or((None, Vec::new()), |(record, turns)| (Some(record), turns));
        Ok(Ledger { session, turns, now: noon() })
    }

    async fn find_session(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&SessionUid>,
    ) -> Result<Option<SessionRecord>> {
        self.check()?;
        let sessions = self.sessions.lock().unwrap();
        let mut of_name = sessions.iter().rev().filter(|s| s.record.namespace == namespace && s.record.name == name);
        Ok(of_name.find(|s| uid.is_none_or(|uid| *uid == s.record.uid)).map(|s| s.record.clone()))
    }

    async fn list_sessions(&self, namespace: &str, limit: u32) -> Result<Vec<SessionRecord>> {
        self.check()?;
        let sessions = self.sessions.lock().unwrap();
        let here = sessions.iter().rev().filter(|s| s.record.namespace == namespace);
        Ok(here.take(limit as usize).map(|s| s.record.clone()).collect())
    }

    async fn parts(
        &self,
        session: &SessionUid,
        after: Option<(Turn, PartIndex)>,
        limit: PageLimit,
    ) -> Result<PartPage> {
        self.read().await?;
        let page = self.with(session, |s| {
            let is_after = |part: &&StoredPart| after.is_none_or(|after| (part.turn, part.index) > after);
            let mut parts: Vec<&StoredPart> = s.parts.iter().filter(is_after).collect();
            parts.sort_by_key(|part| (part.turn, part.index));
            page(&parts, limit)
        });
        Ok(page.unwrap_or_default())
    }

    async fn rows(&self, session: &SessionUid, after: Seq, limit: PageLimit) -> Result<PartPage> {
        self.read().await?;
        let page = self.with(session, |s| {
            let parts: Vec<&StoredPart> = s.parts.iter().filter(|part| part.seq > after).collect();
            page(&parts, limit)
        });
        Ok(page.unwrap_or_default())
    }

    async fn ensure_session(&self, _: &NewSession) -> Result<()> {
        panic!("the gateway made a session");
    }

    async fn accept_turn(&self, _: &NewTurn) -> Result<TurnRecord> {
        panic!("the gateway accepted a turn");
    }

    async fn record_lost_turn(&self, _: &NewTurn) -> Result<TurnRecord> {
        panic!("the gateway recorded a lost turn");
    }

    async fn open_attempt(&self, _: &SessionUid, _: Attempt, _: &str) -> Result<(Attempt, String)> {
        panic!("the gateway opened an attempt");
    }

    async fn start_turn(&self, _: &SessionUid, _: Turn, _: Attempt, _: &PodUid, _: &str) -> Result<TurnRecord> {
        panic!("the gateway started a turn");
    }

    async fn begin_harvest(&self, _: &SessionUid, _: Turn, _: Attempt) -> Result<TurnRecord> {
        panic!("the gateway began a harvest");
    }

    async fn append(&self, _: &Writer, _: &[NewPart<'_>]) -> Result<Appended> {
        panic!("the gateway appended");
    }

    async fn progress(&self, _: &SessionUid, _: Turn) -> Result<Progress> {
        panic!("the gateway asked what is missing");
    }

    async fn settle(&self, _: &Settlement) -> Result<Standing> {
        panic!("the gateway settled a turn");
    }

    async fn mark_deleted(&self, _: &SessionUid) -> Result<()> {
        panic!("the gateway marked a session");
    }

    async fn delete_session(&self, _: &SessionUid) -> Result<bool> {
        panic!("the gateway deleted a session");
    }

    async fn sessions_with_active_turns(&self) -> Result<Vec<SessionRecord>> {
        panic!("the gateway swept");
    }
}
