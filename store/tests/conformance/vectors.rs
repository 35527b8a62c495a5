//! The vectors, one named test each.

use agentsession_store::{StoreError, Writer};
use serde::Deserialize;
use transcript::{Attempt, SessionUid, Turn};

use crate::fixture::{PLENTY, World, pod};

#[derive(Deserialize)]
struct Vector {
    id: String,
    why: String,
    appends: Vec<(u32, u32, String)>,
    session: Option<String>,
    attempt: Option<u32>,
    turn_attempt: Option<u32>,
    #[serde(default)]
    inserted: Vec<bool>,
    stored: Option<Vec<(u32, u32, String)>>,
    conflicts: Option<u32>,
    seq: Option<Vec<u64>>,
    replay: Option<Vec<String>>,
    error: Option<String>,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../vectors/store.json")).unwrap()
}

#[test]
fn every_vector_has_its_test() {
    let ids: Vec<_> = vectors().into_iter().map(|vector| vector.id).collect();
    assert_eq!(ids, ["M1", "M2", "M3", "M4", "M5", "M6", "M7"]);
}

async fn run(world: World, id: &str) {
    let vector = vectors().into_iter().find(|vector| vector.id == id).unwrap();
    let session = match vector.session.as_deref() {
        Some("unknown") => SessionUid("unknown".to_owned()),
        Some(other) => panic!("{other} is no session of {id}"),
        None => world.session().await,
    };
    if vector.session.is_none() {
        let attempt = vector.turn_attempt.unwrap_or(1);
        for turn in vector.appends.iter().map(|append| append.0) {
            world.accept(&session, turn).await;
            world.store.start_turn(&session, Turn(turn), Attempt(attempt), &pod(attempt), "image").await.unwrap();
        }
    }
    let mut inserted = Vec::new();
    let mut conflicts = 0;
    let mut errors = Vec::new();
    for (turn, index, text) in &vector.appends {
        let attempt = Attempt(vector.attempt.unwrap_or(1));
        let writer = Writer { session: session.clone(), turn: Turn(*turn), attempt, quota_bytes: PLENTY };
        match world.append(&writer, &[(*index, text)]).await {
            Ok(appended) => {
                inserted.push(appended.inserted == 1);
                conflicts += appended.conflicts;
            }
            Err(StoreError::SessionUnknown(_)) => errors.push("SessionUnknown"),
            Err(StoreError::AttemptSuperseded { .. }) => errors.push("AttemptSuperseded"),
            Err(other) => panic!("{id}: {other}"),
        }
    }
    assert_eq!(inserted, vector.inserted, "{}", vector.why);
    assert_eq!(errors, vector.error.iter().map(String::as_str).collect::<Vec<_>>(), "{}", vector.why);
    let parts = world.all_parts(&session).await;
    if vector.error.is_some() {
        assert!(parts.is_empty(), "{}", vector.why);
    }
    if let Some(stored) = vector.stored {
        let found: Vec<_> = parts.iter().map(|part| (part.turn.0, part.index.0, part.part.clone())).collect();
        assert_eq!(found, stored, "{}", vector.why);
    }
    if let Some(expected) = vector.conflicts {
        assert_eq!(conflicts, expected, "{}", vector.why);
    }
    if let Some(replay) = vector.replay {
        assert_eq!(parts.iter().map(|part| part.part.clone()).collect::<Vec<_>>(), replay, "{}", vector.why);
    }
    if let Some(seq) = vector.seq {
        let rows = world.all_rows(&session).await;
        let indexes: Vec<_> = rows.iter().map(|row| row.index.0).collect();
        assert_eq!(indexes, vector.appends.iter().map(|append| append.1).collect::<Vec<_>>(), "{}", vector.why);
        assert_eq!(rows.iter().map(|row| row.seq.0).collect::<Vec<_>>(), seq, "{}", vector.why);
    }
}

async fn m1_other_bytes_for_an_identity_are_kept_out(world: World) {
    run(world, "M1").await;
}

async fn m2_the_same_again_is_nothing(world: World) {
    run(world, "M2").await;
}

async fn m3_the_same_index_of_another_turn_is_another_part(world: World) {
    run(world, "M3").await;
}

async fn m4_equal_text_at_two_indexes_is_two_parts(world: World) {
    run(world, "M4").await;
}

async fn m5_a_hole_filled_late_is_last_in_seq_and_in_place_in_replay(world: World) {
    run(world, "M5").await;
}

async fn m6_an_unknown_session_is_refused(world: World) {
    run(world, "M6").await;
}

async fn m7_an_older_attempt_is_refused(world: World) {
    run(world, "M7").await;
}

crate::on_both!(
    m1_other_bytes_for_an_identity_are_kept_out,
    m2_the_same_again_is_nothing,
    m3_the_same_index_of_another_turn_is_another_part,
    m4_equal_text_at_two_indexes_is_two_parts,
    m5_a_hole_filled_late_is_last_in_seq_and_in_place_in_replay,
    m6_an_unknown_session_is_refused,
    m7_an_older_attempt_is_refused,
);
