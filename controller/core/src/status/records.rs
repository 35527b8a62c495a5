//! Turn records, counters and usage, as the ledger has them.

use crds::{AgentSessionStatus, STATUS_TURNS, TranscriptStatus, TurnStatus, UsageStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use transcript::{Turn, TurnState};

use super::number;
use crate::model::{LedgerView, TurnView};

fn wide(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What is stored. `messageCount` stays unset: it is a result of folding the parts, and is never counted up on the way.
pub(super) fn counters(ledger: &LedgerView) -> TranscriptStatus {
    TranscriptStatus {
        // The words are in the order from best to worst.
        verdict: ledger.turns.iter().filter_map(|turn| turn.verdict).max(),
        parts: wide(ledger.parts),
        bytes: wide(ledger.bytes),
        last_seq: wide(ledger.last_seq),
        message_count: None,
    }
}

/// The last turns that ran or are settled, and the one that a Pod takes at once; one that only waits has nothing to say yet.
pub(super) fn turns(ledger: &LedgerView, taken: Option<Turn>) -> Vec<TurnStatus> {
    let tells = |turn: &&TurnView| turn.state != TurnState::Accepted || taken == Some(turn.turn);
    let told: Vec<&TurnView> = ledger.turns.iter().filter(tells).collect();
    told.iter().skip(told.len().saturating_sub(STATUS_TURNS)).map(|turn| record(turn)).collect()
}

fn record(turn: &TurnView) -> TurnStatus {
    TurnStatus {
        turn: number(turn.turn.0),
        outcome: turn.outcome,
        reason: turn.reason,
        transcript: turn.verdict,
        transcript_reason: turn.verdict_reason,
        message: turn.message.clone(),
        parts: i64::from(turn.parts),
        started_at: turn.started_at.map(Time),
        completed_at: turn.settled_at.map(Time),
    }
}

/// The same records, with the parts of turns that are not settled as they were said before.
pub(super) fn with_counters_of(previous: &AgentSessionStatus, mut turns: Vec<TurnStatus>) -> Vec<TurnStatus> {
    for turn in turns.iter_mut().filter(|turn| turn.outcome.is_none()) {
        if let Some(before) = previous.turns.iter().find(|before| before.turn == turn.turn) {
            turn.parts = before.parts;
        }
    }
    turns
}

/// The sum over the records, made anew each time: nothing can be counted twice. `None` as long as no agent reported any.
pub(super) fn usage(ledger: &LedgerView) -> Option<UsageStatus> {
    ledger
        .turns
        .iter()
        .filter_map(|turn| turn.usage)
        .map(|usage| UsageStatus {
            requests: wide(usage.requests),
            input_tokens: wide(usage.input_tokens),
            output_tokens: wide(usage.output_tokens),
            total_tokens: wide(usage.total_tokens),
        })
        .reduce(|sum, usage| UsageStatus {
            requests: sum.requests.saturating_add(usage.requests),
            input_tokens: sum.input_tokens.saturating_add(usage.input_tokens),
            output_tokens: sum.output_tokens.saturating_add(usage.output_tokens),
            total_tokens: sum.total_tokens.saturating_add(usage.total_tokens),
        })
}
