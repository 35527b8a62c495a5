//! What is logged. Alone in its program: which events are worth making is decided once a process, by whoever listens when the first one comes, so tests beside
//! this one that do not listen would switch them off.

#[cfg(test)]
mod support;

use serde_json::json;
use support::{
    SESSION, World,
    api::Mood,
    memory::{record, turn},
};

fn world_with_a_session() -> World {
    let world = World::new();
    world.store.put(record("fix-login", "uid-1"), vec![turn(1, "hello")], &[]);
    world.api.session("team-a", "fix-login", "uid-1", &json!({"phase": "Running", "acceptedTurns": 1}));
    world
}

#[tokio::test]
async fn nothing_secret_is_logged() {
    let log = support::log::capture();
    let world = world_with_a_session();
    world.api.token("eve-token", "eve\nforged: line", Some("agentsession"));
    world.get(SESSION).await;
    world.get_with(SESSION, &[("authorization", "Bearer eve-token")]).await;
    world.get_with(SESSION, &[("authorization", "Bearer forged-token")]).await;
    world.api.mood("TokenReview", Mood::Gone);
    world.get_with(SESSION, &[("authorization", "Bearer other-token")]).await;
    let text = log.text();
    for secret in ["alice-token", "eve-token", "forged-token", "other-token", "hello", "a secret prompt"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("access decided")).collect();
    assert_eq!(audit.len(), 4, "{text}");
    assert!(audit[0].contains("alice") && audit[0].contains("uid-1") && audit[0].contains("allowed"), "{}", audit[0]);
    assert!(audit[1].contains("denied"), "{}", audit[1]);
    assert!(audit[2].contains("unauthenticated"), "{}", audit[2]);
    assert!(audit[3].contains("undecided"), "{}", audit[3]);
    assert!(!text.lines().any(|line| line.starts_with("forged")), "a name broke a line: {text}");
}
