//! The way to the log is bad: it is cut, hangs, ends too early or lies. What is stored is whole, or said not to be.

use agentsession_e2e::{Draft, Fault, FaultProxy, Operator, Session, Test, eventually, pods, run, wait::seconds};
use anyhow::{Result, ensure};

use crate::common::{WELL, check_pieces, has_said, stored};

/// Pieces of 2 KiB, about 4 MiB of log.
const PIECES: usize = 1800;
const SCRIPT: &str = "- parts: {count: 1800, size: 2Ki}\n";

/// A session under a fault; the Pod stays up afterwards, so that one can look into it.
async fn under(t: &Test, fault: Fault, times: u32, draft: Draft) -> Result<(FaultProxy, Operator, Session)> {
    let proxy = FaultProxy::start(t).await?;
    proxy.inject("command=read", fault, times);
    let operator = Operator::start(t, t.settings().through(&proxy.kubeconfig)).await?;
    let session = t.apply(draft.turn(SCRIPT).lingering()).await?;
    Ok((proxy, operator, session))
}

/// The first three reads fail, later ones do not.
async fn heals(t: &Test, fault: Fault) -> Result<()> {
    let (proxy, _operator, session) = under(t, fault, 3, Draft::new("heals")).await?;
    let status = session.finished_within(seconds(240)).await?;
    ensure!(proxy.hits() == 3, "the fault fell {} times", proxy.hits());
    ensure!(status.turn(1)?.summary() == WELL, "{:?}", status.turn(1)?);
    let stored = stored(t, &session).await?;
    ensure!(stored.deltas(1).len() == PIECES, "{} pieces", stored.deltas(1).len());
    check_sizes(&stored.deltas(1))?;
    let pod = pods::running(t, &session).await?;
    // The follower of a Pod that waits for another turn is one; what is left of the broken ones goes when its hold of 60 s passes.
    eventually("no reader to stay behind", seconds(90), async || Ok(!t.cluster.is_own() || pods::readers(&pod)? <= 1))
        .await
}

fn check_sizes(pieces: &[String]) -> Result<()> {
    for (at, piece) in pieces.iter().enumerate() {
        ensure!(
            piece.len() == 2048 && piece.starts_with(&format!("piece {} of {PIECES}", at + 1)),
            "piece {at}: {piece}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut() {
    run("exec-cut", async |t| heals(t, Fault::Cut { after: 1_600_000 }).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_closed_without_status() {
    run("exec-closed", async |t| heals(t, Fault::Close { after: 1_600_000 }).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_hangs() {
    run("exec-hung", async |t| heals(t, Fault::Hang { after: 1_600_000 }).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_hangs_from_the_start() {
    run("exec-mute", async |t| heals(t, Fault::Hang { after: 0 }).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_comes_before_the_last_bytes() {
    run("exec-early", async |t| heals(t, Fault::StatusFirst { after: 1_600_000 }).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exec_that_is_refused() {
    run("exec-refused", async |t| heals(t, Fault::Refuse(500)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_status_at_all_is_no_fault_of_the_bytes() {
    run("exec-no-status", async |t| {
        let (_proxy, _operator, session) = under(t, Fault::NoStatus, u32::MAX, Draft::new("no-status")).await?;
        assert_eq!(session.finished_within(seconds(120)).await?.turn(1)?.summary(), WELL);
        check_sizes(&stored(t, &session).await?.deltas(1))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_read_in_time_is_said_to_be_incomplete() {
    run("exec-never", async |t| {
        let proxy = FaultProxy::start(t).await?;
        let _operator = Operator::start(t, t.settings().through(&proxy.kubeconfig)).await?;
        let draft = Draft::new("never").set("spec/transcript/holdTimeout", "10s").set("spec/turnTimeout", "15s");
        let session = t.apply(draft.turn(&format!("- say: begun\n- wait: 5s\n{SCRIPT}"))).await?;
        has_said(t, &session, 1).await?;
        // From now on not even the status can be read, and no proof can be had.
        proxy.inject("command=read", Fault::Cut { after: 100 }, u32::MAX);
        proxy.cut();
        let status = session.finished_within(seconds(120)).await?;
        // How the turn itself ended nobody can know; what is missing of its transcript is certain.
        assert!(status.turn(1)?.summary().ends_with(" Incomplete ReadFailed"), "{:?}", status.turn(1)?);
        assert!(proxy.hits() >= 2, "it was tried again");
        let said = stored(t, &session).await?.deltas(1);
        ensure!(said.len() <= 1, "parts without their proof: {said:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_whose_delivery_breaks_is_delivered_once() {
    run("exec-deliver", async |t| {
        let proxy = FaultProxy::start(t).await?;
        proxy.inject("command=deliver", Fault::Cut { after: 0 }, 2);
        let _operator = Operator::start(t, t.settings().through(&proxy.kubeconfig)).await?;
        let session = t.apply(Draft::new("deliver").turn("- parts: 10\n")).await?;
        assert_eq!(session.finished_within(seconds(120)).await?.turn(1)?.summary(), WELL);
        check_pieces(&stored(t, &session).await?, 1, 10)
    })
    .await;
}
