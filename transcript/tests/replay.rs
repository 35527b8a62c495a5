//! What a client receives: read as a snapshot by people, and by a model of the client that stops where the real one does.
#![expect(clippy::expect_used, clippy::panic, reason = "a test helper: a failure here is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use agentsession_transcript::{
    Outcome, PartIndex, Reason, SessionUid, Turn, TurnState, Verdict,
    replay::{Replay, ReplayOptions, ReplayTurn},
    scan::scan,
};
use proptest::prelude::*;
use serde_json::Value;

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

/// Events as `(SSE id, data)`. Panics on what no SSE reader would take.
fn events(stream: &str) -> Vec<(Option<String>, String)> {
    let body = stream.strip_suffix("\n\n").expect("the last event is whole");
    body.split("\n\n")
        .map(|event| {
            let (id, data) = match event.split_once('\n') {
                Some((id, data)) => (Some(id.strip_prefix("id: ").expect(event).to_owned()), data),
                None => (None, event),
            };
            assert!(!data.contains(['\n', '\r']), "{data}");
            (id, data.strip_prefix("data: ").expect(event).to_owned())
        })
        .collect()
}

/// The client as far as it can fail: what AI SDK 5, 6 and 7 all demand, at their strictest.
#[derive(Default)]
struct Client {
    blocks: BTreeSet<(bool, String)>,
    /// By id: whether it is dynamic, whether its input streams, and in which step.
    tools: BTreeMap<String, (bool, bool, usize)>,
    deltas: BTreeSet<String>,
    step: usize,
}

impl Client {
    fn read(stream: &str) -> Result<Vec<(Option<String>, Value)>, String> {
        let mut client = Self::default();
        let mut events = events(stream);
        let done = events.pop().ok_or("nothing at all")?;
        if done != (None, "[DONE]".to_owned()) {
            return Err(format!("ends with {done:?}"));
        }
        let events: Vec<(Option<String>, Value)> = events
            .into_iter()
            .map(|(id, data)| serde_json::from_str(&data).map(|chunk| (id, chunk)).map_err(|e| format!("{e}: {data}")))
            .collect::<Result<_, _>>()?;
        for (at, (_, chunk)) in events.iter().enumerate() {
            let kind = chunk["type"].as_str().ok_or("no type")?;
            if (kind == "start") != (at == 0) || (kind == "finish") != (at + 1 == events.len()) {
                return Err(format!("{kind} at {at} of {}", events.len()));
            }
            client.take(kind, chunk).map_err(|why| format!("{why}: {chunk} at {at}"))?;
        }
        if !client.blocks.is_empty() || client.tools.values().any(|(_, streams, _)| *streams) {
            return Err(format!("left open: {:?} {:?}", client.blocks, client.tools));
        }
        Ok(events)
    }

    fn take(&mut self, kind: &str, chunk: &Value) -> Result<(), String> {
        let text = |key: &str| chunk[key].as_str().map(str::to_owned).ok_or(format!("no {key}"));
        let is_text = kind.starts_with("text-");
        match kind {
            "start" | "finish" | "abort" | "message-metadata" | "file" | "source-url" | "source-document" => {}
            "start-step" => self.step += 1,
            "finish-step" if !self.blocks.is_empty() => return Err("open across a step".into()),
            "finish-step" => {}
            "text-start" | "reasoning-start" => {
                if !self.blocks.insert((is_text, text("id")?)) {
                    return Err("begun twice".into());
                }
            }
            "text-delta" | "reasoning-delta" => {
                text("delta")?;
                if !self.blocks.contains(&(is_text, text("id")?)) {
                    return Err("delta without start".into());
                }
            }
            "text-end" | "reasoning-end" => {
                if !self.blocks.remove(&(is_text, text("id")?)) {
                    return Err("end without start".into());
                }
            }
            "tool-input-start" | "tool-input-available" | "tool-input-error" => {
                text("toolName")?;
                let id = text("toolCallId")?;
                let dynamic = chunk["dynamic"].as_bool().unwrap_or(false);
                if let Some((was, streams, step)) = self.tools.get(&id) {
                    if *was != dynamic && *step == self.step {
                        return Err("dynamic changed".into());
                    }
                    if *streams && *step != self.step {
                        return Err("input open across a step".into());
                    }
                }
                if kind == "tool-input-start" {
                    self.deltas.insert(id.clone());
                }
                self.tools.insert(id, (dynamic, kind == "tool-input-start", self.step));
            }
            "tool-input-delta" => {
                text("inputTextDelta")?;
                let id = text("toolCallId")?;
                if !self.deltas.contains(&id) {
                    return Err("input delta without start".into());
                }
                let step = self.step;
                let tool = self.tools.get_mut(&id).ok_or("no call")?;
                (tool.1, tool.2) = (true, step);
            }
            "tool-output-available" | "tool-output-error" => {
                let tool = self.tools.get_mut(&text("toolCallId")?).ok_or("output without input")?;
                if tool.0 != chunk["dynamic"].as_bool().unwrap_or(false) {
                    return Err("dynamic changed".into());
                }
                tool.1 = false;
            }
            data if data.starts_with("data-") => {
                if chunk.get("data").is_none() {
                    return Err("no data".into());
                }
            }
            _ => return Err("unknown type".into()),
        }
        Ok(())
    }
}

fn legal(stream: &str) -> Vec<(Option<String>, Value)> {
    Client::read(stream).unwrap_or_else(|why| panic!("{why}\n{stream}"))
}

#[test]
fn an_ordinary_turn_goes_out_byte_for_byte_in_one_envelope() {
    let stored = log(include_bytes!("logs/hello.jsonl"));
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
    let stream = plain(vec![lost(1)], &log(include_bytes!("logs/crash.jsonl")));
    legal(&stream);
    insta::assert_snapshot!(stream);
}

#[test]
fn holes_are_said_at_their_place() {
    let stream = plain(vec![lost(1)], &log(include_bytes!("logs/hole.jsonl")));
    legal(&stream);
    insta::assert_snapshot!(stream);
}

#[test]
fn whatever_a_log_holds_the_client_reads_to_the_end() {
    let stored = log(include_bytes!("logs/hostile.jsonl"));
    let stream = plain(vec![settled(1)], &stored);
    insta::assert_snapshot!(stream);
    // The model cannot read lone surrogates, 1e400 and depth; what is left of the stream must be as legal as the whole.
    let readable: Vec<Stored> = stored
        .into_iter()
        .filter(|(.., raw)| serde_json::from_str::<Value>(raw).is_ok() || raw.contains("__proto__"))
        .collect();
    legal(&plain(vec![settled(1)], &readable));
}

#[test]
fn text_goes_out_as_it_is_stored() {
    let stored = log(include_bytes!("logs/text.jsonl"));
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

fn arbitrary_part() -> impl Strategy<Value = String> {
    let id = prop::sample::select(vec!["a", "b", "\u{e9}"]);
    let call = prop::sample::select(vec!["t", "u"]);
    let dynamic = prop::sample::select(vec!["", r#","dynamic":true"#, r#","dynamic":false"#]);
    let block = prop::sample::select(vec![
        "text-start",
        "text-delta",
        "text-end",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
    ]);
    let tool = prop::sample::select(vec![
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-input-error",
        "tool-output-available",
        "tool-output-error",
    ]);
    let other = prop::sample::select(vec![
        r#"{"type":"start"}"#,
        r#"{"type":"finish"}"#,
        r#"{"type":"start-step"}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"abort","reason":"x"}"#,
        r#"{"type":"abort","reason":null}"#,
        r#"{"type":"error","errorText":"x"}"#,
        r#"{"type":"data-x","data":1}"#,
        r#"{"type":"data-gap","data":1}"#,
        r#"{"type":"never-heard-of"}"#,
        r#"{"type":"file","url":"x"}"#,
        r#"{"no":"type"}"#,
        r#"{"type":"data-x","data":{"__proto__":{}}}"#,
        "{ half",
    ]);
    prop_oneof![
        4 => (block, id, 0..3_u32).prop_map(|(kind, id, n)| format!(r#"{{"type":"{kind}","id":"{id}","delta":"{n}"}}"#)),
        4 => (tool, call, dynamic).prop_map(|(kind, id, dynamic)| format!(
            r#"{{"type":"{kind}","toolCallId":"{id}","toolName":"n","input":1,"output":2,"errorText":"e","inputTextDelta":"{{"{dynamic}}}"#
        )),
        2 => other.prop_map(str::to_owned),
    ]
}

/// Parts of up to three turns, with holes, in identity order.
fn arbitrary_stored() -> impl Strategy<Value = Vec<Stored>> {
    prop::collection::vec((1..4_u32, 1..3_u32, arbitrary_part()), 0..60).prop_map(|mut all| {
        all.sort_by_key(|(turn, ..)| *turn);
        let mut last = (0, 0);
        let mut stored = Vec::new();
        for (turn, step, raw) in all {
            last = if last.0 == turn { (turn, last.1 + step) } else { (turn, step - 1) };
            stored.push((last.0, last.1, raw));
        }
        stored
    })
}

/// What an event carries of a stored part: the part, taken out of its wrapping where it has one.
fn carried(chunk: &Value) -> Value {
    match chunk["type"].as_str() {
        Some("data-wrapped") => match chunk["data"].get("text") {
            Some(text) => text.clone(),
            None => chunk["data"]["part"].clone(),
        },
        Some("data-turn-error") => serde_json::json!({"type":"error","errorText":chunk["data"]["errorText"]}),
        _ => chunk.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_replay_is_legal_and_has_each_part_once_under_its_own_id(
        stored in arbitrary_stored(),
        is_active in any::<bool>(),
    ) {
        let turns = vec![settled(1), lost(2), if is_active { active(3, TurnState::Running) } else { settled(3) }];
        let stream = plain(turns.clone(), &stored);
        let read = Client::read(&stream).map_err(TestCaseError::fail)?;
        let mut sent = read.iter().filter(|(id, _)| id.is_some());
        for (turn, index, raw) in stored.iter().filter(|(.., raw)| !matches!(raw.as_str(), r#"{"type":"start"}"# | r#"{"type":"finish"}"#)) {
            let (id, chunk) = sent.next().ok_or_else(|| TestCaseError::fail("a part is missing"))?;
            prop_assert_eq!(id, &Some(format!("{turn}.{index}")));
            let (mut carried, mut expected) = (carried(chunk), match serde_json::from_str(raw) {
                Ok(value) if !raw.contains("__proto__") => value,
                _ => Value::from(raw.as_str()),
            });
            for side in [&mut carried, &mut expected] {
                if let Some(part) = side.as_object_mut() {
                    part.remove("dynamic");
                }
            }
            prop_assert_eq!(carried, expected);
        }
        prop_assert!(sent.next().is_none(), "nothing that is made up has an id");
        prop_assert_eq!(stream, plain(turns, &stored), "the same bytes every time");
    }

    #[test]
    fn resuming_anywhere_is_legal_and_sends_just_the_rest(
        stored in arbitrary_stored(),
        at in any::<prop::sample::Index>(),
        coalesce in any::<bool>(),
        is_primed in any::<bool>(),
    ) {
        prop_assume!(!stored.is_empty());
        let (turn, index, _) = stored[at.index(stored.len())];
        let options = ReplayOptions { after: Some((Turn(turn), PartIndex(index))), coalesce };
        let pushed: Vec<Stored> = stored
            .iter()
            .filter(|(t, i, _)| if is_primed { *t >= turn } else { (*t, *i) > (turn, index) })
            .cloned()
            .collect();
        let stream = replay(vec![settled(1), settled(2), settled(3)], &pushed, options);
        let read = Client::read(&stream).map_err(TestCaseError::fail)?;
        let whole = replay(vec![settled(1), settled(2), settled(3)], &stored, ReplayOptions { after: None, coalesce });
        let ids = |stream: &str| -> Vec<String> { events(stream).into_iter().filter_map(|(id, _)| id).collect() };
        let identity = |id: &str| -> (u32, u32) {
            let (turn, index) = id.split_once('.').unwrap();
            (turn.parse().unwrap(), index.parse().unwrap())
        };
        let rest: Vec<String> = ids(&whole).into_iter().filter(|id| identity(id) > (turn, index)).collect();
        if !coalesce {
            prop_assert_eq!(ids(&stream), rest);
        }
        prop_assert!(read.iter().all(|(id, _)| id.as_deref().is_none_or(|id| identity(id) > (turn, index))));
        let prompts = read.iter().filter(|(_, chunk)| chunk["type"] == "data-user-prompt");
        prop_assert!(prompts.clone().all(|(_, chunk)| chunk["data"]["turn"].as_u64() > Some(u64::from(turn))));
        prop_assert_eq!(prompts.count() as u32, 3 - turn);
    }

    #[test]
    fn joining_deltas_changes_neither_the_text_nor_the_end(stored in arbitrary_stored()) {
        let text = |stream: &str| -> Result<Vec<String>, TestCaseError> {
            let mut all = Vec::new();
            for (_, chunk) in Client::read(stream).map_err(TestCaseError::fail)? {
                match chunk["type"].as_str() {
                    Some("text-start") => all.push(String::new()),
                    Some("text-delta") => all.push(chunk["delta"].as_str().unwrap_or_default().to_owned()),
                    _ => {}
                }
            }
            Ok(all)
        };
        let turns = vec![settled(1), settled(2), settled(3)];
        let apart = plain(turns.clone(), &stored);
        let joined = replay(turns, &stored, ReplayOptions { after: None, coalesce: true });
        prop_assert_eq!(text(&apart)?.concat(), text(&joined)?.concat());
        prop_assert!(joined.len() <= apart.len());
        prop_assert_eq!(events(&apart).pop(), events(&joined).pop());
    }

    #[test]
    fn no_text_at_all_breaks_the_stream(raw in any::<String>(), index in 0..5_u32) {
        let stream = plain(vec![settled(1)], &[part(1, index, &raw)]);
        let read = Client::read(&stream).map_err(TestCaseError::fail)?;
        prop_assert_eq!(read.iter().filter(|(id, _)| id.is_some()).count(), 1);
    }
}
