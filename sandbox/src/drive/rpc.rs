//! JSON-RPC on the agent's stdio: bounded lines in, messages by their text, messages out.

use agent_client_protocol_schema::v1 as acp;
use serde::Serialize;
use sha2::{Digest, Sha256};
use transcript::frame::sha256_hex;

use crate::json::{Obj, is_string};

/// The longest line of an agent that is looked at. Twice a part and its envelope: agents repeat an output in two forms.
pub const LINE_BYTES: usize = 4 << 20;

/// Protocol version that we speak.
const PROTOCOL: u64 = 1;

/// One line of the agent.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Its text, without the newline.
    Text(String),
    /// Its bytes are not UTF-8.
    NotText {
        /// The text with U+FFFD in the place of such bytes.
        text: String,
        /// Lower-case hex SHA-256 of the bytes.
        sha256: String,
    },
    /// It was too long to be looked at.
    TooLong {
        /// Its length.
        bytes: u64,
        /// Lower-case hex SHA-256 of it.
        sha256: String,
        /// How it began.
        beginning: String,
    },
}

/// Splits bytes into lines of bounded length.
#[derive(Debug)]
pub struct Splitter {
    max: usize,
    line: Vec<u8>,
    /// Length and digest of a line that is too long.
    skipped: Option<(u64, Sha256)>,
}

impl Splitter {
    /// With this bound on a line.
    pub fn new(max: usize) -> Self {
        Self { max, line: Vec::new(), skipped: None }
    }

    /// Takes the next bytes; gives the lines that they complete.
    pub fn push(&mut self, mut bytes: &[u8], lines: &mut Vec<Line>) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.extend(&bytes[..end]);
            lines.extend(self.take());
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes);
    }

    /// What stands there without a newline when the stream has ended.
    pub fn finish(&mut self) -> Option<Line> {
        if self.line.is_empty() { None } else { self.take() }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if let Some((length, digest)) = &mut self.skipped {
            *length += bytes.len() as u64;
            digest.update(bytes);
        } else if self.line.len() + bytes.len() > self.max {
            let mut digest = Sha256::new_with_prefix(&self.line);
            digest.update(bytes);
            self.skipped = Some(((self.line.len() + bytes.len()) as u64, digest));
            if self.line.is_empty() {
                self.line.extend_from_slice(&bytes[..bytes.len().min(512)]);
            }
            self.line.truncate(512);
            self.line.shrink_to_fit();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn take(&mut self) -> Option<Line> {
        let line = std::mem::take(&mut self.line);
        match self.skipped.take() {
            Some((bytes, digest)) => Some(Line::TooLong {
                bytes,
                sha256: hex::encode(digest.finalize()),
                beginning: String::from_utf8_lossy(&line).into_owned(),
            }),
            None if line.iter().all(u8::is_ascii_whitespace) => None,
            None => Some(String::from_utf8(line).map_or_else(
                |bad| Line::NotText {
                    text: String::from_utf8_lossy(bad.as_bytes()).into_owned(),
                    sha256: sha256_hex(bad.as_bytes()),
                },
                Line::Text,
            )),
        }
    }
}

/// A message of the agent, by its text.
#[derive(Debug)]
pub enum Message<'a> {
    /// Wants an answer.
    Request {
        /// Text of its id.
        id: &'a str,
        /// Its method.
        method: String,
        /// Text of its parameters.
        params: &'a str,
    },
    /// Wants none.
    Notification {
        /// Its method.
        method: String,
        /// Text of its parameters.
        params: &'a str,
    },
    /// Answers a request of ours.
    Response {
        /// Our id, when it is a number.
        id: Option<u64>,
        /// The result, or the error, as text.
        answer: Result<&'a str, &'a str>,
    },
    /// JSON that is no message, or begins like one and is no JSON.
    Broken,
    /// A banner or the like.
    Noise,
}

impl<'a> Message<'a> {
    /// Reads a line.
    pub fn read(line: &'a str) -> Self {
        let line = line.trim();
        let Some(fields) = Obj::parse(line) else {
            return if line.starts_with('{') { Self::Broken } else { Self::Noise };
        };
        let params = fields.get("params").unwrap_or("{}");
        match (fields.text("method"), fields.get("id")) {
            (Some(method), Some(id)) => Self::Request { id, method: method.into_owned(), params },
            (Some(method), None) => Self::Notification { method: method.into_owned(), params },
            (None, Some(id)) => {
                let answer = fields.get("error").map_or_else(|| Ok(fields.get("result").unwrap_or("null")), Err);
                Self::Response { id: id.parse().ok(), answer }
            }
            (None, None) => Self::Broken,
        }
    }
}

/// A message of ours, as a line.
fn line(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    bytes.push(b'\n');
    bytes
}

fn json(value: &impl Serialize) -> String {
    // The types of the protocol have no map with keys that are not strings, the one thing that serialising them could fail on.
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

fn request(id: u64, method: &str, params: &impl Serialize) -> Vec<u8> {
    line(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{}}}", json(params)))
}

/// `initialize`: no file system and no terminal is offered, the agent has its own.
pub fn initialize(id: u64) -> Vec<u8> {
    let us = acp::Implementation::new("agentsession", env!("CARGO_PKG_VERSION"));
    let params = acp::InitializeRequest::new(agent_client_protocol_schema::ProtocolVersion::V1).client_info(us);
    request(id, acp::AGENT_METHOD_NAMES.initialize, &params)
}

/// `session/new` in this directory.
pub fn session_new(id: u64, cwd: &std::path::Path) -> Vec<u8> {
    request(id, acp::AGENT_METHOD_NAMES.session_new, &acp::NewSessionRequest::new(cwd))
}

/// `session/prompt`; context from earlier turns goes first, as a block of its own.
pub fn session_prompt(id: u64, session: &str, context: Option<&str>, prompt: &str) -> Vec<u8> {
    let blocks = context.into_iter().chain([prompt]).map(acp::ContentBlock::from).collect();
    request(id, acp::AGENT_METHOD_NAMES.session_prompt, &acp::PromptRequest::new(session.to_owned(), blocks))
}

/// `session/cancel`.
pub fn session_cancel(session: &str) -> Vec<u8> {
    let params = json(&acp::CancelNotification::new(session.to_owned()));
    line(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{}\",\"params\":{params}}}",
        acp::AGENT_METHOD_NAMES.session_cancel
    ))
}

/// Answers a request of the agent; `id` is its text.
pub fn answer(id: &str, result: &str) -> Vec<u8> {
    line(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}"))
}

/// Answers that there is no such method.
pub fn no_such_method(id: &str) -> Vec<u8> {
    line(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32601,\"message\":\"method not found\"}}}}"))
}

/// Chooses an option of a permission request by its kind: the answer as text, and the kind for the record. Allowing once goes
/// before allowing for ever, and both before refusing; without any of them, or when the turn is being cancelled, the answer is that
/// the request was cancelled.
pub fn choose(params: &Obj<'_>, cancelled: bool) -> (String, String) {
    let options: Vec<Obj<'_>> = params.items("options").into_iter().filter_map(Obj::parse).collect();
    let by_kind = |kind: &str| options.iter().find(|option| option.text("kind").as_deref() == Some(kind));
    let chosen = ["allow_once", "allow_always", "reject_once", "reject_always"]
        .iter()
        .filter(|_| !cancelled)
        .find_map(|kind| Some((by_kind(kind)?.get("optionId")?, *kind)));
    match chosen {
        Some((id, kind)) => {
            (format!("{{\"outcome\":{{\"outcome\":\"selected\",\"optionId\":{id}}}}}"), kind.to_owned())
        }
        None => ("{\"outcome\":{\"outcome\":\"cancelled\"}}".to_owned(), "cancelled".to_owned()),
    }
}

/// Whether the agent speaks our version.
///
/// # Errors
/// A sentence that names both versions.
pub fn check_version(result: &Obj<'_>) -> Result<(), String> {
    match result.get("protocolVersion") {
        Some(version) if version.parse() != Ok(PROTOCOL) => {
            Err(format!("the agent speaks version {version} of the protocol, this driver version {PROTOCOL}"))
        }
        _ => Ok(()),
    }
}

/// An error of the agent in words.
pub fn error_text(error: &str) -> String {
    let fields = Obj::parse(error).unwrap_or_default();
    let message = fields.text("message").unwrap_or_else(|| error.into());
    let code = fields.get("code").map(|code| format!(" (code {code})")).unwrap_or_default();
    let data = match fields.get("data") {
        Some(data) if is_string(data) => format!(": {}", crate::json::decode(data)),
        Some(data) => format!(": {data}"),
        None => String::new(),
    };
    format!("{message}{code}{data}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(max: usize, chunks: &[&[u8]]) -> Vec<Line> {
        let (mut splitter, mut lines) = (Splitter::new(max), Vec::new());
        for chunk in chunks {
            splitter.push(chunk, &mut lines);
        }
        lines.extend(splitter.finish());
        lines
    }

    fn text(text: &str) -> Line {
        Line::Text(text.to_owned())
    }

    #[test]
    fn lines_do_not_depend_on_the_cuts() {
        let bytes = "{\"a\":\"é😀\"}\r\n\n  \n{}\nlast".as_bytes();
        let whole = split(64, &[bytes]);
        for at in 0..bytes.len() {
            assert_eq!(split(64, &[&bytes[..at], &bytes[at..]]), whole);
        }
        assert_eq!(whole, [text("{\"a\":\"é😀\"}\r"), text("{}"), text("last")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_measured_and_its_neighbours_are_kept() {
        let long = "y".repeat(20);
        let bytes = format!("a\n{long}\nb\n");
        let digest = hex::encode(Sha256::digest(&long));
        for step in [1, 3, 7, 100] {
            let chunks: Vec<&[u8]> = bytes.as_bytes().chunks(step).collect();
            let lines = split(10, &chunks);
            assert_eq!(lines.len(), 3, "{step}");
            assert_eq!((&lines[0], &lines[2]), (&text("a"), &text("b")));
            assert!(matches!(&lines[1], Line::TooLong { bytes: 20, sha256, .. } if *sha256 == digest), "{step}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_do_not_cost_the_line() {
        let line = b"a\xff\xfeb";
        let lossy = Line::NotText { text: "a\u{FFFD}\u{FFFD}b".to_owned(), sha256: sha256_hex(line) };
        assert_eq!(split(64, &[line, b"\nc\n"]), [lossy, text("c")]);
    }

    #[test]
    fn messages_are_told_apart() {
        assert!(matches!(Message::read("Welcome"), Message::Noise));
        assert!(matches!(Message::read("{\"method\":\"session/upd"), Message::Broken));
        assert!(matches!(Message::read("{}"), Message::Broken));
        assert!(matches!(
            Message::read("{\"id\":3,\"result\":null}"),
            Message::Response { id: Some(3), answer: Ok("null") }
        ));
        assert!(matches!(
            Message::read("{\"id\":3,\"error\":{\"code\":1}}"),
            Message::Response { answer: Err("{\"code\":1}"), .. }
        ));
        assert!(matches!(
            Message::read("{\"id\":\"x\",\"method\":\"m\"}"),
            Message::Request { id: "\"x\"", params: "{}", .. }
        ));
        assert!(matches!(Message::read("{\"id\":null,\"method\":\"m\"}"), Message::Notification { .. }));
    }

    #[test]
    fn options_are_chosen_by_kind_never_by_place() {
        let ask =
            |options: &str, cancelled| choose(&Obj::parse(&format!("{{\"options\":{options}}}")).unwrap(), cancelled);
        let all = r#"[{"optionId":"n","kind":"reject_once"},{"optionId":"a","kind":"allow_always"},{"optionId":"o","kind":"allow_once"}]"#;
        assert_eq!(ask(all, false).1, "allow_once");
        assert!(ask(all, false).0.contains("\"optionId\":\"o\""));
        assert_eq!(ask(all, true).1, "cancelled");
        assert_eq!(
            ask(r#"[{"optionId":"a","kind":"allow_always"},{"optionId":"n","kind":"reject_once"}]"#, false).1,
            "allow_always"
        );
        assert_eq!(ask(r#"[{"optionId":"n","kind":"reject_once"}]"#, false).1, "reject_once");
        assert_eq!(ask(r#"[{"optionId":"n","kind":"brand_new"}]"#, false).1, "cancelled");
    }

    #[test]
    fn what_we_send_is_what_the_protocol_says() {
        let read = |bytes: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        let new = read(session_new(2, std::path::Path::new("/workspace")));
        assert_eq!(new["params"], serde_json::json!({"cwd": "/workspace", "mcpServers": []}));
        let prompt = read(session_prompt(3, "s", Some("before"), "now"));
        assert_eq!(prompt["method"], "session/prompt");
        assert_eq!(
            prompt["params"],
            serde_json::json!({"sessionId": "s", "prompt": [{"type": "text", "text": "before"}, {"type": "text", "text": "now"}]})
        );
        let first = read(initialize(1));
        assert_eq!(first["params"]["protocolVersion"], 1);
        assert_ne!(first["params"]["clientCapabilities"]["fs"]["readTextFile"], true);
        assert_ne!(first["params"]["clientCapabilities"]["terminal"], true);
        assert_eq!(read(session_cancel("s"))["params"], serde_json::json!({"sessionId": "s"}));
    }
}
