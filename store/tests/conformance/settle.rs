//! The compare-and-set and its one upgrade.

use agentsession_store::{Settlement, StoreError, Won};
use transcript::{Attempt, Outcome, Reason, Turn, TurnState, Verdict, status::Usage};

use crate::fixture::{World, new_turn, pod, settlement};

async fn a_settle_writes_the_whole_record(world: World) {
    let writer = world.writer().await;
    world.append(&writer, &[(0, "a")]).await.unwrap();
    let usage = Usage { requests: 2, input_tokens: 30, output_tokens: 4, total_tokens: 34 };
    let mine = Settlement {
        outcome: Outcome::Failed,
        reason: Some(Reason::AgentExited),
        verdict_reason: Some(Reason::LogDamaged),
        message: Some("exit code 3".to_owned()),
        usage: Some(usage),
        ..settlement(&writer, Verdict::Truncated)
    };
    let standing = world.store.settle(&mine).await.unwrap();
    assert_eq!(standing.won, Won::Settled);
    let record = standing.record;
    assert_eq!(record.state, TurnState::Settled);
    assert_eq!((record.outcome, record.reason), (Some(Outcome::Failed), Some(Reason::AgentExited)));
    assert_eq!((record.verdict, record.verdict_reason), (Some(Verdict::Truncated), Some(Reason::LogDamaged)));
    assert_eq!((record.message.as_deref(), record.usage, record.parts), (Some("exit code 3"), Some(usage), 1));
    assert!(record.settled_at.unwrap() >= record.started_at.unwrap());
    let ledger = world.store.ledger(&writer.session).await.unwrap();
    assert_eq!(ledger.turns, [record]);
}

async fn another_attempt_or_pod_settles_nothing(world: World) {
    let writer = world.writer().await;
    let right = settlement(&writer, Verdict::Complete);
    let wrong = [
        Settlement { attempt: Some(Attempt(2)), ..right.clone() },
        Settlement { attempt: None, ..right.clone() },
        Settlement { pod_uid: Some(pod(7)), ..right.clone() },
        Settlement { pod_uid: None, ..right.clone() },
        Settlement { attempt: None, pod_uid: None, ..right.clone() },
    ];
    for settlement in wrong {
        let standing = world.store.settle(&settlement).await.unwrap();
        assert_eq!((standing.won, standing.record.state), (Won::No, TurnState::Running));
    }
    assert_eq!(world.store.settle(&right).await.unwrap().won, Won::Settled);
}

async fn a_turn_that_never_ran_is_settled_by_none_and_none(world: World) {
    let session = world.session().await;
    world.accept(&session, 1).await;
    let mine = Settlement {
        session: session.clone(),
        turn: Turn(1),
        attempt: None,
        pod_uid: None,
        outcome: Outcome::Canceled,
        reason: Some(Reason::SessionDeleted),
        verdict: Verdict::Incomplete,
        verdict_reason: Some(Reason::NeverStarted),
        message: None,
        usage: None,
    };
    let with_pod = Settlement { attempt: Some(Attempt(1)), pod_uid: Some(pod(1)), ..mine.clone() };
    assert_eq!(world.store.settle(&with_pod).await.unwrap().won, Won::No);
    assert_eq!(world.store.settle(&mine).await.unwrap().won, Won::Settled);
    let proof = Settlement { verdict: Verdict::Complete, ..mine };
    assert_eq!(world.store.settle(&proof).await.unwrap().won, Won::No);
    let started = world.store.start_turn(&session, Turn(1), Attempt(1), &pod(1), "image").await.unwrap();
    assert_eq!((started.state, started.attempt), (TurnState::Settled, None));
}

async fn a_settled_turn_is_never_downgraded_and_upgraded_once(world: World) {
    let session = world.session().await;
    for (turn, first) in [(1, Verdict::Incomplete), (2, Verdict::Truncated)] {
        let writer = world.running(&session, turn, 1).await;
        let usage = Usage { requests: 1, ..Usage::default() };
        let early = Settlement { outcome: Outcome::Lost, usage: Some(usage), ..settlement(&writer, first) };
        let early = world.store.settle(&early).await.unwrap();
        for verdict in [Verdict::Incomplete, Verdict::Truncated] {
            let again = world.store.settle(&settlement(&writer, verdict)).await.unwrap();
            assert_eq!((again.won, &again.record), (Won::No, &early.record));
        }
        let stranger = Settlement { attempt: Some(Attempt(2)), ..settlement(&writer, Verdict::Complete) };
        assert_eq!(world.store.settle(&stranger).await.unwrap().won, Won::No);
        let proof = world.store.settle(&settlement(&writer, Verdict::Complete)).await.unwrap();
        assert_eq!(proof.won, Won::Upgraded);
        assert_eq!((proof.record.verdict, proof.record.outcome), (Some(Verdict::Complete), Some(Outcome::Succeeded)));
        assert_eq!((proof.record.settled_at, proof.record.usage), (early.record.settled_at, Some(usage)));
        for verdict in Verdict::ALL {
            let late = world.store.settle(&settlement(&writer, *verdict)).await.unwrap();
            assert_eq!((late.won, &late.record), (Won::No, &proof.record));
        }
    }
}

async fn what_the_store_does_not_know_cannot_be_settled(world: World) {
    let writer = world.writer().await;
    let unknown_turn = Settlement { turn: Turn(9), ..settlement(&writer, Verdict::Complete) };
    let answer = world.store.settle(&unknown_turn).await;
    assert!(matches!(answer, Err(StoreError::TurnUnknown { turn: Turn(9), .. })), "{answer:?}");
    let unknown_session = Settlement { session: "nobody".into(), ..settlement(&writer, Verdict::Complete) };
    assert!(matches!(world.store.settle(&unknown_session).await, Err(StoreError::SessionUnknown(_))));
}

async fn a_lost_turn_is_settled_as_it_is_recorded(world: World) {
    let session = world.session().await;
    let lost = world.store.record_lost_turn(&new_turn(&session, 1, "Do it.")).await.unwrap();
    assert_eq!((lost.state, lost.outcome), (TurnState::Settled, Some(Outcome::Lost)));
    assert_eq!((lost.verdict, lost.verdict_reason), (Some(Verdict::Incomplete), Some(Reason::StoreLost)));
    assert_eq!((lost.prompt.as_str(), lost.settled_at), ("Do it.", Some(lost.accepted_at)));
    world.accept(&session, 2).await;
    let known = world.store.record_lost_turn(&new_turn(&session, 2, "other")).await.unwrap();
    assert_eq!((known.state, known.prompt.as_str()), (TurnState::Accepted, "Fix the login bug."));
}

crate::on_both!(
    a_settle_writes_the_whole_record,
    another_attempt_or_pod_settles_nothing,
    a_turn_that_never_ran_is_settled_by_none_and_none,
    a_settled_turn_is_never_downgraded_and_upgraded_once,
    what_the_store_does_not_know_cannot_be_settled,
    a_lost_turn_is_settled_as_it_is_recorded,
);
