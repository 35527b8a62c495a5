//! A line → a part, a marker or damage. Second stage: what a line says, without ever taking the part itself apart.
//!
//! The raw text of `part` is kept as it stands: key order, `1.0`, big integers, `1e400`, lone surrogate escapes and repeated keys
//! survive. Only its `type` is looked at ([`peek`]). A key of the *envelope* that stands twice makes the line damage, since
//! readers would disagree on which one counts; inside the part a repeated key is kept, and who reads it takes the last, as `JSON.parse` does.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{error::Category, value::RawValue};

use crate::{PartIndex, Reason, Turn, limits, peek};

/// Indexes that stand above [`limits::PARTS_PER_TURN`] and are still taken: what the driver publishes after the bound to end the turn.
pub const INDEX_SLACK: u32 = 64;

/// One part as it stands in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The turn that the line names, which need not be the one whose file it stands in.
    pub turn: Turn,
    /// Its index within the turn.
    pub index: PartIndex,
    /// The JSON text of the part. Borrowed from the line, unless the line was not UTF-8.
    pub raw: Cow<'a, str>,
    /// What it is, as far as a harvest cares.
    pub kind: PartKind,
}

/// What a part is, as far as a harvest cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// `finish`: the turn ended by itself.
    Finish,
    /// `abort`: the turn was cut off by somebody.
    Abort,
    /// `error`.
    Error,
    /// `data-omitted`: stands in the place of a part that was over its bound.
    Omitted,
    /// Anything else, also what has no readable `type`.
    Other,
}

impl PartKind {
    /// Whether a turn ends with such a part.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Finish | Self::Abort)
    }

    fn of(raw: &str) -> Self {
        match peek::part_type(raw).as_deref() {
            Some("finish") => Self::Finish,
            Some("abort") => Self::Abort,
            Some("error") => Self::Error,
            Some("data-omitted") => Self::Omitted,
            _ => Self::Other,
        }
    }
}

/// A line of `type` `marker`: the driver says that a bound cut something, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    /// The turn that was cut.
    pub turn: Turn,
    /// The index that would have come; absent when no single part was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_index: Option<PartIndex>,
    /// Which bound: `LogLimit`, `PartLimit`, `PartCountLimit` or `LogWriteFailed`.
    pub reason: Reason,
    /// Bytes that were not written, where known.
    #[serde(default)]
    pub bytes: u64,
    /// Their lower-case hex SHA-256, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// Why a line, or something in it, counts as damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DefectKind {
    /// The line is longer than [`limits::LINE_BYTES`].
    LineTooLong,
    /// A raw zero byte stands in it.
    Nul,
    /// It is not JSON.
    NotJson,
    /// It is JSON and not an envelope: no `turn` or `partIndex`, a key twice, a number out of range.
    NotEnvelope,
    /// Its `type` is none that is known.
    UnknownType,
    /// It has no `part`.
    NoPart,
    /// Its `part` is not an object.
    PartNotObject,
    /// Its `part` is longer than [`limits::PART_BYTES`].
    PartTooLong,
    /// Its index is above the bound on parts of a turn.
    IndexTooHigh,
    /// Its identity stood before in this log: a driver never says one twice, so somebody else wrote one of the two. The first counts.
    Repeated,
    /// Its bytes are not UTF-8. The part is kept, with U+FFFD in their place.
    NotUtf8,
}

impl std::fmt::Display for DefectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LineTooLong => "line is too long",
            Self::Nul => "zero byte",
            Self::NotJson => "not JSON",
            Self::NotEnvelope => "not an envelope",
            Self::UnknownType => "unknown type",
            Self::NoPart => "no part",
            Self::PartNotObject => "part is not an object",
            Self::PartTooLong => "part is too long",
            Self::IndexTooHigh => "index is too high",
            Self::Repeated => "identity repeated",
            Self::NotUtf8 => "not UTF-8",
        })
    }
}

/// What a whole line holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A part.
    Part(Part<'a>),
    /// A part, and the damage that was repaired in it.
    Repaired(Part<'a>, DefectKind),
    /// A bound that was reached.
    Marker(Marker),
    /// Nothing that could be kept.
    Defect(DefectKind),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    /// Raw, since an optional `Cow` would be copied for every line.
    #[serde(default, borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(default)]
    turn: Option<u32>,
    #[serde(default)]
    part_index: Option<u32>,
    #[serde(default, borrow)]
    part: Option<&'a RawValue>,
}

/// Reads one whole line. Total: any bytes give an answer.
#[must_use]
pub fn parse_line(bytes: &[u8]) -> Parsed<'_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse_text(text),
        Err(_) => parse_broken(bytes),
    }
}

fn parse_text(text: &str) -> Parsed<'_> {
    match serde_json::from_str::<Envelope<'_>>(text) {
        // The decoder would read an array as the members in their order.
        Ok(_) if !text.trim_start().starts_with('{') => Parsed::Defect(DefectKind::NotEnvelope),
        Ok(envelope) => parse_envelope(text, &envelope),
        Err(error) => Parsed::Defect(match error.classify() {
            Category::Data => DefectKind::NotEnvelope,
            Category::Syntax | Category::Eof | Category::Io => {
                if memchr::memchr(0, text.as_bytes()).is_some() {
                    DefectKind::Nul
                } else {
                    DefectKind::NotJson
                }
            }
        }),
    }
}

/// Bytes that are not UTF-8: the same reading with U+FFFD in their place, and the damage is said.
fn parse_broken(bytes: &[u8]) -> Parsed<'static> {
    let text = String::from_utf8_lossy(bytes);
    match parse_text(&text) {
        Parsed::Part(part) => Parsed::Repaired(
            Part { turn: part.turn, index: part.index, raw: Cow::Owned(part.raw.into_owned()), kind: part.kind },
            DefectKind::NotUtf8,
        ),
        Parsed::Repaired(..) | Parsed::Marker(_) | Parsed::Defect(DefectKind::NotJson) => {
            Parsed::Defect(DefectKind::NotUtf8)
        }
        Parsed::Defect(kind) => Parsed::Defect(kind),
    }
}

fn parse_envelope<'a>(text: &str, envelope: &Envelope<'a>) -> Parsed<'a> {
    let is = |kind: &str| envelope.kind.is_none_or(|raw| peek::string_is(raw.get(), kind));
    if is("ui-message") {
        parse_part(envelope)
    } else if is("marker") {
        serde_json::from_str(text).map_or(Parsed::Defect(DefectKind::NotEnvelope), Parsed::Marker)
    } else {
        Parsed::Defect(DefectKind::UnknownType)
    }
}

fn parse_part<'a>(envelope: &Envelope<'a>) -> Parsed<'a> {
    let Some(part) = envelope.part else { return Parsed::Defect(DefectKind::NoPart) };
    let (Some(turn @ 1..), Some(index)) = (envelope.turn, envelope.part_index) else {
        return Parsed::Defect(DefectKind::NotEnvelope);
    };
    let raw = part.get();
    if !raw.starts_with('{') {
        return Parsed::Defect(DefectKind::PartNotObject);
    }
    if raw.len() > limits::PART_BYTES {
        return Parsed::Defect(DefectKind::PartTooLong);
    }
    if index >= limits::PARTS_PER_TURN + INDEX_SLACK {
        return Parsed::Defect(DefectKind::IndexTooHigh);
    }
    let kind = PartKind::of(raw);
    Parsed::Part(Part { turn: Turn(turn), index: PartIndex(index), raw: Cow::Borrowed(raw), kind })
}
