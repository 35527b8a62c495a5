//! Anthropic's messages API.

use serde_json::{Value, json};

use super::{Answer, arguments, event, list, shell_tool};

/// `POST …/messages`.
pub fn messages(body: &Value, command: &str) -> Answer {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 1}});
    if body["stream"] != json!(true) {
        let mut whole = message;
        whole["content"] = json!([{"type": "text", "text": "A short title"}]);
        whole["stop_reason"] = json!("end_turn");
        return Answer::Json(whole);
    }
    let tool = shell_tool(list(&body["tools"]).iter().filter_map(|tool| tool["name"].as_str()));
    let last = list(&body["messages"]).last();
    let has_result =
        last.is_some_and(|message| list(&message["content"]).iter().any(|block| block["type"] == "tool_result"));
    let mut events = vec![event("message_start", json!({"message": message}))];
    let stop = match tool {
        Some(tool) if !has_result => {
            events.extend(text(&["I will run ", "a command."]));
            let call = json!({"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}});
            let input = json!({"type": "input_json_delta", "partial_json": arguments(tool, command).to_string()});
            events.extend(block(1, &call, &[input]));
            "tool_use"
        }
        _ => {
            events.extend(text(&["All ", "done."]));
            "end_turn"
        }
    };
    events.push(event(
        "message_delta",
        json!({"delta": {"stop_reason": stop, "stop_sequence": null}, "usage": {"output_tokens": 5}}),
    ));
    events.push(event("message_stop", json!({})));
    Answer::Events(events)
}

fn text(pieces: &[&str]) -> Vec<String> {
    let deltas: Vec<Value> = pieces.iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect();
    block(0, &json!({"type": "text", "text": ""}), &deltas)
}

fn block(index: usize, start: &Value, deltas: &[Value]) -> Vec<String> {
    let mut events = vec![event("content_block_start", json!({"index": index, "content_block": start}))];
    events.extend(deltas.iter().map(|delta| event("content_block_delta", json!({"index": index, "delta": delta}))));
    events.push(event("content_block_stop", json!({"index": index})));
    events
}
