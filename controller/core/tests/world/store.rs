//! The store, as its trait promises: one transaction a call, identities once, dense seq, fences, one settle.

use std::{collections::BTreeMap, time::Duration};

use agentsession_controller_core::model::{LedgerView, Settle, SpecTurn, TurnView};
use transcript::{Attempt, IndexSet, Outcome, PartIndex, PodUid, Reason, SessionUid, Turn, TurnState, Verdict};

use super::{api::timestamp, mutation::Mutation};

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFail {
    Unavailable,
    Full,
    Unknown,
    Superseded,
    TurnComplete,
}

impl StoreFail {
    pub fn fenced(self) -> bool {
        matches!(self, Self::Unknown | Self::Superseded | Self::TurnComplete)
    }

    pub fn reason(self) -> Reason {
        match self {
            Self::Full => Reason::StoreFull,
            Self::Unknown => Reason::StoreLost,
            Self::Unavailable | Self::Superseded | Self::TurnComplete => Reason::StoreUnavailable,
        }
    }
}

/// What the store is able to do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Up,
    Down,
    ReadOnly,
    Full,
}

#[derive(Clone, Debug)]
pub struct TurnRow {
    pub view: TurnView,
    pub prompt: String,
}

#[derive(Clone, Debug, Default)]
pub struct Row {
    pub attempt: Attempt,
    pub seed: String,
    pub last_seq: u64,
    pub bytes: u64,
    pub turns: BTreeMap<Turn, TurnRow>,
    pub parts: BTreeMap<(Turn, PartIndex), (u64, String)>,
    pub deleted: bool,
}

#[derive(Debug)]
pub struct Store {
    pub health: Health,
    pub rows: BTreeMap<SessionUid, Row>,
    pub mutation: Option<Mutation>,
    /// Since when it has not been up without a break.
    pub troubled_since: Option<u64>,
    pub writes: u64,
}

/// What an append did.
#[derive(Clone, Debug, Default)]
pub struct Appended {
    pub inserted: Vec<(Turn, PartIndex, u64, String)>,
    pub already: u32,
    pub conflicts: u32,
    pub over_quota: u32,
}

impl Store {
    pub fn new(mutation: Option<Mutation>) -> Self {
        Self { health: Health::Up, rows: BTreeMap::new(), mutation, troubled_since: None, writes: 0 }
    }

    pub fn can_read(&self) -> Result<(), StoreFail> {
        if self.health == Health::Down { Err(StoreFail::Unavailable) } else { Ok(()) }
    }

    pub fn can_write(&mut self) -> Result<(), StoreFail> {
        match self.health {
            Health::Down | Health::ReadOnly => return Err(StoreFail::Unavailable),
            // Records are small and still fit; it is the parts that do not.
            Health::Up | Health::Full => {}
        }
        self.writes += 1;
        Ok(())
    }

    pub fn ledger(&self, session: &SessionUid, now: u64) -> LedgerView {
        let Some(row) = self.rows.get(session) else { return LedgerView::default() };
        let age = |at: Option<jiff::Timestamp>| {
            at.map(|at| Duration::try_from(timestamp(now).duration_since(at)).unwrap_or_default())
        };
        let turns = row.turns.values().map(|turn| {
            let mut view = turn.view.clone();
            view.running_for = age(view.started_at);
            view.settled_for = age(view.settled_at);
            view.parts = row.parts.range((view.turn, PartIndex(0))..=(view.turn, PartIndex(u32::MAX))).count() as u32;
            view
        });
        LedgerView {
            known: true,
            attempt: row.attempt,
            seed: row.seed.clone(),
            turns: turns.collect(),
            parts: row.parts.len() as u64,
            bytes: row.bytes,
            last_seq: row.last_seq,
        }
    }

    pub fn ensure(&mut self, session: &SessionUid) {
        self.rows.entry(session.clone()).or_default();
    }

    pub fn accept(&mut self, session: &SessionUid, turn: Turn, spec: &SpecTurn, now: u64) -> Result<(), StoreFail> {
        let row = self.rows.get_mut(session).ok_or(StoreFail::Unknown)?;
        row.turns.entry(turn).or_insert_with(|| TurnRow { view: accepted(turn, now), prompt: spec.prompt.clone() });
        Ok(())
    }

    pub fn record_lost(
        &mut self,
        session: &SessionUid,
        turn: Turn,
        spec: &SpecTurn,
        now: u64,
    ) -> Result<(), StoreFail> {
        let row = self.rows.get_mut(session).ok_or(StoreFail::Unknown)?;
        row.turns.entry(turn).or_insert_with(|| {
            let mut view = accepted(turn, now);
            view.state = TurnState::Settled;
            view.outcome = Some(Outcome::Lost);
            view.verdict = Some(Verdict::Incomplete);
            view.reason = Some(Reason::StoreLost);
            view.verdict_reason = Some(Reason::StoreLost);
            view.settled_at = Some(timestamp(now));
            TurnRow { view, prompt: spec.prompt.clone() }
        });
        Ok(())
    }

    pub fn open_attempt(&mut self, session: &SessionUid, attempt: Attempt, seed: &str) -> Result<(), StoreFail> {
        let row = self.rows.get_mut(session).ok_or(StoreFail::Unknown)?;
        if row.attempt.0 + 1 == attempt.0 {
            row.attempt = attempt;
            row.seed = seed.to_owned();
        }
        Ok(())
    }

    pub fn start_turn(
        &mut self,
        session: &SessionUid,
        turn: Turn,
        attempt: Attempt,
        pod: &PodUid,
        now: u64,
    ) -> Result<(), StoreFail> {
        let stolen = self.mutation == Some(Mutation::StartTurnSteals);
        let row = self.rows.get_mut(session).ok_or(StoreFail::Unknown)?;
        let record = &mut row.turns.get_mut(&turn).ok_or(StoreFail::Unknown)?.view;
        if record.state == TurnState::Accepted || (stolen && record.state.is_active()) {
            record.state = TurnState::Running;
            record.attempt = Some(attempt);
            record.pod_uid = Some(pod.clone());
            record.started_at = Some(timestamp(now));
        }
        Ok(())
    }

    pub fn begin_harvest(&mut self, session: &SessionUid, turn: Turn, attempt: Attempt) -> Result<(), StoreFail> {
        let row = self.rows.get_mut(session).ok_or(StoreFail::Unknown)?;
        let record = &mut row.turns.get_mut(&turn).ok_or(StoreFail::Unknown)?.view;
        if record.state == TurnState::Running && record.attempt == Some(attempt) {
            record.state = TurnState::Harvesting;
        }
        Ok(())
    }

    /// The compare-and-set; `true` when it wrote.
    pub fn settle(&mut self, session: &SessionUid, settle: &Settle, now: u64) -> Result<bool, StoreFail> {
        let blind = self.mutation == Some(Mutation::SettleWithoutTest);
        let row = self.rows.get_mut(session).ok_or(StoreFail::Unknown)?;
        let record = &mut row.turns.get_mut(&settle.turn).ok_or(StoreFail::Unknown)?.view;
        let same = record.attempt == settle.attempt && record.pod_uid == settle.pod_uid;
        let open = record.state.is_active() && same;
        let raises = record.state == TurnState::Settled
            && record.verdict != Some(Verdict::Complete)
            && settle.verdict == Verdict::Complete
            && record.attempt.is_some()
            && same;
        if !(open || raises || blind) {
            return Ok(false);
        }
        if self.mutation == Some(Mutation::RunsAgain) && settle.outcome == Outcome::Lost && open {
            record.state = TurnState::Accepted;
            record.attempt = None;
            record.pod_uid = None;
            return Ok(true);
        }
        record.state = TurnState::Settled;
        record.outcome = Some(settle.outcome);
        record.reason = settle.reason;
        record.verdict = Some(settle.verdict);
        record.verdict_reason = settle.verdict_reason;
        record.message.clone_from(&settle.message);
        record.usage = settle.usage;
        record.settled_at.get_or_insert(timestamp(now));
        Ok(true)
    }

    pub fn append(
        &mut self,
        session: &SessionUid,
        turn: Turn,
        attempt: Attempt,
        quota: u64,
        parts: &[(PartIndex, String)],
    ) -> Result<Appended, StoreFail> {
        let full = self.health == Health::Full;
        let unfenced = self.mutation == Some(Mutation::NoAttemptFence);
        let row = self.rows.get_mut(session).ok_or(StoreFail::Unknown)?;
        let record = &row.turns.get(&turn).ok_or(StoreFail::Unknown)?.view;
        if record.attempt != Some(attempt) && !unfenced {
            return Err(StoreFail::Superseded);
        }
        if record.state == TurnState::Settled && record.verdict == Some(Verdict::Complete) && !unfenced {
            return Err(StoreFail::TurnComplete);
        }
        let mut done = Appended::default();
        let fresh = parts.iter().any(|(index, _)| !row.parts.contains_key(&(turn, *index)));
        if full && fresh {
            return Err(StoreFail::Full);
        }
        for (index, raw) in parts {
            if let Some((_, stored)) = row.parts.get(&(turn, *index)) {
                if stored == raw {
                    done.already += 1;
                } else {
                    done.conflicts += 1;
                }
            } else if done.over_quota > 0 || row.bytes + raw.len() as u64 > quota {
                done.over_quota += 1;
            } else {
                row.last_seq += 1;
                row.bytes += raw.len() as u64;
                row.parts.insert((turn, *index), (row.last_seq, raw.clone()));
                done.inserted.push((turn, *index, row.last_seq, raw.clone()));
            }
        }
        Ok(done)
    }

    pub fn progress(&self, session: &SessionUid, turn: Turn) -> Result<IndexSet, StoreFail> {
        let row = self.rows.get(session).ok_or(StoreFail::Unknown)?;
        Ok(row.parts.keys().filter(|(of, _)| *of == turn).map(|(_, index)| *index).collect())
    }

    pub fn active_sessions(&self) -> Vec<SessionUid> {
        let active = |row: &Row| row.turns.values().any(|turn| turn.view.state.is_active());
        self.rows.iter().filter(|(_, row)| active(row)).map(|(uid, _)| uid.clone()).collect()
    }
}

fn accepted(turn: Turn, now: u64) -> TurnView {
    TurnView {
        turn,
        state: TurnState::Accepted,
        attempt: None,
        pod_uid: None,
        outcome: None,
        reason: None,
        verdict: None,
        verdict_reason: None,
        message: None,
        parts: 0,
        usage: None,
        accepted_at: timestamp(now),
        started_at: None,
        settled_at: None,
        running_for: None,
        settled_for: None,
    }
}
