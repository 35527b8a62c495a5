//! What holds for every transcript, whatever it holds.

use agentsession_transcript::{PartIndex, Turn, TurnState, replay::ReplayOptions};
use proptest::prelude::*;
use serde_json::Value;

use super::{
    Stored, active,
    client::{Client, events},
    lost, part, plain, replay, settled,
};

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
