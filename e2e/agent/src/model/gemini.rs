//! Gemini's API.

use serde_json::{Value, json};

use super::{Answer, arguments, data, list, shell_tool};

/// `POST …:streamGenerateContent`.
pub fn stream(body: &Value, command: &str) -> Answer {
    let offers = list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    let tool = shell_tool(offers.filter_map(|function| function["name"].as_str()));
    let last = list(&body["contents"]).last();
    let has_result =
        last.is_some_and(|content| list(&content["parts"]).iter().any(|part| part.get("functionResponse").is_some()));
    let chunk = |part: Value, last: bool| {
        let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
        if last {
            candidate["finishReason"] = json!("STOP");
        }
        let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
        data(&json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}))
    };
    Answer::Events(match tool {
        Some(tool) if !has_result => vec![
            chunk(json!({"text": "I will run a command."}), false),
            chunk(json!({"functionCall": {"id": "fc1", "name": tool, "args": arguments(tool, command)}}), true),
        ],
        _ => vec![chunk(json!({"text": "All "}), false), chunk(json!({"text": "done."}), true)],
    })
}

/// `POST …:generateContent`: what the agent asks on the side, such as who speaks next.
pub fn generate() -> Answer {
    let text = json!({"model_choice": "flash", "reasoning": "x", "next_speaker": "user", "complexity_reasoning": "x", "complexity_score": 1}).to_string();
    Answer::Json(
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}]}),
    )
}
