//! Ways in which an agent ends in the middle of a turn. The record has all that it said, and says how it ended.

use agentsession_e2e::{Draft, Status, Stored, Test, pieces, pods, run, wait::seconds};
use anyhow::{Result, ensure};

use crate::common::stored;

/// Runs one turn that says twelve pieces and then ends by `end`.
async fn ended(t: &Test, draft: Draft, end: &str) -> Result<(Status, Stored)> {
    let _operator = t.operator().await?;
    let session = t.apply(draft.turn(&format!("- parts: 12\n{end}"))).await?;
    let status = session.finished().await?;
    let stored = stored(t, &session).await?;
    ensure!(stored.deltas(1) == pieces(12), "{:?}", stored.deltas(1));
    ensure!(stored.summary(1)? == status.turn(1)?.summary(), "the store says {}", stored.summary(1)?);
    pods::none(t, &session, seconds(15)).await?;
    Ok((status, stored))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_code_is_told_with_the_last_words() {
    run("exit", async |t| {
        let (status, stored) =
            ended(t, Draft::new("exit"), "- stderr: boom in line 7\n- wait: 300ms\n- exit: 3\n").await?;
        let turn = status.turn(1)?;
        assert_eq!(turn.summary(), "Failed AgentExited Complete -");
        assert!(turn.message().contains('3') && turn.message().contains("boom in line 7"), "{turn:?}");
        assert!(stored.types(1).contains(&"error".to_owned()), "{:?}", stored.types(1));
        assert_eq!(status.phase, "Failed");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_told() {
    run("signal", async |t| {
        let (status, _) = ended(t, Draft::new("signal"), "- crash: KILL\n").await?;
        let turn = status.turn(1)?;
        assert_eq!(turn.summary(), "Failed AgentExited Complete -");
        assert!(turn.message().contains('9') || turn.message().contains("KILL"), "{turn:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn want_of_memory_is_told() {
    run("oom", async |t| {
        let draft = Draft::new("oom").set("spec/agent/resources/limits/memory", "64Mi");
        let (status, _) = ended(t, draft, "- allocate: 200Mi\n- say: never\n").await?;
        assert_eq!(status.turn(1)?.summary(), "Failed OOMKilled Complete -");
        let condition = status.condition("Finished").unwrap();
        assert_eq!(condition.reason, "OOMKilled");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ignores_every_request_to_stop_is_stopped() {
    run("stubborn", async |t| {
        let draft = Draft::new("stubborn").set("spec/turnTimeout", "3s");
        let (status, stored) = ended(t, draft, "- ignoreTerm\n- ignoreCancel\n- wait: 10m\n").await?;
        assert_eq!(status.turn(1)?.summary(), "Failed TurnTimeout Complete -");
        assert_eq!(stored.types(1).last().unwrap(), "abort");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_stdout_is_no_end() {
    run("noise", async |t| {
        let _operator = t.operator().await?;
        let script = "- say: before\n- raw: Welcome!\n- raw: '{\"jsonrpc\":\"2.0\",\"method\":\"sess'\n- say: after\n- stop: brand_new\n";
        let session = t.apply(Draft::new("noise").turn(script)).await?;
        assert_eq!(session.finished().await?.turn(1)?.summary(), "Succeeded - Complete -");
        assert_eq!(stored(t, &session).await?.text(1), "beforeafter");
        Ok(())
    })
    .await;
}
