//! A session that nothing disturbs, and what may be odd about it.

use agentsession_e2e::{Draft, await_condition, eventually, pieces, pods, run, wait::seconds};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::PropagationPolicy};
use serde_json::json;
use transcript::TurnState;

use crate::common::{WELL, check_pieces, check_replay, has_said, stored};

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_watched_is_stored_whole_before_its_pod_goes() {
    run("unwatched", async |t| {
        let operator = t.operator().await?;
        let session = t.apply(Draft::new("unwatched").turn("- parts: 200\n")).await?;
        // The moment the Pod is seen to go, the verdict must stand.
        await_condition("the Pod to go", seconds(60), async || {
            let pod = pods::of(t, &session).await?.pop();
            Ok(pod.filter(|pod| pod.metadata.deletion_timestamp.is_some()))
        })
        .await?;
        assert_eq!(stored(t, &session).await?.record(1)?.state, TurnState::Settled);
        let status = session.finished().await?;
        assert_eq!(status.turn(1)?.summary(), WELL);
        assert_eq!(status.phase, "Completed");
        for condition in ["Finished", "TranscriptComplete"] {
            assert_eq!(status.condition(condition).context("no condition")?.status, "True", "{condition}");
        }
        pods::none(t, &session, seconds(10)).await?;
        let stored = stored(t, &session).await?;
        check_pieces(&stored, 1, 200)?;
        assert_eq!(status.transcript.parts, stored.parts.len() as u64);
        let stream = check_replay(t, &operator, &session, &stored).await?;
        assert_eq!(stream.deltas(), pieces(200));
        assert_eq!(stream.of_type("data-user-prompt")[0]["data"]["text"], "- parts: 200\n");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_the_log_byte_for_byte() {
    run("log", async |t| {
        let operator = t.operator().await?;
        let script = "- think: hm\n- say: \"a \\\"quote\\\", \\u2028, 日本語 😀\"\n- plan: [look, fix]\n- shell: printf 'one\\ntwo'\n\
                      - usage: {inputTokens: 3, outputTokens: 4}\n- update: {sessionUpdate: brand_new, n: 1.0, big: 12345678901234567890}\n- parts: 50\n";
        let session = t.apply(Draft::new("log").lingering().turn(script)).await?;
        assert_eq!(session.finished().await?.turn(1)?.summary(), WELL);
        let pod = pods::running(t, &session).await?;
        let log = pods::parts_of_log(&pods::log(t, &pod, 1).await?)?;
        let stored = stored(t, &session).await?;
        assert_eq!(stored.raw(1), log);
        let types = stored.types(1);
        for kind in ["reasoning-delta", "text-delta", "data-plan", "tool-input-available", "tool-output-available", "data-usage", "data-acp"] {
            assert!(types.iter().any(|have| have == kind), "no {kind} in {types:?}");
        }
        let output = stored.values(1).into_iter().find(|part| part["type"] == "tool-output-available").unwrap();
        assert!(output["output"].to_string().contains("one\\ntwo"), "{output}");
        check_replay(t, &operator, &session, &stored).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_added_by_apply_make_one_transcript() {
    run("turns", async |t| {
        let operator = t.operator().await?;
        let mut session = t.apply(Draft::new("turns").lingering().turn("- parts: 10\n")).await?;
        session.finished().await?;
        for parts in [20, 30] {
            session.add_turn(t, &format!("- parts: {parts}\n")).await?;
            session.finished().await?;
        }
        let status = session.status().await?;
        assert_eq!(status.turns.len(), 3);
        assert_eq!(status.attempt, 1, "one Pod takes all three");
        let stored = stored(t, &session).await?;
        for (turn, parts) in [(1, 10), (2, 20), (3, 30)] {
            assert_eq!(status.turn(turn)?.summary(), WELL);
            check_pieces(&stored, turn, parts)?;
        }
        assert!(stored.parts.is_sorted_by(|a, b| a.seq < b.seq), "seq follows the order of the turns");
        let stream = check_replay(t, &operator, &session, &stored).await?;
        assert_eq!(stream.deltas(), [pieces(10), pieces(20), pieces(30)].concat());
        let prompts: Vec<_> =
            stream.of_type("data-user-prompt").iter().map(|part| part["data"]["turn"].clone()).collect();
        assert_eq!(prompts, [1, 2, 3]);
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_of_any_user_run() {
    run("users", async |t| {
        let _operator = t.operator().await?;
        let mut sessions = Vec::new();
        for image in ["agentsession-agent-root", "agentsession-agent-node", "agentsession-agent-nohome"] {
            let draft = Draft::new(image).set("spec/agent/image", format!("localhost/{image}:dev"));
            sessions.push(
                t.apply(draft.turn("- shell: 'id -u; pwd; echo $HOME; touch here $HOME/there && echo written'\n"))
                    .await?,
            );
        }
        for session in sessions {
            assert_eq!(session.finished().await?.turn(1)?.summary(), WELL, "{}", session.name);
            let parts = stored(t, &session).await?.values(1);
            let output =
                parts.iter().find(|part| part["type"] == "tool-output-available").context("no output")?.to_string();
            assert!(output.contains("1000\\n/workspace\\n/home/agent\\nwritten"), "{}: {output}", session.name);
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphaning_deletes_no_less() {
    run("orphan", async |t| {
        let _operator = t.operator().await?;
        let session = t.apply(Draft::new("orphan").turn("- parts: 20\n- wait: 10m\n")).await?;
        has_said(t, &session, 20).await?;
        session.delete(PropagationPolicy::Orphan).await?;
        session.gone(seconds(60)).await?;
        pods::none(t, &session, seconds(10)).await?;
        let stored = stored(t, &session).await?;
        assert_eq!(stored.summary(1)?, "Canceled SessionDeleted Complete -");
        assert_eq!(stored.deltas(1), pieces(20));
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_our_name_is_never_touched() {
    run("name-taken", async |t| {
        let _operator = t.operator().await?;
        let draft = Draft::new("taken").turn("- parts: 5\n").set("spec/desiredState", "Suspended");
        let session = t.apply(draft).await?;
        let taken = format!("{}taken-{}-1", crds::names::POD_NAME_PREFIX, &session.uid[..8]);
        let security = json!({"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}});
        let container = json!({
            "name": "c", "image": "localhost/busybox:1", "command": ["sleep", "1000000"],
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        });
        let foreign = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": taken, "labels": {crds::names::LABEL_SESSION_UID: session.uid}},
            "spec": {"securityContext": security, "terminationGracePeriodSeconds": 0, "containers": [container]},
        });
        t.apply_yaml(&foreign.to_string()).await?;
        let before: Pod = pods::api(t).get(&taken).await?;
        session.patch(&json!({"spec": {"desiredState": "Active"}})).await?;
        let status = session.finished().await?;
        assert_eq!((status.turn(1)?.summary().as_str(), status.attempt), (WELL, 2));
        check_pieces(&stored(t, &session).await?, 1, 5)?;
        let after = pods::api(t).get(&taken).await?;
        assert_eq!(
            (after.uid(), after.finalizers(), after.metadata.deletion_timestamp.is_some()),
            (before.uid(), &[][..], false)
        );
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_turn_cancels_those_that_waited_and_not_those_that_come() {
    run("waiting", async |t| {
        let _operator = t.operator().await?;
        let draft = Draft::new("waiting")
            .turn("- say: one\n- failPrompt: no model\n")
            .turn("- say: two\n")
            .turn("- say: three\n");
        let mut session = t.apply(draft).await?;
        let status = session.finished().await?;
        assert_eq!(status.turn(1)?.summary(), "Failed AgentError Complete -");
        assert!(status.turn(1)?.message().contains("no model"), "{:?}", status.turn(1)?);
        for turn in [2, 3] {
            assert_eq!(status.turn(turn)?.summary(), "Canceled EarlierTurnFailed Incomplete NeverStarted");
        }
        session.add_turn(t, "- say: four\n").await?;
        assert_eq!(session.finished().await?.turn(4)?.summary(), WELL);
        let stored = stored(t, &session).await?;
        assert_eq!(
            (stored.text(1), stored.raw(2).len(), stored.raw(3).len(), stored.text(4)),
            ("one".into(), 0, 0, "four".into())
        );
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_session_has_no_pod_and_goes_on() {
    run("suspend", async |t| {
        let _operator = t.operator().await?;
        let mut session = t.apply(Draft::new("suspend").lingering().turn("- parts: 5\n- wait: 10m\n")).await?;
        has_said(t, &session, 5).await?;
        session.patch(&json!({"spec": {"desiredState": "Suspended"}})).await?;
        let suspended = |status: &agentsession_e2e::Status| {
            status.condition("Suspended").is_some_and(|condition| condition.status == "True")
        };
        let status = session.until("Suspended", seconds(60), suspended).await?;
        assert_eq!(status.turn(1)?.summary(), "Canceled Suspended Complete -");
        eventually("no Pod", seconds(10), async || Ok(pods::of(t, &session).await?.is_empty())).await?;
        session.draft = session.draft.clone().set("spec/desiredState", "Active");
        session.add_turn(t, "- say: back\n").await?;
        let status = session.finished().await?;
        assert_eq!((status.turn(2)?.summary().as_str(), status.attempt), (WELL, 2));
        ensure!(stored(t, &session).await?.text(2) == "back");
        Result::Ok(())
    })
    .await;
}
