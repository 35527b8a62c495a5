//! What several themes check alike.

use agentsession_e2e::{Operator, Session, Stored, Stream, Test, await_condition, pods, wait::seconds};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;

/// Outcome and verdict of a turn that nothing disturbed.
pub const WELL: &str = "Succeeded - Complete -";

/// Waits until the log of turn 1 has so many text deltas, whatever is stored of it.
pub async fn has_said(test: &Test, session: &Session, deltas: usize) -> Result<Pod> {
    let pod = pods::running(test, session).await?;
    await_condition("the agent to have said it all", seconds(60), async || {
        let log = pods::log(test, &pod, 1).await?;
        Ok((log.matches("\"text-delta\"").count() >= deltas).then_some(()))
    })
    .await?;
    Ok(pod)
}

/// Waits until the default store has so many text deltas of turn 1. Returns how many.
pub async fn has_stored(test: &Test, session: &Session, deltas: usize) -> Result<usize> {
    await_condition("parts to be stored", seconds(60), async || {
        let stored = Stored::read(&test.sqlite(), session).await?.deltas(1).len();
        Ok((stored >= deltas).then_some(stored))
    })
    .await
}

/// Reads the default store and checks what always holds.
pub async fn stored(test: &Test, session: &Session) -> Result<Stored> {
    let stored = Stored::read(&test.sqlite(), session).await?;
    stored.check()?;
    Ok(stored)
}

/// A turn of `parts: count` that ended by itself, from its first part to its last.
pub fn check_pieces(stored: &Stored, turn: u32, count: usize) -> Result<()> {
    let types = stored.types(turn);
    ensure!(stored.deltas(turn) == agentsession_e2e::pieces(count), "turn {turn}: {:?}", stored.deltas(turn));
    ensure!(types[..3] == ["start", "start-step", "text-start"], "turn {turn} begins with {:?}", &types[..3]);
    ensure!(types[types.len() - 3..] == ["text-end", "finish-step", "finish"], "turn {turn} ends with {types:?}");
    Ok(())
}

/// The replay holds what the store holds, byte for byte and in order, and is the same twice. Returns it.
pub async fn check_replay(test: &Test, operator: &Operator, session: &Session, stored: &Stored) -> Result<Stream> {
    let stream = Stream::replay(test, operator, session).await?;
    // One envelope: of each turn's own start and finish nothing is sent.
    let envelope = |part: &&str| {
        let value: serde_json::Value = serde_json::from_str(part).unwrap_or_default();
        !matches!(value["type"].as_str(), Some("start" | "finish" | "start-step" | "finish-step" | "error" | "abort"))
    };
    let sent = stream.raw();
    let mut rest = sent.iter();
    for turn in &stored.ledger.turns {
        for part in stored.raw(turn.turn.0).into_iter().filter(envelope) {
            ensure!(
                rest.any(|sent| *sent == part),
                "turn {}: {part} is not in the replay, or not in its place",
                turn.turn
            );
        }
    }
    let again = Stream::replay(test, operator, session).await?;
    ensure!(again.bytes == stream.bytes, "two replays of a settled session differ");
    Ok(stream)
}
