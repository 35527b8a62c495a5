//! Effects on the ledger.

use ::store::{NewSession, NewTurn, Settlement, Won};
use controller_core::{
    events,
    model::{Done, LedgerView, PodRef, Settle, SpecTurn},
};
use transcript::{Attempt, Reason, Turn};

use super::{EffectError, Pass};
use crate::{convert, metrics::SettledLabel, say};

pub(super) async fn accept(pass: &Pass<'_>, turns: &[(Turn, SpecTurn)]) -> Result<(), EffectError> {
    if is_behind(pass).await? {
        return Err(EffectError::Behind);
    }
    ensure_session(pass).await?;
    for (turn, spec) in turns {
        pass.context.store.accept_turn(&new_turn(pass, *turn, spec)).await?;
    }
    Ok(())
}

pub(super) async fn record_lost(pass: &Pass<'_>, turns: &[(Turn, SpecTurn)]) -> Result<(), EffectError> {
    if is_behind(pass).await? {
        return Err(EffectError::Behind);
    }
    ensure_session(pass).await?;
    for (turn, spec) in turns {
        pass.context.store.record_lost_turn(&new_turn(pass, *turn, spec)).await?;
    }
    say::event(pass, events::store_lost(turns.len()));
    tracing::warn!(
        session.uid = %pass.observed.session.uid,
        turn.count = turns.len(),
        "the store no longer knows turns that it once had; they are recorded as lost and not run again"
    );
    Ok(())
}

/// Whether the object is gone, or says more than our view of it. Asked once in the life of a session, and after a loss: a store that knows no turn of it may
/// have been emptied, and then what was accepted before must not be read from a cache that is behind.
async fn is_behind(pass: &Pass<'_>) -> Result<bool, EffectError> {
    let whole = |ledger: &LedgerView| {
        !ledger.turns.is_empty() && ledger.turns.iter().all(|turn| turn.reason != Some(Reason::StoreLost))
    };
    if pass.observed.ledger.as_ref().is_ok_and(whole) {
        return Ok(false);
    }
    let standing = super::cluster::standing_session(pass).await?;
    let accepted = standing.map(|object| object.status.and_then(|status| status.accepted_turns).unwrap_or(0));
    Ok(accepted.is_none_or(|accepted| u32::try_from(accepted).unwrap_or(0) > pass.observed.session.accepted_turns))
}

async fn ensure_session(pass: &Pass<'_>) -> Result<(), EffectError> {
    let session = &pass.observed.session;
    if pass.observed.ledger.as_ref().is_ok_and(|ledger| ledger.known) {
        return Ok(());
    }
    let namespace_uid = pass.context.namespace_uid(&session.namespace).await?;
    let mode = pass.session.map_or("Interactive", |object| object.spec.mode.as_str());
    let row = NewSession {
        uid: session.uid.clone(),
        namespace: session.namespace.clone(),
        namespace_uid,
        name: session.name.clone(),
        mode: mode.to_owned(),
    };
    Ok(pass.context.store.ensure_session(&row).await?)
}

fn new_turn(pass: &Pass<'_>, turn: Turn, spec: &SpecTurn) -> NewTurn {
    NewTurn {
        session: pass.observed.session.uid.clone(),
        turn,
        client_id: spec.id.clone(),
        prompt: spec.prompt.clone(),
    }
}

pub(super) async fn open_attempt(pass: &Pass<'_>, attempt: Attempt, seed: &str) -> Result<(), EffectError> {
    pass.context.store.open_attempt(&pass.observed.session.uid, attempt, seed).await?;
    pass.memory.set_refusal(None);
    Ok(())
}

pub(super) async fn start_turn(pass: &Pass<'_>, turn: Turn, attempt: Attempt, pod: &PodRef) -> Result<(), EffectError> {
    let session = &pass.observed.session;
    pass.context.store.start_turn(&session.uid, turn, attempt, &pod.uid, &session.image).await?;
    Ok(())
}

pub(super) async fn begin_harvest(pass: &Pass<'_>, turn: Turn, attempt: Attempt) -> Result<(), EffectError> {
    pass.context.store.begin_harvest(&pass.observed.session.uid, turn, attempt).await?;
    Ok(())
}

/// The compare-and-set. Only the winner counts and speaks; everyone goes on from the record that stands, which the next pass reads.
pub(super) async fn settle(pass: &Pass<'_>, settle: &Settle) -> Result<(), EffectError> {
    let Settle { turn, attempt, pod_uid, outcome, reason, verdict, verdict_reason, message, usage } = settle.clone();
    let session = &pass.observed.session;
    let settlement = Settlement {
        session: session.uid.clone(),
        turn,
        attempt,
        pod_uid,
        outcome,
        reason,
        verdict,
        verdict_reason,
        message,
        usage,
    };
    let standing = pass.context.store.settle(&settlement).await?;
    if standing.won == Won::No {
        return Ok(());
    }
    let record = standing.record;
    tracing::info!(
        session.uid = %session.uid,
        session.namespace = session.namespace,
        session.name = session.name,
        turn = turn.0,
        outcome = record.outcome.map(|outcome| outcome.as_str()),
        reason = record.reason.map(|reason| reason.as_str()),
        verdict = record.verdict.map(|verdict| verdict.as_str()),
        verdict.reason = record.verdict_reason.map(|reason| reason.as_str()),
        part.count = record.parts,
        "turn settled"
    );
    if standing.won == Won::Settled {
        let label = SettledLabel {
            outcome: record.outcome.map_or("", |outcome| outcome.as_str()),
            verdict: record.verdict.map_or("", |verdict| verdict.as_str()),
            reason: record.verdict_reason.or(record.reason).map_or("", |reason| reason.as_str()),
        };
        pass.context.metrics.settled.get_or_create(&label).inc();
    }
    let now = record.settled_at.unwrap_or(record.accepted_at);
    say::event(pass, events::turn_settled(&convert::turn_view(&record, now)));
    Ok(())
}

pub(super) async fn reclaim(pass: &Pass<'_>, delete: bool) -> Result<(), EffectError> {
    let uid = &pass.observed.session.uid;
    if delete {
        pass.context.store.delete_session(uid).await?;
    } else {
        pass.context.store.mark_deleted(uid).await?;
    }
    pass.memory.mark(Done::Reclaimed);
    Ok(())
}
