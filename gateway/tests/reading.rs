//! Pages, lists and descriptions: what is in them, and what one bad part may not do.

#[cfg(test)]
mod support;

use serde_json::{Value, json};
use support::{
    SESSION, World,
    memory::{noon, record, running, settled, turn},
};
use transcript::{Outcome, Reason, Verdict};

fn three_turns() -> World {
    let world = World::new();
    world.api.session("team-a", "fix-login", "uid-1", &json!({"phase": "Running", "acceptedTurns": 3}));
    world.store.put(
        record("fix-login", "uid-1"),
        vec![
            settled(1, "one", Outcome::Succeeded, None, Verdict::Complete, None),
            settled(2, "two", Outcome::Lost, Some(Reason::NodeLost), Verdict::Incomplete, Some(Reason::NodeLost)),
            running(3, "three"),
        ],
        // The second turn's hole was filled after the third had begun.
        &[
            (1, 0, r#"{"type":"start"}"#),
            (1, 1, r#"{"z":1.0,"a":1e400,"m":12345678901234567890123}"#),
            (2, 1, r#"{"type":"text-delta","id":"t","delta":"\ud83d"}"#),
            (3, 0, r#"{"type":"start"}"#),
            (2, 0, "not json"),
        ],
    );
    world
}

#[tokio::test]
async fn a_page_has_rows_in_insertion_order_and_the_turns() {
    let answer = three_turns().get(&format!("{SESSION}/transcript")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let text = answer.text();
    let rows = concat!(
        r#""rows":["#,
        r#"{"seq":1,"turn":1,"partIndex":0,"part":{"type":"start"},"createdAt":"2026-11-30T12:00:00Z"},"#,
        r#"{"seq":2,"turn":1,"partIndex":1,"part":{"z":1.0,"a":1e400,"m":12345678901234567890123},"createdAt":"2026-11-30T12:00:00Z"},"#,
        r#"{"seq":3,"turn":2,"partIndex":1,"part":{"type":"text-delta","id":"t","delta":"\ud83d"},"createdAt":"2026-11-30T12:00:00Z"},"#,
        r#"{"seq":4,"turn":3,"partIndex":0,"part":{"type":"start"},"createdAt":"2026-11-30T12:00:00Z"},"#,
        r#"{"seq":5,"turn":2,"partIndex":0,"partText":"not json","createdAt":"2026-11-30T12:00:00Z"}],"#,
        r#""nextAfterSeq":5,"hasMore":false}"#,
    );
    assert!(text.ends_with(rows), "{text}");
    let turns = text.strip_suffix(rows).unwrap().strip_suffix(',').unwrap();
    let turns: Value = serde_json::from_str(&format!("{turns}}}")).unwrap();
    assert_eq!(turns["uid"], "uid-1");
    assert_eq!(
        turns["turns"][1],
        json!({
            "turn": 2, "clientId": null, "prompt": "two", "state": "settled", "outcome": "Lost", "reason": "NodeLost",
            "transcript": "Incomplete", "transcriptReason": "NodeLost", "message": null, "parts": 2, "attempt": 1,
            "image": null, "usage": null, "acceptedAt": "2026-11-30T12:00:00Z", "startedAt": "2026-11-30T12:00:00Z",
            "settledAt": "2026-11-30T12:00:00Z",
        })
    );
    assert_eq!(turns["turns"][2]["state"], "running");
}

#[tokio::test]
async fn pages_join_without_gap_or_overlap() {
    let world = three_turns();
    let (mut after, mut seqs) = (0, Vec::new());
    loop {
        let page = world.get(&format!("{SESSION}/transcript?afterSeq={after}&limit=2")).await;
        // A part with a lone surrogate is no `Value`: count by text.
        let text = page.text();
        seqs.extend(text.split("\"seq\":").skip(1).map(|rest| rest.split(',').next().unwrap().parse::<u64>().unwrap()));
        after = text.split("\"nextAfterSeq\":").nth(1).unwrap().split(',').next().unwrap().parse::<u64>().unwrap();
        if text.ends_with("\"hasMore\":false}") {
            break;
        }
    }
    assert_eq!(seqs, [1, 2, 3, 4, 5]);
    let end = world.get(&format!("{SESSION}/transcript?afterSeq=5")).await.json();
    assert_eq!((&end["rows"], &end["nextAfterSeq"], &end["hasMore"]), (&json!([]), &json!(5), &json!(false)));
}

#[tokio::test]
async fn a_page_is_bounded_in_bytes_and_has_one_row_at_least() {
    let world = World::new();
    let big = format!("{{\"type\":\"x\",\"text\":\"{}\"}}", "a".repeat(3 << 20));
    world.store.put(record("fix-login", "uid-1"), vec![turn(1, "one")], &[(1, 0, &big), (1, 1, &big)]);
    let page = world.get(&format!("{SESSION}/transcript")).await.json();
    assert_eq!((page["rows"].as_array().unwrap().len(), &page["hasMore"]), (1, &json!(true)));
}

#[tokio::test]
async fn a_wrong_parameter_is_400_with_the_way_out() {
    let answer = three_turns().get(&format!("{SESSION}/transcript?limit=5000")).await;
    assert_eq!(answer.error(), (400, "invalid_parameter".into()));
    assert_eq!(answer.message(), r#"limit is "5000": give a whole number from 1 to 1000, or leave it out"#);
}

#[tokio::test]
async fn a_session_that_the_store_has_not_seen_yet_is_described_and_has_no_rows() {
    let world = World::new();
    world.api.session("team-a", "fix-login", "uid-9", &Value::Null);
    let page = world.get(&format!("{SESSION}/transcript")).await.json();
    assert_eq!(page, json!({"uid": "uid-9", "turns": [], "rows": [], "nextAfterSeq": 0, "hasMore": false}));
    let description = world.get(SESSION).await.json();
    assert_eq!(description["session"]["phase"], "Pending");
    assert_eq!(description["session"]["live"], true);
}

#[tokio::test]
async fn a_description_takes_the_phase_from_the_object_and_the_rest_from_the_store() {
    let description = three_turns().get(SESSION).await.json();
    assert_eq!(
        description["session"],
        json!({
            "namespace": "team-a", "name": "fix-login", "uid": "uid-1", "mode": "Autonomous", "live": true, "phase": "Running",
            "outcome": null, "reason": null, "transcript": "Incomplete", "transcriptReason": "NodeLost", "turns": 3, "parts": 5,
            "bytes": 134, "lastSeq": 5, "createdAt": "2026-11-30T12:00:00Z", "lastActivityAt": "2026-11-30T12:00:00Z",
            "deletedAt": null,
        })
    );
    assert_eq!(description["turns"].as_array().unwrap().len(), 3);
    assert_eq!(description["turns"][0].get("prompt"), None, "a description has no content");
}

#[tokio::test]
async fn a_name_is_the_live_object_then_the_newest_and_a_uid_picks() {
    let world = World::new();
    for uid in ["uid-1", "uid-2"] {
        let mut old = record("fix-login", uid);
        old.deleted_at = Some(noon());
        world.store.put(old, vec![settled(1, uid, Outcome::Succeeded, None, Verdict::Complete, None)], &[]);
    }
    let uid = async |path: &str| world.get(path).await.json()["session"]["uid"].as_str().map(str::to_owned);
    assert_eq!(uid(SESSION).await.as_deref(), Some("uid-2"));
    assert_eq!(uid(&format!("{SESSION}?uid=uid-1")).await.as_deref(), Some("uid-1"));
    assert_eq!(world.get(&format!("{SESSION}?uid=uid-3")).await.status, 404);

    world.api.session("team-a", "fix-login", "uid-3", &json!({"phase": "Provisioning"}));
    assert_eq!(uid(SESSION).await.as_deref(), Some("uid-3"), "the new object does not show the old one's history");
    assert_eq!(uid(&format!("{SESSION}?uid=uid-1")).await.as_deref(), Some("uid-1"));
    let old = world.get(&format!("{SESSION}?uid=uid-1")).await.json();
    assert_eq!((&old["session"]["live"], &old["session"]["phase"]), (&json!(false), &json!("Completed")));
}

#[tokio::test]
async fn a_list_joins_what_lives_with_what_is_left() {
    let world = three_turns();
    let mut gone = record("gone", "uid-0");
    gone.deleted_at = Some(noon());
    gone.created_at = "2026-11-29T12:00:00Z".parse().unwrap();
    world.store.put(
        gone,
        vec![settled(1, "x", Outcome::Failed, Some(Reason::OOMKilled), Verdict::Complete, None)],
        &[],
    );
    world.api.session("team-a", "new", "uid-9", &Value::Null);
    let list = world.get("/v1/namespaces/team-a/agentsessions").await.json();
    let short: Vec<Value> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| json!([s["name"], s["uid"], s["live"], s["phase"], s["transcript"], s["reason"]]))
        .collect();
    assert_eq!(
        short,
        [
            json!(["new", "uid-9", true, "Pending", null, null]),
            json!(["fix-login", "uid-1", true, "Running", "Incomplete", null]),
            json!(["gone", "uid-0", false, "Failed", "Complete", "OOMKilled"]),
        ]
    );
    assert_eq!(list["hasMore"], false);
    assert!(!list.to_string().contains("prompt"));

    let first = world.get("/v1/namespaces/team-a/agentsessions?limit=1").await.json();
    assert_eq!((first["sessions"].as_array().unwrap().len(), &first["hasMore"]), (1, &json!(true)));
}

#[tokio::test]
async fn only_get_is_offered() {
    let world = three_turns();
    let request = http::Request::post(format!("{SESSION}/transcript")).body(axum::body::Body::empty()).unwrap();
    let answer = world.send(request).await;
    assert_eq!(answer.error(), (405, "method_not_allowed".into()));
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_503_after_the_timeout() {
    let world = three_turns();
    world.store.reads_from(0, support::memory::Read::Hang);
    assert_eq!(world.get(&format!("{SESSION}/transcript")).await.error(), (503, "timeout".into()));
}

#[tokio::test]
async fn more_requests_than_the_limit_are_told_to_come_back() {
    let world =
        World::with(agentsession_gateway::Args { http_max_requests: 1, ..agentsession_gateway::Args::default() });
    world.api.mood("TokenReview", support::api::Mood::Hang);
    let first = tokio::spawn({
        let router = world.router();
        let request = http::Request::get(SESSION).header("authorization", "Bearer alice-token");
        tower::ServiceExt::oneshot(router, request.body(axum::body::Body::empty()).unwrap())
    });
    while world.api.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let second = world.get(SESSION).await;
    assert_eq!(second.error(), (503, "busy".into()));
    assert_eq!(second.header("retry-after"), Some("5"));
    assert_eq!(world.get("/livez").await.status, 200);
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn readiness_follows_the_store_and_liveness_does_not() {
    let world = World::new();
    assert_eq!(
        (world.get_with("/readyz", &[]).await.status.as_u16(), world.get_with("/livez", &[]).await.status.as_u16()),
        (200, 200)
    );
    world.store.set_down(true);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(
        (world.get_with("/readyz", &[]).await.status.as_u16(), world.get_with("/livez", &[]).await.status.as_u16()),
        (503, 200)
    );
    world.store.set_down(false);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(world.get_with("/readyz", &[]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn pages_that_nobody_takes_hold_up_pages_only() {
    let world = World::with(agentsession_gateway::Args { http_max_pages: 1, ..agentsession_gateway::Args::default() });
    world.store.put(record("fix-login", "uid-1"), vec![turn(1, "one")], &[(1, 0, r#"{"type":"start"}"#)]);
    let path = format!("{SESSION}/transcript");
    let request = http::Request::get(&path).header("authorization", "Bearer alice-token");
    let request = request.body(axum::body::Body::empty()).unwrap();
    let untaken = tower::ServiceExt::oneshot(world.router(), request).await.unwrap();
    assert_eq!(world.get(&path).await.error(), (503, "timeout".into()));
    assert_eq!(world.get(SESSION).await.status, 200);
    drop(untaken);
    let taken = world.get(&path).await;
    assert_eq!(taken.header("content-length"), Some(taken.text().len().to_string().as_str()));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_500_and_not_worth_another_try() {
    let world = three_turns();
    world.store.reads_from(0, support::memory::Read::Corrupt);
    let answer = world.get(&format!("{SESSION}/transcript")).await;
    assert_eq!(answer.error(), (500, "store_failed".into()));
    assert_eq!(answer.header("retry-after"), None);
    assert!(!answer.text().contains("limbo"), "{}", answer.text());
}

#[tokio::test]
async fn a_cluster_without_the_resource_still_lists_what_is_stored() {
    let world = three_turns();
    world.api.mood("agentsessions", support::api::Mood::Status(404));
    let list = world.get("/v1/namespaces/team-a/agentsessions").await.json();
    assert_eq!((&list["sessions"][0]["name"], &list["sessions"][0]["live"]), (&json!("fix-login"), &json!(false)));
    assert_eq!(world.get(SESSION).await.status, 200);
}

#[tokio::test]
async fn a_long_list_is_read_page_by_page() {
    let world = World::new();
    for i in 0..120 {
        world.api.session("team-a", &format!("s{i:03}"), &format!("uid-{i}"), &Value::Null);
    }
    let list = world.get("/v1/namespaces/team-a/agentsessions?limit=500").await.json();
    assert_eq!((list["sessions"].as_array().unwrap().len(), &list["hasMore"]), (120, &json!(false)));
    let lists = world.api.calls().iter().filter(|call| call.ends_with("/agentsessions")).count();
    assert_eq!(lists, 3);
}
