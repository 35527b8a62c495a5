//! What a client of a stream receives, byte for byte, when all goes well and when it does not.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as the test does"
)]

#[cfg(test)]
mod support;

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use support::{
    Answer, SESSION, World,
    memory::{Read, noon, record, running, settled, turn},
};
use tower::ServiceExt;
use transcript::{Outcome, Reason, Verdict};

const STREAM: &str = "/v1/namespaces/team-a/agentsessions/fix-login/stream";

fn complete(number: u32, prompt: &str) -> store::TurnRecord {
    settled(number, prompt, Outcome::Succeeded, None, Verdict::Complete, None)
}

/// One turn as a driver writes it.
fn text_turn(number: u32, text: &str) -> Vec<(u32, u32, String)> {
    [
        r#"{"type":"start"}"#.to_owned(),
        r#"{"type":"start-step"}"#.to_owned(),
        r#"{"type":"text-start","id":"t1"}"#.to_owned(),
        format!(r#"{{"type":"text-delta","id":"t1","delta":"{text}"}}"#),
        r#"{"type":"text-end","id":"t1"}"#.to_owned(),
        r#"{"type":"finish-step"}"#.to_owned(),
        r#"{"type":"finish","finishReason":"stop"}"#.to_owned(),
    ]
    .into_iter()
    .zip(0..)
    .map(|(part, index)| (number, index, part))
    .collect()
}

fn put(world: &World, turns: Vec<store::TurnRecord>, parts: &[(u32, u32, String)]) {
    let parts: Vec<(u32, u32, &str)> = parts.iter().map(|(t, i, part)| (*t, *i, part.as_str())).collect();
    world.store.put(record("fix-login", "uid-1"), turns, &parts);
}

async fn replayed(turns: Vec<store::TurnRecord>, parts: &[(u32, u32, String)]) -> Answer {
    let world = World::new();
    put(&world, turns, parts);
    world.get(STREAM).await
}

/// The chunks of a stream that ends as it must.
fn chunks(answer: &Answer) -> Vec<Value> {
    let text = answer.text().strip_suffix("data: [DONE]\n\n").expect("the stream ends with [DONE]");
    text.split_terminator("\n\n")
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")))
        .map(|data| serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
        .collect()
}

fn types(answer: &Answer) -> Vec<String> {
    chunks(answer).iter().map(|chunk| chunk["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_finished_session_is_replayed_whole() {
    let answer = replayed(vec![complete(1, "Fix the login bug.")], &text_turn(1, "Done.")).await;
    assert_eq!(answer.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-vercel-ai-ui-message-stream", "v1"),
        ("x-accel-buffering", "no"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    assert_eq!(
        answer.text(),
        concat!(
            "data: {\"type\":\"start\",\"messageId\":\"durable-uid-1\"}\n\n",
            "data: {\"type\":\"data-user-prompt\",\"id\":\"prompt-1\",\"data\":{\"turn\":1,\"text\":\"Fix the login bug.\",\"settled\":true,",
            "\"state\":\"settled\",\"outcome\":\"Succeeded\",\"reason\":null,\"transcript\":\"Complete\",\"transcriptReason\":null}}\n\n",
            "id: 1.1\ndata: {\"type\":\"start-step\"}\n\n",
            "id: 1.2\ndata: {\"type\":\"text-start\",\"id\":\"t1\"}\n\n",
            "id: 1.3\ndata: {\"type\":\"text-delta\",\"id\":\"t1\",\"delta\":\"Done.\"}\n\n",
            "id: 1.4\ndata: {\"type\":\"text-end\",\"id\":\"t1\"}\n\n",
            "id: 1.5\ndata: {\"type\":\"finish-step\"}\n\n",
            "data: {\"type\":\"finish\",\"finishReason\":\"stop\"}\n\n",
            "data: [DONE]\n\n",
        )
    );
}

#[tokio::test]
async fn three_turns_are_one_message_in_identity_order() {
    let mut parts = text_turn(1, "one");
    // The third turn was stored before the hole of the second was filled.
    parts.extend(text_turn(3, "three"));
    parts.extend(text_turn(2, "two"));
    let turns = vec![
        complete(1, "first"),
        settled(2, "second", Outcome::Lost, Some(Reason::NodeLost), Verdict::Incomplete, Some(Reason::NodeLost)),
        complete(3, "third"),
    ];
    insta::assert_snapshot!(replayed(turns, &parts).await.text());
}

#[tokio::test]
async fn a_session_that_runs_ends_with_a_marker_that_says_so() {
    let answer = replayed(vec![running(1, "hello")], &text_turn(1, "wor")[..4]).await;
    let chunks = chunks(&answer);
    assert_eq!(types(&answer)[5..], ["text-end", "finish-step", "data-still-running", "finish"]);
    assert_eq!(chunks[7]["data"], json!({"turn": 1, "state": "running"}));
}

#[tokio::test]
async fn a_failure_before_the_first_token_is_shown() {
    let mut failed = settled(1, "hello", Outcome::Failed, Some(Reason::AgentStartFailed), Verdict::Complete, None);
    failed.message = Some("exec: no such file".to_owned());
    let parts = [
        (1, 0, r#"{"type":"start"}"#.to_owned()),
        (1, 1, r#"{"type":"error","errorText":"no credit left"}"#.to_owned()),
    ];
    let answer = replayed(vec![failed], &parts).await;
    assert_eq!(types(&answer), ["start", "data-user-prompt", "data-turn-error", "finish"]);
    assert_eq!(chunks(&answer)[2]["data"]["errorText"], "no credit left");
}

#[tokio::test]
async fn an_incomplete_turn_says_so_each_time_it_is_read() {
    let world = World::new();
    let lost = settled(1, "hello", Outcome::Lost, Some(Reason::NodeLost), Verdict::Incomplete, Some(Reason::NodeLost));
    let mut parts = text_turn(1, "wor")[..4].to_vec();
    parts.remove(2);
    put(&world, vec![lost], &parts);
    let (first, second) = (world.get(STREAM).await, world.get(STREAM).await);
    assert_eq!(first, second);
    insta::assert_snapshot!(first.text());
}

#[tokio::test]
async fn only_a_session_that_never_accepted_a_turn_has_no_content() {
    let world = World::new();
    world.api.session("team-a", "fix-login", "uid-1", &Value::Null);
    let unseen = world.get(STREAM).await;
    assert_eq!((unseen.status.as_u16(), unseen.text()), (204, ""));
    put(&world, vec![], &[]);
    assert_eq!(world.get(STREAM).await.status, 204);

    let accepted = replayed(vec![turn(1, "hello")], &[]).await;
    assert_eq!(types(&accepted), ["start", "data-user-prompt", "data-still-running", "finish"]);
    let canceled = settled(1, "hello", Outcome::Canceled, None, Verdict::Incomplete, Some(Reason::NeverStarted));
    assert_eq!(types(&replayed(vec![canceled], &[]).await), ["start", "data-user-prompt", "data-turn-end", "finish"]);
}

#[tokio::test]
async fn a_store_that_forgot_the_turns_is_no_empty_session() {
    let world = World::new();
    world.api.session("team-a", "fix-login", "uid-1", &json!({"phase": "Completed", "acceptedTurns": 2}));
    let answer = world.get(STREAM).await;
    assert_eq!(types(&answer), ["start", "data-resync", "finish"]);
    assert!(chunks(&answer)[1]["data"]["message"].as_str().unwrap().contains("does not know"));
}

#[tokio::test]
async fn what_is_accepted_after_the_snapshot_waits_for_the_next_reading() {
    let mut parts = text_turn(1, "one");
    parts.extend(text_turn(2, "two"));
    let answer = replayed(vec![complete(1, "first")], &parts).await;
    assert!(!answer.text().contains("two") && answer.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn many_pages_are_one_stream_in_large_pieces() {
    let world = World::new();
    let mut parts = vec![(1, 0, r#"{"type":"text-start","id":"t1"}"#.to_owned())];
    parts.extend((1..=5000).map(|i| (1, i, format!(r#"{{"type":"text-delta","id":"t1","delta":"word {i} "}}"#))));
    parts.push((1, 5001, r#"{"type":"text-end","id":"t1"}"#.to_owned()));
    put(&world, vec![complete(1, "hello")], &parts);
    let request = http::Request::get(STREAM).header("authorization", "Bearer alice-token").body(Body::empty()).unwrap();
    let mut body = world.router().oneshot(request).await.unwrap().into_body();
    let mut frames = Vec::new();
    while let Some(frame) = body.frame().await {
        frames.push(frame.unwrap().into_data().unwrap());
    }
    let all: Vec<u8> = frames.concat();
    let text = String::from_utf8(all).unwrap();
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, (0..=5001).map(|i| format!("1.{i}")).collect::<Vec<_>>());
    assert_eq!(world.store.reads(), 6, "5002 parts are six pages");
    assert!(frames.len() < 20, "{} frames for {} bytes", frames.len(), text.len());
    assert!(frames.iter().all(|frame| frame.len() < 80 << 10));
}

#[tokio::test]
async fn a_reader_that_takes_nothing_makes_nothing_be_read() {
    let world = World::new();
    let big = |i| (1, i, format!(r#"{{"type":"data-x","data":"{}"}}"#, "a".repeat(600 << 10)));
    put(&world, vec![complete(1, "hello")], &(0..20).map(big).collect::<Vec<_>>());
    let request = http::Request::get(STREAM).header("authorization", "Bearer alice-token").body(Body::empty()).unwrap();
    let mut body = world.router().oneshot(request).await.unwrap().into_body();
    assert_eq!(world.store.reads(), 0);
    body.frame().await.unwrap().unwrap();
    body.frame().await.unwrap().unwrap();
    assert_eq!(world.store.reads(), 1);
}

#[tokio::test]
async fn a_cursor_goes_on_without_gap_or_double() {
    let world = World::new();
    let mut parts = text_turn(1, "one");
    parts.extend(text_turn(2, "two"));
    put(&world, vec![complete(1, "first"), complete(2, "second")], &parts);
    let ids = |answer: &Answer| -> Vec<String> {
        answer.text().lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
    };
    let all = ids(&world.get(STREAM).await);
    for (i, cursor) in all.iter().enumerate() {
        let by_url = world.get(&format!("{STREAM}?after={cursor}")).await;
        assert_eq!(ids(&by_url), all[i + 1..], "after {cursor}");
        chunks(&by_url);
        let headers = [("authorization", "Bearer alice-token"), ("last-event-id", cursor.as_str())];
        assert_eq!(world.get_with(&format!("{STREAM}?after=1.0"), &headers).await, by_url);
    }
    insta::assert_snapshot!(world.get(&format!("{STREAM}?after=1.2")).await.text());
}

#[tokio::test]
async fn a_cursor_of_another_session_is_refused() {
    let world = World::new();
    put(&world, vec![complete(1, "first")], &text_turn(1, "one"));
    for cursor in ["2.0", "0.0"] {
        let answer = world.get(&format!("{STREAM}?after={cursor}")).await;
        assert_eq!(answer.error(), (400, "invalid_parameter".into()));
        assert!(answer.message().contains(cursor), "{}", answer.message());
    }
    assert_eq!(world.get(&format!("{STREAM}?after=1.4294967295")).await.status, 200);
}

#[tokio::test]
async fn deltas_are_joined_on_demand() {
    let world = World::new();
    let mut parts = text_turn(1, "a");
    for i in 0..3 {
        parts.insert(4, (1, 0, format!(r#"{{"type":"text-delta","id":"t1","delta":"{i}"}}"#)));
    }
    for (part, index) in parts.iter_mut().zip(0..) {
        part.1 = index;
    }
    put(&world, vec![complete(1, "hello")], &parts);
    let answer = world.get(&format!("{STREAM}?coalesce=true")).await;
    assert!(
        answer.text().contains("id: 1.6\ndata: {\"type\":\"text-delta\",\"id\":\"t1\",\"delta\":\"a210\"}\n\n"),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn a_uid_picks_the_earlier_session_of_the_name() {
    let world = World::new();
    let mut old = record("fix-login", "uid-0");
    old.deleted_at = Some(noon());
    world.store.put(old, vec![complete(1, "the old prompt")], &[]);
    put(&world, vec![complete(1, "the new prompt")], &[]);
    world.api.session("team-a", "fix-login", "uid-1", &json!({"acceptedTurns": 1}));
    assert!(world.get(STREAM).await.text().contains("durable-uid-1"));
    let old = world.get(&format!("{STREAM}?uid=uid-0")).await;
    assert!(
        old.text().contains("durable-uid-0")
            && old.text().contains("the old prompt")
            && !old.text().contains("the new prompt")
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_is_bridged_by_heartbeats() {
    let world = World::new();
    put(&world, vec![complete(1, "hello")], &text_turn(1, "one"));
    let quick = world.get(STREAM).await;
    world.store.reads_from(0, Read::Slow(Duration::from_secs(29)));
    let slow = world.get(STREAM).await;
    let (start, rest) = quick.text().split_at(quick.text().find("\n\n").unwrap() + 2);
    assert_eq!(slow.text(), format!("{start}: keep-alive\n\n{rest}"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_moment_is_asked_again() {
    let world = World::new();
    put(&world, vec![complete(1, "hello")], &text_turn(1, "one"));
    let well = world.get(STREAM).await;
    let read = world.store.reads();
    world.store.reads_from(read, Read::Down);
    world.store.reads_from(read + 3, Read::Fine);
    assert_eq!(world.get(STREAM).await, well);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_the_middle_ends_the_stream_legally() {
    for (what, name) in [(Read::Down, "down"), (Read::Hang, "hangs")] {
        let world = World::new();
        let mut parts = vec![(1, 0, r#"{"type":"text-start","id":"t1"}"#.to_owned())];
        parts.extend((1..1200).map(|i| (1, i, r#"{"type":"text-delta","id":"t1","delta":"x"}"#.to_owned())));
        put(&world, vec![complete(1, "hello")], &parts);
        world.store.reads_from(1, what);
        let began = tokio::time::Instant::now();
        let answer = world.get(STREAM).await;
        assert!((30..33).contains(&began.elapsed().as_secs()), "{name}: {:?}", began.elapsed());
        let chunks = chunks(&answer);
        let end: Vec<&str> = chunks[chunks.len() - 3..].iter().map(|chunk| chunk["type"].as_str().unwrap()).collect();
        assert_eq!(end, ["text-end", "data-resync", "finish"], "{name}");
        let note = &chunks[chunks.len() - 2]["data"];
        assert_eq!((&note["turn"], &note["after"]), (&json!(1), &json!(999)), "{name}");
        assert!(!answer.text().contains("db.internal"));
        // What the note says is where the client goes on once the store is back.
        world.store.reads_from(0, Read::Fine);
        let rest = world.get(&format!("{STREAM}?after=1.999")).await;
        assert!(rest.text().contains("id: 1.1000\n") && !rest.text().contains("id: 1.999\n"));
        assert!(world.metrics().contains(r#"agentsession_gateway_streams_ended_total{end="StoreFailed"} 1"#));
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_ends_the_stream_at_once() {
    let world = World::new();
    put(&world, vec![complete(1, "hello")], &text_turn(1, "one"));
    world.store.reads_from(0, Read::Corrupt);
    let began = tokio::time::Instant::now();
    assert_eq!(types(&world.get(STREAM).await), ["start", "data-resync", "finish"]);
    assert!(began.elapsed().is_zero());
}

#[tokio::test]
async fn head_has_the_headers_and_no_body() {
    let world = World::new();
    put(&world, vec![complete(1, "hello")], &text_turn(1, "one"));
    let request = http::Request::head(STREAM).header("authorization", "Bearer alice-token");
    let answer = world.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.header("content-type"), answer.text()),
        (200, Some("text/event-stream"), "")
    );
    assert_eq!(world.store.reads(), 0);
}

/// Reads a body whose pages are slow, and does something when it has begun.
async fn read_while(world: &World, act: impl FnOnce(&World)) -> Result<String, String> {
    let mut parts = vec![(1, 0, r#"{"type":"text-start","id":"t1"}"#.to_owned())];
    parts.extend((1..50_000).map(|i| (1, i, r#"{"type":"text-delta","id":"t1","delta":"x"}"#.to_owned())));
    put(world, vec![complete(1, "hello")], &parts);
    world.store.reads_from(0, Read::Slow(Duration::from_secs(20)));
    let request = http::Request::get(STREAM).header("authorization", "Bearer alice-token").body(Body::empty()).unwrap();
    let response = world.router().oneshot(request).await.unwrap();
    act(world);
    let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
    Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_lost_breaks_the_stream_within_a_minute() {
    for (name, act) in
        [("token", (|world| world.api.revoke("alice-token")) as fn(&World)), ("right", |world| world.api.deny_all())]
    {
        let world = World::new();
        let began = tokio::time::Instant::now();
        let broken = read_while(&world, act).await.unwrap_err();
        assert_eq!(broken, "the right to read was lost", "{name}");
        assert!(began.elapsed() <= Duration::from_secs(61), "{name}: {:?}", began.elapsed());
        assert!(world.metrics().contains(r#"agentsession_gateway_streams_ended_total{end="AccessLost"} 1"#));
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_that_nobody_can_confirm_lasts_three_minutes() {
    use support::api::Mood;
    let world = World::new();
    let began = tokio::time::Instant::now();
    let broken = read_while(&world, |world| world.api.mood("TokenReview", Mood::Gone)).await.unwrap_err();
    assert_eq!(broken, "the right to read was lost");
    assert!((179..200).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_right_that_stands_is_asked_for_each_minute() {
    let world = World::new();
    let text = read_while(&world, |world| drop(world.api.calls())).await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"));
    // Fifty pages of twenty seconds.
    let reviews = world.api.calls().iter().filter(|call| *call == "TokenReview").count();
    assert!((15..=17).contains(&reviews), "{reviews}");
}

#[tokio::test]
async fn more_streams_than_the_limit_are_told_to_come_back_and_a_dropped_one_makes_room() {
    let world =
        World::with(agentsession_gateway::Args { http_max_streams: 1, ..agentsession_gateway::Args::default() });
    put(&world, vec![complete(1, "hello")], &text_turn(1, "one"));
    let request = http::Request::get(STREAM).header("authorization", "Bearer alice-token").body(Body::empty()).unwrap();
    let first = world.router().oneshot(request).await.unwrap();
    let second = world.get(STREAM).await;
    assert_eq!(second.error(), (503, "busy".into()));
    assert!(world.metrics().contains("agentsession_gateway_streams 1"));
    assert_eq!(world.get(&format!("{SESSION}/transcript")).await.status, 200, "pages are not behind streams");
    drop(first);
    assert_eq!(world.get(STREAM).await.status, 200);
    let metrics = world.metrics();
    assert!(metrics.contains("agentsession_gateway_streams 0"));
    assert!(metrics.contains(r#"agentsession_gateway_streams_ended_total{end="ClientGone"} 1"#));
    assert!(metrics.contains(r#"agentsession_gateway_streams_ended_total{end="Done"} 1"#));
}
