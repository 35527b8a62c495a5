//! One turn's parts, one after the other, each made legal where it stands.

use super::{
    chunk::{self, BlockKind, BlockPhase, Chunk, ToolPhase, Why},
    open::{Open, Tool},
    write::{MadeUp, Mark, Sse, json_string},
};
use crate::{PartIndex, Turn};

/// Bytes of joined deltas before they are sent.
const JOINED_BYTES: usize = 64 << 10;

/// The replay of one turn.
#[derive(Debug)]
pub(super) struct TurnReplay {
    turn: Turn,
    coalesce: bool,
    open: Open,
    /// Whether a stored step is open.
    in_step: bool,
    joined: Option<Joined>,
}

/// Deltas of one block that wait to go out as one.
#[derive(Debug)]
struct Joined {
    kind: BlockKind,
    id: String,
    /// The insides of their JSON strings, one after the other: two halves of a surrogate pair become whole here as they would in the client.
    delta: String,
    last: PartIndex,
}

impl TurnReplay {
    pub(super) fn new(turn: Turn, coalesce: bool) -> Self {
        Self { turn, coalesce, open: Open::default(), in_step: false, joined: None }
    }

    /// Takes one part. One that lies before the client's cursor (`is_past`) changes what is open and sends nothing.
    pub(super) fn part(&mut self, index: PartIndex, raw: &str, is_past: bool, out: &mut Vec<u8>) {
        let Some(raw) = chunk::object(raw) else {
            self.flush(out);
            return self.wrap(index, raw, Why::NotJson, is_past, out);
        };
        let chunk = chunk::read(raw);
        if !matches!(chunk, Chunk::Block { phase: BlockPhase::Delta, joinable: Some(_), .. }) {
            self.flush(out);
        }
        match chunk {
            Chunk::Envelope => {}
            Chunk::StartStep => self.start_step(index, raw, is_past, out),
            Chunk::FinishStep => {
                self.open.end_blocks(out);
                self.in_step = false;
                self.verbatim(index, raw, is_past, out);
            }
            Chunk::Abort => {
                self.open.end_blocks(out);
                self.open.end_inputs(out);
                self.verbatim(index, raw, is_past, out);
            }
            Chunk::Block { kind, phase: BlockPhase::Delta, id, joinable } => {
                let joinable = joinable.filter(|_| self.coalesce);
                self.delta(index, raw, (kind, &id), joinable, is_past, out);
            }
            Chunk::Block { kind, phase, id, .. } => self.block_edge(index, raw, (kind, &id), phase, is_past, out),
            Chunk::Tool { phase, id, name, dynamic } => {
                self.tool(index, raw, &ToolPart { phase, id: &id, name: name.as_deref(), dynamic }, is_past, out);
            }
            Chunk::Error { text } => {
                let head = format!(
                    "{{\"type\":\"data-turn-error\",\"data\":{{\"turn\":{},\"partIndex\":{index},\"errorText\":",
                    self.turn
                );
                self.stored(index, &[&head, text, "}}"], is_past, out);
            }
            Chunk::Plain => self.verbatim(index, raw, is_past, out),
            Chunk::Bad(why) => self.wrap(index, raw, why, is_past, out),
        }
    }

    /// Ends the turn: nothing stays open.
    pub(super) fn end(mut self, out: &mut Vec<u8>) {
        self.flush(out);
        self.open.end_blocks(out);
        self.open.end_inputs(out);
        if self.in_step {
            Sse(out).bare("finish-step");
        }
    }

    /// Sends the deltas that wait.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) {
        let Some(joined) = self.joined.take() else { return };
        let kind = match joined.kind {
            BlockKind::Text => "text-delta",
            BlockKind::Reasoning => "reasoning-delta",
        };
        let head = format!("{{\"type\":\"{kind}\",\"id\":{},\"delta\":\"", json_string(&joined.id));
        self.stored(joined.last, &[&head, &joined.delta, "\"}"], false, out);
    }

    fn start_step(&mut self, index: PartIndex, raw: &str, is_past: bool, out: &mut Vec<u8>) {
        // The client looks for the input of a call in the current step only, and would show the open one twice.
        if self.open.has_open_input() {
            return self.wrap(index, raw, Why::InputOpen, is_past, out);
        }
        self.in_step |= !is_past;
        self.verbatim(index, raw, is_past, out);
    }

    fn block_edge(
        &mut self,
        index: PartIndex,
        raw: &str,
        (kind, id): (BlockKind, &str),
        phase: BlockPhase,
        is_past: bool,
        out: &mut Vec<u8>,
    ) {
        if phase == BlockPhase::Start {
            // The client would forget the open one and leave it streaming.
            self.open.end_block(kind, id, out);
            self.open.open_block(kind, id, !is_past, out);
        } else if self.open.has_block(kind, id) {
            self.open.ensure_block(kind, id, is_past, out);
            self.open.forget_block(kind, id);
        } else {
            return self.wrap(index, raw, Why::Orphan, is_past, out);
        }
        self.verbatim(index, raw, is_past, out);
    }

    fn delta(
        &mut self,
        index: PartIndex,
        raw: &str,
        (kind, id): (BlockKind, &str),
        joinable: Option<&str>,
        is_past: bool,
        out: &mut Vec<u8>,
    ) {
        let Some(text) = joinable.filter(|_| !is_past) else {
            self.flush(out);
            self.open.ensure_block(kind, id, is_past, out);
            return self.verbatim(index, raw, is_past, out);
        };
        match &mut self.joined {
            Some(joined)
                if joined.kind == kind && joined.id == id && joined.delta.len() + text.len() <= JOINED_BYTES =>
            {
                joined.delta.push_str(text);
                joined.last = index;
            }
            _ => {
                self.flush(out);
                self.open.ensure_block(kind, id, false, out);
                self.joined = Some(Joined { kind, id: id.to_owned(), delta: text.to_owned(), last: index });
            }
        }
    }

    fn tool(&mut self, index: PartIndex, raw: &str, part: &ToolPart<'_>, is_past: bool, out: &mut Vec<u8>) {
        let has_room = self.open.has_room();
        let Some(tool) = self.open.tool(part.id) else {
            return match (part.phase, part.name) {
                (ToolPhase::InputStart | ToolPhase::Input, Some(name)) if has_room => {
                    self.open.add_tool(part.id, Tool::new(name, part, !is_past));
                    self.verbatim(index, raw, is_past, out);
                }
                (ToolPhase::InputStart | ToolPhase::Input, Some(_)) => {
                    self.wrap(index, raw, Why::TooMany, is_past, out);
                }
                _ => self.wrap(index, raw, Why::Orphan, is_past, out),
            };
        };
        if part.phase == ToolPhase::InputDelta && !tool.takes_deltas {
            return self.wrap(index, raw, Why::Orphan, is_past, out);
        }
        if !is_past {
            tool.introduce(part, out);
        }
        tool.advance(part);
        // All parts of a call say the same, or major 5 does not find the call that they speak of.
        let is_dynamic = tool.dynamic;
        if part.phase == ToolPhase::InputDelta || part.dynamic.unwrap_or(false) == is_dynamic {
            self.verbatim(index, raw, is_past, out);
        } else {
            let body = raw.strip_suffix('}').unwrap_or(raw);
            self.stored(
                index,
                &[body, if is_dynamic { ",\"dynamic\":true}" } else { ",\"dynamic\":false}" }],
                is_past,
                out,
            );
        }
    }

    fn verbatim(&self, index: PartIndex, raw: &str, is_past: bool, out: &mut Vec<u8>) {
        self.stored(index, &[raw], is_past, out);
    }

    fn stored(&self, index: PartIndex, pieces: &[&str], is_past: bool, out: &mut Vec<u8>) {
        if !is_past {
            let mut sse = Sse(out);
            sse.id(self.turn, index);
            sse.json(pieces);
        }
    }

    fn wrap(&self, index: PartIndex, raw: &str, why: Why, is_past: bool, out: &mut Vec<u8>) {
        if is_past {
            return;
        }
        let head = format!(
            "{{\"type\":\"data-wrapped\",\"data\":{{\"turn\":{},\"partIndex\":{index},\"why\":\"{}\",",
            self.turn,
            why.as_str()
        );
        if why.is_embeddable() {
            self.stored(index, &[&head, "\"part\":", raw, "}}"], false, out);
        } else {
            self.stored(index, &[&head, "\"text\":", &json_string(raw), "}}"], false, out);
        }
    }
}

/// What a stored part says of a tool call.
struct ToolPart<'a> {
    phase: ToolPhase,
    id: &'a str,
    name: Option<&'a str>,
    dynamic: Option<bool>,
}

impl Tool {
    fn new(name: &str, part: &ToolPart<'_>, is_sent: bool) -> Self {
        let is_streaming = part.phase == ToolPhase::InputStart;
        Self {
            name: name.to_owned(),
            dynamic: part.dynamic.unwrap_or(false),
            takes_deltas: is_streaming,
            is_buffered: is_streaming && is_sent,
            is_streaming,
            is_sent,
        }
    }

    /// Tells the client what it missed of a call that began before its cursor.
    fn introduce(&mut self, part: &ToolPart<'_>, out: &mut Vec<u8>) {
        let was_sent = std::mem::replace(&mut self.is_sent, true);
        let (tool_call_id, tool_name, dynamic) = (part.id, self.name.as_str(), self.dynamic);
        match part.phase {
            ToolPhase::InputStart => self.is_buffered = true,
            ToolPhase::InputDelta if !self.is_buffered => {
                self.is_buffered = true;
                Sse(out).made_up(&MadeUp::ToolInputStart { tool_call_id, tool_name, dynamic });
            }
            ToolPhase::Output if !was_sent => Sse(out).made_up(&MadeUp::ToolInputAvailable {
                tool_call_id,
                tool_name,
                dynamic,
                input: (),
                provider_metadata: Mark::NEW,
            }),
            ToolPhase::InputDelta | ToolPhase::Input | ToolPhase::Output => {}
        }
    }

    fn advance(&mut self, part: &ToolPart<'_>) {
        match part.phase {
            ToolPhase::InputStart => (self.takes_deltas, self.is_streaming) = (true, true),
            ToolPhase::InputDelta => self.is_streaming = true,
            ToolPhase::Input | ToolPhase::Output => self.is_streaming = false,
        }
        if let Some(name) = part.name {
            name.clone_into(&mut self.name);
        }
    }
}
