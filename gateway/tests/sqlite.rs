//! The gateway over a real SQLite store, written as the controller writes it.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

#[cfg(test)]
mod support;

use std::{collections::HashSet, path::Path};

use serde_json::Value;
use store::SharedStore;
use support::{World, canned};

async fn open(folder: &Path) -> SharedStore {
    let url = format!("sqlite://{}", folder.join("store.db").display());
    store::connect(&url, &store::Options::default()).await.unwrap()
}

#[tokio::test]
async fn a_real_store_is_replayed_as_the_scripted_one_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let real = World::over_store(store.clone());
    let scripted = World::new();
    for session in canned::all() {
        canned::write(&session, &store).await;
        canned::script(&session, &scripted.store);
        for query in ["", "?coalesce=true", "?after=1.3"] {
            if session.turns.is_empty() && query.contains("after") {
                continue;
            }
            let path = format!("/v1/namespaces/team-a/agentsessions/{}/stream{query}", session.name);
            let (one, two) = (real.get(&path).await, scripted.get(&path).await);
            assert_eq!(one.status, if session.turns.is_empty() { 204 } else { 200 }, "{path}");
            assert_eq!(one.body, two.body, "{path}");
            assert_eq!(one, real.get(&path).await, "{path} again");
        }
    }
}

#[tokio::test]
async fn pages_hold_every_part_verbatim_and_agree_with_the_stream() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let world = World::over_store(store.clone());
    for session in canned::all() {
        canned::write(&session, &store).await;
        let path = format!("/v1/namespaces/team-a/agentsessions/{}", session.name);
        let (mut text, mut after) = (String::new(), "0".to_owned());
        loop {
            let page = world.get(&format!("{path}/transcript?afterSeq={after}")).await;
            assert_eq!(page.status, 200);
            text.push_str(page.text());
            if page.text().ends_with("\"hasMore\":false}") {
                break;
            }
            after = page.text().split("\"nextAfterSeq\":").nth(1).unwrap().split(',').next().unwrap().to_owned();
        }
        let mut rest = text.as_str();
        let mut seq = 0;
        for (turn, n) in session.turns.iter().zip(1..) {
            for (index, part) in &turn.parts {
                seq += 1;
                let row = format!("{{\"seq\":{seq},\"turn\":{n},\"partIndex\":{index},\"part\":{part},\"createdAt\":");
                let at = rest.find(&row).unwrap_or_else(|| panic!("{}: {row}", session.name));
                rest = &rest[at + row.len()..];
            }
        }
        // Every SSE id is a row.
        let stream = world.get(&format!("{path}/stream")).await;
        let rows: HashSet<(&str, &str)> = text
            .split("\"turn\":")
            .filter_map(|row| row.split_once(",\"partIndex\":"))
            .map(|(turn, rest)| (turn, rest.split(',').next().unwrap()))
            .collect();
        for id in stream.text().lines().filter_map(|line| line.strip_prefix("id: ")) {
            assert!(rows.contains(&id.split_once('.').unwrap()), "{}: {id}", session.name);
        }
    }
}

#[tokio::test]
async fn a_list_shows_what_became_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let world = World::over_store(store.clone());
    for session in canned::all() {
        canned::write(&session, &store).await;
    }
    store.mark_deleted(&canned::uid("finished").into()).await.unwrap();
    let list = world.get("/v1/namespaces/team-a/agentsessions").await.json();
    let mut short: Vec<String> = list["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            let word = |key: &str| s[key].as_str().unwrap_or("-").to_owned();
            format!(
                "{} {} {} {} {}",
                word("name"),
                word("phase"),
                word("transcript"),
                word("transcriptReason"),
                s["parts"]
            )
        })
        .collect();
    short.sort();
    assert_eq!(
        short,
        [
            "empty Pending - - 0",
            "failed Failed Complete - 2",
            "finished Completed Complete - 15",
            "hostile Completed Truncated LogDamaged 13",
            "incomplete Failed Incomplete NodeLost 11",
            "large Completed Complete - 20002",
            "multi Canceled Incomplete NodeLost 41",
            "running Running - - 11",
        ]
    );
    let gone = list["sessions"].as_array().unwrap().iter().find(|s| s["name"] == "finished").unwrap();
    assert_ne!(gone["deletedAt"], Value::Null);
}

/// Serves one session of each kind on `AGENTSESSION_TEST_LISTEN` (default 127.0.0.1:18080) until it is interrupted; the token is `alice-token`.
#[tokio::test]
#[ignore = "for a client that is tried by hand"]
async fn serve_for_a_client_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let world = World::over_store(store.clone());
    for session in canned::all() {
        canned::write(&session, &store).await;
        world.api.session("team-a", session.name, &canned::uid(session.name), &Value::Null);
    }
    let address = std::env::var("AGENTSESSION_TEST_LISTEN").unwrap_or_else(|_| "127.0.0.1:18080".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    agentsession_gateway::serve(listener, world.gateway.clone(), tokio_util::sync::CancellationToken::new()).await;
}
