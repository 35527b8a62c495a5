//! A model that needs no model: it answers the first request of a turn with a sentence and one shell tool call, and the next with a closing
//! sentence, in whatever API the agent speaks.

use std::net::SocketAddr;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};
use tiny_http::{Header, Request, Response, Server};

mod anthropic;
mod gemini;
mod openai;

/// What the model asks the agent to run unless it is told otherwise.
pub const DEFAULT_COMMAND: &str = "echo hello-from-tool > made-by-agent.txt && cat made-by-agent.txt";

/// What an API answers with.
pub enum Answer {
    /// One JSON document.
    Json(Value),
    /// A stream of server-sent events, already framed.
    Events(Vec<String>),
}

/// Serves until the process ends.
///
/// # Errors
/// When the address cannot be had.
pub fn serve(listen: SocketAddr, command: &str) -> Result<()> {
    let server = Server::http(listen).map_err(|error| anyhow!("cannot listen on {listen}: {error}"))?;
    eprintln!("model on http://{}", server.server_addr());
    for mut request in server.incoming_requests() {
        let mut body = String::new();
        if request.as_reader().read_to_string(&mut body).is_err() {
            continue;
        }
        let body = serde_json::from_str(&body).unwrap_or(Value::Null);
        eprintln!("{} {}", request.method(), request.url());
        let answer = answer(request.url(), &body, command);
        // A client that went away is no reason to stop.
        respond(request, answer).ok();
    }
    Ok(())
}

fn answer(url: &str, body: &Value, command: &str) -> Option<Answer> {
    let path = url.split('?').next().unwrap_or_default();
    if path.ends_with("/chat/completions") {
        Some(openai::chat(body, command))
    } else if path.ends_with("/responses") {
        Some(openai::responses(body, command))
    } else if path.ends_with("/messages/count_tokens") {
        Some(Answer::Json(json!({"input_tokens": 10})))
    } else if path.ends_with("/messages") {
        Some(anthropic::messages(body, command))
    } else if path.ends_with(":streamGenerateContent") {
        Some(gemini::stream(body, command))
    } else if path.ends_with(":generateContent") {
        Some(gemini::generate())
    } else if path.ends_with("/models") {
        Some(Answer::Json(json!({"object": "list", "data": [{"id": "fake", "object": "model"}], "models": []})))
    } else {
        None
    }
}

fn respond(request: Request, answer: Option<Answer>) -> std::io::Result<()> {
    let (status, kind, body) = match answer {
        Some(Answer::Json(value)) => (200, "application/json", value.to_string()),
        Some(Answer::Events(events)) => (200, "text/event-stream", events.concat()),
        None => (404, "application/json", json!({"error": {"message": "no such route"}}).to_string()),
    };
    let mut response = Response::from_string(body).with_status_code(status);
    if let Ok(header) = Header::from_bytes("content-type", kind) {
        response.add_header(header);
    }
    request.respond(response)
}

/// The first tool on offer that runs shell commands.
fn shell_tool<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const NAMES: [&str; 8] =
        ["bash", "Bash", "shell", "run_shell_command", "exec_command", "shell_command", "execute", "local_shell"];
    names.into_iter().find(|name| NAMES.contains(name))
}

/// The arguments that the tool of this name takes for a command.
fn arguments(tool: &str, command: &str) -> Value {
    match tool {
        "shell" => json!({"command": ["bash", "-lc", command]}),
        "exec_command" => json!({"cmd": command}),
        _ => json!({"command": command, "description": "say hello"}),
    }
}

/// An event without a name.
fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// An event whose name stands in its data as well.
fn event(name: &str, mut value: Value) -> String {
    value["type"] = json!(name);
    format!("event: {name}\ndata: {value}\n\n")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: Option<Answer>) -> String {
        match answer {
            Some(Answer::Json(value)) => value.to_string(),
            Some(Answer::Events(events)) => events.concat(),
            None => String::new(),
        }
    }

    #[test]
    fn each_api_asks_for_the_command_first_and_closes_after_its_result() {
        let cases = [
            (
                "/v1/chat/completions",
                json!({"stream": true, "tools": [{"function": {"name": "bash"}}], "messages": [{"role": "user"}]}),
                json!({"stream": true, "tools": [{"function": {"name": "bash"}}], "messages": [{"role": "user"}, {"role": "tool"}]}),
            ),
            (
                "/v1/responses",
                json!({"tools": [{"name": "exec_command"}], "input": [{"type": "message"}]}),
                json!({"tools": [{"name": "exec_command"}], "input": [{"type": "message"}, {"type": "function_call_output"}]}),
            ),
            (
                "/v1/messages?beta=true",
                json!({"stream": true, "tools": [{"name": "Bash"}], "messages": [{"content": "hi"}]}),
                json!({"stream": true, "tools": [{"name": "Bash"}], "messages": [{"content": [{"type": "tool_result"}]}]}),
            ),
            (
                "/v1beta/models/fake:streamGenerateContent?alt=sse",
                json!({"tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}], "contents": [{"parts": [{"text": "hi"}]}]}),
                json!({"tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}], "contents": [{"parts": [{"functionResponse": {}}]}]}),
            ),
        ];
        for (url, first, second) in cases {
            let asks = text(answer(url, &first, "echo marker"));
            assert!(asks.contains("echo marker") && !asks.contains("done."), "{url}: {asks}");
            let closes = text(answer(url, &second, "echo marker"));
            assert!(closes.contains("done.") && !closes.contains("echo marker"), "{url}: {closes}");
        }
    }

    #[test]
    fn without_a_shell_tool_there_is_only_text() {
        let body = json!({"tools": [{"name": "grep"}], "input": [{"type": "message"}]});
        assert!(text(answer("/v1/responses", &body, "echo marker")).contains("All done."));
        assert!(answer("/v1/nothing", &body, "").is_none());
    }
}
