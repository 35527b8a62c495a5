//! Deliveries: what the controller says was taken stands in the inbox, whole, however often and over whatever link it was sent.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use agentsession_controller::{
    deliver::{DeliverError, cancel, deliver_prompt, release_recorder},
    exec::{Execs, RemoteEnd, Standing},
};
use transcript::{Turn, frame::Prompt};

use support::{
    link::{Fault, Link},
    pod::Pod,
    quick, soon, target,
};

mod support;

fn prompt(text: &str) -> Prompt {
    Prompt { turn: Turn(2), prompt: text.to_owned(), context: None }
}

fn reach(pod: &Arc<Pod>, faults: impl IntoIterator<Item = Fault>) -> (Execs, Arc<Link>) {
    let link = Link::with(pod, faults);
    (Execs::new(link.clone(), quick()), link)
}

#[tokio::test]
async fn a_prompt_stands_in_the_inbox_byte_for_byte() {
    let pod = Pod::new();
    let (execs, link) = reach(&pod, []);
    let long = prompt(&"Fix the login bug \u{1f980} \"now\"\n".repeat(5000));
    soon("a delivery", deliver_prompt(&execs, &target(), &long)).await.unwrap();
    assert_eq!(pod.inbox()["turn-2.json"], long.encode().unwrap());
    link.gone().await;
}

#[tokio::test]
async fn delivering_again_changes_nothing_and_another_prompt_is_declined() {
    let pod = Pod::new();
    let (execs, _) = reach(&pod, []);
    deliver_prompt(&execs, &target(), &prompt("one")).await.unwrap();
    deliver_prompt(&execs, &target(), &prompt("one")).await.unwrap();
    let error = deliver_prompt(&execs, &target(), &prompt("two")).await.unwrap_err();
    assert_eq!(error.category(), "protocol");
    assert_eq!(pod.inbox()["turn-2.json"], prompt("one").encode().unwrap());
}

#[tokio::test]
async fn an_answer_that_is_cut_or_changed_at_any_byte_is_no_answer() {
    let pod = Pod::new();
    // The answer has 83 bytes and a newline.
    for at in 0..84 {
        for fault in [Fault::Reset(at), Fault::Ended(at, RemoteEnd::Success), Fault::Flipped(at)] {
            let (execs, link) = reach(&pod, [fault.clone()]);
            let told = soon("a delivery", deliver_prompt(&execs, &target(), &prompt("one"))).await;
            assert!(told.is_err(), "{fault:?}");
            link.gone().await;
            deliver_prompt(&execs, &target(), &prompt("one")).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_link_that_stalls_or_floods_does_not_hold_the_delivery() {
    let pod = Pod::new();
    for (fault, category) in [(Fault::Stall(0), "timeout"), (Fault::Endless, "protocol"), (Fault::NoAnswer, "timeout")]
    {
        let (execs, link) = reach(&pod, [fault]);
        let error = soon("a delivery", deliver_prompt(&execs, &target(), &prompt("one"))).await.unwrap_err();
        assert_eq!(error.category(), category);
        link.gone().await;
    }
}

#[tokio::test]
async fn cancel_and_release_reach_the_inbox() {
    let pod = Pod::new();
    let (execs, _) = reach(&pod, []);
    cancel(&execs, &target(), Turn(2)).await.unwrap();
    release_recorder(&execs, &target()).await.unwrap();
    release_recorder(&execs, &target()).await.unwrap();
    assert_eq!(pod.inbox().into_keys().collect::<Vec<_>>(), ["cancel-2.json", "release"]);
}

#[tokio::test]
async fn a_recorder_that_is_gone_cannot_be_told_and_is_not_dialled() {
    let pod = Pod::new();
    pod.set_standing(Standing::Ended);
    let (execs, link) = reach(&pod, []);
    let error = release_recorder(&execs, &target()).await.unwrap_err();
    assert!(error.is_ended() && matches!(error, DeliverError::Exec { .. }));
    assert_eq!(link.opened(), 0);
}
