//! Sessions: made once, found by name, listed, deleted with all they have.

use std::time::Duration;

use agentsession_store::{PageLimit, Role};
use transcript::{Attempt, Seq, Turn, Verdict};

use crate::fixture::{World, settlement};

/// The coarser of the two clocks counts milliseconds.
async fn let_the_clock_move() {
    tokio::time::sleep(Duration::from_millis(3)).await;
}

async fn a_session_is_made_once(world: World) {
    let new = world.new_session("fix-login");
    world.store.ensure_session(&new).await.unwrap();
    let first = world.store.ledger(&new.uid).await.unwrap().session.unwrap();
    let mut other = new.clone();
    other.name = "another".to_owned();
    world.store.ensure_session(&other).await.unwrap();
    let again = world.store.ledger(&new.uid).await.unwrap().session.unwrap();
    assert_eq!(first, again);
    assert_eq!((first.name.as_str(), first.mode.as_str()), ("fix-login", "Interactive"));
    assert_eq!((first.attempt, first.last_seq, first.parts, first.bytes), (Attempt(0), Seq(0), 0, 0));
    assert_eq!((first.deleted_at, first.last_activity_at), (None, first.created_at));
}

async fn the_ledger_of_a_stranger_is_empty_and_has_a_clock(world: World) {
    let ledger = world.store.ledger(&"nobody".into()).await.unwrap();
    assert_eq!((ledger.session, ledger.turns), (None, Vec::new()));
    let session = world.session().await;
    let_the_clock_move().await;
    let known = world.store.ledger(&session).await.unwrap();
    assert!(known.now > known.session.unwrap().created_at);
    assert!(known.now > ledger.now);
}

async fn activity_is_noted_by_what_changes_something(world: World) {
    let writer = world.writer().await;
    let activity = async || world.store.ledger(&writer.session).await.unwrap().session.unwrap().last_activity_at;
    let before = activity().await;
    let_the_clock_move().await;
    world.append(&writer, &[(0, "a")]).await.unwrap();
    let stored = activity().await;
    assert!(stored > before);
    let_the_clock_move().await;
    world.append(&writer, &[(0, "a")]).await.unwrap();
    world.store.start_turn(&writer.session, Turn(1), Attempt(1), &"pod-1".into(), "image:1").await.unwrap();
    assert_eq!(activity().await, stored);
}

async fn a_name_finds_its_newest_session_and_a_uid_its_own(world: World) {
    let old = world.new_session("same");
    world.store.ensure_session(&old).await.unwrap();
    let_the_clock_move().await;
    let new = world.new_session("same");
    world.store.ensure_session(&new).await.unwrap();
    let find = async |name: &str, uid| {
        let found = world.store.find_session(&world.namespace, name, uid).await.unwrap();
        found.map(|record| record.uid)
    };
    assert_eq!(find("same", None).await, Some(new.uid.clone()));
    assert_eq!(find("same", Some(&old.uid)).await, Some(old.uid.clone()));
    assert_eq!(find("other", None).await, None);
    assert_eq!(find("other", Some(&old.uid)).await, None);
    assert_eq!(find("same", Some(&"nobody".into())).await, None);
    let elsewhere = world.store.find_session("elsewhere", "same", Some(&old.uid)).await.unwrap();
    assert_eq!(elsewhere, None);
}

async fn a_namespace_lists_its_own_newest_first(world: World) {
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        let session = world.new_session(name);
        world.store.ensure_session(&session).await.unwrap();
        made.push(session.uid);
        let_the_clock_move().await;
    }
    made.reverse();
    let listed = world.store.list_sessions(&world.namespace, 10).await.unwrap();
    assert_eq!(listed.iter().map(|record| record.uid.clone()).collect::<Vec<_>>(), made);
    assert_eq!(world.store.list_sessions(&world.namespace, 2).await.unwrap().len(), 2);
    assert!(world.store.list_sessions("nowhere", 10).await.unwrap().is_empty());
}

async fn the_first_sight_of_a_deletion_stays(world: World) {
    let session = world.session().await;
    world.store.mark_deleted(&session).await.unwrap();
    let deleted = async || world.store.ledger(&session).await.unwrap().session.unwrap().deleted_at;
    let first = deleted().await;
    assert!(first.is_some());
    let_the_clock_move().await;
    world.store.mark_deleted(&session).await.unwrap();
    assert_eq!(deleted().await, first);
    world.store.mark_deleted(&"nobody".into()).await.unwrap();
    assert!(world.store.find_session(&world.namespace, "fix-login", None).await.unwrap().is_some());
}

async fn a_deleted_row_takes_all_it_has_and_nothing_else(world: World) {
    let (gone, stays) = (world.writer().await, world.writer().await);
    for writer in [&gone, &stays] {
        world.append(writer, &[(0, "a"), (1, "b")]).await.unwrap();
    }
    assert!(world.store.delete_session(&gone.session).await.unwrap());
    assert!(!world.store.delete_session(&gone.session).await.unwrap());
    let ledger = world.store.ledger(&gone.session).await.unwrap();
    assert_eq!((ledger.session, ledger.turns.len()), (None, 0));
    assert!(world.store.rows(&gone.session, Seq(0), PageLimit::default()).await.unwrap().parts.is_empty());
    assert!(world.append(&gone, &[(2, "c")]).await.is_err());
    assert_eq!(world.all_rows(&stays.session).await.len(), 2);
}

async fn the_sweep_sees_sessions_with_an_active_turn_only(world: World) {
    let (active, settled, empty) = (world.writer().await, world.writer().await, world.session().await);
    let waiting = world.session().await;
    world.accept(&waiting, 1).await;
    world.store.settle(&settlement(&settled, Verdict::Incomplete)).await.unwrap();
    let found: Vec<_> =
        world.store.sessions_with_active_turns().await.unwrap().into_iter().map(|record| record.uid).collect();
    assert!(found.contains(&active.session) && found.contains(&waiting));
    assert!(!found.contains(&settled.session) && !found.contains(&empty));
}

async fn a_store_that_works_says_so(world: World) {
    world.store.ping().await.unwrap();
    world.store.check(Role::Controller).await.unwrap();
    world.store.check(Role::Gateway).await.unwrap();
    let debug = format!("{:?}", world.store);
    assert!(!debug.contains("127.0.0.1") && !debug.contains("store.db") && !debug.contains("://"), "{debug}");
}

crate::on_both!(
    a_session_is_made_once,
    the_ledger_of_a_stranger_is_empty_and_has_a_clock,
    activity_is_noted_by_what_changes_something,
    a_name_finds_its_newest_session_and_a_uid_its_own,
    a_namespace_lists_its_own_newest_first,
    the_first_sight_of_a_deletion_stays,
    a_deleted_row_takes_all_it_has_and_nothing_else,
    the_sweep_sees_sessions_with_an_active_turn_only,
    a_store_that_works_says_so,
);
