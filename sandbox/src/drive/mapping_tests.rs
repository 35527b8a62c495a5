//! What agents send, and the parts that come of it.

use std::collections::HashSet;

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
use serde_json::{Value, json};
use transcript::Turn;

use super::map::{Mapper, Out};
use crate::{
    json::{Obj, decode},
    part::{Edge, Part},
};

const AT: &str = "2026-11-30T18:00:00.123Z";

/// Feeds updates; the parts of all of them, and of the end.
fn parts(updates: &[&str]) -> Vec<Part> {
    let mut mapper = Mapper::new(Turn(2));
    let mut out = Out::new(AT);
    updates.iter().for_each(|update| mapper.update(update, &mut out));
    mapper.close(&mut out);
    check(&out.parts);
    out.parts
}

/// The parts as values, without their times.
fn values(parts: &[Part]) -> Vec<Value> {
    let value = |part: &Part| {
        let mut value: Value = serde_json::from_str(&part.text).unwrap();
        let fields = value.as_object_mut().unwrap();
        assert_eq!(fields.remove("at"), Some(json!(AT)));
        fields.remove("endAt");
        value
    };
    parts.iter().map(value).collect()
}

fn mapped(updates: &[Value]) -> Vec<Value> {
    let texts: Vec<String> = updates.iter().map(Value::to_string).collect();
    values(&parts(&texts.iter().map(String::as_str).collect::<Vec<_>>()))
}

fn kinds(parts: &[Value]) -> Vec<&str> {
    parts.iter().map(|part| part["type"].as_str().unwrap()).collect()
}

/// Fails when a client that stops at the first mistake would stop.
fn check(parts: &[Part]) {
    let (mut open, mut started, mut input) = (None, HashSet::new(), HashSet::new());
    for part in parts {
        let fields = Obj::parse(&part.text).unwrap_or_else(|| panic!("no object: {}", part.text));
        assert_eq!(fields.text("type").as_deref(), Some(part.kind));
        assert_eq!(fields.text("at").as_deref(), Some(AT));
        assert!(!part.text.contains('\n'));
        let id = fields.string("id").map(|id| decode(id).into_owned());
        let call = fields.string("toolCallId").map(|id| decode(id).into_owned());
        match part.kind {
            "text-start" | "reasoning-start" => {
                assert!(open.is_none() && matches!(part.edge, Some(Edge::Open(_))));
                open = id;
            }
            "text-delta" | "reasoning-delta" => assert!(open.is_some() && open == id, "{}", part.text),
            "text-end" | "reasoning-end" => {
                assert!(open.is_some() && open == id && fields.string("endAt").is_some());
                open = None;
            }
            "tool-input-start" => assert!(started.insert(call.clone()) || input.remove(&call), "{}", part.text),
            "tool-input-available" => assert!(started.contains(&call) && input.insert(call), "{}", part.text),
            "tool-output-available" | "tool-output-error" => assert!(input.contains(&call), "{}", part.text),
            kind => assert!(kind == "file" || kind.starts_with("data-"), "{kind}"),
        }
    }
    assert!(open.is_none());
    assert_eq!(started.len(), input.len(), "every call shows its input in the end");
}

fn text(text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
}

fn text_of(message: &str, text: &str) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "messageId": message, "content": {"type": "text", "text": text}})
}

fn thought(text: &str) -> Value {
    json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}})
}

fn call(id: &str, more: &Value) -> Value {
    tool("tool_call", id, more)
}

fn update(id: &str, more: &Value) -> Value {
    tool("tool_call_update", id, more)
}

fn tool(kind: &str, id: &str, more: &Value) -> Value {
    let mut value = json!({"sessionUpdate": kind, "toolCallId": id});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    value
}

fn said(text: &str) -> Value {
    json!([{"type": "content", "content": {"type": "text", "text": text}}])
}

#[test]
fn chunks_of_one_message_are_one_block_and_a_change_of_kind_is_another() {
    let parts = mapped(&[thought("hm"), text("a"), text(""), text("b")]);
    assert_eq!(
        parts,
        [
            json!({"type": "reasoning-start", "id": "r0"}),
            json!({"type": "reasoning-delta", "id": "r0", "delta": "hm"}),
            json!({"type": "reasoning-end", "id": "r0"}),
            json!({"type": "text-start", "id": "t1"}),
            json!({"type": "text-delta", "id": "t1", "delta": "a"}),
            json!({"type": "text-delta", "id": "t1", "delta": "b"}),
            json!({"type": "text-end", "id": "t1"}),
        ]
    );
}

#[test]
fn a_new_message_id_is_a_new_block() {
    let parts = mapped(&[text_of("m1", "a"), text_of("m1", "b"), text_of("m2", "c")]);
    assert_eq!(
        kinds(&parts),
        ["text-start", "text-delta", "text-delta", "text-end", "text-start", "text-delta", "text-end"]
    );
    assert_eq!(parts[0]["providerMetadata"], json!({"agentsession": {"messageId": "m1"}}));
}

#[test]
fn usage_mode_and_commands_do_not_cut_a_text() {
    let parts = mapped(&[
        text("a"),
        json!({"sessionUpdate": "usage_update", "used": 5, "size": 100}),
        json!({"sessionUpdate": "usage_update", "used": 5, "size": 100}),
        json!({"sessionUpdate": "current_mode_update", "currentModeId": "code"}),
        json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "x"}]}),
        text("b"),
    ]);
    assert_eq!(
        kinds(&parts),
        ["text-start", "text-delta", "data-usage", "data-mode", "data-commands", "text-delta", "text-end"]
    );
    assert_eq!(parts[2], json!({"type": "data-usage", "id": "usage-2", "data": {"used": 5, "size": 100}}));
    assert_eq!(parts[3], json!({"type": "data-mode", "data": {"currentModeId": "code"}, "transient": true}));
    assert_eq!(parts[4]["transient"], true);
}

#[test]
fn a_tool_call_goes_from_input_to_output() {
    let parts = mapped(&[
        text("look"),
        call("c1", &json!({"title": "ls", "kind": "execute", "status": "in_progress", "rawInput": {"cmd": "ls"}})),
        update("c1", &json!({"status": "completed", "rawOutput": {"stdout": "a", "exit_code": 0}})),
        text("done"),
    ]);
    assert_eq!(
        kinds(&parts),
        [
            "text-start",
            "text-delta",
            "text-end",
            "tool-input-start",
            "tool-input-available",
            "tool-output-available",
            "text-start",
            "text-delta",
            "text-end"
        ]
    );
    assert_eq!(
        parts[3],
        json!({"type": "tool-input-start", "toolCallId": "c1", "dynamic": true, "toolName": "execute", "title": "ls"})
    );
    assert_eq!(parts[4]["input"], json!({"cmd": "ls"}));
    assert_eq!(
        parts[5],
        json!({"type": "tool-output-available", "toolCallId": "c1", "dynamic": true, "output": {"stdout": "a", "exit_code": 0},
               "providerMetadata": {"agentsession": {"exit": 0}}})
    );
}

#[test]
fn an_update_without_a_call_gets_an_input_of_what_is_known() {
    let parts = mapped(&[update(
        "nope",
        &json!({"title": "Shell", "kind": "execute", "status": "completed", "content": said("out")}),
    )]);
    assert_eq!(kinds(&parts), ["tool-input-start", "tool-input-available", "tool-output-available"]);
    assert_eq!(parts[1]["input"], json!({"title": "Shell", "kind": "execute"}));
    assert_eq!(parts[2]["output"], "out");
    let bare = mapped(&[update("nope", &json!({"status": "completed"}))]);
    assert_eq!((&bare[1]["input"], &bare[2]["output"]), (&json!({}), &Value::Null));
}

#[test]
fn an_input_is_held_until_it_is_known() {
    // Announced empty; the input comes in an update that says nothing of the status.
    let claude = mapped(&[
        call("c", &json!({"status": "pending", "rawInput": {}, "_meta": {"claudeCode": {"toolName": "Bash"}}})),
        update("c", &json!({"rawInput": {"command": "ls"}, "title": "ls"})),
        update("c", &json!({"_meta": {"claudeCode": {"toolResponse": {"stdout": "x"}}}})),
        update("c", &json!({"status": "completed"})),
    ]);
    assert_eq!(
        kinds(&claude),
        ["tool-input-start", "tool-input-available", "tool-output-available", "tool-output-available"]
    );
    assert_eq!((&claude[1]["toolName"], &claude[1]["input"]), (&json!("Bash"), &json!({"command": "ls"})));
    assert_eq!(claude[2]["preliminary"], true);
    assert_eq!(claude[3]["output"], json!({"stdout": "x"}));
    // Announced with a part of it while pending.
    let opencode = mapped(&[
        call("c", &json!({"status": "pending", "rawInput": {"a": 1}})),
        update("c", &json!({"status": "in_progress", "rawInput": {"a": 1, "b": 2}, "content": said("1")})),
        update("c", &json!({"status": "in_progress", "rawInput": {"a": 1, "b": 2}, "content": said("1")})),
        update("c", &json!({"status": "completed", "rawInput": {"a": 1, "b": 2}, "content": said("12")})),
    ]);
    assert_eq!(
        kinds(&opencode),
        ["tool-input-start", "tool-input-available", "tool-output-available", "tool-output-available"]
    );
    assert_eq!(opencode[1]["input"], json!({"a": 1, "b": 2}));
    assert_eq!((&opencode[2]["preliminary"], &opencode[3]["output"]), (&json!(true), &json!("12")));
    // Never known: shown with what is known, when the turn ends.
    let cut = mapped(&[call("c", &json!({"title": "t", "status": "pending"}))]);
    assert_eq!(
        cut[1],
        json!({"type": "tool-input-available", "toolCallId": "c", "dynamic": true, "toolName": "tool", "input": {"title": "t"}, "title": "t"})
    );
}

#[test]
fn an_input_that_changes_after_it_was_shown_is_kept_beside_it() {
    let parts = mapped(&[
        call("c", &json!({"status": "in_progress", "rawInput": {"a": 1}})),
        update("c", &json!({"rawInput": {"a": 2}})),
        update("c", &json!({"rawInput": {"a": 2}})),
        update("c", &json!({"status": "completed"})),
    ]);
    assert_eq!(kinds(&parts), ["tool-input-start", "tool-input-available", "data-acp", "tool-output-available"]);
    assert_eq!(parts[2]["data"]["update"]["rawInput"], json!({"a": 2}));
}

#[test]
fn a_terminal_speaks_through_metadata() {
    let delta =
        |text: &str| update("c", &json!({"_meta": {"terminal_output_delta": {"terminal_id": "1", "data": text}}}));
    let parts = mapped(&[
        call(
            "c",
            &json!({"status": "in_progress", "rawInput": {"cmd": "x"}, "content": [{"type": "terminal", "terminalId": "1"}]}),
        ),
        delta("hello "),
        delta("w"),
        delta("orld and more"),
        update("c", &json!({"status": "completed", "_meta": {"terminal_exit": {"exit_code": 3, "signal": null}}})),
    ]);
    assert_eq!(
        kinds(&parts),
        [
            "tool-input-start",
            "tool-input-available",
            "tool-output-available",
            "tool-output-available",
            "data-terminal",
            "tool-output-available"
        ]
    );
    assert_eq!((&parts[2]["output"], &parts[3]["output"]), (&json!("hello "), &json!("hello world and more")));
    assert_eq!(parts[4]["data"], json!({"toolCallId": "c", "output": "hello world and more"}));
    assert_eq!(parts[5]["output"], "hello world and more");
    assert_eq!(parts[5]["providerMetadata"], json!({"agentsession": {"exit": 3}}));
}

#[test]
fn a_terminal_that_says_too_much_leaves_a_marker() {
    let mut updates = vec![call("c", &json!({"status": "in_progress", "rawInput": {"cmd": "x"}}))];
    let much = "x".repeat(300_000);
    updates.extend((0..5).map(|_| update("c", &json!({"_meta": {"terminal_output_delta": much}}))));
    updates.push(update("c", &json!({"status": "completed"})));
    let parts = mapped(&updates);
    let marker = parts.iter().find(|part| part["type"] == "data-omitted").unwrap();
    assert_eq!((&marker["data"]["type"], &marker["data"]["bytes"]), (&json!("data-terminal"), &json!(600_000)));
    assert_eq!(parts.last().unwrap()["output"].as_str().unwrap().len(), 900_000);
}

#[test]
fn an_output_that_grows_is_shown_a_few_times_only() {
    let mut updates = vec![call("c", &json!({"status": "in_progress", "rawInput": {"cmd": "x"}}))];
    updates.extend((0..2000).map(|_| update("c", &json!({"_meta": {"terminal_output_delta": "0123456789"}}))));
    updates.push(update("c", &json!({"status": "completed"})));
    let parts = mapped(&updates);
    let bytes: usize = parts.iter().filter_map(|part| part["output"].as_str()).map(str::len).sum();
    assert!(bytes < 20_000 * 5, "{bytes}");
    assert_eq!(parts.last().unwrap()["output"].as_str().unwrap().len(), 20_000);
}

#[test]
fn an_output_in_two_forms_is_kept_in_both() {
    let end = |raw: Value, text: &str| {
        let done = json!({"status": "completed", "rawOutput": raw, "content": said(text)});
        mapped(&[call("c", &json!({"rawInput": {"n": 1}})), update("c", &done)]).pop().unwrap()
    };
    let both = end(json!({"ok": true}), "the words");
    assert_eq!(both["output"], json!({"ok": true}));
    assert_eq!(both["providerMetadata"], json!({"agentsession": {"content": "the words"}}));
    assert_eq!(end(json!({"text": "all the words"}), "the words")["providerMetadata"], Value::Null);
}

#[test]
fn a_failed_call_says_why_in_text() {
    let fail = |more: Value| mapped(&[call("c", &json!({"status": "pending"})), update("c", &more)]).pop().unwrap();
    assert_eq!(fail(json!({"status": "failed", "content": said("no\nway")}))["errorText"], "no\nway");
    assert_eq!(fail(json!({"status": "failed", "rawOutput": {"error": "x"}}))["errorText"], r#"{"error":"x"}"#);
    assert_eq!(fail(json!({"status": "failed"}))["errorText"], "the tool call failed");
    let both = fail(json!({"status": "failed", "rawOutput": {"exit_code": 2}, "content": said("no")}));
    assert_eq!(both["errorText"], "no");
    assert_eq!(both["providerMetadata"], json!({"agentsession": {"exit": 2, "rawOutput": {"exit_code": 2}}}));
    assert_eq!(fail(json!({"status": "failed"}))["dynamic"], true);
}

#[test]
fn diffs_and_plans_are_data() {
    let diff = json!([{"type": "diff", "path": "/a", "oldText": null, "newText": "x"}]);
    let parts = mapped(&[
        call("c", &json!({"status": "in_progress", "rawInput": {"p": 1}, "content": diff})),
        update("c", &json!({"status": "completed", "content": diff})),
        json!({"sessionUpdate": "plan", "entries": [{"content": "do", "status": "pending"}]}),
    ]);
    assert_eq!(
        kinds(&parts),
        ["tool-input-start", "data-diff", "tool-input-available", "tool-output-available", "data-plan"]
    );
    assert_eq!(parts[1]["data"], json!({"path": "/a", "oldText": null, "newText": "x", "toolCallId": "c"}));
    assert_eq!(
        parts[4],
        json!({"type": "data-plan", "id": "plan-2", "data": {"entries": [{"content": "do", "status": "pending"}]}})
    );
}

#[test]
fn content_that_is_no_text_is_a_file_or_kept_as_it_is() {
    let chunk = |content: Value| json!({"sessionUpdate": "agent_message_chunk", "content": content});
    let parts = mapped(&[
        chunk(json!({"type": "image", "data": "QUJD", "mimeType": "image/png"})),
        chunk(
            json!({"type": "resource", "resource": {"uri": "file:///a", "blob": "QQ==", "mimeType": "application/pdf"}}),
        ),
        chunk(json!({"type": "resource_link", "uri": "file:///a", "name": "a"})),
        chunk(json!({"type": "hologram", "z": 1})),
    ]);
    assert_eq!(kinds(&parts), ["file", "file", "data-acp", "data-acp"]);
    assert_eq!(parts[0], json!({"type": "file", "url": "data:image/png;base64,QUJD", "mediaType": "image/png"}));
    assert_eq!(parts[3]["data"]["update"]["content"]["z"], 1);
}

#[test]
fn what_is_unknown_is_kept_as_it_is() {
    let parts = mapped(&[
        json!({"sessionUpdate": "totally_new_kind", "x": 1}),
        json!({"sessionUpdate": "tool_call", "title": "no id"}),
        json!({"sessionUpdate": "agent_message_chunk"}),
        json!([1, 2]),
        json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "echo"}}),
    ]);
    assert_eq!(kinds(&parts), ["data-acp"; 5]);
    assert_eq!(parts[3]["data"]["update"], json!([1, 2]));
}

#[test]
fn late_updates_and_reused_ids_lose_nothing() {
    let parts = mapped(&[
        call("c", &json!({"status": "completed", "rawInput": {"n": 1}, "rawOutput": 1})),
        update("c", &json!({"rawOutput": "late"})),
        call("c", &json!({"status": "in_progress", "rawInput": {"n": 2}})),
        update("c", &json!({"status": "completed", "rawOutput": 2})),
    ]);
    assert_eq!(
        kinds(&parts),
        [
            "tool-input-start",
            "tool-input-available",
            "tool-output-available",
            "data-acp",
            "tool-input-start",
            "tool-input-available",
            "tool-output-available"
        ]
    );
    assert_eq!((&parts[5]["input"], &parts[6]["output"]), (&json!({"n": 2}), &json!(2)));
}

#[test]
fn the_agents_own_text_is_passed_on_byte_for_byte() {
    let update =
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half \ud83e \u0000 \u00e9\/"}}"#;
    assert!(parts(&[update])[1].text.contains(r#""delta":"half \ud83e \u0000 \u00e9\/""#));
    let odd = r#"{"sessionUpdate":"new","z":1.0,"a":1e400,"z":12345678901234567890123,"s":"\udc00\ud800"}"#;
    assert!(parts(&[odd])[0].text.contains(&format!("\"data\":{{\"update\":{odd}}}")));
    let input = r#"{"sessionUpdate":"tool_call","toolCallId":"\ud83e","status":"in_progress","rawInput":{"b":1.0,"a":"\ud83e"}}"#;
    assert!(parts(&[input])[1].text.contains(r#""input":{"b":1.0,"a":"\ud83e"}"#));
}

#[test]
fn a_permission_is_often_the_first_sight_of_a_call() {
    let mut mapper = Mapper::new(Turn(2));
    let mut out = Out::new(AT);
    let asked =
        json!({"toolCall": {"toolCallId": "g", "title": "Shell", "kind": "execute", "rawInput": {"command": "ls"}}})
            .to_string();
    mapper.permission(&Obj::parse(&asked).unwrap(), "allow_once", &mut out);
    mapper.update(&update("g", &json!({"status": "completed", "content": said("ok")})).to_string(), &mut out);
    mapper.close(&mut out);
    check(&out.parts);
    let parts = values(&out.parts);
    assert_eq!(kinds(&parts), ["tool-input-start", "tool-input-available", "data-permission", "tool-output-available"]);
    assert_eq!(parts[2]["data"], json!({"toolCallId": "g", "kind": "allow_once", "title": "Shell"}));
}

#[test]
fn usage_is_what_the_agent_reports() {
    let mut mapper = Mapper::new(Turn(2));
    let mut out = Out::new(AT);
    mapper.update(r#"{"sessionUpdate":"usage_update","used":5,"size":10}"#, &mut out);
    assert_eq!(mapper.usage(), None);
    mapper.answered(
        &Obj::parse(r#"{"stopReason":"end_turn","usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15}}"#)
            .unwrap(),
    );
    let usage = mapper.usage().unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.total_tokens), (10, 5, 15));
}

fn any_update() -> impl Strategy<Value = String> {
    let id = prop_oneof![Just("a"), Just("b"), Just("\\ud83e")];
    let status = prop_oneof![
        Just(""),
        Just(r#","status":"pending""#),
        Just(r#","status":"in_progress""#),
        Just(r#","status":"completed""#),
        Just(r#","status":"failed""#),
        Just(r#","status":"brand_new""#),
        Just(r#","status":null"#),
    ];
    let input = prop_oneof![
        Just(""),
        Just(r#","rawInput":{}"#),
        Just(r#","rawInput":{"x":1.0}"#),
        Just(r#","rawInput":"\ud83e""#)
    ];
    let output = prop_oneof![
        Just(""),
        Just(r#","rawOutput":{"exit_code":1}"#),
        Just(r#","content":[{"type":"content","content":{"type":"text","text":"o"}}]"#),
        Just(r#","content":[{"type":"diff","path":"p","newText":"n"},{"type":"new"},7]"#),
        Just(r#","_meta":{"terminal_output_delta":{"data":"growing"}}"#),
        Just(r#","content":"not a list""#),
    ];
    let kind = prop_oneof![Just("tool_call"), Just("tool_call_update")];
    let tool = (kind, id, status, input, output).prop_map(|(kind, id, status, input, output)| {
        format!(r#"{{"sessionUpdate":"{kind}","toolCallId":"{id}"{status}{input}{output}}}"#)
    });
    let chunk_kind = prop_oneof![Just("agent_message_chunk"), Just("agent_thought_chunk")];
    let message =
        prop_oneof![Just(""), Just(r#","messageId":"m1""#), Just(r#","messageId":"m2""#), Just(r#","messageId":7"#)];
    let content = prop_oneof![
        Just(r#"{"type":"text","text":"x"}"#),
        Just(r#"{"type":"text","text":""}"#),
        Just(r#"{"type":"image","data":"QQ==","mimeType":"image/png"}"#),
        Just(r#"{"type":"new"}"#),
        Just("null"),
    ];
    let chunk = (chunk_kind, message, content)
        .prop_map(|(kind, message, content)| format!(r#"{{"sessionUpdate":"{kind}"{message},"content":{content}}}"#));
    let other = prop_oneof![
        Just(r#"{"sessionUpdate":"plan","entries":[]}"#.to_owned()),
        Just(r#"{"sessionUpdate":"usage_update","used":1,"size":2}"#.to_owned()),
        Just(r#"{"sessionUpdate":"current_mode_update","currentModeId":"m"}"#.to_owned()),
        Just("7".to_owned()),
        any::<i32>().prop_map(|n| format!(r#"{{"sessionUpdate":"k{n}"}}"#)),
    ];
    prop_oneof![3 => tool, 3 => chunk, 1 => other]
}

proptest! {
    #[test]
    fn any_sequence_of_updates_is_a_legal_sequence_of_parts(updates in proptest::collection::vec(any_update(), 0..40)) {
        parts(&updates.iter().map(String::as_str).collect::<Vec<_>>());
    }

    #[test]
    fn any_text_at_all_is_borne(updates in proptest::collection::vec(".{0,40}", 0..8)) {
        let mut mapper = Mapper::new(Turn(2));
        let mut out = Out::new(AT);
        for update in updates.iter().filter(|update| serde_json::from_str::<&serde_json::value::RawValue>(update).is_ok()) {
            mapper.update(update, &mut out);
        }
        mapper.close(&mut out);
        check(&out.parts);
    }
}
