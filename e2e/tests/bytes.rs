//! Logs at their bounds and logs that are damaged, from the agent's mouth to the client.

use agentsession_e2e::{Draft, Operator, Session, Status, Stored, Test, pieces, pods, run, wait::seconds};
use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::common::{WELL, check_replay, has_said, stored};

async fn ran(t: &Test, script: &str) -> Result<(Operator, Session, Status, Stored)> {
    let operator = t.operator().await?;
    let session = t.apply(Draft::new("bytes").turn(script)).await?;
    let status = session.finished_within(seconds(180)).await?;
    let stored = stored(t, &session).await?;
    Ok((operator, session, status, stored))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_fifteen_mebibytes_and_fifty_thousand_parts_is_whole() {
    run("big", async |t| {
        // Start, end and the steps are parts too.
        let (operator, session, status, stored) = ran(t, "- parts: {count: 49980, size: 140}\n").await?;
        assert_eq!(status.turn(1)?.summary(), WELL);
        let said = stored.deltas(1);
        assert_eq!(said.len(), 49_980);
        assert!(
            said.iter()
                .enumerate()
                .all(|(at, text)| text.starts_with(&format!("piece {} of 49980", at + 1)) && text.len() == 140)
        );
        check_replay(t, &operator, &session, &stored).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_too_long_is_cut_and_keeps_its_end() {
    run("log-limit", async |t| {
        let (operator, session, status, stored) = ran(t, "- bytes: 20Mi\n").await?;
        assert_eq!(status.turn(1)?.summary(), "Succeeded - Truncated LogLimit");
        let said = stored.deltas(1);
        assert!(
            said.len() > 900
                && said.iter().enumerate().all(|(at, text)| text.starts_with(&format!("piece {} of", at + 1)))
        );
        assert_eq!(stored.types(1).last().map(String::as_str), Some("finish"));
        check_replay(t, &operator, &session, &stored).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_of_too_many_parts_is_cut_and_keeps_its_end() {
    run("part-count", async |t| {
        let (_, _, status, stored) = ran(t, "- parts: 51000\n").await?;
        assert_eq!(status.turn(1)?.summary(), "Succeeded - Truncated PartCountLimit");
        assert!(stored.raw(1).len() <= 50_000);
        let said = stored.deltas(1);
        assert_eq!(said, pieces(51_000)[..said.len()]);
        assert_eq!(stored.types(1).last().map(String::as_str), Some("finish"));
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_too_large_is_replaced_by_a_marker() {
    run("part-limit", async |t| {
        let script = "- say: before\n- parts: {count: 1, size: 1000000}\n- say: between\n- parts: {count: 1, size: 9000000}\n- say: after\n";
        let (operator, session, status, stored) = ran(t, script).await?;
        assert_eq!(status.turn(1)?.summary(), "Succeeded - Truncated PartLimit");
        let said = stored.deltas(1);
        assert_eq!((said[0].as_str(), said[1].len(), said[2].as_str(), said[3].as_str()), ("before", 1_000_000, "between", "after"));
        let parts = stored.values(1);
        let marker = parts.iter().find(|part| part["type"] == "data-omitted").context("no marker")?;
        assert!(marker["data"]["bytes"].as_u64().is_some_and(|bytes| bytes >= 9_000_000), "{marker}");
        assert_eq!(marker["data"]["sha256"].as_str().map(str::len), Some(hex::encode(Sha256::digest("")).len()));
        check_replay(t, &operator, &session, &stored).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_lines_are_counted_and_their_neighbours_kept() {
    run("damage", async |t| {
        // A raw NUL, bytes that are no UTF-8, no JSON, JSON without a part, and a line of 9 MiB.
        let script = "- parts: 10\n- appendLog: {base64: eyJhIjoiAC0ifQo=}\n- say: one\n- appendLog: {base64: /v8K}\n- say: two\n\
            - appendLog: {text: \"not json\\n\"}\n- say: three\n- appendLog: {text: \"{\\\"type\\\":\\\"ui-message\\\"}\\n\"}\n- say: four\n\
            - appendLog: {text: \"@PAD@\\n\", pad: 9000000}\n- say: five\n";
        let (operator, session, status, stored) = ran(t, script).await?;
        assert_eq!(status.turn(1)?.summary(), "Succeeded - Truncated LogDamaged");
        assert_eq!(stored.text(1), pieces(10).concat() + "onetwothreefourfive");
        check_replay(t, &operator, &session, &stored).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_line_costs_itself_alone() {
    run("torn", async |t| {
        // The driver's next line is written behind the torn one and is lost with it: one index is missing.
        let _operator = t.operator().await?;
        let script = "- parts: 10\n- wait: 1s\n- appendLog: {text: '{\"at\":\"2026-'}\n- plan: [lost]\n- say: after\n";
        let session = t.apply(Draft::new("torn").turn(script)).await?;
        let status = session.finished().await?;
        let stored = Stored::read(&t.sqlite(), &session).await?;
        assert_eq!(stored.raw(1).len(), stored.parts.last().unwrap().index.0 as usize);
        assert_eq!(status.turn(1)?.transcript_reason.as_deref(), Some("LogDamaged"));
        let said = stored.text(1);
        assert!(said.starts_with(&pieces(10).concat()) && said.ends_with("after"), "{said}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_but_valid_text_is_kept_to_the_byte() {
    run("odd", async |t| {
        let say = |text: &str| {
            let update = format!(r#"{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}"#);
            format!("- raw: '{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"scripted\",\"update\":{update}}}}}'\n")
        };
        let texts = [r"nul \u0000 nul", r"half \ud83e", r"\udc00\ud800 turned", r"good \ud83d\ude00", r"literal \\u0000"];
        let script: String = texts.iter().map(|text| say(text)).collect();
        let (operator, session, status, stored) = ran(t, &script).await?;
        assert_eq!(status.turn(1)?.summary(), WELL);
        let raw = stored.raw(1).concat();
        for escape in [r"\u0000", r"\ud83e", r"\udc00\ud800", r"literal \\u0000"] {
            assert!(raw.contains(escape), "{escape} is not in {raw}");
        }
        assert!(raw.contains(r"good \ud83d\ude00") || raw.contains("good 😀"), "{raw}");
        let stream = agentsession_e2e::Stream::replay(t, &operator, &session).await?;
        // What a client reads is what was said: each text is there, as it stands in the store.
        for part in stored.raw(1).iter().filter(|part| part.contains("text-delta")) {
            assert!(stream.raw().contains(part), "{part}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_gone_is_never_called_complete() {
    run("no-log", async |t| {
        let _operator = t.operator().await?;
        let draft = Draft::new("no-log").turn("- parts: 10\n- wait: 3s\n- shell: rm /agentsession/log/turn-1.jsonl\n");
        let session = t.apply(draft).await?;
        has_said(t, &session, 10).await?;
        let status = session.finished().await?;
        let turn = status.turn(1)?;
        assert_eq!(
            (turn.transcript.as_deref(), turn.transcript_reason.as_deref()),
            (Some("Incomplete"), Some("LogMissing"))
        );
        pods::none(t, &session, seconds(15)).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_recorder_serves_a_large_log() {
    run("small", async |t| {
        let operator = t.operator().await?;
        let session = t.apply(Draft::new("small").lingering().turn("- bytes: 14Mi\n- parts: 5\n")).await?;
        assert_eq!(session.finished_within(seconds(120)).await?.turn(1)?.summary(), WELL);
        let pod = pods::running(t, &session).await?;
        let restarts = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        assert!(restarts.iter().all(|status| status.restart_count == 0));
        let stored = stored(t, &session).await?;
        assert_eq!(stored.deltas(1)[stored.deltas(1).len() - 5..], pieces(5));
        check_replay(t, &operator, &session, &stored).await.map(drop)
    })
    .await;
}
