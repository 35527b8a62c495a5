//! Random sequences of calls against both backends and a model in memory: the same answers, the same rows.

use std::collections::BTreeMap;

use agentsession_store::{Appended, NewPart, Settlement, StoreError, Won, Writer};
use proptest::{prelude::*, test_runner::TestRunner};
use transcript::{Attempt, PartIndex, Seq, SessionUid, Turn, Verdict};

use crate::fixture::{self, World, pod, settlement};

const QUOTA: u64 = 60;

#[derive(Clone, Debug)]
enum Step {
    Start { turn: u32, attempt: u32 },
    Append { turn: u32, attempt: u32, parts: Vec<(u32, String)> },
    Settle { turn: u32, attempt: Option<u32>, verdict: Verdict },
}

fn step() -> impl Strategy<Value = Step> {
    let (turn, attempt) = (1..=2_u32, 1..=2_u32);
    let parts = prop::collection::vec((0..12_u32, "[ab]{0,6}"), 0..8);
    prop_oneof![
        1 => (turn.clone(), attempt.clone()).prop_map(|(turn, attempt)| Step::Start { turn, attempt }),
        6 => (turn.clone(), attempt.clone(), parts)
            .prop_map(|(turn, attempt, parts)| Step::Append { turn, attempt, parts }),
        1 => (turn, prop::option::of(attempt), prop::sample::select(Verdict::ALL))
            .prop_map(|(turn, attempt, verdict)| Step::Settle { turn, attempt, verdict }),
    ]
}

/// What a store should be: a map, a list and two rules.
#[derive(Default)]
struct Model {
    rows: Vec<(u32, u32, String)>,
    turns: BTreeMap<u32, (Option<u32>, Option<Verdict>)>,
}

/// What a step answers, in words that model and store share.
#[derive(Debug, PartialEq)]
enum Answer {
    Started(Option<u32>),
    Appended(Appended),
    Superseded,
    Complete,
    Settled(Won, Option<Verdict>),
}

impl Model {
    fn answer(&mut self, step: &Step) -> Answer {
        match step {
            Step::Start { turn, attempt } => {
                let standing = self.turns.entry(*turn).or_default();
                if standing.0.is_none() && standing.1.is_none() {
                    standing.0 = Some(*attempt);
                }
                Answer::Started(standing.0)
            }
            Step::Append { turn, attempt, parts } => self.append(*turn, *attempt, parts),
            Step::Settle { turn, attempt, verdict } => {
                let standing = self.turns.entry(*turn).or_default();
                let won = match standing.1 {
                    None if standing.0 == *attempt => Won::Settled,
                    Some(Verdict::Incomplete | Verdict::Truncated)
                        if *verdict == Verdict::Complete && attempt.is_some() && standing.0 == *attempt =>
                    {
                        Won::Upgraded
                    }
                    _ => Won::No,
                };
                if won != Won::No {
                    standing.1 = Some(*verdict);
                }
                Answer::Settled(won, standing.1)
            }
        }
    }

    fn append(&mut self, turn: u32, attempt: u32, parts: &[(u32, String)]) -> Answer {
        let standing = self.turns.entry(turn).or_default();
        if standing.0 != Some(attempt) {
            return Answer::Superseded;
        }
        if standing.1 == Some(Verdict::Complete) {
            return Answer::Complete;
        }
        let mut appended = Appended::default();
        for (index, text) in parts {
            let bytes: usize = self.rows.iter().map(|row| row.2.len()).sum();
            match self.rows.iter().find(|row| (row.0, row.1) == (turn, *index)) {
                Some(row) if row.2 == *text => appended.already += 1,
                Some(_) => appended.conflicts += 1,
                None if appended.over_quota > 0 || (bytes + text.len()) as u64 > QUOTA => appended.over_quota += 1,
                None => {
                    appended.inserted += 1;
                    appended.bytes += text.len() as u64;
                    self.rows.push((turn, *index, text.clone()));
                }
            }
        }
        appended.last_seq = Seq(self.rows.len() as u64);
        Answer::Appended(appended)
    }
}

async fn ask(world: &World, session: &SessionUid, step: &Step) -> Answer {
    match step {
        Step::Start { turn, attempt } => {
            let started =
                world.store.start_turn(session, Turn(*turn), Attempt(*attempt), &pod(*attempt), "image").await;
            Answer::Started(started.unwrap().attempt.map(|attempt| attempt.0))
        }
        Step::Append { turn, attempt, parts } => {
            let writer =
                Writer { session: session.clone(), turn: Turn(*turn), attempt: Attempt(*attempt), quota_bytes: QUOTA };
            let parts: Vec<_> = parts.iter().map(|(index, part)| NewPart { index: PartIndex(*index), part }).collect();
            match world.store.append(&writer, &parts).await {
                Ok(appended) => Answer::Appended(appended),
                Err(StoreError::AttemptSuperseded { .. }) => Answer::Superseded,
                Err(StoreError::TurnComplete(_)) => Answer::Complete,
                Err(other) => panic!("{other}"),
            }
        }
        Step::Settle { turn, attempt, verdict } => {
            let writer = Writer {
                session: session.clone(),
                turn: Turn(*turn),
                attempt: Attempt(attempt.unwrap_or(0)),
                quota_bytes: 0,
            };
            let mine = Settlement {
                attempt: attempt.map(Attempt),
                pod_uid: attempt.map(pod),
                ..settlement(&writer, *verdict)
            };
            let standing = world.store.settle(&mine).await.unwrap();
            Answer::Settled(standing.won, standing.record.verdict)
        }
    }
}

async fn compare(world: &World, steps: &[Step]) {
    let session = world.session().await;
    for turn in 1..=2 {
        world.accept(&session, turn).await;
    }
    let mut model = Model::default();
    for (number, step) in steps.iter().enumerate() {
        assert_eq!(ask(world, &session, step).await, model.answer(step), "step {number} of {steps:?}");
    }
    let rows: Vec<_> =
        world.all_rows(&session).await.into_iter().map(|row| (row.turn.0, row.index.0, row.part)).collect();
    assert_eq!(rows, model.rows, "{steps:?}");
    model.rows.sort();
    let parts: Vec<_> =
        world.all_parts(&session).await.into_iter().map(|row| (row.turn.0, row.index.0, row.part)).collect();
    assert_eq!(parts, model.rows, "{steps:?}");
    world.assert_dense(&session).await;
}

#[test]
fn both_backends_answer_as_the_model_does() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (sqlite, postgres) = runtime.block_on(async { (fixture::sqlite().await, fixture::postgres().await) });
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let sequences = prop::collection::vec(step(), 1..25);
    let outcome = TestRunner::new(config).run(&sequences, |steps| {
        runtime.block_on(async {
            compare(&sqlite, &steps).await;
            compare(&postgres, &steps).await;
        });
        Ok(())
    });
    outcome.unwrap();
}
