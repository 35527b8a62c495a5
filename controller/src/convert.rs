//! From the store's records to what decisions see.

use std::time::Duration;

use controller_core::model::{LedgerView, Trouble, TurnView};
use jiff::Timestamp;
use store::{Ledger, StoreError, TurnRecord};

use crate::harvest::store_reason;

/// The ledger as decisions see it; ages are by the store's own clock.
pub fn ledger_view(ledger: &Ledger) -> LedgerView {
    let session = ledger.session.as_ref();
    LedgerView {
        known: session.is_some(),
        attempt: session.map(|session| session.attempt).unwrap_or_default(),
        seed: session.map(|session| session.nonce.clone()).unwrap_or_default(),
        turns: ledger.turns.iter().map(|turn| turn_view(turn, ledger.now)).collect(),
        parts: session.map_or(0, |session| session.parts),
        bytes: session.map_or(0, |session| session.bytes),
        last_seq: session.map_or(0, |session| session.last_seq.0),
    }
}

/// One turn.
pub fn turn_view(record: &TurnRecord, now: Timestamp) -> TurnView {
    TurnView {
        turn: record.turn,
        state: record.state,
        attempt: record.attempt,
        pod_uid: record.pod_uid.clone(),
        outcome: record.outcome,
        reason: record.reason,
        verdict: record.verdict,
        verdict_reason: record.verdict_reason,
        message: record.message.clone(),
        parts: record.parts,
        usage: record.usage,
        accepted_at: record.accepted_at,
        started_at: record.started_at,
        settled_at: record.settled_at,
        running_for: record.started_at.map(|since| age(since, now)),
        settled_for: record.settled_at.map(|since| age(since, now)),
    }
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// A store that does not answer, for people.
pub fn trouble(error: &StoreError) -> Trouble {
    Trouble { reason: store_reason(error), message: crate::exec::error_chain(error) }
}
