//! The database is away, read-only or emptied.

use agentsession_e2e::{
    Draft, Operator, Session, Status, Stored, Test, TurnStatus, pods, postgres::Postgres, run, wait::seconds,
};
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;

use crate::common::{WELL, check_pieces, has_said};

async fn with_postgres(t: &Test) -> Result<(Postgres, Operator)> {
    let postgres = Postgres::start(t).await?;
    postgres.migrate().await?;
    let operator = Operator::start(t, t.settings().store(&postgres.url())).await?;
    Ok((postgres, operator))
}

/// A session whose turn ends a few seconds after this returns.
async fn about_to_end(t: &Test, draft: Draft) -> Result<Session> {
    let session = t.apply(draft.turn("- parts: 40\n- wait: 5s\n- stop: end_turn\n")).await?;
    has_said(t, &session, 40).await?;
    Ok(session)
}

/// The Pod is held as the buffer, and the object says why.
async fn held(t: &Test, session: &Session) -> Result<()> {
    let says = |status: &Status| {
        let complete = status.condition(crds::names::CONDITION_TRANSCRIPT_COMPLETE);
        status.phase == "Harvesting" && complete.is_some_and(|condition| condition.reason == "StoreUnavailable")
    };
    session.until("Harvesting for want of a store", seconds(60), says).await?;
    ensure!(pods::of(t, session).await?.len() == 1, "the Pod is gone");
    Ok(())
}

async fn check_whole(postgres: &Postgres, session: &Session) -> Result<()> {
    let status = session.finished_within(seconds(120)).await?;
    ensure!(status.turn(1)?.summary() == WELL, "{:?}", status.turn(1)?);
    let stored = Stored::read(&postgres.url(), session).await?;
    stored.check()?;
    check_pieces(&stored, 1, 40)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_down_for_a_minute_gets_it_all() {
    run("store-down", async |t| {
        let (mut postgres, _operator) = with_postgres(t).await?;
        let session = about_to_end(t, Draft::new("down")).await?;
        postgres.down().await?;
        held(t, &session).await?;
        tokio::time::sleep(seconds(50)).await;
        postgres.up().await?;
        check_whole(&postgres, &session).await?;
        pods::none(t, &session, seconds(15)).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_read_only_gets_it_all() {
    run("store-read-only", async |t| {
        let (postgres, _operator) = with_postgres(t).await?;
        let session = about_to_end(t, Draft::new("read-only")).await?;
        postgres.read_only(true).await?;
        held(t, &session).await?;
        postgres.read_only(false).await?;
        check_whole(&postgres, &session).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stays_away_does_not_hold_a_deletion_for_ever() {
    run("store-gone", async |t| {
        let (mut postgres, _operator) = with_postgres(t).await?;
        let draft =
            Draft::new("gone").set("spec/transcript/holdTimeout", "10s").set("spec/transcript/harvestTimeout", "10s");
        let session = about_to_end(t, draft).await?;
        postgres.down().await?;
        let lost = |turn: &TurnStatus| turn.summary().ends_with("Incomplete StoreUnavailable");
        session.until("to be given up", seconds(120), |status| status.turn(1).is_ok_and(lost)).await?;
        session.delete(PropagationPolicy::Background).await?;
        session.gone(seconds(60)).await?;
        pods::none(t, &session, seconds(15)).await?;
        // The ledger learns of it when it is back.
        postgres.up().await?;
        agentsession_e2e::eventually("the store to say so too", seconds(120), async || {
            let stored = Stored::read(&postgres.url(), &session).await?;
            let record = stored.record(1)?;
            Ok(record.verdict == Some(transcript::Verdict::Incomplete)
                && record.verdict_reason == Some(transcript::Reason::StoreUnavailable))
        })
        .await
    })
    .await;
}

/// Five sessions are finished, the store is emptied and the controller started again: nothing runs, and the loss is said.
async fn emptied(
    t: &Test,
    operator: &mut Operator,
    store: &str,
    empty: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let mut sessions = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        sessions.push(t.apply(Draft::new(name).turn("- say: once\n")).await?);
    }
    for session in &sessions {
        ensure!(session.finished().await?.turn(1)?.summary() == WELL, "{}", session.name);
        pods::none(t, session, seconds(15)).await?;
    }
    operator.process.kill().await?;
    empty().await?;
    operator.restart(t).await?;
    for session in &mut sessions {
        let lost =
            |status: &Status| status.turns.iter().any(|turn| turn.transcript_reason.as_deref() == Some("StoreLost"));
        let status = session.until("StoreLost", seconds(60), lost).await?;
        ensure!(status.turn(1)?.summary() == "Lost StoreLost Incomplete StoreLost", "{:?}", status.turn(1)?);
        ensure!(pods::of(t, session).await?.is_empty(), "{} has a Pod again", session.name);
    }
    // The session itself is not lost: another turn runs.
    let session = &mut sessions[0];
    session.add_turn(t, "- say: twice\n").await?;
    let status = session.finished().await?;
    ensure!(status.turn(2)?.summary() == WELL && status.attempt >= 1, "{status:?}");
    ensure!(Stored::read(store, session).await?.text(2) == "twice");
    let created = t.kubectl(&["get", "events", "--field-selector=reason=Scheduled", "-o", "name"]).await?;
    ensure!(created.lines().count() == 6, "not six Pods: {created}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_database_runs_no_prompt_again() {
    run("store-emptied", async |t| {
        let mut operator = t.operator().await?;
        let file = t.dir.join("store.db");
        emptied(t, &mut operator, &t.sqlite(), async || {
            for suffix in ["", "-wal", "-shm"] {
                std::fs::remove_file(format!("{}{suffix}", file.display())).ok();
            }
            ensure!(!file.exists());
            Ok(())
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_does_an_emptied_postgres() {
    run("postgres-emptied", async |t| {
        let (postgres, mut operator) = with_postgres(t).await?;
        let url = postgres.url();
        emptied(t, &mut operator, &url, async || {
            postgres.sql("drop schema public cascade").await?;
            postgres.sql("create schema public").await?;
            postgres.migrate().await
        })
        .await
    })
    .await;
}
