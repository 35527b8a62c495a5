//! Followers: what the driver says is seen at once, what it wrote is stored before it is acknowledged, and nothing is lost, doubled or leaked when
//! links and stores fail under them.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use agentsession_controller::{
    exec::{Execs, RemoteEnd, Standing},
    follow::{FollowSettings, FollowSpec, FollowView, Followers, SessionRef},
    harvest::{HarvestRequest, HarvestSettings, Harvester},
};
use store::SharedStore;
use transcript::{AgentState, Attempt, Reason, Turn, Verdict, merge::judge};

use support::{
    SESSION, lines,
    link::{Fault, Link},
    pod::Pod,
    quick, soon, status,
    store::{Flaky, Refusal, Stored},
    target,
};

mod support;

/// Pokes so far.
type Pokes = Arc<Mutex<Vec<SessionRef>>>;

fn session() -> SessionRef {
    SessionRef { namespace: "team-a".into(), name: "fix-login".into() }
}

fn spec(turn: u32) -> FollowSpec {
    FollowSpec {
        session: session(),
        session_uid: SESSION.into(),
        pod: target(),
        turn: Turn(turn),
        attempt: Attempt(1),
        interval: Duration::from_millis(100),
        quota_bytes: 64 << 20,
    }
}

fn settings() -> FollowSettings {
    FollowSettings {
        harvest: HarvestSettings { store_call: Duration::from_millis(500), ..HarvestSettings::default() },
        backoff_min: Duration::from_millis(5),
        backoff_max: Duration::from_millis(40),
        ..FollowSettings::default()
    }
}

fn follow(link: &Arc<Link>, store: &SharedStore) -> (Followers, Pokes) {
    let pokes = Pokes::default();
    let heard = Arc::clone(&pokes);
    let poke = move |session: &SessionRef| heard.lock().unwrap().push(session.clone());
    let execs = Execs::new(link.clone(), quick());
    (Followers::new(execs, Arc::clone(store), settings(), poke), pokes)
}

/// Waits until the follower's view is so.
async fn until(followers: &Followers, what: &str, so: impl Fn(&FollowView) -> bool) -> FollowView {
    let mut view = followers.watch(&target().uid).expect("a follower");
    soon(what, async move { view.wait_for(|view| so(view)).await.expect("a follower that lives").clone() }).await
}

fn state(view: &FollowView) -> Option<(AgentState, u32)> {
    view.status.as_ref().map(|status| (status.state, status.turn.0))
}

#[tokio::test]
async fn a_turn_is_followed_from_before_it_exists_to_its_end() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.set_status(status(AgentState::Idle, 0, 0));
    let link = Link::to(&pod);
    let (followers, pokes) = follow(&link, &stored.store);
    followers.ensure(spec(1));
    until(&followers, "idle", |view| state(view) == Some((AgentState::Idle, 0))).await;

    pod.append(1, &lines(1, 0..3));
    pod.set_status(status(AgentState::Running, 1, 3));
    until(&followers, "running", |view| state(view) == Some((AgentState::Running, 1))).await;
    until(&followers, "three parts", |view| view.parts_stored == 3).await;

    pod.append(1, &lines(1, 3..9));
    pod.set_status(status(AgentState::Succeeded, 1, 9));
    until(&followers, "the end", |view| state(view) == Some((AgentState::Succeeded, 1))).await;
    let view = until(&followers, "nine parts", |view| view.parts_stored == 9).await;
    assert_eq!(view.offset, pod.log(1).len() as u64);
    assert_eq!(stored.indexes(1).await, (0..9).collect::<Vec<_>>());
    assert_eq!(link.opened(), 1, "one exec for the whole turn");
    assert!(pokes.lock().unwrap().len() >= 3);
    assert!(pokes.lock().unwrap().iter().all(|poked| *poked == session()));
    followers.shutdown().await;
    link.gone().await;
}

#[tokio::test]
async fn frames_that_say_nothing_new_do_not_poke() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.set_status(status(AgentState::Running, 1, 0));
    let (followers, pokes) = follow(&Link::to(&pod), &stored.store);
    followers.ensure(spec(1));
    for parts in 1..5 {
        pod.append(1, &lines(1, parts - 1..parts));
        pod.set_status(status(AgentState::Running, 1, parts));
        until(&followers, "a part", |view| view.parts_stored == parts).await;
    }
    until(&followers, "ten frames", |view| view.frames >= 10).await;
    assert_eq!(pokes.lock().unwrap().len(), 1);
    followers.shutdown().await;
}

#[tokio::test]
async fn nothing_is_acknowledged_before_the_store_has_it() {
    let stored = Stored::with_turns(1).await;
    let flaky = Flaky::over(&stored.store, []);
    flaky.always(Some(Refusal::Unavailable));
    let store: SharedStore = flaky.clone();
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..50));
    pod.set_status(status(AgentState::Succeeded, 1, 50));
    let link = Link::to(&pod);
    let (followers, pokes) = follow(&link, &store);
    followers.ensure(spec(1));
    let view = until(&followers, "trouble", |view| view.trouble.is_some()).await;
    assert_eq!(view.trouble.unwrap().reason, Reason::StoreUnavailable);
    assert_eq!(
        state(&until(&followers, "the status", |view| view.status.is_some()).await),
        Some((AgentState::Succeeded, 1))
    );
    let whole = pod.log(1).len() as u64;
    let listened = |acknowledged: &[u64]| acknowledged.iter().all(|to| *to <= 1);
    assert!(listened(&pod.acknowledged()), "only how the driver is was asked, the frame is kept");
    let before = pokes.lock().unwrap().len();

    flaky.always(None);
    until(&followers, "recovery", |view| view.trouble.is_none() && view.parts_stored == 50).await;
    assert!(pokes.lock().unwrap().len() > before, "recovery is news");
    soon("the acknowledgement", async {
        while pod.acknowledged().last() != Some(&whole) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stored.indexes(1).await.len(), 50);
    followers.shutdown().await;
}

#[tokio::test]
async fn the_end_of_a_turn_is_heard_while_nothing_can_be_stored() {
    let stored = Stored::with_turns(1).await;
    let flaky = Flaky::over(&stored.store, []);
    flaky.always(Some(Refusal::Unavailable));
    let store: SharedStore = flaky.clone();
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..5));
    pod.set_status(status(AgentState::Running, 1, 5));
    let (followers, _) = follow(&Link::to(&pod), &store);
    followers.ensure(spec(1));
    until(&followers, "trouble", |view| view.trouble.is_some()).await;
    pod.set_status(status(AgentState::Succeeded, 1, 5));
    let heard = until(&followers, "the end", |view| {
        view.status.as_ref().is_some_and(|status| status.state == AgentState::Succeeded)
    });
    assert!(heard.await.trouble.is_some(), "nothing was stored meanwhile");
    followers.shutdown().await;
}

#[tokio::test]
async fn a_full_store_is_said_as_such() {
    let stored = Stored::with_turns(1).await;
    let flaky = Flaky::over(&stored.store, []);
    flaky.always(Some(Refusal::Full));
    let store: SharedStore = flaky.clone();
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..5));
    let (followers, _) = follow(&Link::to(&pod), &store);
    followers.ensure(spec(1));
    let view = until(&followers, "trouble", |view| view.trouble.is_some()).await;
    assert_eq!(view.trouble.unwrap().reason, Reason::StoreFull);
    followers.shutdown().await;
}

#[tokio::test]
async fn a_broken_link_is_taken_up_at_the_last_whole_stored_line() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.set_status(status(AgentState::Running, 1, 0));
    let faults = [
        Fault::NoConnection,
        Fault::Reset(0),
        Fault::Reset(2500),
        Fault::Ended(3000, RemoteEnd::Success),
        Fault::Flipped(3100),
        Fault::Stall(4000),
        Fault::Doubled(3600),
    ];
    let link = Link::with(&pod, faults);
    let (followers, _) = follow(&link, &stored.store);
    followers.ensure(spec(1));
    let all = lines(1, 0..400);
    // In pieces that end anywhere, as a log that grows does.
    for piece in all.chunks(777) {
        pod.append(1, piece);
        let whole = pod.log(1).iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1) as u64;
        until(&followers, "the piece", |view| view.offset == whole).await;
    }
    pod.set_status(status(AgentState::Succeeded, 1, 400));
    let view = until(&followers, "the end", |view| view.parts_stored == 400 && view.trouble.is_none()).await;
    assert!(view.restarts >= 4, "{}", view.restarts);
    assert_eq!(stored.indexes(1).await, (0..400).collect::<Vec<_>>());
    assert_eq!(stored.store.ledger(&SESSION.into()).await.unwrap().session.unwrap().last_seq.0, 400);
    let froms: HashSet<String> = pod.commands().into_iter().map(|argv| argv[5].clone()).collect();
    assert!(froms.len() > 2, "it did not begin at the first byte each time: {froms:?}");
    followers.shutdown().await;
    link.gone().await;
}

#[tokio::test]
async fn a_read_that_keeps_failing_is_said_and_then_unsaid() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.set_status(status(AgentState::Running, 1, 0));
    let link = Link::to(&pod);
    link.always(Fault::NoConnection);
    let (followers, pokes) = follow(&link, &stored.store);
    followers.ensure(spec(1));
    let first = until(&followers, "trouble", |view| view.trouble.is_some()).await.trouble.unwrap();
    assert_eq!(first.reason, Reason::ReadFailed);
    let later = until(&followers, "more tries", |view| view.restarts > 5).await.trouble.unwrap();
    assert_eq!(later.since, first.since);
    assert_eq!(pokes.lock().unwrap().len(), 1, "said once");
    assert_eq!(followers.troubled(), 1);
    link.always(Fault::None);
    until(&followers, "recovery", |view| view.trouble.is_none() && view.status.is_some()).await;
    followers.shutdown().await;
}

#[tokio::test]
async fn a_follower_ends_with_its_recorder_and_is_not_started_again() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.set_status(status(AgentState::Running, 1, 0));
    let link = Link::to(&pod);
    let (followers, _) = follow(&link, &stored.store);
    followers.ensure(spec(1));
    until(&followers, "a frame", |view| view.frames > 0).await;
    pod.set_standing(Standing::Ended);
    link.always(Fault::NoConnection);
    // The connection of a recorder that is killed breaks.
    followers.stop(&target().uid);
    link.gone().await;
    let dialled = link.opened();
    followers.ensure(spec(1));
    until(&followers, "its end", |view| view.ended).await;
    followers.ensure(spec(1));
    followers.ensure(spec(2));
    assert!(followers.view(&target().uid).unwrap().ended);
    assert_eq!(link.opened(), dialled, "a recorder that is over is not dialled");
    followers.shutdown().await;
}

#[tokio::test]
async fn ensure_is_idempotent_and_the_next_turn_takes_over() {
    let stored = Stored::with_turns(2).await;
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..4));
    pod.set_status(status(AgentState::Succeeded, 1, 4));
    let link = Link::to(&pod);
    let (followers, _) = follow(&link, &stored.store);
    for _ in 0..10 {
        followers.ensure(spec(1));
    }
    until(&followers, "turn 1", |view| view.parts_stored == 4).await;
    assert_eq!((link.opened(), followers.len()), (1, 1));

    followers.ensure(spec(2));
    let view = followers.view(&target().uid).unwrap();
    assert_eq!((view.turn, state(&view)), (Turn(2), Some((AgentState::Succeeded, 1))), "what was heard stays in view");
    pod.append(2, &lines(2, 0..6));
    pod.set_status(status(AgentState::Succeeded, 2, 6));
    until(&followers, "turn 2", |view| view.turn == Turn(2) && view.parts_stored == 6).await;
    assert_eq!((link.live(), link.opened()), (1, 2));
    assert_eq!((stored.indexes(1).await.len(), stored.indexes(2).await.len()), (4, 6));
    followers.shutdown().await;
    link.gone().await;
}

#[tokio::test]
async fn stop_retain_and_shutdown_leave_nothing_behind() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.set_status(status(AgentState::Running, 1, 0));
    let link = Link::to(&pod);
    let (followers, _) = follow(&link, &stored.store);
    followers.ensure(spec(1));
    until(&followers, "a frame", |view| view.frames > 0).await;
    followers.retain(&HashSet::from([target().uid]));
    assert_eq!(followers.len(), 1);
    followers.retain(&HashSet::new());
    assert!(followers.is_empty() && followers.view(&target().uid).is_none());
    link.gone().await;
    followers.ensure(spec(1));
    until(&followers, "a frame", |view| view.frames > 0).await;
    soon("shutdown", followers.shutdown()).await;
    link.gone().await;
    followers.ensure(spec(1));
    assert!(followers.is_empty(), "nothing starts after shutdown");
}

#[tokio::test]
async fn a_new_process_sends_only_what_is_missing() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..30));
    pod.set_status(status(AgentState::Running, 1, 30));
    let (first, _) = follow(&Link::to(&pod), &stored.store);
    first.ensure(spec(1));
    until(&first, "thirty parts", |view| view.parts_stored == 30).await;
    first.shutdown().await;

    pod.append(1, &lines(1, 30..35));
    let flaky = Flaky::over(&stored.store, []);
    let store: SharedStore = flaky.clone();
    let (second, _) = follow(&Link::to(&pod), &store);
    second.ensure(spec(1));
    until(&second, "five parts", |view| view.parts_stored == 5).await;
    assert_eq!(flaky.batches(), [5]);
    second.shutdown().await;
}

#[tokio::test]
async fn a_harvest_reads_on_where_the_follower_stood_and_completes_the_proof() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..50));
    pod.set_status(status(AgentState::Running, 1, 50));
    let link = Link::to(&pod);
    let (followers, _) = follow(&link, &stored.store);
    followers.ensure(spec(1));
    let view = until(&followers, "fifty parts", |view| view.parts_stored == 50).await;
    followers.stop(&target().uid);
    pod.append(1, &lines(1, 50..60));
    pod.set_status(status(AgentState::Succeeded, 1, 60));
    let request = HarvestRequest {
        session: SESSION.into(),
        pod: target(),
        turn: Turn(1),
        attempt: Attempt(1),
        quota_bytes: 64 << 20,
        checkpoint: view.checkpoint,
    };
    let execs = Execs::new(link.clone(), quick());
    let harvester = Harvester::new(execs, Arc::clone(&stored.store), HarvestSettings::default());
    let harvested = harvester.harvest(&request).await.unwrap();
    assert_eq!(harvested.figures.read_bytes, lines(1, 50..60).len() as u64);
    assert_eq!(judge(Turn(1), Attempt(1), &harvested.evidence, None).verdict, Verdict::Complete);
}

#[tokio::test]
async fn damage_takes_the_checkpoint_away() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..5));
    pod.append(1, b"not json\n");
    pod.append(1, &lines(1, 5..8));
    pod.set_status(status(AgentState::Running, 1, 8));
    let (followers, _) = follow(&Link::to(&pod), &stored.store);
    followers.ensure(spec(1));
    let view = until(&followers, "eight parts", |view| view.parts_stored == 8).await;
    assert_eq!(view.checkpoint, None);
    followers.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_belongs_to_another_attempt_is_left_alone() {
    let stored = Stored::with_turns(1).await;
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..5));
    pod.set_status(status(AgentState::Running, 1, 5));
    let (followers, _) = follow(&Link::to(&pod), &stored.store);
    followers.ensure(FollowSpec { attempt: Attempt(2), ..spec(1) });
    let view = until(&followers, "frames", |view| view.frames > 2).await;
    assert_eq!((view.parts_stored, view.trouble, view.checkpoint), (0, None, None));
    assert_eq!(stored.indexes(1).await, [] as [u32; 0]);
    followers.shutdown().await;
}
