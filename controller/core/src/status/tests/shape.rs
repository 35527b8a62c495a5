//! One status: ends, conditions, counters and bounds.

use super::*;

#[test]
fn the_high_water_mark_never_goes_down() {
    let mut object = Object::new(3);
    object.pass(Some(&ledger(1, vec![succeeded(1), succeeded(2), accepted(3)])), None, &Facts::default());
    assert_eq!(object.status().accepted_turns, Some(3));
    let lost = settled(1, Outcome::Lost, Verdict::Incomplete);
    object.pass(Some(&ledger(0, vec![lost])), None, &Facts::default());
    assert_eq!(object.status().accepted_turns, Some(3));
    object.pass(Some(&LedgerView::default()), None, &waiting(Reason::StoreFull, "no room"));
    assert_eq!(object.status().accepted_turns, Some(3));
    object.pass(None, None, &waiting(Reason::StoreUnavailable, "away"));
    assert_eq!(object.status().accepted_turns, Some(3));
}

#[test]
fn every_end_is_the_phase_that_people_look_for() {
    let cases = [
        (
            settled(1, Outcome::Succeeded, Verdict::Complete),
            Phase::Completed,
            "True/AllTurnsComplete",
            "True/AllTurnsSettled",
        ),
        (
            TurnView { reason: Some(Reason::OOMKilled), ..settled(1, Outcome::Failed, Verdict::Complete) },
            Phase::Failed,
            "True/AllTurnsComplete",
            "True/OOMKilled",
        ),
        (
            TurnView {
                reason: Some(Reason::NodeLost),
                verdict_reason: Some(Reason::NodeLost),
                ..settled(1, Outcome::Lost, Verdict::Incomplete)
            },
            Phase::Failed,
            "False/NodeLost",
            "True/NodeLost",
        ),
        (
            TurnView {
                reason: Some(Reason::CanceledByUser),
                verdict_reason: Some(Reason::NeverStarted),
                ..settled(1, Outcome::Canceled, Verdict::Incomplete)
            },
            Phase::Canceled,
            "False/NeverStarted",
            "True/CanceledByUser",
        ),
        (
            TurnView { verdict_reason: Some(Reason::LogLimit), ..settled(1, Outcome::Succeeded, Verdict::Truncated) },
            Phase::Completed,
            "False/LogLimit",
            "True/AllTurnsSettled",
        ),
    ];
    for (turn, phase, complete, finished) in cases {
        let (reason, verdict) = (turn.reason.or(turn.verdict_reason), turn.verdict);
        let mut object = Object::new(1);
        object.pass(Some(&ledger(1, vec![turn])), None, &Facts::default());
        let status = object.status();
        assert_eq!((status.phase, status.reason), (Some(phase), reason));
        assert_eq!(status.transcript.as_ref().unwrap().verdict, verdict);
        assert_eq!(object.conditions()[1..3], [complete, finished]);
    }
}

#[test]
fn the_worst_verdict_and_the_first_gap_speak_for_the_session() {
    let mut object = Object::new(3);
    let cut =
        TurnView { verdict_reason: Some(Reason::PartLimit), ..settled(1, Outcome::Succeeded, Verdict::Truncated) };
    let lost = TurnView {
        verdict_reason: Some(Reason::PodGone),
        message: Some("the Pod vanished".to_owned()),
        ..settled(2, Outcome::Lost, Verdict::Incomplete)
    };
    object.pass(Some(&ledger(2, vec![cut, lost, succeeded(3)])), None, &Facts::default());
    assert_eq!(object.status().transcript.as_ref().unwrap().verdict, Some(Verdict::Incomplete));
    assert_eq!(object.condition("TranscriptComplete"), ("False".to_owned(), "PartLimit".to_owned()));
    assert_eq!(object.status().phase, Some(Phase::Completed));
}

#[test]
fn a_condition_keeps_its_time_while_its_status_stays() {
    let mut object = Object::new(1);
    object.pass(Some(&ledger(0, vec![accepted(1)])), None, &Facts::default());
    let first = condition(object.status(), "Finished").unwrap().last_transition_time.clone();
    object.pass(Some(&ledger(0, vec![accepted(1)])), None, &waiting(Reason::QuotaExceeded, "no room"));
    let finished = condition(object.status(), "Finished").unwrap();
    assert_eq!((finished.reason.as_str(), &finished.last_transition_time), ("QuotaExceeded", &first));
    object.pass(Some(&ledger(1, vec![succeeded(1)])), None, &Facts::default());
    assert!(condition(object.status(), "Finished").unwrap().last_transition_time > first);
}

#[test]
fn usage_is_the_sum_of_the_records_however_often_it_is_made() {
    let usage = |requests| Some(Usage { requests, input_tokens: 100, output_tokens: u64::MAX, total_tokens: 0 });
    let turns = ledger(
        1,
        vec![TurnView { usage: usage(2), ..succeeded(1) }, succeeded(2), TurnView { usage: usage(3), ..succeeded(3) }],
    );
    let mut object = Object::new(3);
    for _ in 0..3 {
        object.pass(Some(&turns), None, &Facts::default());
    }
    let sum = object.status().usage.clone().unwrap();
    assert_eq!((sum.requests, sum.input_tokens, sum.output_tokens), (5, 200, i64::MAX));
    assert_eq!(object.writes.len(), 1);
}

#[test]
fn the_last_twenty_turns_are_told_and_those_that_wait_are_not() {
    let mut turns: Vec<_> = (1..=30).map(succeeded).collect();
    turns.push(running(31, 0));
    turns.push(accepted(32));
    let mut object = Object::new(32);
    object.pass(Some(&ledger(1, turns)), Some(&up()), &Facts::default());
    let told: Vec<_> = object.status().turns.iter().map(|turn| turn.turn).collect();
    assert_eq!(told, (12..=31).collect::<Vec<_>>());
    assert_eq!(object.status().turn, Some(31));
}

#[test]
fn a_status_stays_small_whatever_there_is_to_say() {
    for text in ["é".repeat(1 << 20), "\u{1}".repeat(1 << 20), "\u{0}\"\\".repeat(1 << 16), "short".to_owned()] {
        let record = |turn| TurnView {
            message: Some(text.clone()),
            reason: Some(Reason::AgentExited),
            verdict_reason: Some(Reason::PartsMissing),
            ..settled(turn, Outcome::Failed, Verdict::Incomplete)
        };
        let full = ledger(9, (1..=64).map(record).collect());
        for facts in [Facts::default(), waiting(Reason::PodRefused, &text)] {
            let mut object = Object::new(64);
            object.pass(Some(&full), None, &facts);
            let json = serde_json::to_string(object.status()).unwrap();
            assert!(json.len() <= STATUS_BYTES, "{} bytes", json.len());
            assert_eq!(object.status().turns.len(), 20);
            let message = object.status().message.as_ref().unwrap();
            assert!(text.len() < 1024 || message.contains("bytes in all"), "{message}");
            assert!(!message.is_empty());
            // The same again is no write: what was cut is compared with what was cut.
            object.pass(Some(&full), None, &facts);
            assert_eq!(object.writes.len(), 1);
        }
    }
}

#[test]
fn statuses_that_differ_only_in_time_do_not_differ() {
    let mut object = Object::new(1);
    object.pass(Some(&ledger(1, vec![succeeded(1)])), None, &Facts::default());
    let one = object.status().clone();
    let mut other = one.clone();
    other.turns[0].completed_at = None;
    other.turns[0].started_at = None;
    other.conditions[0].last_transition_time.0 = at(999);
    assert!(!differs(Some(&one), &other));
    for change in [
        |status: &mut AgentSessionStatus| status.observed_generation = Some(9),
        |status: &mut AgentSessionStatus| status.conditions[2].message.push('x'),
        |status: &mut AgentSessionStatus| status.turns[0].parts += 1,
        |status: &mut AgentSessionStatus| status.pod_ip = Some("::1".to_owned()),
    ] {
        let mut other = one.clone();
        change(&mut other);
        assert!(differs(Some(&one), &other));
    }
    assert!(!differs(None, &AgentSessionStatus::default()));
    assert!(differs(None, &one));
}
