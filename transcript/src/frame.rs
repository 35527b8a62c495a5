//! The frame: how a piece of a log crosses pods/exec with its own proof.
//!
//! A frame is a header line (JSON), exactly `to − from` raw bytes of the turn's file, a newline, and a trailer line (JSON) with count and
//! SHA-256 of those bytes, taken by the writer in the same pass. After a frame the writer waits for an acknowledgement line
//! `ack <to>\n` on its stdin, and goes on EOF or when its hold bound passes. Nothing depends on EOF, exit status or chunk borders.

use serde::{Deserialize, Serialize};

use crate::{AgentStatus, Turn};

/// Version of the protocol that this build writes. N and N−1 are understood.
pub const VERSION: u32 = 1;

/// First line of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Protocol version.
    pub v: u32,
    /// The turn whose file follows.
    pub turn: Turn,
    /// `status.json`, read *before* the size; `null` when there is none or it is not readable as one.
    pub status: Option<AgentStatus>,
    /// Why `status` is null although a file is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_error: Option<String>,
    /// Whether the turn's file exists and is a regular file.
    pub exists: bool,
    /// Size of the file when it was looked at, in bytes.
    pub size: u64,
    /// First byte that follows.
    pub from: u64,
    /// One past the last byte that follows.
    pub to: u64,
}

/// Last line of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trailer {
    /// Bytes sent.
    pub count: u64,
    /// Lower-case hex SHA-256 of the bytes sent.
    pub sha256: String,
}

/// What precedes the bytes of a delivery, as one JSON line on the stdin of `deliver`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Protocol version.
    pub v: u32,
    /// Bytes that follow.
    pub count: u64,
    /// Lower-case hex SHA-256 of them.
    pub sha256: String,
}

/// The answer of `deliver`, one JSON line: what now stands in the inbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivered {
    /// Protocol version.
    pub v: u32,
    /// Lower-case hex SHA-256 of the bytes that stand in the inbox.
    pub sha256: String,
    /// Why nothing was written, when that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `inbox/turn-<N>.json`: one prompt for the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    /// The turn.
    pub turn: Turn,
    /// What the user asked.
    pub prompt: String,
    /// Context from earlier turns for a fresh agent; never shown in replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}
