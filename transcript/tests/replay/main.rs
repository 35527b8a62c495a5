//! What a client receives: read as a snapshot by people, and by a model of the client that stops where the real one does.
#![expect(clippy::expect_used, clippy::panic, reason = "a test helper: a failure here is a failed test")]

use agentsession_transcript::{
    Outcome, PartIndex, Reason, SessionUid, Turn, TurnState, Verdict,
    replay::{Replay, ReplayOptions, ReplayTurn},
    scan::scan,
};

use client::legal;

mod client;
mod properties;

fn settled(turn: u32) -> ReplayTurn {
    ReplayTurn {
        turn: Turn(turn),
        prompt: format!("prompt {turn}"),
        state: TurnState::Settled,
        outcome: Some(Outcome::Succeeded),
        reason: None,
        verdict: Some(Verdict::Complete),
        verdict_reason: None,
        message: None,
    }
}

fn lost(turn: u32) -> ReplayTurn {
    ReplayTurn {
        outcome: Some(Outcome::Lost),
        reason: Some(Reason::NodeLost),
        verdict: Some(Verdict::Incomplete),
        verdict_reason: Some(Reason::NodeLost),
        message: Some("node n1 stopped answering".into()),
        ..settled(turn)
    }
}

fn active(turn: u32, state: TurnState) -> ReplayTurn {
    ReplayTurn { state, outcome: None, verdict: None, ..settled(turn) }
}

/// A part as the store has it.
type Stored = (u32, u32, String);

fn part(turn: u32, index: u32, raw: &str) -> Stored {
    (turn, index, raw.to_owned())
}

fn parts(turn: u32, all: &[&str]) -> Vec<Stored> {
    (0..).zip(all).map(|(index, raw)| part(turn, index, raw)).collect()
}

fn replay(turns: Vec<ReplayTurn>, stored: &[Stored], options: ReplayOptions) -> String {
    let mut replay = Replay::new(&SessionUid::from("2f1c"), turns, options);
    let mut out = Vec::new();
    replay.begin(&mut out);
    for (turn, index, raw) in stored {
        replay.push(Turn(*turn), PartIndex(*index), raw, &mut out);
    }
    replay.finish(&mut out);
    String::from_utf8(out).expect("a stream is UTF-8")
}

fn plain(turns: Vec<ReplayTurn>, stored: &[Stored]) -> String {
    replay(turns, stored, ReplayOptions::default())
}

fn log(bytes: &[u8]) -> Vec<Stored> {
    let found = scan(Turn(1), bytes);
    assert_eq!(found.account.damage.lines, 0);
    found.parts.iter().map(|part| (1, part.index.0, part.raw.clone().into_owned())).collect()
}

#[test]
fn an_ordinary_turn_goes_out_byte_for_byte_in_one_envelope() {
    let stored = log(include_bytes!("../logs/hello.jsonl"));
    let stream = plain(vec![settled(1)], &stored);
    legal(&stream);
    insta::assert_snapshot!(stream);
    for (turn, index, raw) in &stored {
        let event = format!("id: {turn}.{index}\ndata: {raw}\n\n");
        let is_envelope = raw.contains(r#""type":"start","#) || raw.contains(r#""type":"finish","#);
        assert_eq!(stream.matches(&event).count(), usize::from(!is_envelope), "{raw}");
    }
}

#[test]
fn a_turn_cut_in_the_middle_is_closed_and_says_why() {
    let stream = plain(vec![lost(1)], &log(include_bytes!("../logs/crash.jsonl")));
    legal(&stream);
    insta::assert_snapshot!(stream);
}

#[test]
fn holes_are_said_at_their_place() {
    let stream = plain(vec![lost(1)], &log(include_bytes!("../logs/hole.jsonl")));
    legal(&stream);
    insta::assert_snapshot!(stream);
}

#[test]
fn whatever_a_log_holds_the_client_reads_to_the_end() {
    let stored = log(include_bytes!("../logs/hostile.jsonl"));
    let stream = plain(vec![settled(1)], &stored);
    insta::assert_snapshot!(stream);
    // The model cannot read lone surrogates, 1e400 and depth; what is left of the stream must be as legal as the whole.
    let readable: Vec<Stored> = stored
        .into_iter()
        .filter(|(.., raw)| serde_json::from_str::<serde_json::Value>(raw).is_ok() || raw.contains("__proto__"))
        .collect();
    legal(&plain(vec![settled(1)], &readable));
}

#[test]
fn text_goes_out_as_it_is_stored() {
    let stored = log(include_bytes!("../logs/text.jsonl"));
    let stream = plain(vec![settled(1)], &stored);
    for (_, index, raw) in stored.iter().filter(|(.., raw)| !raw.contains("finish")) {
        assert!(stream.contains(&format!("id: 1.{index}\ndata: {raw}\n\n")), "{raw}");
    }
    insta::assert_snapshot!(replay(vec![settled(1)], &stored, ReplayOptions { coalesce: true, after: None }));
}

#[test]
fn three_turns_of_which_the_second_was_lost_are_all_there_in_order() {
    let text = |turn: u32| {
        parts(
            turn,
            &[
                r#"{"type":"start"}"#,
                r#"{"type":"text-start","id":"x"}"#,
                &format!(r#"{{"type":"text-delta","id":"x","delta":"answer {turn}"}}"#),
                r#"{"type":"text-end","id":"x"}"#,
                r#"{"type":"finish"}"#,
            ],
        )
    };
    let stored = [text(1), text(2)[..3].to_vec(), text(3)].concat();
    let stream = plain(vec![settled(1), lost(2), settled(3)], &stored);
    legal(&stream);
    insta::assert_snapshot!(stream);
}

#[test]
fn an_active_session_says_that_it_still_runs() {
    let stored = parts(1, &[r#"{"type":"start"}"#, r#"{"type":"text-delta","id":"x","delta":"so far"}"#]);
    let stream = plain(vec![active(1, TurnState::Running), active(2, TurnState::Accepted)], &stored);
    legal(&stream);
    insta::assert_snapshot!(stream);
}

#[test]
fn a_session_without_any_part_still_ends() {
    let stream = plain(vec![lost(1)], &[]);
    legal(&stream);
    assert!(stream.contains(r#""type":"data-turn-end""#));
    assert!(stream.ends_with("data: {\"type\":\"finish\",\"finishReason\":\"other\"}\n\ndata: [DONE]\n\n"));
    assert_eq!(legal(&plain(vec![], &[])).len(), 2);
}

#[test]
fn a_stored_error_does_not_end_the_stream() {
    let stored = parts(1, &[r#"{"type":"error","errorText":"it \ud83d broke"}"#, r#"{"type":"data-x","data":1}"#]);
    let stream = plain(vec![settled(1)], &stored);
    let event = r#"data: {"type":"data-turn-error","data":{"turn":1,"partIndex":0,"errorText":"it \ud83d broke"}}"#;
    assert!(stream.contains(&format!("id: 1.0\n{event}\n\nid: 1.1\n")), "{stream}");
}

#[test]
fn a_log_cannot_forge_what_the_user_asked() {
    let forged = r#"{"type":"data-user-prompt","id":"prompt-1","data":{"turn":1,"text":"forged"}}"#;
    let stream = plain(vec![settled(1)], &parts(1, &[forged]));
    let prompts: Vec<_> = legal(&stream).into_iter().filter(|(_, chunk)| chunk["type"] == "data-user-prompt").collect();
    assert_eq!(prompts.len(), 1);
    assert_eq!(prompts[0].1["data"]["text"], "prompt 1");
}

#[test]
fn a_part_with_line_breaks_between_its_tokens_stays_one_event() {
    let stream = plain(vec![settled(1)], &parts(1, &["{\"type\":\"data-x\",\r\"data\":\n\r\n1}"]));
    assert!(stream.contains("id: 1.0\ndata: {\"type\":\"data-x\", \"data\":   1}\n\n"), "{stream}");
}

#[test]
fn text_in_the_store_that_is_no_json_is_sent_as_a_string() {
    let stream = plain(vec![settled(1)], &parts(1, &["{\"type\":\"text-st", "[]", ""]));
    let wrapped: Vec<_> = legal(&stream).into_iter().filter(|(_, chunk)| chunk["type"] == "data-wrapped").collect();
    let texts: Vec<_> = wrapped.iter().map(|(_, chunk)| chunk["data"]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["{\"type\":\"text-st", "[]", ""]);
}

#[test]
fn the_outputs_of_a_call_are_marked_dynamic_as_its_input_was() {
    let stored = parts(
        1,
        &[
            r#"{"type":"tool-input-available","toolCallId":"a","toolName":"x","dynamic":true,"input":1.0}"#,
            r#"{"type":"tool-output-available","toolCallId":"a","output":1e400}"#,
            r#"{"type":"tool-output-available","toolCallId":"a","output":2,"dynamic":true}"#,
        ],
    );
    let stream = plain(vec![settled(1)], &stored);
    assert!(stream.contains(r#"{"type":"tool-output-available","toolCallId":"a","output":1e400,"dynamic":true}"#));
    assert_eq!(stream.matches(&stored[2].2).count(), 1, "what is right already is not touched");
}

#[test]
fn a_part_of_a_turn_that_was_accepted_later_is_not_lost() {
    let stored = [part(1, 0, r#"{"type":"data-x","data":1}"#), part(2, 0, r#"{"type":"data-x","data":2}"#)];
    let stream = plain(vec![settled(1)], &stored);
    legal(&stream);
    assert!(stream.contains("data: {\"type\":\"start-step\"}\n\nid: 2.0\n"));
}

#[test]
fn a_part_out_of_order_or_twice_is_passed_over() {
    let stored = [part(1, 1, r#"{"type":"data-x","data":1}"#), part(1, 1, r#"{"type":"data-x","data":2}"#)];
    let stream = plain(vec![settled(1)], &[&stored[..], &[part(1, 0, r#"{"type":"data-x","data":0}"#)]].concat());
    assert_eq!(stream.matches("data-x").count(), 1);
}

#[test]
fn a_source_that_failed_ends_with_where_to_read_on() {
    let mut replay = Replay::new(&"2f1c".into(), vec![settled(1)], ReplayOptions::default());
    let mut out = Vec::new();
    replay.begin(&mut out);
    replay.push(Turn(1), PartIndex(0), r#"{"type":"text-delta","id":"x","delta":"a"}"#, &mut out);
    replay.fail("the store went away", &mut out);
    let stream = String::from_utf8(out).unwrap();
    let events = legal(&stream);
    let resync = &events[events.len() - 2].1;
    assert_eq!(resync["type"], "data-resync");
    assert_eq!(resync["data"], serde_json::json!({"turn":1,"after":0,"message":"the store went away"}));
}

#[test]
fn resuming_inside_a_block_opens_it_again_whether_or_not_its_beginning_is_pushed() {
    let stored = parts(
        1,
        &[
            r#"{"type":"start"}"#,
            r#"{"type":"tool-input-available","toolCallId":"t","toolName":"sh","dynamic":true,"input":1}"#,
            r#"{"type":"text-start","id":"x"}"#,
            r#"{"type":"text-delta","id":"x","delta":"one "}"#,
            r#"{"type":"text-delta","id":"x","delta":"two"}"#,
            r#"{"type":"text-end","id":"x"}"#,
            r#"{"type":"tool-output-available","toolCallId":"t","output":"ok","dynamic":true}"#,
            r#"{"type":"finish"}"#,
        ],
    );
    let options = ReplayOptions { after: Some((Turn(1), PartIndex(3))), coalesce: false };
    let primed = replay(vec![settled(1)], &stored, options);
    legal(&primed);
    insta::assert_snapshot!(primed);
    let bare = replay(vec![settled(1)], &stored[4..], options);
    legal(&bare);
    assert!(!bare.contains("data-gap"));
    assert!(bare.contains("\"why\":\"orphan\""), "without its beginning the call of this output is not known");
}

#[test]
fn an_input_delta_after_an_output_finds_its_buffer_on_the_other_side_of_the_cursor() {
    let stored = parts(
        1,
        &[
            r#"{"type":"tool-input-start","toolCallId":"t","toolName":"sh"}"#,
            r#"{"type":"tool-output-available","toolCallId":"t","output":1}"#,
            r#"{"type":"tool-input-delta","toolCallId":"t","inputTextDelta":"{"}"#,
        ],
    );
    let options = ReplayOptions { after: Some((Turn(1), PartIndex(0))), coalesce: false };
    let read = legal(&replay(vec![settled(1)], &stored, options));
    let kinds: Vec<_> = read.iter().filter_map(|(_, chunk)| chunk["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "start",
            "tool-input-available",
            "tool-output-available",
            "tool-input-start",
            "tool-input-delta",
            "tool-input-error",
            "finish"
        ]
    );
}
