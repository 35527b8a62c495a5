//! What a stored part is to the client: its kind, the ids that matter, and whether AI SDK 5, 6 and 7 all accept its shape.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::peek;

/// Nesting that a client surely reads: its parser recurses, and so do the copies that it makes.
const DEPTH: usize = 128;
/// Bytes of an id; a longer one would have to be remembered.
const ID_BYTES: usize = 512;

/// Types that only replay itself may send: a log could otherwise forge what the user asked.
const RESERVED: &[&str] = &[
    "data-user-prompt",
    "data-turn-error",
    "data-turn-end",
    "data-gap",
    "data-resync",
    "data-still-running",
    "data-tombstone",
    "data-wrapped",
];

/// Why a part cannot go out as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is not a JSON object.
    NotJson,
    /// A key in it, or its depth, makes the client's JSON reader refuse it.
    Unreadable,
    /// Its type is none that all three majors know.
    UnknownType,
    /// A field is missing or of another type than the client demands.
    BadShape,
    /// Its type is for replay alone.
    Reserved,
    /// It ends or answers what never began.
    Orphan,
    /// It begins a step while the input of a tool call is still open.
    InputOpen,
    /// More tool calls than are kept track of.
    TooMany,
}

impl Why {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::NotJson => "notJson",
            Self::Unreadable => "unreadable",
            Self::UnknownType => "unknownType",
            Self::BadShape => "badShape",
            Self::Reserved => "reserved",
            Self::Orphan => "orphan",
            Self::InputOpen => "inputOpen",
            Self::TooMany => "tooMany",
        }
    }

    /// Whether the part itself may stand inside another chunk. Otherwise it goes as a string.
    pub(super) fn is_embeddable(self) -> bool {
        !matches!(self, Self::NotJson | Self::Unreadable)
    }
}

/// Text or reasoning: two maps of ids in the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BlockKind {
    Text,
    Reasoning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockPhase {
    Start,
    Delta,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolPhase {
    InputStart,
    InputDelta,
    Input,
    Output,
}

/// A part, as far as replay has to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk<'a> {
    /// `start` or `finish`: the envelope is replay's own.
    Envelope,
    StartStep,
    FinishStep,
    /// `abort`: ends what is open and goes out.
    Abort,
    Block {
        kind: BlockKind,
        phase: BlockPhase,
        id: Cow<'a, str>,
        /// The inside of the delta's JSON string, where it may be joined with others.
        joinable: Option<&'a str>,
    },
    Tool {
        phase: ToolPhase,
        id: Cow<'a, str>,
        name: Option<Cow<'a, str>>,
        dynamic: Option<bool>,
    },
    /// `error`, and its text as a JSON string.
    Error {
        text: &'a str,
    },
    /// Legal anywhere.
    Plain,
    /// Not legal anywhere.
    Bad(Why),
}

/// The members that a client looks at, as raw JSON; of a repeated key the last.
#[derive(Default)]
struct Fields<'a> {
    id: Option<&'a str>,
    delta: Option<&'a str>,
    tool_call_id: Option<&'a str>,
    tool_name: Option<&'a str>,
    input: Option<&'a str>,
    input_text_delta: Option<&'a str>,
    output: Option<&'a str>,
    error_text: Option<&'a str>,
    data: Option<&'a str>,
    source_id: Option<&'a str>,
    url: Option<&'a str>,
    media_type: Option<&'a str>,
    title: Option<&'a str>,
    filename: Option<&'a str>,
    reason: Option<&'a str>,
    dynamic: Option<&'a str>,
    provider_executed: Option<&'a str>,
    preliminary: Option<&'a str>,
    transient: Option<&'a str>,
    input_encoding: Option<&'a str>,
    provider_metadata: Option<&'a str>,
    tool_metadata: Option<&'a str>,
    message_metadata: Option<&'a str>,
    citations: Option<&'a str>,
}

/// The JSON text of a part without what stands around it; `None` when it is not one JSON object.
pub(super) fn object(raw: &str) -> Option<&str> {
    let value: &RawValue = serde_json::from_str(raw).ok()?;
    value.get().starts_with('{').then_some(value.get())
}

/// Reads a part that is a JSON object.
pub(super) fn read(raw: &str) -> Chunk<'_> {
    if peek::depth(raw) > DEPTH || has_forbidden_key(raw) {
        return Chunk::Bad(Why::Unreadable);
    }
    let Some(kind) = peek::part_type(raw) else { return Chunk::Bad(Why::UnknownType) };
    if RESERVED.contains(&kind.as_ref()) {
        return Chunk::Bad(Why::Reserved);
    }
    Fields::of(raw).chunk(&kind).unwrap_or(Chunk::Bad(Why::BadShape))
}

/// Keys that the client's JSON reader refuses, wherever they stand: `__proto__`, and `prototype` inside `constructor`.
fn has_forbidden_key(raw: &str) -> bool {
    let (mut constructor, mut prototype) = (false, false);
    for (text, _) in peek::strings(raw).filter(|(text, is_key)| *is_key && may_be_forbidden(text)) {
        if peek::string_is(text, "__proto__") {
            return true;
        }
        constructor |= peek::string_is(text, "constructor");
        prototype |= peek::string_is(text, "prototype");
    }
    constructor && prototype
}

fn may_be_forbidden(key: &str) -> bool {
    matches!(key.len(), 11 | 13) || key.contains('\\')
}

impl<'a> Fields<'a> {
    fn of(raw: &'a str) -> Self {
        let mut fields = Self::default();
        for (key, value) in peek::members(raw) {
            let Some(key) = peek::decode_unicode(key) else { continue };
            let field = match key.as_ref() {
                "id" => &mut fields.id,
                "delta" => &mut fields.delta,
                "toolCallId" => &mut fields.tool_call_id,
                "toolName" => &mut fields.tool_name,
                "input" => &mut fields.input,
                "inputTextDelta" => &mut fields.input_text_delta,
                "output" => &mut fields.output,
                "errorText" => &mut fields.error_text,
                "data" => &mut fields.data,
                "sourceId" => &mut fields.source_id,
                "url" => &mut fields.url,
                "mediaType" => &mut fields.media_type,
                "title" => &mut fields.title,
                "filename" => &mut fields.filename,
                "reason" => &mut fields.reason,
                "dynamic" => &mut fields.dynamic,
                "providerExecuted" => &mut fields.provider_executed,
                "preliminary" => &mut fields.preliminary,
                "transient" => &mut fields.transient,
                "inputEncoding" => &mut fields.input_encoding,
                "providerMetadata" => &mut fields.provider_metadata,
                "toolMetadata" => &mut fields.tool_metadata,
                "messageMetadata" => &mut fields.message_metadata,
                "citations" => &mut fields.citations,
                _ => continue,
            };
            *field = Some(value);
        }
        fields
    }

    /// `None` when the shape is wrong for the type.
    fn chunk(&self, kind: &str) -> Option<Chunk<'a>> {
        match kind {
            "start" | "finish" => Some(Chunk::Envelope),
            "start-step" => Some(Chunk::StartStep),
            "finish-step" => Some(Chunk::FinishStep),
            "abort" => may_be_string(self.reason).then_some(Chunk::Abort),
            "error" => self.error_text.filter(|text| text.starts_with('"')).map(|text| Chunk::Error { text }),
            "text-start" => self.block(BlockKind::Text, BlockPhase::Start),
            "text-delta" => self.block(BlockKind::Text, BlockPhase::Delta),
            "text-end" => self.block(BlockKind::Text, BlockPhase::End),
            "reasoning-start" => self.block(BlockKind::Reasoning, BlockPhase::Start),
            "reasoning-delta" => self.block(BlockKind::Reasoning, BlockPhase::Delta),
            "reasoning-end" => self.block(BlockKind::Reasoning, BlockPhase::End),
            "tool-input-start" => self.tool(ToolPhase::InputStart, is_string(self.tool_name)),
            "tool-input-delta" => self.tool(ToolPhase::InputDelta, is_string(self.input_text_delta)),
            "tool-input-available" => self.tool(ToolPhase::Input, is_string(self.tool_name) && self.input.is_some()),
            "tool-input-error" => {
                let is_whole = is_string(self.tool_name) && self.input.is_some() && is_string(self.error_text);
                self.tool(ToolPhase::Input, is_whole)
            }
            "tool-output-available" => self.tool(ToolPhase::Output, self.output.is_some()),
            "tool-output-error" => self.tool(ToolPhase::Output, is_string(self.error_text)),
            "file" => self.plain(is_string(self.url) && is_string(self.media_type)),
            "source-url" => self.plain(is_string(self.source_id) && is_string(self.url) && may_be_string(self.title)),
            "source-document" => self.plain(
                is_string(self.source_id)
                    && is_string(self.media_type)
                    && is_string(self.title)
                    && may_be_string(self.filename),
            ),
            "message-metadata" => self.plain(self.message_metadata.is_some_and(|value| value.starts_with('{'))),
            data if data.starts_with("data-") => {
                self.plain(may_be_string(self.id) && self.data.is_some() && may_be_bool(self.transient))
            }
            _ => Some(Chunk::Bad(Why::UnknownType)),
        }
    }

    fn plain(&self, is_whole: bool) -> Option<Chunk<'a>> {
        (is_whole && may_be_metadata(self.provider_metadata)).then_some(Chunk::Plain)
    }

    fn block(&self, kind: BlockKind, phase: BlockPhase) -> Option<Chunk<'a>> {
        let id = id(self.id)?;
        let is_whole = may_be_metadata(self.provider_metadata)
            && (phase != BlockPhase::Delta || is_string(self.delta))
            && self.citations.is_none();
        let joinable = self.delta.filter(|_| self.provider_metadata.is_none()).and_then(inside);
        is_whole.then_some(Chunk::Block { kind, phase, id, joinable })
    }

    fn tool(&self, phase: ToolPhase, is_whole: bool) -> Option<Chunk<'a>> {
        let id = id(self.tool_call_id)?;
        let is_whole = is_whole
            && [self.dynamic, self.provider_executed, self.preliminary].into_iter().all(may_be_bool)
            && may_be_string(self.title)
            && self.input_encoding.is_none_or(|value| matches!(value, "\"json\"" | "\"text\""))
            && may_be_metadata(self.provider_metadata)
            && self.tool_metadata.is_none_or(|value| value.starts_with('{') && !has_infinite(value));
        let name = match self.tool_name {
            Some(raw) => Some(id_text(raw)?),
            None => None,
        };
        let dynamic = self.dynamic.map(|value| value == "true");
        is_whole.then_some(Chunk::Tool { phase, id, name, dynamic })
    }
}

fn inside(raw: &str) -> Option<&str> {
    raw.strip_prefix('"')?.strip_suffix('"')
}

fn is_string(raw: Option<&str>) -> bool {
    raw.is_some_and(|raw| raw.starts_with('"'))
}

/// Absent or a string. `null` is neither to the client.
fn may_be_string(raw: Option<&str>) -> bool {
    raw.is_none_or(|raw| raw.starts_with('"'))
}

fn may_be_bool(raw: Option<&str>) -> bool {
    raw.is_none_or(|raw| matches!(raw, "true" | "false"))
}

/// Absent, or an object of objects with finite numbers.
fn may_be_metadata(raw: Option<&str>) -> bool {
    raw.is_none_or(|raw| {
        raw.starts_with('{') && peek::members(raw).all(|(_, value)| value.starts_with('{')) && !has_infinite(raw)
    })
}

/// Whether a number in it is infinite to JavaScript, which the client refuses inside metadata.
fn has_infinite(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = peek::skip_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = peek::skip_value(bytes, at);
                if raw.get(at..end).and_then(|number| number.parse::<f64>().ok()).is_some_and(f64::is_infinite) {
                    return true;
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    false
}

fn id(raw: Option<&str>) -> Option<Cow<'_, str>> {
    id_text(raw?)
}

fn id_text(raw: &str) -> Option<Cow<'_, str>> {
    peek::decode_unicode(raw).filter(|id| id.len() <= ID_BYTES)
}
