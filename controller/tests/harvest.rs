//! The settling read over a real store: nothing short is ever taken for whole, and everything that was proven is stored.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{sync::Arc, time::Duration};

use agentsession_controller::{
    exec::{ExecError, Execs, RemoteEnd, Standing},
    harvest::{Checkpoint, HarvestError, HarvestRequest, HarvestSettings, Harvested, Harvester},
};
use store::{Settlement, SharedStore};
use tokio::time::Instant;
use transcript::{
    AgentState, Attempt, IndexSet, Outcome, PartIndex, Reason, Turn, Verdict,
    line::Position,
    merge::{BatchLimit, judge},
};

use support::{
    SESSION, line, lines,
    link::{Fault, Link},
    part,
    pod::Pod,
    quick, soon, status,
    store::{Flaky, Refusal, Stored},
    target,
};

mod support;

const MIB: u64 = 1 << 20;

fn settings() -> HarvestSettings {
    HarvestSettings { store_call: Duration::from_millis(500), ..HarvestSettings::default() }
}

fn harvester(link: &Arc<Link>, store: &SharedStore, settings: HarvestSettings) -> Harvester {
    Harvester::new(Execs::new(link.clone(), quick()), Arc::clone(store), settings)
}

fn request(turn: u32) -> HarvestRequest {
    HarvestRequest {
        session: SESSION.into(),
        pod: target(),
        turn: Turn(turn),
        attempt: Attempt(1),
        quota_bytes: 64 * MIB,
        checkpoint: None,
    }
}

fn pod_with_log(parts: u32) -> Arc<Pod> {
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..parts));
    pod.set_status(status(AgentState::Succeeded, 1, parts));
    pod
}

async fn harvest(link: &Arc<Link>, store: &SharedStore) -> Result<Harvested, HarvestError> {
    soon("a harvest", harvester(link, store, settings()).harvest(&request(1))).await
}

fn verdict(harvested: &Harvested) -> (Verdict, Option<Reason>) {
    let judgement = judge(Turn(1), Attempt(1), &harvested.evidence, None);
    (judgement.verdict, judgement.verdict_reason)
}

#[tokio::test]
async fn a_log_is_stored_byte_for_byte_and_proves_its_turn() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(200);
    let link = Link::to(&pod);
    let harvested = harvest(&link, &stored.store).await.unwrap();
    assert_eq!(verdict(&harvested), (Verdict::Complete, None));
    assert_eq!((harvested.evidence.inserted, harvested.figures.execs), (200, 1));
    assert_eq!(harvested.figures.read_bytes, pod.log(1).len() as u64);
    let parts = stored.parts(1).await;
    assert_eq!(parts, (0..200).map(|index| (index, part(index))).collect::<Vec<_>>());
    link.gone().await;
}

#[tokio::test]
async fn harvesting_again_changes_nothing() {
    let stored = Stored::with_turns(1).await;
    let link = Link::to(&pod_with_log(200));
    harvest(&link, &stored.store).await.unwrap();
    let seq = stored.store.ledger(&SESSION.into()).await.unwrap().session.unwrap().last_seq;
    let again = harvest(&link, &stored.store).await.unwrap();
    assert_eq!(verdict(&again), (Verdict::Complete, None));
    assert_eq!((again.evidence.inserted, again.figures.batches), (0, 0));
    assert_eq!(stored.store.ledger(&SESSION.into()).await.unwrap().session.unwrap().last_seq, seq);
}

#[tokio::test]
async fn holes_of_earlier_writers_are_filled() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(10);
    let parts: Vec<String> = [2, 3, 7].into_iter().map(part).collect();
    let writer = store::Writer { session: SESSION.into(), turn: Turn(1), attempt: Attempt(1), quota_bytes: MIB };
    let new: Vec<_> =
        [2, 3, 7].iter().zip(&parts).map(|(&index, part)| store::NewPart { index: PartIndex(index), part }).collect();
    stored.store.append(&writer, &new).await.unwrap();
    let harvested = harvest(&Link::to(&pod), &stored.store).await.unwrap();
    assert_eq!((verdict(&harvested).0, harvested.evidence.inserted), (Verdict::Complete, 7));
    assert_eq!(stored.indexes(1).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_read_that_fails_once_is_read_on_and_comes_out_whole() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(40);
    let length = pod.log(1).len();
    for at in [0, 1, 50, length / 3, length / 2, length, length + 200] {
        for fault in [
            Fault::Reset(at),
            Fault::Ended(at, RemoteEnd::Success),
            Fault::Ended(at, RemoteEnd::NoStatus),
            Fault::Flipped(at),
            Fault::Stall(at),
        ] {
            let link = Link::with(&pod, [fault.clone()]);
            let harvested = harvest(&link, &stored.store).await.unwrap();
            assert_eq!(verdict(&harvested), (Verdict::Complete, None), "{fault:?}");
            assert_eq!(harvested.evidence.facts.read_to, length as u64, "{fault:?}");
            link.gone().await;
        }
    }
    assert_eq!(stored.indexes(1).await.len(), 40);
}

#[tokio::test]
async fn zero_bytes_and_success_are_not_an_empty_transcript() {
    let stored = Stored::with_turns(1).await;
    let link = Link::with(&pod_with_log(10), [Fault::Ended(0, RemoteEnd::Success)]);
    let harvested = harvest(&link, &stored.store).await.unwrap();
    assert_eq!((verdict(&harvested).0, harvested.figures.execs), (Verdict::Complete, 2));
    let link = Link::to(&pod_with_log(10));
    link.always(Fault::Ended(0, RemoteEnd::Success));
    let error = harvest(&link, &stored.store).await.unwrap_err();
    assert_eq!(error.reason(), Reason::ReadFailed);
}

#[tokio::test]
async fn a_link_that_always_breaks_costs_one_frame_a_time_and_no_byte() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(4000);
    let link = Link::to(&pod);
    link.always(Fault::Reset(100_000));
    let small = HarvestSettings { frame_bytes: 32 << 10, ..settings() };
    let harvested = soon("a harvest", harvester(&link, &stored.store, small).harvest(&request(1))).await.unwrap();
    assert_eq!(verdict(&harvested), (Verdict::Complete, None));
    assert!(harvested.figures.execs > 3, "{:?}", harvested.figures);
    assert_eq!(stored.indexes(1).await, (0..4000).collect::<Vec<_>>());
    link.gone().await;
}

#[tokio::test]
async fn what_was_proven_before_a_final_failure_is_stored_and_the_failure_stands() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(4000);
    let link = Link::with(&pod, [Fault::Reset(100_000)]);
    link.always(Fault::NoConnection);
    let small = HarvestSettings { frame_bytes: 32 << 10, ..settings() };
    let error = soon("a harvest", harvester(&link, &stored.store, small).harvest(&request(1))).await.unwrap_err();
    assert_eq!((error.reason(), error.category()), (Reason::ReadFailed, "transport"));
    let indexes = stored.indexes(1).await;
    assert!(indexes.len() > 500 && indexes.len() < 4000, "{}", indexes.len());
    assert_eq!(indexes, (0..u32::try_from(indexes.len()).unwrap()).collect::<Vec<_>>());
    link.gone().await;
}

#[tokio::test]
async fn a_link_that_brings_nothing_is_given_up_soon() {
    let stored = Stored::with_turns(1).await;
    for fault in [Fault::Reset(200), Fault::Stall(0), Fault::NoAnswer, Fault::Endless, Fault::Refused] {
        let link = Link::to(&pod_with_log(10));
        link.always(fault.clone());
        let begin = Instant::now();
        let error = harvest(&link, &stored.store).await.unwrap_err();
        assert_eq!(error.reason(), Reason::ReadFailed, "{fault:?}");
        assert!(!error.is_ended());
        assert!(begin.elapsed() < Duration::from_secs(5), "{fault:?}");
        assert_eq!(link.opened(), 2, "{fault:?}");
        link.gone().await;
    }
    assert_eq!(stored.indexes(1).await, [] as [u32; 0]);
}

#[tokio::test]
async fn a_recorder_that_ends_meanwhile_is_not_dialled_again() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(10);
    pod.set_standing(Standing::Ended);
    let link = Link::to(&pod);
    let error = harvest(&link, &stored.store).await.unwrap_err();
    assert!(error.is_ended());
    assert_eq!((link.opened(), error.reason()), (0, Reason::ReadFailed));
}

#[tokio::test]
async fn a_large_log_comes_in_several_frames_and_bounded_batches() {
    let stored = Stored::with_turns(1).await;
    let flaky = Flaky::over(&stored.store, []);
    let pod = Pod::new();
    let text = "x".repeat(300);
    let log: String = (0..36_000)
        .map(|index| line(1, index, &format!(r#"{{"type":"text-delta","id":"t","delta":"{text}"}}"#)))
        .collect();
    pod.append(1, log.as_bytes());
    pod.set_status(status(AgentState::Succeeded, 1, 36_000));
    let link = Link::to(&pod);
    let store: SharedStore = flaky.clone();
    let wide = HarvestSettings { store_call: Duration::from_secs(10), ..settings() };
    let harvested = soon("a harvest", harvester(&link, &store, wide).harvest(&request(1))).await.unwrap();
    assert_eq!(verdict(&harvested), (Verdict::Complete, None));
    assert_eq!(harvested.figures.execs, 1);
    assert_eq!(pod.acknowledged().len(), log.len().div_ceil(4 << 20));
    let batches = flaky.batches();
    assert_eq!(batches.iter().sum::<usize>(), 36_000);
    assert!(batches.iter().all(|&rows| rows <= 5000), "{batches:?}");
}

#[tokio::test]
async fn a_store_that_fails_ends_the_harvest_at_once_and_cuts_the_exec() {
    let stored = Stored::with_turns(1).await;
    for (refusal, reason) in [
        (Refusal::Unavailable, Reason::StoreUnavailable),
        (Refusal::Full, Reason::StoreFull),
        (Refusal::Hangs, Reason::StoreUnavailable),
    ] {
        let flaky: SharedStore = Flaky::over(&stored.store, [refusal]);
        let link = Link::to(&pod_with_log(4000));
        let begin = Instant::now();
        let few = HarvestSettings { batch: BatchLimit { rows: 10, bytes: 4 << 20 }, ..settings() };
        let error = soon("a harvest", harvester(&link, &flaky, few).harvest(&request(1))).await.unwrap_err();
        assert_eq!(error.reason(), reason);
        assert!(begin.elapsed() < Duration::from_secs(3));
        link.gone().await;
    }
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_doubles_nothing() {
    let stored = Stored::with_turns(1).await;
    let flaky: SharedStore = Flaky::over(&stored.store, [Refusal::AnswerLost]);
    let link = Link::to(&pod_with_log(100));
    let error = harvest(&link, &flaky).await.unwrap_err();
    assert_eq!(error.reason(), Reason::StoreUnavailable);
    let harvested = harvest(&link, &flaky).await.unwrap();
    assert_eq!((verdict(&harvested).0, harvested.evidence.inserted), (Verdict::Complete, 0));
    assert_eq!(stored.store.ledger(&SESSION.into()).await.unwrap().session.unwrap().last_seq.0, 100);
}

#[tokio::test]
async fn the_quota_cuts_a_suffix_and_leaves_no_hole() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    let big = format!(r#"{{"type":"text-delta","id":"t","delta":"{}"}}"#, "x".repeat(3000));
    let log = [lines(1, 0..20), line(1, 20, &big).into_bytes(), lines(1, 21..60)].concat();
    pod.append(1, &log);
    pod.set_status(status(AgentState::Succeeded, 1, 60));
    let few = HarvestSettings { batch: BatchLimit { rows: 7, bytes: 4 << 20 }, ..settings() };
    let small = HarvestRequest { quota_bytes: 3000, ..request(1) };
    let harvested = harvester(&Link::to(&pod), &stored.store, few).harvest(&small).await.unwrap();
    assert_eq!(harvested.evidence.over_quota, 40);
    assert_eq!(stored.indexes(1).await, (0..20).collect::<Vec<_>>());
    assert_eq!(harvested.evidence.stored, (0..20).map(PartIndex).collect::<IndexSet>());
    assert_eq!(verdict(&harvested), (Verdict::Truncated, Some(Reason::QuotaReached)));
}

#[tokio::test]
async fn damage_is_counted_and_its_neighbours_are_kept() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..3));
    pod.append(1, b"{\"turn\":1,\"partIndex\":3\n");
    pod.append(1, &lines(1, 4..6));
    pod.append(1, b"{\"at\":\"torn");
    pod.set_status(status(AgentState::Succeeded, 1, 6));
    let harvested = harvest(&Link::to(&pod), &stored.store).await.unwrap();
    assert_eq!(stored.indexes(1).await, [0, 1, 2, 4, 5]);
    assert_eq!((harvested.evidence.facts.damaged_lines, harvested.evidence.facts.torn_tail), (1, true));
    assert_eq!(verdict(&harvested), (Verdict::Truncated, Some(Reason::LogDamaged)));
}

#[tokio::test]
async fn lines_of_another_turn_go_there_if_the_fence_lets_them() {
    let stored = Stored::with_turns(2).await;
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..2));
    pod.append(1, &lines(2, 0..1));
    pod.append(1, &lines(9, 0..1));
    pod.append(1, &lines(1, 2..4));
    pod.set_status(status(AgentState::Succeeded, 1, 4));
    let harvested = harvest(&Link::to(&pod), &stored.store).await.unwrap();
    assert_eq!(verdict(&harvested), (Verdict::Complete, None));
    assert_eq!((stored.indexes(1).await, stored.indexes(2).await), (vec![0, 1, 2, 3], vec![0]));
    assert_eq!(harvested.figures.strangers_refused, 1);
}

#[tokio::test]
async fn no_log_is_a_finding_and_no_error() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.set_status(status(AgentState::Succeeded, 1, 4));
    let harvested = harvest(&Link::to(&pod), &stored.store).await.unwrap();
    assert!(!harvested.evidence.facts.exists);
    assert_eq!(verdict(&harvested), (Verdict::Incomplete, Some(Reason::LogMissing)));
}

#[tokio::test]
async fn a_log_that_outgrew_every_bound_is_read_so_far_and_never_called_complete() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    let piece = format!(r#"{{"type":"text-delta","id":"t","delta":"{}"}}"#, "x".repeat(900_000));
    let log: String = (0..24).map(|index| line(1, index, &piece)).collect();
    pod.append(1, log.as_bytes());
    pod.set_status(status(AgentState::Succeeded, 1, 24));
    let wide = HarvestSettings { store_call: Duration::from_secs(10), ..settings() };
    let harvester = harvester(&Link::to(&pod), &stored.store, wide);
    let harvested = soon("a harvest", harvester.harvest(&request(1))).await.unwrap();
    let facts = &harvested.evidence.facts;
    assert_eq!((facts.read_to, facts.size), (16 * MIB + (MIB >> 1), log.len() as u64));
    assert_ne!(verdict(&harvested).0, Verdict::Complete);
}

fn checkpoint(parts: u32) -> Option<Checkpoint> {
    let at = Position { line: u64::from(parts) + 1, offset: lines(1, 0..parts).len() as u64 };
    Some(Checkpoint { at, seen: (0..parts).map(PartIndex).collect() })
}

#[tokio::test]
async fn a_checkpoint_saves_the_read_only_while_the_store_has_what_stands_before_it() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(100);
    let link = Link::to(&pod);
    let harvester = harvester(&link, &stored.store, settings());
    let from_checkpoint = HarvestRequest { checkpoint: checkpoint(60), ..request(1) };
    let whole = harvester.harvest(&from_checkpoint).await.unwrap();
    assert_eq!((whole.figures.read_bytes, whole.evidence.inserted), (pod.log(1).len() as u64, 100));
    let tail = harvester.harvest(&from_checkpoint).await.unwrap();
    assert_eq!(tail.figures.read_bytes, lines(1, 60..100).len() as u64);
    assert_eq!(verdict(&tail), (Verdict::Complete, None));
    assert_eq!(tail.evidence.facts.indexes, whole.evidence.facts.indexes);
}

#[tokio::test]
async fn a_log_that_is_shorter_than_its_checkpoint_is_read_from_its_first_byte() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(100);
    let link = Link::to(&pod);
    let harvester = harvester(&link, &stored.store, settings());
    harvester.harvest(&request(1)).await.unwrap();
    pod.replace_log(1, &lines(1, 0..10));
    let from_checkpoint = HarvestRequest { checkpoint: checkpoint(60), ..request(1) };
    let harvested = soon("a harvest", harvester.harvest(&from_checkpoint)).await.unwrap();
    assert_eq!(harvested.evidence.facts.indexes, (0..10).map(PartIndex).collect::<IndexSet>());
}

#[tokio::test]
async fn a_turn_that_somebody_settled_complete_is_no_error() {
    let stored = Stored::with_turns(1).await;
    let pod = pod_with_log(10);
    harvest(&Link::to(&pod), &stored.store).await.unwrap();
    let settlement = Settlement {
        session: SESSION.into(),
        turn: Turn(1),
        attempt: Some(Attempt(1)),
        pod_uid: Some(target().uid),
        outcome: Outcome::Succeeded,
        reason: None,
        verdict: Verdict::Complete,
        verdict_reason: None,
        message: None,
        usage: None,
    };
    stored.store.settle(&settlement).await.unwrap();
    pod.append(1, &lines(1, 10..12));
    let harvested = harvest(&Link::to(&pod), &stored.store).await.unwrap();
    assert_eq!(harvested.evidence.stored, (0..10).map(PartIndex).collect::<IndexSet>());
    assert_eq!(stored.indexes(1).await.len(), 10);
}

#[tokio::test]
async fn a_superseded_attempt_writes_nothing() {
    let stored = Stored::with_turns(1).await;
    let old = HarvestRequest { attempt: Attempt(7), ..request(1) };
    let error = harvester(&Link::to(&pod_with_log(10)), &stored.store, settings()).harvest(&old).await.unwrap_err();
    assert_eq!(error.category(), "store_fenced");
    assert_eq!(stored.indexes(1).await, [] as [u32; 0]);
}

#[tokio::test]
async fn errors_say_their_causes_once() {
    let error = HarvestError::Read(ExecError::Connect("connection refused".into()));
    assert_eq!(error.chain(), "the log could not be read to its end: the exec did not connect: connection refused");
}
