//! OpenAI's two APIs.

use serde_json::{Value, json};

use super::{Answer, arguments, data, event, list, shell_tool};

/// `POST …/chat/completions`.
pub fn chat(body: &Value, command: &str) -> Answer {
    let base = |object: &str| json!({"id": "c1", "object": object, "created": 1, "model": body["model"]});
    if body["stream"] != json!(true) {
        let mut whole = base("chat.completion");
        whole["choices"] = json!([{"index": 0, "message": {"role": "assistant", "content": "A short title"}, "finish_reason": "stop"}]);
        whole["usage"] = json!({"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2});
        return Answer::Json(whole);
    }
    let chunk = |delta: Value, finish: Option<&str>| {
        let mut chunk = base("chat.completion.chunk");
        chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        data(&chunk)
    };
    let tool = shell_tool(list(&body["tools"]).iter().filter_map(|tool| tool["function"]["name"].as_str()));
    let asked = list(&body["messages"]).last().is_some_and(|message| message["role"] == "user");
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    if let (Some(tool), true) = (tool, asked) {
        let call = |function: Value| json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]});
        events.push(chunk(json!({"content": "I will run a command."}), None));
        events.push(chunk(call(json!({"name": tool, "arguments": ""})), None));
        let rest =
            json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments(tool, command).to_string()}}]});
        events.push(chunk(rest, None));
        events.push(chunk(json!({}), Some("tool_calls")));
    } else {
        events.push(chunk(json!({"content": "All "}), None));
        events.push(chunk(json!({"content": "done."}), None));
        events.push(chunk(json!({}), Some("stop")));
    }
    let mut usage = base("chat.completion.chunk");
    usage["choices"] = json!([]);
    usage["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    events.push(data(&usage));
    events.push("data: [DONE]\n\n".into());
    Answer::Events(events)
}

/// `POST …/responses`.
pub fn responses(body: &Value, command: &str) -> Answer {
    let tool = shell_tool(list(&body["tools"]).iter().filter_map(|tool| tool["name"].as_str()));
    let has_output =
        list(&body["input"]).last().and_then(|item| item["type"].as_str()).is_some_and(|kind| kind.contains("output"));
    let message = |text: &str| {
        json!({"type": "message", "id": "m1", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": text, "annotations": []}]})
    };
    let output = match tool {
        Some(tool) if !has_output => vec![
            message("I will run a command."),
            json!({"type": "function_call", "id": "f1", "call_id": "call_1", "name": tool,
                   "arguments": arguments(tool, command).to_string(), "status": "completed"}),
        ],
        _ => vec![message("All done.")],
    };
    let response = |status: &str, output: &[Value]| {
        json!({"response": {"id": "r1", "object": "response", "created_at": 1, "model": body["model"], "status": status, "output": output,
            "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
                      "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}}})
    };
    let mut events = vec![event("response.created", response("in_progress", &[]))];
    for (at, item) in output.iter().enumerate() {
        let mut begun = item.clone();
        begun["content"] = json!([]);
        begun["status"] = json!("in_progress");
        events.push(event("response.output_item.added", json!({"output_index": at, "item": begun})));
        if let Some(text) = item["content"][0]["text"].as_str() {
            let delta = json!({"item_id": item["id"], "output_index": at, "content_index": 0, "delta": text});
            events.push(event("response.output_text.delta", delta));
        }
        events.push(event("response.output_item.done", json!({"output_index": at, "item": item})));
    }
    events.push(event("response.completed", response("completed", &output)));
    Answer::Events(events)
}
