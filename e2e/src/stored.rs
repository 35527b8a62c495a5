//! The transcript as the store has it, read beside the operator.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use store::{Ledger, PageLimit, SharedStore, StoredPart, TurnRecord};
use transcript::{SessionUid, Turn};

use crate::session::Session;

/// Everything that the store holds of one session.
#[derive(Debug)]
pub struct Stored {
    /// Session and turns.
    pub ledger: Ledger,
    /// Parts, in identity order.
    pub parts: Vec<StoredPart>,
}

/// Opens a store.
///
/// # Errors
/// When it does not answer.
pub async fn open(url: &str) -> Result<SharedStore> {
    store::connect(url, &store::Options::default()).await.context("cannot open the store")
}

impl Stored {
    /// Reads a session from the store at `url`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn read(url: &str, session: &Session) -> Result<Self> {
        let store = open(url).await?;
        let uid = SessionUid::from(session.uid.as_str());
        let ledger = store.ledger(&uid).await?;
        let mut parts: Vec<StoredPart> = Vec::new();
        loop {
            let after = parts.last().map(|part| (part.turn, part.index));
            let page = store.parts(&uid, after, PageLimit::default()).await?;
            parts.extend(page.parts);
            if !page.has_more {
                return Ok(Self { ledger, parts });
            }
        }
    }

    /// The record of a turn.
    ///
    /// # Errors
    /// When there is none.
    pub fn record(&self, turn: u32) -> Result<&TurnRecord> {
        self.ledger
            .turns
            .iter()
            .find(|record| record.turn == Turn(turn))
            .with_context(|| format!("the store has no turn {turn}"))
    }

    /// Outcome, reason, verdict and its reason in one line, as [`TurnStatus::summary`](crate::TurnStatus::summary).
    ///
    /// # Errors
    /// When there is no such turn.
    pub fn summary(&self, turn: u32) -> Result<String> {
        let record = self.record(turn)?;
        let outcome = record.outcome.map_or("-", |word| word.as_str());
        let reason = record.reason.map_or("-", |word| word.as_str());
        let verdict = record.verdict.map_or("-", |word| word.as_str());
        let why = record.verdict_reason.map_or("-", |word| word.as_str());
        Ok(format!("{outcome} {reason} {verdict} {why}"))
    }

    /// The JSON texts of a turn's parts, verbatim.
    #[must_use]
    pub fn raw(&self, turn: u32) -> Vec<&str> {
        self.of(turn).map(|part| part.part.as_str()).collect()
    }

    /// The parts of a turn that are JSON, as values; one that is not is `null`.
    #[must_use]
    pub fn values(&self, turn: u32) -> Vec<Value> {
        self.of(turn).map(|part| serde_json::from_str(&part.part).unwrap_or(Value::Null)).collect()
    }

    /// The types of a turn's parts.
    #[must_use]
    pub fn types(&self, turn: u32) -> Vec<String> {
        self.values(turn).iter().map(|part| part["type"].as_str().unwrap_or("?").to_owned()).collect()
    }

    /// The deltas of a turn's text.
    #[must_use]
    pub fn deltas(&self, turn: u32) -> Vec<String> {
        deltas(&self.values(turn))
    }

    /// The text of a turn.
    #[must_use]
    pub fn text(&self, turn: u32) -> String {
        self.deltas(turn).concat()
    }

    /// Checks what always holds: seq is dense from 1, each turn's indexes are dense from 0, and the counters say the same.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&self) -> Result<()> {
        let mut seqs: Vec<u64> = self.parts.iter().map(|part| part.seq.0).collect();
        seqs.sort_unstable();
        let dense: Vec<u64> = (1..=self.parts.len() as u64).collect();
        ensure!(seqs == dense, "seq is not dense: {seqs:?}");
        for record in &self.ledger.turns {
            let indexes: Vec<u32> = self.of(record.turn.0).map(|part| part.index.0).collect();
            let dense: Vec<u32> = (0..record.parts).collect();
            ensure!(indexes == dense, "turn {}: indexes {indexes:?}, parts {}", record.turn, record.parts);
        }
        let session = self.ledger.session.as_ref().context("the store does not know the session")?;
        ensure!(
            session.parts == self.parts.len() as u64,
            "the session says {} parts, there are {}",
            session.parts,
            self.parts.len()
        );
        let bytes: usize = self.parts.iter().map(|part| part.part.len()).sum();
        ensure!(session.bytes == bytes as u64, "the session says {} bytes, there are {bytes}", session.bytes);
        Ok(())
    }

    fn of(&self, turn: u32) -> impl Iterator<Item = &StoredPart> {
        self.parts.iter().filter(move |part| part.turn == Turn(turn))
    }
}

/// The text deltas among parts.
#[must_use]
pub fn deltas(parts: &[Value]) -> Vec<String> {
    let texts = parts.iter().filter(|part| part["type"] == "text-delta");
    texts.map(|part| part["delta"].as_str().unwrap_or_default().to_owned()).collect()
}
