//! The verdict: every row of the table of what can go wrong that evidence can decide, and that `Complete` is never said without proof.
#![expect(clippy::unwrap_used, reason = "a test helper: a failure here is a failed test")]

use agentsession_transcript::{
    AgentExit, AgentState, AgentStatus, Attempt, IndexSet, Outcome, PartIndex, Reason, Turn, Verdict,
    merge::{ContainerEnd, Evidence, Judgement, LogFacts, MESSAGE_BYTES, judge},
    status::Usage,
};

mod properties;

const TURN: Turn = Turn(3);
const ATTEMPT: Attempt = Attempt(2);

fn indexes(n: u32) -> IndexSet {
    (0..n).map(PartIndex).collect()
}

fn status(state: AgentState, parts: u32) -> AgentStatus {
    AgentStatus {
        state,
        turn: TURN,
        attempt: ATTEMPT,
        parts,
        log_bytes: 0,
        truncated: false,
        truncated_reason: None,
        error: None,
        reason: None,
        exit: None,
        stderr_tail: String::new(),
        agent_ready: true,
        agent_session_id: None,
        resume: None,
        continuity: None,
        usage: None,
    }
}

type Change = fn(&mut Evidence);

/// A turn that ended well: ten parts, all read, all stored.
fn whole(state: AgentState) -> Evidence {
    Evidence {
        status: Some(status(state, 10)),
        facts: LogFacts { exists: true, size: 1000, read_to: 1000, indexes: indexes(10), ..LogFacts::default() },
        stored: indexes(10),
        inserted: 10,
        ..Evidence::default()
    }
}

fn exited(exit_code: i32) -> ContainerEnd {
    ContainerEnd { exit_code, ..ContainerEnd::default() }
}

fn oom() -> ContainerEnd {
    ContainerEnd { exit_code: 137, oom_killed: true, message: Some("OOMKilled".into()), ..ContainerEnd::default() }
}

fn verdict(evidence: &Evidence, end: Option<&ContainerEnd>) -> (Outcome, Verdict, Option<Reason>) {
    let judgement = judge(TURN, ATTEMPT, evidence, end);
    assert!(!judgement.pending, "{judgement:?}");
    (judgement.outcome, judgement.verdict, judgement.verdict_reason)
}

fn with(evidence: Evidence, change: impl FnOnce(&mut Evidence)) -> Evidence {
    let mut evidence = evidence;
    change(&mut evidence);
    evidence
}

fn set(evidence: &mut Evidence, change: impl FnOnce(&mut AgentStatus)) {
    change(evidence.status.as_mut().unwrap());
}

#[test]
fn a_turn_that_ended_with_its_log_whole_is_complete() {
    let complete = |outcome| (outcome, Verdict::Complete, None);
    assert_eq!(verdict(&whole(AgentState::Succeeded), None), complete(Outcome::Succeeded));
    assert_eq!(verdict(&whole(AgentState::Failed), None), complete(Outcome::Failed));
    assert_eq!(verdict(&whole(AgentState::Canceled), None), complete(Outcome::Canceled), "complete up to the abort");
}

#[test]
fn a_crash_is_complete_up_to_the_crash_with_proof_from_the_recorder() {
    let running = whole(AgentState::Running);
    assert_eq!(verdict(&running, Some(&exited(3))), (Outcome::Failed, Verdict::Complete, None));
    let judged = judge(TURN, ATTEMPT, &running, Some(&exited(3)));
    assert_eq!(judged.reason, Some(Reason::AgentExited));
    assert_eq!(judged.message.as_deref(), Some("agent exited with code 3"));

    let judged = judge(TURN, ATTEMPT, &running, Some(&oom()));
    assert_eq!((judged.reason, judged.verdict), (Some(Reason::OOMKilled), Verdict::Complete));
    assert_eq!(judged.message.as_deref(), Some("agent exited with code 137 (signal 9): out of memory\nOOMKilled"));
}

#[test]
fn the_driver_may_know_of_an_oom_kill_that_no_container_status_tells() {
    let seen = AgentExit { code: None, signal: Some(9), oom: true };
    let failed = with(whole(AgentState::Failed), |e| set(e, |s| s.exit = Some(seen)));
    assert_eq!(judge(TURN, ATTEMPT, &failed, None).reason, Some(Reason::OOMKilled));
    let running = with(whole(AgentState::Running), |e| set(e, |s| s.exit = Some(seen)));
    assert_eq!(judge(TURN, ATTEMPT, &running, Some(&exited(137))).reason, Some(Reason::OOMKilled));
}

#[test]
fn the_reason_of_a_failure_is_the_drivers_word_or_follows_from_the_exit() {
    let failed = |change: fn(&mut AgentStatus)| {
        judge(TURN, ATTEMPT, &with(whole(AgentState::Failed), |e| set(e, change)), None).reason
    };
    assert_eq!(failed(|s| s.reason = Some("AgentStartFailed".into())), Some(Reason::AgentStartFailed));
    assert_eq!(
        failed(|s| s.exit = Some(AgentExit { code: Some(1), ..AgentExit::default() })),
        Some(Reason::AgentExited)
    );
    assert_eq!(failed(|_| ()), Some(Reason::AgentError));
    assert_eq!(failed(|s| s.reason = Some("a word of a later version".into())), Some(Reason::AgentError));
}

#[test]
fn a_failure_message_has_error_exit_and_last_words_within_its_bound() {
    let evidence = with(whole(AgentState::Failed), |e| {
        set(e, |s| {
            s.error = Some("agent went away".into());
            s.exit = Some(AgentExit { code: Some(1), ..AgentExit::default() });
            s.stderr_tail = "boom\n".into();
        });
    });
    let message = judge(TURN, ATTEMPT, &evidence, None).message.unwrap();
    assert_eq!(message, "agent went away\nagent exited with code 1\nstderr: boom");

    let long = with(evidence, |e| set(e, |s| s.error = Some("\u{1f980}".repeat(MESSAGE_BYTES))));
    let message = judge(TURN, ATTEMPT, &long, None).message.unwrap();
    assert!(message.len() <= MESSAGE_BYTES);
    assert_eq!(message.strip_suffix(" … (cut)").map(|text| text.chars().all(|c| c == '\u{1f980}')), Some(true));
}

#[test]
fn every_shortfall_has_its_verdict_and_reason() {
    let (truncated, incomplete) = (Verdict::Truncated, Verdict::Incomplete);
    let rows: Vec<(&str, Change, Verdict, Reason)> = vec![
        ("no log", |e| e.facts = LogFacts::default(), incomplete, Reason::LogMissing),
        (
            "no log, no parts",
            |e| {
                e.facts = LogFacts::default();
                e.stored = indexes(0);
                set(e, |s| s.parts = 0);
            },
            incomplete,
            Reason::LogMissing,
        ),
        (
            "empty log with parts",
            |e| {
                e.facts = LogFacts { exists: true, ..LogFacts::default() };
                e.stored = indexes(0);
            },
            incomplete,
            Reason::PartsMissing,
        ),
        (
            "could not write, by status",
            |e| {
                set(e, |s| {
                    s.truncated = true;
                    s.truncated_reason = Some("LogWriteFailed".into());
                });
            },
            truncated,
            Reason::LogWriteFailed,
        ),
        ("log bound, by marker", |e| e.facts.marker = Some(Reason::LogLimit), truncated, Reason::LogLimit),
        (
            "log bound, by status",
            |e| set(e, |s| s.truncated_reason = Some("LogLimit".into())),
            truncated,
            Reason::LogLimit,
        ),
        ("bound on parts", |e| e.facts.marker = Some(Reason::PartCountLimit), truncated, Reason::PartCountLimit),
        ("part bound", |e| e.facts.marker = Some(Reason::PartLimit), truncated, Reason::PartLimit),
        ("truncated without a word", |e| set(e, |s| s.truncated = true), truncated, Reason::LogLimit),
        (
            "truncated with an unknown word",
            |e| {
                set(e, |s| {
                    s.truncated = true;
                    s.truncated_reason = Some("of a later version".into());
                });
            },
            truncated,
            Reason::LogLimit,
        ),
        (
            "quota",
            |e| {
                e.over_quota = 4;
                e.stored = indexes(6);
            },
            truncated,
            Reason::QuotaReached,
        ),
        ("damaged lines", |e| e.facts.damaged_lines = 1, truncated, Reason::LogDamaged),
        (
            "damaged lines that cost indexes",
            |e| {
                e.facts.damaged_lines = 1;
                e.facts.indexes = indexes(9);
                e.stored = indexes(9);
            },
            truncated,
            Reason::LogDamaged,
        ),
        ("torn tail", |e| e.facts.torn_tail = true, truncated, Reason::LogDamaged),
        (
            "index missing at the end",
            |e| {
                e.facts.indexes = indexes(9);
                e.stored = indexes(9);
            },
            incomplete,
            Reason::PartsMissing,
        ),
        (
            "index missing in the middle",
            |e| {
                e.facts.indexes = (0..10).filter(|i| *i != 4).map(PartIndex).collect();
                e.stored = e.facts.indexes.clone();
            },
            incomplete,
            Reason::PartsMissing,
        ),
        (
            "part bound and an index missing",
            |e| {
                e.facts.marker = Some(Reason::PartLimit);
                set(e, |s| s.parts = 11);
            },
            incomplete,
            Reason::PartsMissing,
        ),
        (
            "log bound and damage",
            |e| {
                e.facts.marker = Some(Reason::LogLimit);
                e.facts.damaged_lines = 3;
            },
            truncated,
            Reason::LogLimit,
        ),
    ];
    for (name, change, expected, reason) in rows {
        let said = with(whole(AgentState::Succeeded), change);
        assert_eq!(verdict(&said, None), (Outcome::Succeeded, expected, Some(reason)), "{name}");
        let crashed = with(said, |e| set(e, |s| s.state = AgentState::Running));
        let (outcome, found, found_reason) = verdict(&crashed, Some(&exited(1)));
        assert_eq!(
            (outcome, found, found_reason),
            (Outcome::Failed, expected, Some(reason)),
            "{name}, container ended"
        );
    }
}

#[test]
fn a_status_of_another_turn_or_attempt_proves_nothing() {
    for change in [|s: &mut AgentStatus| s.turn = Turn(2), |s: &mut AgentStatus| s.attempt = Attempt(1)] {
        let other = with(whole(AgentState::Succeeded), |e| set(e, change));
        let found = verdict(&other, Some(&exited(0)));
        assert_eq!(found, (Outcome::Failed, Verdict::Incomplete, Some(Reason::StatusMissing)));
        assert!(judge(TURN, ATTEMPT, &other, None).pending, "while the container runs, waiting is right");
    }
    let none = with(whole(AgentState::Succeeded), |e| e.status = None);
    assert_eq!(verdict(&none, Some(&exited(1))).2, Some(Reason::StatusMissing));
}

#[test]
fn a_status_of_another_turn_gives_no_usage_and_no_message() {
    let other = with(whole(AgentState::Failed), |e| {
        set(e, |s| {
            s.turn = Turn(2);
            s.error = Some("of turn 2".into());
            s.usage = Some(Usage { requests: 9, ..Usage::default() });
        });
    });
    let judged = judge(TURN, ATTEMPT, &other, Some(&exited(1)));
    assert_eq!((judged.usage, judged.message.as_deref()), (None, Some("agent exited with code 1")));
}

#[test]
fn a_crash_with_a_hole_among_the_indexes_is_not_complete() {
    let hole = with(whole(AgentState::Running), |e| {
        set(e, |s| s.parts = 0);
        e.facts.indexes = [0, 2].into_iter().map(PartIndex).collect();
        e.stored = e.facts.indexes.clone();
    });
    assert_eq!(verdict(&hole, Some(&exited(1))).2, Some(Reason::PartsMissing));
}

#[test]
fn waiting_is_right_until_there_is_an_end_and_all_of_it_is_read_and_stored() {
    let running = judge(TURN, ATTEMPT, &whole(AgentState::Running), None);
    assert!(running.pending);
    assert_eq!((running.outcome, running.verdict), (Outcome::Lost, Verdict::Incomplete));
    assert_eq!(running.verdict_reason, Some(Reason::StatusMissing));

    let unread = with(whole(AgentState::Succeeded), |e| e.facts.read_to = 999);
    let judged = judge(TURN, ATTEMPT, &unread, None);
    assert!(judged.pending);
    assert_eq!((judged.verdict, judged.verdict_reason), (Verdict::Incomplete, Some(Reason::ReadFailed)));

    let unstored = with(whole(AgentState::Succeeded), |e| e.stored = indexes(7));
    let judged = judge(TURN, ATTEMPT, &unstored, None);
    assert!(judged.pending);
    assert_eq!((judged.verdict, judged.verdict_reason), (Verdict::Incomplete, Some(Reason::PartsMissing)));
}

#[test]
fn the_drivers_word_goes_before_the_end_of_its_container() {
    let judged = judge(TURN, ATTEMPT, &whole(AgentState::Succeeded), Some(&exited(137)));
    assert_eq!((judged.outcome, judged.verdict, judged.message), (Outcome::Succeeded, Verdict::Complete, None));
}

#[test]
fn what_is_given_up_is_never_complete() {
    let given_up =
        Judgement::incomplete(Outcome::Lost, Some(Reason::NodeLost), Reason::NodeLost, Some("node n1 is not ready"));
    assert_eq!((given_up.verdict, given_up.pending), (Verdict::Incomplete, false));
    assert_eq!(given_up.message.as_deref(), Some("node n1 is not ready"));
}
