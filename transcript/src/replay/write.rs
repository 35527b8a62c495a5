//! Events as bytes: SSE framing, and the JSON of what replay itself has to say.

use serde::Serialize;

use crate::{PartIndex, Turn};

/// Writes whole events to a buffer.
pub(super) struct Sse<'a>(pub(super) &'a mut Vec<u8>);

#[derive(Serialize)]
struct Data<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    data: &'a T,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
enum Envelope<'a> {
    Start {
        message_id: &'a str,
    },
    Finish {
        #[serde(skip_serializing_if = "Option::is_none")]
        finish_reason: Option<&'a str>,
    },
}

/// What replay makes up to keep a stream legal.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum MadeUp<'a> {
    TextStart { id: &'a str, provider_metadata: Mark },
    TextEnd { id: &'a str },
    ReasoningStart { id: &'a str, provider_metadata: Mark },
    ReasoningEnd { id: &'a str },
    ToolInputStart { tool_call_id: &'a str, tool_name: &'a str, dynamic: bool },
    ToolInputAvailable { tool_call_id: &'a str, tool_name: &'a str, dynamic: bool, input: (), provider_metadata: Mark },
    ToolInputError { tool_call_id: &'a str, tool_name: &'a str, dynamic: bool, input: (), error_text: &'a str },
}

/// Says in `providerMetadata` that no agent wrote this.
#[derive(Serialize)]
pub(super) struct Mark {
    agentsession: Synthetic,
}

#[derive(Serialize)]
struct Synthetic {
    synthetic: bool,
}

impl Mark {
    pub(super) const NEW: Self = Self { agentsession: Synthetic { synthetic: true } };
}

impl Sse<'_> {
    pub(super) fn start(&mut self, message_id: &str) {
        self.event(&Envelope::Start { message_id });
    }

    /// `finish` and the end of the stream.
    pub(super) fn finish(&mut self, finish_reason: Option<&str>) {
        self.event(&Envelope::Finish { finish_reason });
        self.0.extend_from_slice(b"data: [DONE]\n\n");
    }

    /// A chunk that is nothing but its type.
    pub(super) fn bare(&mut self, kind: &str) {
        self.0.extend_from_slice(b"data: {\"type\":\"");
        self.0.extend_from_slice(kind.as_bytes());
        self.0.extend_from_slice(b"\"}\n\n");
    }

    pub(super) fn data<T: Serialize>(&mut self, kind: &str, id: Option<&str>, data: &T) {
        self.event(&Data { kind, id, data });
    }

    pub(super) fn made_up(&mut self, chunk: &MadeUp<'_>) {
        self.event(chunk);
    }

    /// The id line of a stored part: its event follows at once.
    pub(super) fn id(&mut self, turn: Turn, index: PartIndex) {
        self.0.extend_from_slice(format!("id: {turn}.{index}\n").as_bytes());
    }

    /// JSON text as an event. A carriage return or newline between its tokens would end the SSE line, so a space stands for it; inside strings
    /// JSON has neither.
    pub(super) fn json(&mut self, pieces: &[&str]) {
        self.0.extend_from_slice(b"data: ");
        let begin = self.0.len();
        for piece in pieces {
            self.0.extend_from_slice(piece.as_bytes());
        }
        for byte in &mut self.0[begin..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.0.extend_from_slice(b"\n\n");
    }

    fn event<T: Serialize>(&mut self, value: &T) {
        let begin = self.0.len();
        self.0.extend_from_slice(b"data: ");
        match serde_json::to_writer(&mut *self.0, value) {
            Ok(()) => self.0.extend_from_slice(b"\n\n"),
            // Nothing that is written here can fail to be JSON; half an event must not stand if it ever does.
            Err(_) => self.0.truncate(begin),
        }
    }
}

/// A text as a JSON string.
pub(super) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
