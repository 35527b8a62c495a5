use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

use transcript::{Turn, TurnState};

use super::*;
use crate::fixtures::session;

fn record(outcome: Outcome, verdict: Verdict) -> TurnView {
    TurnView {
        turn: Turn(2),
        state: TurnState::Settled,
        attempt: Some(Attempt(1)),
        pod_uid: None,
        outcome: Some(outcome),
        reason: None,
        verdict: Some(verdict),
        verdict_reason: None,
        message: None,
        parts: 121,
        usage: None,
        accepted_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        settled_at: None,
        running_for: None,
        settled_for: None,
    }
}

fn told(turn: &TurnView) -> (bool, &'static str, String) {
    let plan = turn_settled(turn);
    (plan.warning, plan.reason.as_str(), plan.note)
}

#[test]
fn the_end_of_a_turn_is_told_with_outcome_verdict_and_words() {
    let good = record(Outcome::Succeeded, Verdict::Complete);
    assert_eq!(told(&good), (false, "TurnSettled", "turn 2 Succeeded, transcript Complete, 121 parts".to_owned()));

    let crash = TurnView {
        reason: Some(Reason::AgentExited),
        message: Some("exit code 3".to_owned()),
        ..record(Outcome::Failed, Verdict::Complete)
    };
    let note = "turn 2 Failed (AgentExited), transcript Complete, 121 parts: exit code 3";
    assert_eq!(told(&crash), (true, "AgentExited", note.to_owned()));

    let cut = TurnView { verdict_reason: Some(Reason::LogLimit), ..record(Outcome::Succeeded, Verdict::Truncated) };
    let note = "turn 2 Succeeded, transcript Truncated (LogLimit), 121 parts";
    assert_eq!(told(&cut), (true, "LogLimit", note.to_owned()));
}

#[test]
fn a_cancel_that_lost_nothing_is_no_warning() {
    let canceled = TurnView { reason: Some(Reason::CanceledByUser), ..record(Outcome::Canceled, Verdict::Complete) };
    assert!(!told(&canceled).0);
    let lossy = TurnView { verdict: Some(Verdict::Incomplete), ..canceled };
    assert!(told(&lossy).0);
}

#[test]
fn a_note_fits_into_an_event_whatever_the_agent_had_to_say() {
    let turn = TurnView { message: Some("ß".repeat(1 << 20)), ..record(Outcome::Failed, Verdict::Complete) };
    let refusal =
        PodRefusal { attempt: Attempt(1), kind: RefusalKind::Fatal, message: "x".repeat(1 << 20), age: Duration::ZERO };
    for plan in [turn_settled(&turn), refused(&refusal).unwrap()] {
        assert!(plan.note.len() <= NOTE_BYTES && plan.note.contains("bytes in all"), "{} bytes", plan.note.len());
    }
}

#[test]
fn a_refusal_is_told_in_the_api_servers_words() {
    let refusal = |kind| {
        refused(&PodRefusal {
            attempt: Attempt(1),
            kind,
            message: "exceeded quota: compute".to_owned(),
            age: Duration::ZERO,
        })
    };
    let reason = |kind| refusal(kind).map(|plan| plan.reason);
    assert_eq!(reason(RefusalKind::Quota), Some(Reason::QuotaExceeded));
    assert_eq!(reason(RefusalKind::NameTaken), Some(Reason::NameTaken));
    assert_eq!(reason(RefusalKind::Fatal), Some(Reason::PodRefused));
    assert_eq!(reason(RefusalKind::NamespaceTerminating), None, "the session's end says it");
    assert_eq!(refusal(RefusalKind::Quota).unwrap().note, "exceeded quota: compute");
}

#[test]
fn waiting_is_told_once() {
    let reason = (Reason::ImagePullFailed, "Back-off pulling image".to_owned());
    let told = waiting(None, Some(&reason)).unwrap();
    assert_eq!(
        (told.warning, told.reason, told.note.as_str()),
        (true, Reason::ImagePullFailed, "Back-off pulling image")
    );
    let said = AgentSessionStatus { reason: Some(Reason::ImagePullFailed), ..AgentSessionStatus::default() };
    assert_eq!(waiting(Some(&said), Some(&reason)), None);
    assert_eq!(waiting(Some(&said), None), None);
    for ordinary in [Reason::PodStarting, Reason::Suspended] {
        assert_eq!(waiting(None, Some(&(ordinary, String::new()))), None);
    }
}

#[test]
fn an_ordinary_life_has_two_events_and_neither_warns() {
    let life = [
        attempt_started(Attempt(1), "agentsession-fix-login-7f3c9a52-1"),
        turn_settled(&record(Outcome::Succeeded, Verdict::Complete)),
    ];
    assert!(life.iter().all(|plan| !plan.warning));
    assert_eq!(life[0].note, "attempt 1: created Pod agentsession-fix-login-7f3c9a52-1");
}

#[test]
fn what_is_lost_is_told_as_a_warning() {
    assert_eq!(
        store_lost(1).note,
        "the store no longer knows 1 turn that it once had: recorded as Lost, not to be run again"
    );
    for plan in [store_lost(3), abandoned(Reason::StoreUnavailable), workspace_empty(Attempt(2))] {
        assert!(plan.warning, "{plan:?}");
    }
    assert_eq!(abandoned(Reason::StoreFull).reason, Reason::StoreFull);
    assert!(!released().warning);
}

#[test]
fn a_field_that_is_not_usable_is_named() {
    assert_eq!(invalid_fields(&session(json!({}))), None);
    let odd = session(json!({"spec": {"turnTimeout": "half an hour", "idleTimeout": "1w"}}));
    let plan = invalid_fields(&odd).unwrap();
    assert_eq!(plan.reason, Reason::InvalidField);
    assert!(plan.note.contains("spec.turnTimeout") && plan.note.contains("\"1w\" is not a duration"), "{}", plan.note);
}
