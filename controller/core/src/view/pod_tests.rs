#[path = "trouble_tests.rs"]
mod trouble;

use serde_json::{Value, json};
use transcript::Reason;

use super::*;
use crate::{
    fixtures::{UID, pod},
    model::StartError,
};

fn view(patch: Value) -> PodView {
    pod_view(&pod(patch), &SessionUid::from(UID), None)
}

/// A Pod whose containers `agent` and `recorder` have these states.
fn with_states(phase: &str, agent: &Value, recorder: &Value) -> Value {
    json!({"status": {"phase": phase, "podIP": "10.1.2.3", "containerStatuses": [
        status("agent", agent), status("recorder", recorder),
    ]}})
}

fn status(name: &str, state: &Value) -> Value {
    json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-11-30T18:00:00Z"}})
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn ended(code: i32, reason: &str, message: Option<&str>) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason, "message": message}})
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": type_, "status": status, "reason": reason, "message": message}])
}

#[test]
fn a_new_pod_is_ours_by_name_nonce_and_owner() {
    let view = view(json!({}));
    assert_eq!(view.name, "agentsession-fix-login-7f3c9a52-1");
    assert_eq!((view.attempt, view.nonce.as_str()), (Attempt(1), "0123456789abcdef0123456789abcdef"));
    assert_eq!(view.template_digest, "t1");
    assert!(view.owned && view.has_finalizer);
    assert_eq!((view.phase, view.deleting, view.ip), (PodPhase::Pending, None, None));
    assert_eq!((view.agent, view.recorder), (ContainerState::Waiting, ContainerState::Waiting));
    assert_eq!((view.start_error, view.disruption), (None, None));
}

#[test]
fn an_orphaned_pod_is_still_known_by_its_nonce() {
    let view = view(json!({"metadata": {"ownerReferences": []}}));
    assert!(!view.owned);
    assert_eq!(view.nonce, "0123456789abcdef0123456789abcdef");
}

#[test]
fn an_owner_of_another_session_or_one_that_does_not_control_is_none() {
    for owner in [
        json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": "other", "controller": true}),
        json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": UID}),
    ] {
        assert!(!view(json!({"metadata": {"ownerReferences": [owner]}})).owned);
    }
}

#[test]
fn the_name_says_the_attempt_and_a_label_only_where_it_does_not() {
    assert_eq!(view(json!({"metadata": {"labels": {"agentsession.dev/attempt": "9"}}})).attempt, Attempt(1));
    let odd = json!({"metadata": {"name": "by-hand", "labels": {"agentsession.dev/attempt": "9"}}});
    assert_eq!(view(odd).attempt, Attempt(9));
    assert_eq!(
        view(json!({"metadata": {"name": "by-hand", "labels": {"agentsession.dev/attempt": "x"}}})).attempt,
        Attempt(0)
    );
}

#[test]
fn a_pod_that_is_deleted_says_its_grace() {
    let deleted = |grace: Value| {
        view(json!({"metadata": {"deletionTimestamp": "2026-11-30T18:00:00Z", "deletionGracePeriodSeconds": grace}}))
            .deleting
    };
    assert_eq!(deleted(json!(60)), Some(Duration::from_secs(60)));
    assert_eq!(deleted(json!(0)), Some(Duration::ZERO));
    assert_eq!(deleted(Value::Null), Some(Duration::ZERO));
    assert_eq!(deleted(json!(-1)), Some(Duration::ZERO));
}

#[test]
fn phases_are_read_and_a_new_word_is_not_terminal() {
    for (word, phase) in [
        (json!("Pending"), PodPhase::Pending),
        (json!("Running"), PodPhase::Running),
        (json!("Succeeded"), PodPhase::Succeeded),
        (json!("Failed"), PodPhase::Failed),
        (json!("Unknown"), PodPhase::Unknown),
        (json!("Hibernating"), PodPhase::Unknown),
        (Value::Null, PodPhase::Pending),
    ] {
        assert_eq!(view(json!({"status": {"phase": word}})).phase, phase);
    }
}

#[test]
fn the_end_of_the_agent_is_seen_while_the_pod_runs_on() {
    let view = view(with_states("Running", &ended(3, "Error", None), &running()));
    let end = ContainerEnd { exit_code: 3, signal: None, oom_killed: false, message: None };
    assert_eq!((view.agent, view.recorder), (ContainerState::Ended(end), ContainerState::Running));
    assert_eq!((view.phase, view.ip.as_deref()), (PodPhase::Running, Some("10.1.2.3")));
    assert_eq!(view.start_error, None);
}

#[test]
fn how_a_container_ended_is_told_with_its_signal() {
    let cases = [
        (ended(0, "Completed", None), 0, None, false, None),
        (ended(137, "OOMKilled", None), 137, Some(9), true, Some("OOMKilled")),
        (ended(137, "Error", None), 137, Some(9), false, None),
        (ended(143, "Error", Some("stopped\n")), 143, Some(15), false, Some("stopped")),
        (ended(255, "Error", None), 255, None, false, None),
        (ended(128, "StartError", Some("exec format error")), 128, None, false, Some("StartError: exec format error")),
        (
            ended(
                137,
                "ContainerStatusUnknown",
                Some("The container could not be located when the pod was terminated"),
            ),
            137,
            None,
            false,
            Some("ContainerStatusUnknown: The container could not be located when the pod was terminated"),
        ),
        (json!({"terminated": {"exitCode": 1, "signal": 11}}), 1, Some(11), false, None),
    ];
    for (state, exit_code, signal, oom_killed, message) in cases {
        let view = view(with_states("Running", &state, &running()));
        let end = ContainerEnd { exit_code, signal, oom_killed, message: message.map(str::to_owned) };
        assert_eq!(view.agent, ContainerState::Ended(end), "{state}");
    }
}

#[test]
fn a_last_state_counts_whatever_the_state_says_by_now() {
    for state in [running(), waiting("CrashLoopBackOff", "back-off 10s"), json!({})] {
        let mut agent = status("agent", &state);
        agent["lastState"] = ended(137, "OOMKilled", None);
        let view =
            view(json!({"status": {"phase": "Running", "containerStatuses": [agent, status("recorder", &running())]}}));
        assert!(matches!(&view.agent, ContainerState::Ended(end) if end.oom_killed), "{state}");
    }
}

#[test]
fn a_huge_message_of_a_container_is_cut() {
    let view = view(with_states("Running", &ended(1, "Error", Some(&"é".repeat(1 << 20))), &running()));
    let ContainerState::Ended(ContainerEnd { message: Some(message), .. }) = view.agent else { panic!("no end") };
    assert!(message.len() <= WORDS_BYTES && message.contains("2097152 bytes in all"), "{} bytes", message.len());
}

#[test]
fn a_pod_without_its_spec_is_read_all_the_same() {
    let mut trimmed = pod(with_states("Running", &running(), &running()));
    trimmed.spec = None;
    trimmed.metadata.managed_fields = None;
    let view = pod_view(&trimmed, &SessionUid::from(UID), Some(true));
    assert_eq!((view.agent, view.recorder), (ContainerState::Running, ContainerState::Running));
}
