//! An agent that cannot start: the reason is told in the cluster's own words, at once or while it may still heal.

use std::time::Instant;

use agentsession_e2e::{Draft, Status, Test, TurnStatus, pods, run, wait::seconds};
use anyhow::{Result, ensure};
use serde_json::json;

use crate::common::{WELL, stored};

/// Runs a session that must fail before its turn is delivered, and tells why within a minute.
async fn fails(t: &Test, draft: Draft, reason: &str, words: &[&str]) -> Result<()> {
    let _operator = t.operator().await?;
    let began = Instant::now();
    let session = t.apply(draft.turn("- say: never\n")).await?;
    let status = session.finished().await?;
    ensure!(began.elapsed() < seconds(60), "told after {:?}", began.elapsed());
    let turn = status.turn(1)?;
    ensure!(turn.outcome.as_deref() == Some("Failed") && turn.reason.as_deref() == Some(reason), "{turn:?}");
    ensure!(turn.transcript.as_deref() == Some("Incomplete"), "{turn:?}");
    check_words(turn, words)?;
    ensure!(stored(t, &session).await?.raw(1).is_empty(), "parts out of nowhere");
    pods::none(t, &session, seconds(30)).await
}

fn check_words(turn: &TurnStatus, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(turn.message().contains(word), "{word:?} is not in {:?}", turn.message());
    }
    Ok(())
}

/// While it waits, the condition says why.
fn waits_for(reason: &'static str, words: &'static str) -> impl Fn(&Status) -> bool {
    move |status| {
        let ready = status.condition(crds::names::CONDITION_POD_READY);
        ready.is_some_and(|condition| condition.reason == reason && condition.message.contains(words))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled() {
    run("image", async |t| {
        let draft = Draft::new("image").set("spec/agent/image", "registry.invalid/x:1").set("spec/startTimeout", "20s");
        fails(t, draft, "ImagePullFailed", &["registry.invalid/x:1"]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_no_name() {
    run("image-name", async |t| {
        fails(t, Draft::new("image-name").set("spec/agent/image", "bad//NAME"), "ImagePullFailed", &["bad//NAME"]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_exist() {
    run("command", async |t| {
        let draft = Draft::new("command").set("spec/agent/command", json!(["/nope", "acp"]));
        fails(t, draft, "AgentStartFailed", &["/nope"]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_before_it_speaks() {
    run("mute", async |t| {
        let draft = Draft::new("mute").set("spec/agent/command", json!(["sh", "-c", "echo no licence >&2; exit 4"]));
        fails(t, draft, "AgentStartFailed", &["no licence"]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_for_it() {
    run("unschedulable", async |t| {
        let draft = Draft::new("unschedulable").set("spec/podTemplate/nodeSelector", json!({"disk": "none-such"}));
        fails(t, draft.set("spec/startTimeout", "15s"), "Unschedulable", &["nodes are available"]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setup_that_fails() {
    run("setup", async |t| {
        let command = json!(["sh", "-c", "echo repository not found >&2; exit 3"]);
        fails(
            t,
            Draft::new("setup").set("spec/workspace/setup/command", command),
            "InitFailed",
            &["setup", "3", "repository not found"],
        )
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_the_cluster_refuses() {
    run("refused", async |t| {
        // A limit, not a quota, so it does not heal.
        t.apply_yaml("{apiVersion: v1, kind: LimitRange, metadata: {name: tiny}, spec: {limits: [{type: Container, max: {memory: 300Mi}}]}}").await?;
        let draft = Draft::new("refused").set("spec/agent/resources/limits/memory", "1Gi");
        fails(t, draft, "PodRefused", &["maximum memory usage per Container is 300Mi"]).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_quota_is_waited_for() {
    run("quota", async |t| {
        let quota = |pods| {
            format!(
                "{{apiVersion: v1, kind: ResourceQuota, metadata: {{name: none}}, spec: {{hard: {{pods: '{pods}'}}}}}}"
            )
        };
        t.apply_yaml(&quota(0)).await?;
        let _operator = t.operator().await?;
        let session = t.apply(Draft::new("quota").turn("- say: at last\n")).await?;
        session.until("QuotaExceeded", seconds(60), waits_for("QuotaExceeded", "exceeded quota: none")).await?;
        t.apply_yaml(&quota(5)).await?;
        let status = session.finished().await?;
        assert_eq!(status.turn(1)?.summary(), WELL);
        assert_eq!(stored(t, &session).await?.text(1), "at last");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_is_waited_for() {
    run("secret", async |t| {
        let _operator = t.operator().await?;
        let variable = json!([{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "late", "key": "key"}}}]);
        let session =
            t.apply(Draft::new("secret").set("spec/agent/env", variable).turn("- shell: echo $KEY\n")).await?;
        session
            .until("ContainerConfigError", seconds(60), waits_for("ContainerConfigError", "secret \"late\" not found"))
            .await?;
        t.kubectl(&["create", "secret", "generic", "late", "--from-literal=key=came"]).await?;
        assert_eq!(session.finished().await?.turn(1)?.summary(), WELL);
        let parts = stored(t, &session).await?.values(1);
        assert!(
            parts.iter().any(|part| part["type"] == "tool-output-available" && part.to_string().contains("came")),
            "{parts:?}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typing_error_in_the_image_does_not_cost_the_session() {
    run("typo", async |t| {
        let _operator = t.operator().await?;
        let draft = Draft::new("typo").turn("- say: well\n").set("spec/agent/image", "registry.invalid/typo:1");
        let session = t.apply(draft).await?;
        session.until("ImagePullFailed", seconds(60), waits_for("ImagePullFailed", "registry.invalid/typo:1")).await?;
        session.patch(&json!({"spec": {"agent": {"image": agentsession_e2e::test::AGENT_IMAGE}}})).await?;
        let status = session.finished().await?;
        assert_eq!((status.turn(1)?.summary().as_str(), status.attempt), (WELL, 2));
        Ok(())
    })
    .await;
}
