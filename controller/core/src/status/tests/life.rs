//! Statuses over time: which passes write, and what people see meanwhile.

use super::*;

#[test]
fn the_life_of_a_one_turn_session_is_three_writes() {
    let mut object = Object::new(1);
    live_through_turn_one(&mut object);
    let done = ledger(1, vec![TurnView { parts: 121, ..succeeded(1) }]);
    let deleted = PodView { deleting: Some(Duration::from_secs(1)), ..up() };
    let ended = PodView { phase: PodPhase::Succeeded, ..deleted.clone() };
    for pod in [Some(&up()), Some(&deleted), Some(&ended), None] {
        object.pass(Some(&done), pod, &tearing_down());
    }
    object.pass(Some(&done), None, &Facts::default());
    assert_eq!(object.writes, [Phase::Provisioning, Phase::Running, Phase::Completed]);
    insta::assert_yaml_snapshot!(object.status());
}

#[test]
fn an_interactive_session_says_that_its_pod_waits() {
    let mut object = Object::new(1);
    live_through_turn_one(&mut object);
    let done = ledger(1, vec![succeeded(1)]);
    object.pass(Some(&done), Some(&up()), &Facts::default());
    assert_eq!(object.status().pod_ip.as_deref(), Some("10.1.2.3"));
    assert_eq!(
        object.conditions(),
        ["True/PodRunning", "True/AllTurnsComplete", "True/AllTurnsSettled", "False/Active"]
    );
    object.pass(Some(&done), Some(&up()), &tearing_down());
    object.pass(Some(&done), None, &Facts::default());
    assert_eq!(object.writes, [Phase::Provisioning, Phase::Running, Phase::Idle, Phase::Completed]);
}

#[test]
fn the_first_status_carries_the_high_water_mark_and_all_conditions() {
    let mut object = Object::new(1);
    object.pass(Some(&LedgerView::default()), None, &brief());
    assert_eq!(object.writes, []);
    object.pass(Some(&ledger(0, vec![accepted(1)])), None, &Facts::default());
    let status = object.status();
    assert_eq!((status.phase, status.accepted_turns, status.turn), (Some(Phase::Provisioning), Some(1), Some(1)));
    assert_eq!((status.observed_generation, status.attempt), (Some(1), None));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(1)));
    assert_eq!(object.conditions(), ["False/PodStarting", "Unknown/TurnActive", "False/TurnActive", "False/Active"]);
}

#[test]
fn a_turn_that_is_added_reopens_every_condition_for_its_generation() {
    let mut object = Object::new(1);
    live_through_turn_one(&mut object);
    object.pass(Some(&ledger(1, vec![succeeded(1)])), Some(&up()), &Facts::default());
    let before = object.writes.len();

    object.session = view(2);
    object.generation = 2;
    object.pass(Some(&ledger(1, vec![succeeded(1)])), Some(&up()), &brief());
    assert_eq!(object.writes.len(), before, "accepting is told by the next pass");
    object.pass(Some(&ledger(1, vec![succeeded(1), accepted(2)])), Some(&up()), &Facts::default());
    assert_eq!((object.status().accepted_turns, object.status().turn), (Some(2), Some(2)));
    assert_eq!(object.conditions()[1..3], ["Unknown/TurnActive", "False/TurnActive"]);
    assert!(object.status().conditions.iter().all(|condition| condition.observed_generation == Some(2)));
    object.pass(Some(&ledger(1, vec![succeeded(1), running(2, 0)])), Some(&up()), &Facts::default());
    assert_eq!(object.status().phase, Some(Phase::Running));
    assert_eq!(object.status().turns.len(), 2);
}

#[test]
fn what_keeps_a_pod_from_starting_is_told_with_its_name_and_heals_in_one_write() {
    let mut object = Object::new(1);
    let opened = ledger(1, vec![accepted(1)]);
    object.pass(Some(&opened), Some(&pod()), &Facts::default());
    let words = "container agent: ImagePullBackOff: Back-off pulling image \"x:1\"";
    object.pass(Some(&opened), Some(&pod()), &waiting(Reason::ImagePullFailed, words));
    let status = object.status();
    assert_eq!((status.phase, status.reason), (Some(Phase::Provisioning), Some(Reason::ImagePullFailed)));
    assert_eq!(status.message.as_deref(), Some(words));
    assert_eq!((status.pod_name.as_deref(), status.attempt), (Some("agentsession-fix-login-7f3c9a52-1"), Some(1)));
    assert_eq!(object.conditions()[..3], ["False/ImagePullFailed", "Unknown/TurnActive", "False/ImagePullFailed"]);

    object.pass(Some(&opened), Some(&pod()), &Facts::default());
    assert_eq!(
        object.status().pod_name.as_deref(),
        Some("agentsession-fix-login-7f3c9a52-1"),
        "named once, named still"
    );
    assert_eq!(object.status().reason, None);
    object.pass(Some(&ledger(1, vec![running(1, 0)])), Some(&up()), &Facts::default());
    assert_eq!(object.writes, [Phase::Provisioning, Phase::Provisioning, Phase::Provisioning, Phase::Running]);
}

#[test]
fn a_session_that_waits_for_quota_is_pending() {
    let mut object = Object::new(1);
    let opened = ledger(1, vec![accepted(1)]);
    object.pass(Some(&opened), None, &waiting(Reason::QuotaExceeded, "exceeded quota: compute"));
    assert_eq!((object.status().phase, object.status().reason), (Some(Phase::Pending), Some(Reason::QuotaExceeded)));
    assert_eq!(object.conditions()[0], "False/QuotaExceeded");
    for _ in 0..100 {
        object.pass(Some(&opened), None, &waiting(Reason::QuotaExceeded, "exceeded quota: compute"));
    }
    object.pass(Some(&opened), Some(&pod()), &Facts::default());
    assert_eq!(object.writes, [Phase::Pending, Phase::Provisioning]);
}

#[test]
fn the_end_of_the_agent_is_told_while_its_log_is_read() {
    let mut object = Object::new(1);
    let end = ContainerEnd { exit_code: 137, signal: Some(9), oom_killed: true, message: None };
    let crashed = PodView { agent: ContainerState::Ended(end), ..up() };
    object.pass(Some(&ledger(1, vec![harvesting(1, 3)])), Some(&crashed), &Facts::default());
    assert_eq!((object.status().phase, object.conditions()[0].as_str()), (Some(Phase::Running), "False/OOMKilled"));
}

#[test]
fn a_harvest_that_takes_long_is_a_phase_with_its_reason() {
    let mut object = Object::new(1);
    live_through_turn_one(&mut object);
    let harvest = ledger(1, vec![harvesting(1, 121)]);
    object.pass(Some(&harvest), Some(&up()), &waiting(Reason::ReadFailed, "the exec was cut"));
    assert_eq!((object.status().phase, object.status().reason), (Some(Phase::Harvesting), Some(Reason::ReadFailed)));
    assert_eq!(object.conditions()[..3], ["True/PodRunning", "Unknown/ReadFailed", "False/ReadFailed"]);
    object.pass(Some(&ledger(1, vec![TurnView { parts: 121, ..succeeded(1) }])), Some(&up()), &tearing_down());
    assert_eq!(object.writes, [Phase::Provisioning, Phase::Running, Phase::Harvesting, Phase::Completed]);
}

#[test]
fn while_the_store_is_away_the_last_projection_stands_but_for_the_reason() {
    let mut object = Object::new(1);
    live_through_turn_one(&mut object);
    let before = object.status().clone();
    let slow = Facts { slow_harvest: true, ..waiting(Reason::StoreUnavailable, "connection refused") };
    object.pass(None, Some(&up()), &slow);
    let status = object.status().clone();
    assert_eq!((status.phase, status.reason), (Some(Phase::Harvesting), Some(Reason::StoreUnavailable)));
    assert_eq!((&status.turns, &status.transcript, &status.usage), (&before.turns, &before.transcript, &before.usage));
    assert_eq!((&status.pod_name, &status.pod_ip), (&before.pod_name, &before.pod_ip));
    assert_eq!(
        object.conditions(),
        ["True/PodRunning", "Unknown/StoreUnavailable", "False/StoreUnavailable", "False/Active"]
    );
    object.pass(None, Some(&up()), &slow);
    object.pass(Some(&ledger(1, vec![TurnView { parts: 121, ..succeeded(1) }])), Some(&up()), &tearing_down());
    assert_eq!(object.writes, [Phase::Provisioning, Phase::Running, Phase::Harvesting, Phase::Completed]);
}

#[test]
fn a_store_that_goes_away_causes_no_write_for_a_session_that_has_nothing_active() {
    for phase in [Phase::Idle, Phase::Completed] {
        let mut object = Object::new(1);
        let pod = (phase == Phase::Idle).then(up);
        object.pass(Some(&ledger(1, vec![succeeded(1)])), pod.as_ref(), &Facts::default());
        object.pass(None, pod.as_ref(), &waiting(Reason::StoreUnavailable, "away"));
        object.pass(Some(&ledger(1, vec![succeeded(1)])), pod.as_ref(), &Facts::default());
        assert_eq!(object.writes, [phase]);
    }
}

#[test]
fn a_session_that_is_made_while_the_store_is_away_says_so() {
    let mut object = Object::new(1);
    object.pass(None, None, &waiting(Reason::StoreUnavailable, "connection refused"));
    let status = object.status();
    assert_eq!((status.phase, status.accepted_turns), (Some(Phase::Pending), None));
    assert_eq!(
        object.conditions(),
        ["False/NoPod", "Unknown/StoreUnavailable", "False/StoreUnavailable", "False/Active"]
    );
}

#[test]
fn abandoned_records_are_told_by_the_object_itself() {
    let mut object = Object::new(1);
    live_through_turn_one(&mut object);
    let facts = Facts {
        abandoned: Some(Reason::StoreUnavailable),
        tearing_down: true,
        ..waiting(Reason::StoreUnavailable, "connection refused")
    };
    object.pass(None, Some(&up()), &facts);
    let status = object.status();
    assert_eq!((status.phase, status.reason), (Some(Phase::Failed), Some(Reason::StoreUnavailable)));
    assert_eq!((&status.pod_name, &status.pod_ip), (&None, &None));
    let turn = &status.turns[0];
    assert_eq!((turn.transcript, turn.transcript_reason), (Some(Verdict::Incomplete), Some(Reason::StoreUnavailable)));
    assert_eq!(object.conditions()[1], "False/StoreUnavailable");
    let writes = object.writes.len();
    object.pass(None, None, &facts);
    assert_eq!(object.writes.len(), writes);
}

#[test]
fn suspension_is_reached_when_the_pod_is_gone_and_not_before() {
    let mut object = Object::new(2);
    object.session.desired = Desired::Suspended;
    let stopped = TurnView { reason: Some(Reason::Suspended), ..settled(1, Outcome::Canceled, Verdict::Complete) };
    object.pass(Some(&ledger(1, vec![running(1, 0), accepted(2)])), Some(&up()), &Facts::default());
    assert_eq!(object.condition("Suspended"), ("False".to_owned(), "TurnActive".to_owned()));
    let after = ledger(1, vec![stopped, accepted(2)]);
    object.pass(
        Some(&after),
        Some(&up()),
        &Facts { tearing_down: true, ..waiting(Reason::Suspended, "set it to Active") },
    );
    assert_eq!(object.condition("Suspended"), ("False".to_owned(), "PodRunning".to_owned()));
    object.pass(Some(&after), None, &Facts { tearing_down: true, ..waiting(Reason::Suspended, "set it to Active") });
    assert_eq!((object.status().phase, object.status().reason), (Some(Phase::Suspended), Some(Reason::Suspended)));
    assert_eq!(object.condition("Suspended"), ("True".to_owned(), "Suspended".to_owned()));
    let since = condition(object.status(), "Suspended").unwrap().last_transition_time.clone();

    object.session.desired = Desired::Active;
    object.generation = 2;
    object.pass(Some(&after), None, &Facts::default());
    assert_eq!(object.condition("Suspended"), ("False".to_owned(), "Active".to_owned()));
    assert!(condition(object.status(), "Suspended").unwrap().last_transition_time > since);
    assert_eq!(object.status().phase, Some(Phase::Provisioning));
}

#[test]
fn an_outage_that_changes_its_words_is_one_write() {
    let mut object = Object::new(1);
    live_through_turn_one(&mut object);
    let before = object.writes.len();
    for words in ["connection refused", "timed out", "connection refused", "no route to host"] {
        object.pass(None, Some(&up()), &waiting(Reason::StoreUnavailable, words));
    }
    assert_eq!(object.writes.len(), before + 1);
    assert_eq!(object.status().message.as_deref(), Some("connection refused"));
    let complete = condition(object.status(), names::CONDITION_TRANSCRIPT_COMPLETE).unwrap();
    assert_eq!((complete.status.as_str(), complete.message.as_str()), ("Unknown", "connection refused"));
}
