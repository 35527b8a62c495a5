//! Somebody deletes the session, its namespace or its Pod in the middle of a turn.

use std::time::Instant;

use agentsession_e2e::{Draft, Session, Stored, Test, eventually, pieces, pods, run, wait::seconds};
use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api,
    api::{DeleteParams, PropagationPolicy},
};

use crate::common::{has_said, stored};

/// A session in the middle of its turn: twenty pieces are in the log, and by the default interval not all of them are stored.
async fn mid_turn(t: &Test) -> Result<(Session, Pod)> {
    let session = t.apply(Draft::new("doomed").turn("- parts: 20\n- wait: 10m\n")).await?;
    let pod = has_said(t, &session, 20).await?;
    Ok((session, pod))
}

/// All twenty pieces and the abort are stored, and this is how the turn ended.
fn check(stored: &Stored, summary: &str) -> Result<()> {
    ensure!(stored.summary(1)? == summary, "{}", stored.summary(1)?);
    ensure!(stored.deltas(1) == pieces(20), "{:?}", stored.deltas(1));
    ensure!(stored.types(1).last().is_some_and(|kind| kind == "abort"), "{:?}", stored.types(1));
    Ok(())
}

/// Checks a session that was deleted, with all that it had: gone at most 5 s after its verdict.
async fn check_deleted(t: &Test, session: &Session) -> Result<()> {
    session.gone(seconds(75)).await?;
    let gone = Timestamp::now();
    pods::none(t, session, seconds(1)).await?;
    let stored = stored(t, session).await?;
    check(&stored, "Canceled SessionDeleted Complete -")?;
    let settled = stored.record(1)?.settled_at.context("not settled")?;
    ensure!(
        gone.duration_since(settled).as_secs() <= 5,
        "gone {} s after the verdict",
        gone.duration_since(settled).as_secs()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_is_stored_up_to_its_abort() {
    run("delete", async |t| {
        let _operator = t.operator().await?;
        let (session, _) = mid_turn(t).await?;
        session.delete(PropagationPolicy::Background).await?;
        check_deleted(t, &session).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_one_deleted_in_the_foreground() {
    run("foreground", async |t| {
        let _operator = t.operator().await?;
        let (session, pod) = mid_turn(t).await?;
        session.delete(PropagationPolicy::Foreground).await?;
        check_deleted(t, &session).await?;
        let events = t.kubectl(&["get", "events", "--field-selector=reason=Scheduled", "-o", "name"]).await?;
        assert_eq!(events.lines().count(), 1, "only {:?} was ever scheduled: {events}", pod.metadata.name);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_one_whose_namespace_is_deleted() {
    run("namespace", async |t| {
        let _operator = t.operator().await?;
        let (session, _) = mid_turn(t).await?;
        let namespaces: Api<Namespace> = Api::all(t.cluster.client.clone());
        namespaces.delete(&t.namespace, &DeleteParams::default()).await?;
        session.gone(seconds(90)).await?;
        pods::none(t, &session, seconds(1)).await?;
        // Whichever of the two the namespace's end reached first.
        let stored = stored(t, &session).await?;
        check(&stored, "Lost PodDeleted Complete -")
            .or_else(|_| check(&stored, "Canceled SessionDeleted Complete -"))?;
        agentsession_e2e::eventually("the namespace to be gone", seconds(30), async || {
            Ok(namespaces.get_opt(&t.namespace).await?.is_none())
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_is_read_in_its_grace() {
    run("pod-deleted", async |t| {
        let _operator = t.operator().await?;
        let (session, pod) = mid_turn(t).await?;
        let began = Instant::now();
        pods::delete(t, &pod, None).await?;
        let status = session.finished().await?;
        check(&stored(t, &session).await?, "Lost PodDeleted Complete -")?;
        assert_eq!(status.turn(1)?.summary(), "Lost PodDeleted Complete -");
        pods::none(t, &session, seconds(5)).await?;
        assert!(began.elapsed() < seconds(30), "the grace of 60 s is not sat out: {:?}", began.elapsed());
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_is_an_evicted_one() {
    run("evicted", async |t| {
        let _operator = t.operator().await?;
        let (session, pod) = mid_turn(t).await?;
        pods::evict(t, &pod).await?;
        session.finished().await?;
        check(&stored(t, &session).await?, "Lost Evicted Complete -")?;
        pods::none(t, &session, seconds(5)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_ran_goes_at_once() {
    run("never-ran", async |t| {
        let _operator = t.operator().await?;
        let session = t.apply(Draft::new("never").turn("- say: never\n").set("spec/desiredState", "Suspended")).await?;
        session.until("accepted", seconds(10), |status| status.accepted_turns == 1).await?;
        session.delete(PropagationPolicy::Background).await?;
        session.gone(seconds(10)).await?;
        // Nothing held the object, so the ledger is closed after it went.
        eventually("the ledger to be closed", seconds(10), async || {
            Ok(stored(t, &session).await?.summary(1)? == "Canceled SessionDeleted Incomplete NeverStarted")
        })
        .await
    })
    .await;
}
