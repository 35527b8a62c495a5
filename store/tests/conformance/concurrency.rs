//! Many writers at once: rows once, seq dense, one winner.

use std::sync::Arc;

use agentsession_store::{NewPart, PageLimit, Won, Writer};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use transcript::{Attempt, PartIndex, Seq, Verdict};

use crate::fixture::{World, settlement};

fn text(index: u32) -> String {
    format!("{{\"type\":\"text-delta\",\"delta\":\"{index}\"}}")
}

/// Appends these indexes in batches of random size.
async fn append_in_batches(world: &World, writer: &Writer, indexes: &[u32], rng: &mut StdRng) -> u32 {
    let mut rest = indexes;
    let mut inserted = 0;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rng.random_range(1..=rest.len().min(60)));
        let texts: Vec<_> = now.iter().map(|&index| text(index)).collect();
        let parts: Vec<_> =
            now.iter().zip(&texts).map(|(&index, part)| NewPart { index: PartIndex(index), part }).collect();
        inserted += world.store.append(writer, &parts).await.unwrap().inserted;
        rest = later;
    }
    inserted
}

async fn eight_harvesters_of_one_turn_store_each_part_once(world: World) {
    let writer = world.writer().await;
    let world = Arc::new(world);
    let tasks = (0..8_u64).map(|seed| {
        let (world, writer) = (Arc::clone(&world), writer.clone());
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut indexes: Vec<u32> = (0..600).collect();
            if seed % 2 == 1 {
                indexes.shuffle(&mut rng);
            }
            append_in_batches(&world, &writer, &indexes, &mut rng).await
        })
    });
    let inserted = futures::future::join_all(tasks).await.into_iter().map(|task| task.unwrap()).sum::<u32>();
    assert_eq!(inserted, 600);
    world.assert_dense(&writer.session).await;
    let parts = world.all_parts(&writer.session).await;
    assert!(parts.iter().map(|part| part.part.clone()).eq((0..600).map(text)));
}

async fn a_tee_with_holes_and_a_harvest_together_leave_none(world: World) {
    let writer = world.writer().await;
    let world = Arc::new(world);
    let tee = {
        let (world, writer) = (Arc::clone(&world), writer.clone());
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(99);
            let seen: Vec<u32> = (0..1000).filter(|_| rng.random_bool(0.7)).collect();
            append_in_batches(&world, &writer, &seen, &mut rng).await
        })
    };
    let mut rng = StdRng::seed_from_u64(7);
    let all: Vec<u32> = (0..1000).collect();
    let harvested = append_in_batches(&world, &writer, &all, &mut rng).await;
    assert_eq!(tee.await.unwrap() + harvested, 1000);
    assert!(world.store.progress(&writer.session, writer.turn).await.unwrap().present.is_exactly(1000));
    world.assert_dense(&writer.session).await;
}

async fn who_saw_a_seq_never_sees_a_new_row_below_it(world: World) {
    let writer = world.writer().await;
    let world = Arc::new(world);
    let writers = (0..4_u32).map(|lane| {
        let (world, writer) = (Arc::clone(&world), writer.clone());
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(u64::from(lane));
            let mine: Vec<u32> = (0..100).map(|i| i * 4 + lane).collect();
            append_in_batches(&world, &writer, &mine, &mut rng).await
        })
    });
    let writers = futures::future::join_all(writers);
    let reader = {
        let (world, session) = (Arc::clone(&world), writer.session.clone());
        tokio::spawn(async move {
            let mut next = 1;
            while next <= 400 {
                let page = world
                    .store
                    .rows(&session, Seq(next - 1), PageLimit { rows: 50, ..PageLimit::default() })
                    .await
                    .unwrap();
                for row in page.parts {
                    // A gap here would be a row that appears later below a seq already seen.
                    assert_eq!(row.seq, Seq(next));
                    next += 1;
                }
            }
        })
    };
    assert_eq!(writers.await.into_iter().map(|task| task.unwrap()).sum::<u32>(), 400);
    reader.await.unwrap();
}

async fn of_sixteen_settles_one_wins_and_all_see_its_record(world: World) {
    let writer = world.writer().await;
    let world = Arc::new(world);
    let tasks = (0..16).map(|number| {
        let (world, writer) = (Arc::clone(&world), writer.clone());
        tokio::spawn(async move {
            let mut mine = settlement(&writer, Verdict::Incomplete);
            mine.message = Some(format!("observer {number}"));
            (number, world.store.settle(&mine).await.unwrap())
        })
    });
    let done: Vec<_> = futures::future::join_all(tasks).await.into_iter().map(|task| task.unwrap()).collect();
    let winners: Vec<_> = done.iter().filter(|(_, standing)| standing.won == Won::Settled).collect();
    assert_eq!(winners.len(), 1);
    let expected = format!("observer {}", winners[0].0);
    for (_, standing) in &done {
        assert_eq!(standing.record.message.as_deref(), Some(expected.as_str()));
        assert_eq!(standing.record, winners[0].1.record);
    }
}

async fn nothing_is_stored_after_a_turn_was_settled_complete(world: World) {
    let session = world.session().await;
    let world = Arc::new(world);
    for turn in 1..=10 {
        let writer = world.running(&session, turn, 1).await;
        let appends = {
            let (world, writer) = (Arc::clone(&world), writer.clone());
            tokio::spawn(async move {
                for index in 0..200 {
                    if world.append(&writer, &[(index, "x")]).await.is_err() {
                        break;
                    }
                }
            })
        };
        let standing = world.store.settle(&settlement(&writer, Verdict::Complete)).await.unwrap();
        let seen = standing.record.parts;
        appends.await.unwrap();
        let ledger = world.store.ledger(&session).await.unwrap();
        assert_eq!(ledger.turns.last().unwrap().parts, seen);
    }
    world.assert_dense(&session).await;
}

async fn two_controllers_open_an_attempt_once(world: World) {
    let session = world.session().await;
    let world = Arc::new(world);
    let tasks = (0..8).map(|number| {
        let (world, session) = (Arc::clone(&world), session.clone());
        tokio::spawn(async move {
            world.store.open_attempt(&session, Attempt(1), &format!("nonce-{number}")).await.unwrap()
        })
    });
    let answers: Vec<_> = futures::future::join_all(tasks).await.into_iter().map(|task| task.unwrap()).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.0 == Attempt(1)));
}

crate::on_both!(
    eight_harvesters_of_one_turn_store_each_part_once,
    a_tee_with_holes_and_a_harvest_together_leave_none,
    who_saw_a_seq_never_sees_a_new_row_below_it,
    of_sixteen_settles_one_wins_and_all_see_its_record,
    nothing_is_stored_after_a_turn_was_settled_complete,
    two_controllers_open_an_attempt_once,
);
