use std::time::Duration;

use crds::{AgentSessionStatus, Phase};
use serde_json::json;
use transcript::{Attempt, Outcome, PodUid, Turn, Verdict, merge::ContainerEnd, status::Usage};

use super::*;
use crate::{
    fixtures::{UID, session},
    model::{ContainerState, Desired, PodPhase, Trouble},
    view::session_view,
};

// --- fixtures: a session, its ledger and its Pod at some moment

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_796_000_000 + seconds).unwrap()
}

fn accepted(turn: u32) -> TurnView {
    TurnView {
        turn: Turn(turn),
        state: TurnState::Accepted,
        attempt: None,
        pod_uid: None,
        outcome: None,
        reason: None,
        verdict: None,
        verdict_reason: None,
        message: None,
        parts: 0,
        usage: None,
        accepted_at: at(0),
        started_at: None,
        settled_at: None,
        running_for: None,
        settled_for: None,
    }
}

fn running(turn: u32, parts: u32) -> TurnView {
    TurnView {
        state: TurnState::Running,
        attempt: Some(Attempt(1)),
        pod_uid: Some(PodUid::from("p1")),
        parts,
        started_at: Some(at(5)),
        running_for: Some(Duration::from_secs(1)),
        ..accepted(turn)
    }
}

fn harvesting(turn: u32, parts: u32) -> TurnView {
    TurnView { state: TurnState::Harvesting, ..running(turn, parts) }
}

fn settled(turn: u32, outcome: Outcome, verdict: Verdict) -> TurnView {
    TurnView {
        state: TurnState::Settled,
        outcome: Some(outcome),
        verdict: Some(verdict),
        settled_at: Some(at(60)),
        settled_for: Some(Duration::ZERO),
        running_for: None,
        ..running(turn, 10)
    }
}

fn succeeded(turn: u32) -> TurnView {
    settled(turn, Outcome::Succeeded, Verdict::Complete)
}

fn ledger(attempt: u32, turns: Vec<TurnView>) -> LedgerView {
    let parts: u64 = turns.iter().map(|turn| u64::from(turn.parts)).sum();
    LedgerView {
        known: true,
        attempt: Attempt(attempt),
        seed: "seed".to_owned(),
        turns,
        parts,
        bytes: parts * 100,
        last_seq: parts,
    }
}

fn pod() -> PodView {
    PodView {
        name: "agentsession-fix-login-7f3c9a52-1".to_owned(),
        uid: PodUid::from("p1"),
        attempt: Attempt(1),
        nonce: crate::decide::pod_nonce("seed", Attempt(1)),
        owned: true,
        template_digest: "t1".to_owned(),
        has_finalizer: true,
        deleting: None,
        ip: None,
        phase: PodPhase::Pending,
        agent: ContainerState::Waiting,
        recorder: ContainerState::Waiting,
        disruption: None,
        start_error: None,
        node_ready: Some(true),
    }
}

fn up() -> PodView {
    PodView {
        ip: Some("10.1.2.3".to_owned()),
        phase: PodPhase::Running,
        agent: ContainerState::Running,
        recorder: ContainerState::Running,
        ..pod()
    }
}

fn view(turns: usize) -> SessionView {
    let prompts: Vec<_> = (1..=turns).map(|n| json!({"prompt": format!("prompt {n}")})).collect();
    session_view(&session(json!({"spec": {"turns": prompts}})))
}

fn waiting(reason: Reason, message: &str) -> Facts {
    Facts { waiting: Some((reason, message.to_owned())), ..Facts::default() }
}

fn tearing_down() -> Facts {
    Facts { tearing_down: true, ..Facts::default() }
}

fn brief() -> Facts {
    Facts { brief: true, ..Facts::default() }
}

/// Plays the shell: projects, and writes what differs.
struct Object {
    session: SessionView,
    generation: i64,
    status: Option<AgentSessionStatus>,
    clock: i64,
    writes: Vec<Phase>,
}

impl Object {
    fn new(turns: usize) -> Self {
        Self { session: view(turns), generation: 1, status: None, clock: 0, writes: Vec::new() }
    }

    /// One pass; `None` for a store that does not answer.
    fn pass(&mut self, ledger: Option<&LedgerView>, pod: Option<&PodView>, facts: &Facts) -> &AgentSessionStatus {
        self.clock += 1;
        let next = Projection {
            previous: self.status.as_ref(),
            session: &self.session,
            generation: self.generation,
            ledger,
            pod,
            facts,
            now: at(self.clock),
        }
        .status();
        if differs(self.status.as_ref(), &next) {
            self.writes.push(next.phase.unwrap());
            self.status = Some(next);
            self.session.accepted_turns =
                self.status().accepted_turns.and_then(|turns| u32::try_from(turns).ok()).unwrap_or(0);
        }
        self.status.get_or_insert_default()
    }

    fn status(&self) -> &AgentSessionStatus {
        self.status.as_ref().unwrap()
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let condition = condition(self.status(), type_).unwrap();
        (condition.status.clone(), condition.reason.clone())
    }

    /// `status/reason` of the four conditions, in their order.
    fn conditions(&self) -> Vec<String> {
        let conditions = &self.status().conditions;
        assert_eq!(conditions.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), names::CONDITIONS);
        conditions.iter().map(|c| format!("{}/{}", c.status, c.reason)).collect()
    }
}

/// From nothing to the end of turn 1, with the Pod still up: what every pass of an ordinary life sees.
fn live_through_turn_one(object: &mut Object) {
    let empty = LedgerView::default();
    let one = ledger(0, vec![accepted(1)]);
    let opened = ledger(1, vec![accepted(1)]);
    object.pass(Some(&empty), None, &brief());
    object.pass(Some(&one), None, &Facts::default());
    object.pass(Some(&one), None, &Facts::default());
    object.pass(Some(&opened), None, &Facts::default());
    object.pass(Some(&opened), Some(&pod()), &Facts::default());
    object.pass(Some(&opened), Some(&PodView { ip: Some("10.1.2.3".to_owned()), ..pod() }), &Facts::default());
    object.pass(Some(&opened), Some(&up()), &Facts::default());
    for parts in [0, 0, 40, 80, 120] {
        object.pass(Some(&ledger(1, vec![running(1, parts)])), Some(&up()), &Facts::default());
    }
    object.pass(Some(&ledger(1, vec![running(1, 120)])), Some(&up()), &brief());
    object.pass(Some(&ledger(1, vec![harvesting(1, 120)])), Some(&up()), &Facts::default());
    object.pass(Some(&ledger(1, vec![harvesting(1, 121)])), Some(&up()), &brief());
}

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

// --- with real decisions

fn observed(ledger: Result<LedgerView, Trouble>, pods: Vec<PodView>) -> Observed {
    Observed {
        session: view(1),
        ledger,
        pods,
        drivers: Default::default(),
        harvest: crate::model::HarvestView::None,
        refusal: None,
        elapsed: Default::default(),
        abandoned: None,
        done: Default::default(),
        fresh_seed: "seed".to_owned(),
    }
}

#[test]
fn a_decision_that_accepts_turns_leaves_the_status_to_the_next_pass() {
    let object = session(json!({}));
    let observed = observed(Ok(LedgerView::default()), Vec::new());
    let decision = crate::decide(&observed);
    assert!(matches!(decision.step, Step::AcceptTurns(_)), "{:?}", decision.step);
    let next = project(&object, &observed, &decision, at(0));
    assert!(!differs(None, &next));
}

#[test]
fn the_ordinary_start_of_a_pod_is_no_waiting() {
    let object = session(json!({"status": {"acceptedTurns": 1}}));
    let mut observed = observed(Ok(ledger(1, vec![accepted(1)])), vec![pod()]);
    observed.session.has_finalizer = true;
    observed.pods[0].template_digest = observed.session.template_digest.clone();
    let decision = crate::decide(&observed);
    let next = project(&object, &observed, &decision, at(0));
    assert_eq!((next.phase, next.reason, next.pod_name), (Some(Phase::Provisioning), None, None), "{decision:?}");
}

#[test]
fn the_status_speaks_of_the_pod_that_has_the_turn_and_of_no_stranger() {
    let other = PodView { uid: PodUid::from("p9"), name: "stranger".to_owned(), nonce: "x".to_owned(), ..up() };
    let ledger = ledger(1, vec![running(1, 0)]);
    let pods = [other.clone(), up()];
    assert_eq!(current_pod(Some(&ledger), &pods, None).map(|pod| pod.name.as_str()), Some(up().name.as_str()));
    assert_eq!(current_pod(Some(&ledger), &[other], None).map(|pod| pod.name.as_str()), None);
    let named = AgentSessionStatus { pod_name: Some(up().name), ..AgentSessionStatus::default() };
    assert_eq!(current_pod(None, &pods, Some(&named)).map(|pod| pod.uid.clone()), Some(PodUid::from("p1")));
    assert!(current_pod(None, &pods, None).is_none());
}

#[test]
fn the_uid_of_fixtures_is_that_of_the_session() {
    assert_eq!(view(1).uid.as_str(), UID);
}

// --- properties

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn turn() -> impl Strategy<Value = TurnView> {
        let outcome = prop::sample::select(Outcome::ALL);
        let verdict = prop::sample::select(Verdict::ALL);
        let reason = prop::option::of(prop::sample::select(Reason::ALL));
        (0..4_u8, outcome, verdict, reason.clone(), reason, prop::option::of("\\PC{0,40}"), any::<u32>()).prop_map(
            |(state, outcome, verdict, reason, verdict_reason, message, parts)| match state {
                0 => accepted(1),
                1 => running(1, parts),
                2 => harvesting(1, parts),
                _ => TurnView { reason, verdict_reason, message, parts, ..settled(1, outcome, verdict) },
            },
        )
    }

    fn moment() -> impl Strategy<Value = (Option<LedgerView>, Option<PodView>, Facts)> {
        let turns = prop::collection::vec(turn(), 0..24).prop_map(|turns| {
            let number = |(i, turn): (usize, TurnView)| TurnView { turn: Turn(u32::try_from(i).unwrap() + 1), ..turn };
            ledger(1, turns.into_iter().enumerate().map(number).collect())
        });
        let pods = prop::option::of(prop_oneof![
            Just(pod()),
            Just(up()),
            Just(PodView { phase: PodPhase::Failed, recorder: ContainerState::Ended(ContainerEnd::default()), ..up() }),
        ]);
        let why = prop::option::of((prop::sample::select(Reason::ALL), "\\PC{0,40}"));
        let abandoned = prop::option::weighted(0.1, Just(Reason::StoreUnavailable));
        let facts = (why, any::<bool>(), any::<bool>(), any::<bool>(), abandoned).prop_map(
            |(waiting, tearing_down, slow_harvest, brief, abandoned)| Facts {
                waiting,
                tearing_down,
                slow_harvest,
                brief,
                abandoned,
            },
        );
        (prop::option::weighted(0.8, turns), pods, facts)
    }

    proptest! {
        #[test]
        fn whatever_comes_a_status_is_bounded_whole_and_stands_when_made_again(
            moments in prop::collection::vec(moment(), 1..6),
            desired in prop::sample::select(vec![Desired::Active, Desired::Suspended, Desired::Canceled]),
        ) {
            let mut object = Object::new(2);
            object.session.desired = desired;
            let mut high_water = 0;
            for (ledger, pod, facts) in &moments {
                object.pass(ledger.as_ref(), pod.as_ref(), facts);
                let status = object.status.clone().unwrap();
                if status.phase.is_some() {
                    prop_assert_eq!(object.conditions().len(), 4);
                }
                prop_assert!(serde_json::to_vec(&status).unwrap().len() <= STATUS_BYTES);
                prop_assert!(status.accepted_turns.unwrap_or(0) >= high_water);
                high_water = status.accepted_turns.unwrap_or(0);
                prop_assert!(status.turns.len() <= crds::STATUS_TURNS);
                if facts.tearing_down && !facts.brief {
                    prop_assert_eq!(&status.pod_ip, &None);
                }

                let writes = object.writes.len();
                object.pass(ledger.as_ref(), pod.as_ref(), facts);
                prop_assert_eq!(object.writes.len(), writes, "the same pass again wrote: {:?}", facts);
            }
        }
    }
}
