//! Identity, seq, fences and quota.

use agentsession_store::{Appended, StoreError, Writer};
use transcript::{Attempt, PartIndex, Seq, Turn, Verdict};

use crate::fixture::{World, settlement};

async fn an_append_says_what_it_did(world: World) {
    let writer = world.writer().await;
    let first = world.append(&writer, &[(0, "aa"), (1, "bbb")]).await.unwrap();
    assert_eq!(first, Appended { inserted: 2, bytes: 5, last_seq: Seq(2), ..Appended::default() });
    let again = world.append(&writer, &[(0, "aa"), (1, "XXX"), (3, "d"), (3, "d")]).await.unwrap();
    let expected = Appended { inserted: 1, bytes: 1, already: 2, conflicts: 1, over_quota: 0, last_seq: Seq(3) };
    assert_eq!(again, expected);
    world.assert_dense(&writer.session).await;
}

async fn an_empty_append_only_asks_the_fences(world: World) {
    let writer = world.writer().await;
    world.append(&writer, &[(0, "a")]).await.unwrap();
    let nothing = world.append(&writer, &[]).await.unwrap();
    assert_eq!(nothing, Appended { last_seq: Seq(1), ..Appended::default() });
    let other = Writer { attempt: Attempt(2), ..writer };
    assert!(matches!(world.append(&other, &[]).await, Err(StoreError::AttemptSuperseded { .. })));
}

async fn a_turn_that_nobody_runs_takes_no_parts(world: World) {
    let session = world.session().await;
    world.accept(&session, 1).await;
    let writer = Writer { session, turn: Turn(1), attempt: Attempt(1), quota_bytes: 100 };
    let refused = world.append(&writer, &[(0, "a")]).await;
    assert!(matches!(refused, Err(StoreError::AttemptSuperseded { current: None, .. })), "{refused:?}");
    let unknown = Writer { turn: Turn(2), ..writer };
    assert!(matches!(world.append(&unknown, &[(0, "a")]).await, Err(StoreError::TurnUnknown { turn: Turn(2), .. })));
}

async fn a_turn_settled_complete_takes_no_parts_and_an_incomplete_one_does(world: World) {
    let session = world.session().await;
    for (turn, verdict) in [(1, Verdict::Complete), (2, Verdict::Incomplete), (3, Verdict::Truncated)] {
        let writer = world.running(&session, turn, 1).await;
        world.append(&writer, &[(0, "a")]).await.unwrap();
        world.store.settle(&settlement(&writer, verdict)).await.unwrap();
        let late = world.append(&writer, &[(1, "b")]).await;
        match verdict {
            Verdict::Complete => assert!(matches!(late, Err(StoreError::TurnComplete(Turn(1)))), "{late:?}"),
            Verdict::Incomplete | Verdict::Truncated => assert_eq!(late.unwrap().inserted, 1),
        }
    }
    world.assert_dense(&session).await;
}

async fn the_quota_is_exact_and_counts_the_whole_session(world: World) {
    let session = world.session().await;
    let first = Writer { quota_bytes: 10, ..world.running(&session, 1, 1).await };
    let second = Writer { quota_bytes: 10, ..world.running(&session, 2, 1).await };
    assert_eq!(world.append(&first, &[(0, "aaaaaa")]).await.unwrap().over_quota, 0);
    let exact = world.append(&second, &[(0, "bbbb"), (1, "c")]).await.unwrap();
    assert_eq!(exact, Appended { inserted: 1, bytes: 4, over_quota: 1, last_seq: Seq(2), ..Appended::default() });
    let again = world.append(&second, &[(0, "bbbb"), (1, "c"), (2, "")]).await.unwrap();
    assert_eq!(again, Appended { already: 1, over_quota: 2, last_seq: Seq(2), ..Appended::default() });
    world.assert_dense(&session).await;
}

async fn from_the_first_that_does_not_fit_all_are_refused(world: World) {
    let writer = Writer { quota_bytes: 5, ..world.writer().await };
    let appended = world.append(&writer, &[(0, "aa"), (1, "bbbb"), (2, "c")]).await.unwrap();
    assert_eq!((appended.inserted, appended.over_quota), (1, 2));
    let progress = world.store.progress(&writer.session, writer.turn).await.unwrap();
    assert!(progress.present.is_exactly(1));
}

async fn progress_is_what_is_there_and_no_more(world: World) {
    let writer = world.writer().await;
    let nothing = world.store.progress(&writer.session, writer.turn).await.unwrap();
    assert!(nothing.present.is_empty());
    world.append(&writer, &[(0, "a"), (1, "bb"), (2, "c"), (7, "d"), (9, "e"), (8, "f")]).await.unwrap();
    let progress = world.store.progress(&writer.session, writer.turn).await.unwrap();
    assert_eq!(progress.present.runs(), [(0, 3), (7, 10)]);
    assert_eq!(progress.session_bytes, 7);
    let unknown = world.store.progress(&"nobody".into(), writer.turn).await;
    assert!(matches!(unknown, Err(StoreError::SessionUnknown(_))));
}

async fn a_part_index_of_any_size_is_kept(world: World) {
    let writer = world.writer().await;
    world.append(&writer, &[(u32::MAX - 1, "far"), (0, "near")]).await.unwrap();
    let parts = world.all_parts(&writer.session).await;
    assert_eq!(parts.iter().map(|part| part.index).collect::<Vec<_>>(), [PartIndex(0), PartIndex(u32::MAX - 1)]);
}

async fn a_turn_of_fifty_thousand_parts_is_one_append(world: World) {
    let writer = world.writer().await;
    let texts: Vec<String> =
        (0..50_000).map(|i| format!("{{\"type\":\"text-delta\",\"id\":\"0\",\"delta\":\"{i}\"}}")).collect();
    let parts: Vec<_> = texts.iter().zip(0..).map(|(text, index)| (index, text.as_str())).collect();
    let appended = world.append(&writer, &parts).await.unwrap();
    assert_eq!((appended.inserted, appended.last_seq), (50_000, Seq(50_000)));
    let again = world.append(&writer, &parts).await.unwrap();
    assert_eq!((again.inserted, again.already, again.conflicts), (0, 50_000, 0));
    assert!(world.store.progress(&writer.session, writer.turn).await.unwrap().present.is_exactly(50_000));
    let stored = world.all_parts(&writer.session).await;
    assert!(stored.iter().map(|part| &part.part).eq(texts.iter()));
    world.assert_dense(&writer.session).await;
}

crate::on_both!(
    an_append_says_what_it_did,
    an_empty_append_only_asks_the_fences,
    a_turn_that_nobody_runs_takes_no_parts,
    a_turn_settled_complete_takes_no_parts_and_an_incomplete_one_does,
    the_quota_is_exact_and_counts_the_whole_session,
    from_the_first_that_does_not_fit_all_are_refused,
    progress_is_what_is_there_and_no_more,
    a_part_index_of_any_size_is_kept,
    a_turn_of_fifty_thousand_parts_is_one_append,
);
