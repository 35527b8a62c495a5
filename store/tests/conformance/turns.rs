//! A turn on its way from accepted to harvesting, and the attempts that carry it.

use agentsession_store::StoreError;
use transcript::{Attempt, Turn, TurnState};

use crate::fixture::{World, new_turn, pod};

async fn a_turn_is_accepted_once_and_keeps_its_first_prompt(world: World) {
    let session = world.session().await;
    let first = world.store.accept_turn(&new_turn(&session, 1, "one")).await.unwrap();
    let again = world.store.accept_turn(&new_turn(&session, 1, "two")).await.unwrap();
    assert_eq!(first, again);
    assert_eq!((first.prompt.as_str(), first.client_id.as_deref()), ("one", Some("client-1")));
    assert_eq!((first.state, first.attempt, first.started_at), (TurnState::Accepted, None, None));
    let unknown = world.store.accept_turn(&new_turn(&"nobody".into(), 1, "x")).await;
    assert!(matches!(unknown, Err(StoreError::SessionUnknown(_))));
}

async fn a_turn_is_claimed_by_one_pod(world: World) {
    let session = world.session().await;
    world.accept(&session, 1).await;
    let started = world.store.start_turn(&session, Turn(1), Attempt(1), &pod(1), "image:1").await.unwrap();
    assert_eq!(
        (started.state, started.attempt, started.pod_uid.clone()),
        (TurnState::Running, Some(Attempt(1)), Some(pod(1)))
    );
    assert_eq!(started.image.as_deref(), Some("image:1"));
    assert!(started.started_at.unwrap() >= started.accepted_at);
    let again = world.store.start_turn(&session, Turn(1), Attempt(1), &pod(1), "image:1").await.unwrap();
    let other = world.store.start_turn(&session, Turn(1), Attempt(2), &pod(2), "image:2").await.unwrap();
    assert_eq!((&again, &other), (&started, &started));
}

async fn an_attempt_that_was_replaced_claims_nothing(world: World) {
    let session = world.session().await;
    world.accept(&session, 1).await;
    world.store.open_attempt(&session, Attempt(1), "n1").await.unwrap();
    world.store.open_attempt(&session, Attempt(2), "n2").await.unwrap();
    let late = world.store.start_turn(&session, Turn(1), Attempt(1), &pod(1), "image").await.unwrap();
    assert_eq!(late.state, TurnState::Accepted);
    let right = world.store.start_turn(&session, Turn(1), Attempt(2), &pod(2), "image").await.unwrap();
    assert_eq!((right.state, right.attempt), (TurnState::Running, Some(Attempt(2))));
}

async fn only_the_running_attempt_begins_the_harvest(world: World) {
    let writer = world.writer().await;
    let other = world.store.begin_harvest(&writer.session, writer.turn, Attempt(2)).await.unwrap();
    assert_eq!(other.state, TurnState::Running);
    for _ in 0..2 {
        let harvesting = world.store.begin_harvest(&writer.session, writer.turn, Attempt(1)).await.unwrap();
        assert_eq!(harvesting.state, TurnState::Harvesting);
    }
    assert_eq!(world.append(&writer, &[(0, "a")]).await.unwrap().inserted, 1);
    let unknown = world.store.begin_harvest(&writer.session, Turn(8), Attempt(1)).await;
    assert!(matches!(unknown, Err(StoreError::TurnUnknown { turn: Turn(8), .. })));
}

async fn attempts_are_opened_one_after_the_other(world: World) {
    let session = world.session().await;
    let open = |attempt, nonce: &'static str| {
        let (store, session) = (world.store.clone(), session.clone());
        async move { store.open_attempt(&session, Attempt(attempt), nonce).await.unwrap() }
    };
    assert_eq!(open(2, "too early").await, (Attempt(0), String::new()));
    assert_eq!(open(1, "n1").await, (Attempt(1), "n1".to_owned()));
    assert_eq!(open(1, "again").await, (Attempt(1), "n1".to_owned()));
    assert_eq!(open(0, "back").await, (Attempt(1), "n1".to_owned()));
    assert_eq!(open(2, "n2").await, (Attempt(2), "n2".to_owned()));
    let record = world.store.ledger(&session).await.unwrap().session.unwrap();
    assert_eq!((record.attempt, record.nonce.as_str()), (Attempt(2), "n2"));
}

async fn an_old_writer_is_refused_once_a_later_attempt_runs_the_turn(world: World) {
    let session = world.session().await;
    let current = world.running(&session, 1, 2).await;
    let old = agentsession_store::Writer { attempt: Attempt(1), ..current.clone() };
    let refused = world.append(&old, &[(0, "old")]).await;
    assert!(
        matches!(
            refused,
            Err(StoreError::AttemptSuperseded { turn: Turn(1), attempt: Attempt(1), current: Some(Attempt(2)) })
        ),
        "{refused:?}"
    );
    assert_eq!(world.append(&current, &[(0, "new")]).await.unwrap().inserted, 1);
}

crate::on_both!(
    a_turn_is_accepted_once_and_keeps_its_first_prompt,
    a_turn_is_claimed_by_one_pod,
    an_attempt_that_was_replaced_claims_nothing,
    only_the_running_attempt_begins_the_harvest,
    attempts_are_opened_one_after_the_other,
    an_old_writer_is_refused_once_a_later_attempt_runs_the_turn,
);
