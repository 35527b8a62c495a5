//! The frame: how a piece of a log crosses pods/exec with its own proof.
//!
//! A frame is a header line (JSON), exactly `to − from` raw bytes of the turn's file, a newline, and a trailer line (JSON) with count and
//! SHA-256 of those bytes, taken by the writer in the same pass. After a frame the writer waits for an acknowledgement line
//! `ack <to>\n` on its stdin, and goes on EOF or when its hold bound passes. Nothing depends on EOF, exit status or chunk borders.
//!
//! [`FrameWriter`] is the writer's half, [`FrameReader`] the reader's. Both are pure: they turn values into bytes and bytes into values.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{AgentStatus, Turn, limits};

mod delivery;
mod reader;

pub use delivery::{Delivered, Delivery, DeliveryError, Prompt};
pub use reader::{FrameError, FrameEvent, FrameReader};

/// Version of the protocol that this build writes. N and N−1 are understood.
pub const VERSION: u32 = 1;

/// The oldest version that this build understands: N−1, and never below the first.
pub const OLDEST_VERSION: u32 = if VERSION > 1 { VERSION - 1 } else { 1 };

/// Whether a message of version `v` is understood.
#[must_use]
pub const fn is_understood(v: u32) -> bool {
    OLDEST_VERSION <= v && v <= VERSION
}

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

/// Lower-case hex SHA-256 of bytes, as trailers, deliveries and `data-omitted` parts carry it.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// What keeps a frame from being written.
#[derive(Debug, thiserror::Error)]
pub enum FrameWriteError {
    /// The header is longer than a reader accepts; a status of that size must be left out of it.
    #[error("header of {size} bytes is over the bound of {max}")]
    HeaderTooLong {
        /// Bytes of the header line.
        size: usize,
        /// The bound, [`limits::HEADER_BYTES`].
        max: usize,
    },
    /// `to` is before `from`.
    #[error("range {from}..{to} ends before it begins")]
    Range {
        /// First byte.
        from: u64,
        /// One past the last byte.
        to: u64,
    },
    /// The file gave more or fewer bytes than the header promised, so the frame must not get a trailer.
    #[error("{count} bytes were sent where the header promised {promised}")]
    Count {
        /// Bytes that were sent.
        count: u64,
        /// `to − from`.
        promised: u64,
    },
    /// A line could not be encoded as JSON.
    #[error("line could not be encoded")]
    Encode(#[source] serde_json::Error),
}

/// The writer's half of one frame: header line, then the bytes in any pieces, then the trailer.
///
/// ```
/// # use transcript::{Turn, frame::{FrameWriter, Header, VERSION}};
/// # use agentsession_transcript as transcript;
/// let header = Header { v: VERSION, turn: Turn(1), status: None, status_error: None, exists: true, size: 3, from: 0, to: 3 };
/// let (mut frame, mut out) = FrameWriter::begin(&header)?;
/// for piece in [b"a".as_slice(), b"b\n"] {
///     frame.body(piece);
///     out.extend_from_slice(piece);
/// }
/// out.extend(frame.end()?);
/// # Ok::<(), transcript::frame::FrameWriteError>(())
/// ```
#[derive(Debug)]
pub struct FrameWriter {
    sha: Sha256,
    count: u64,
    promised: u64,
}

impl FrameWriter {
    /// Begins a frame. Returns the writer and the header line, newline included.
    ///
    /// # Errors
    /// [`FrameWriteError::Range`] and [`FrameWriteError::HeaderTooLong`] for a header that no reader would take.
    pub fn begin(header: &Header) -> Result<(Self, Vec<u8>), FrameWriteError> {
        let promised =
            header.to.checked_sub(header.from).ok_or(FrameWriteError::Range { from: header.from, to: header.to })?;
        let line = encode_line(header)?;
        if line.len() > limits::HEADER_BYTES {
            return Err(FrameWriteError::HeaderTooLong { size: line.len(), max: limits::HEADER_BYTES });
        }
        Ok((Self { sha: Sha256::new(), count: 0, promised }, line))
    }

    /// Takes account of bytes that are sent after the header line, in the order they are sent.
    pub fn body(&mut self, bytes: &[u8]) {
        self.sha.update(bytes);
        self.count += bytes.len() as u64;
    }

    /// Bytes still to be sent.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.promised.saturating_sub(self.count)
    }

    /// Ends the frame: the newline after the bytes and the trailer line.
    ///
    /// # Errors
    /// [`FrameWriteError::Count`] when not exactly the promised bytes were sent.
    pub fn end(self) -> Result<Vec<u8>, FrameWriteError> {
        if self.count != self.promised {
            return Err(FrameWriteError::Count { count: self.count, promised: self.promised });
        }
        let trailer = Trailer { count: self.count, sha256: hex::encode(self.sha.finalize()) };
        let mut out = vec![b'\n'];
        out.extend(encode_line(&trailer)?);
        Ok(out)
    }
}

fn encode_line<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameWriteError> {
    let mut line = serde_json::to_vec(value).map_err(FrameWriteError::Encode)?;
    line.push(b'\n');
    Ok(line)
}

/// The acknowledgement that lets the writer go on: everything before byte `to` is safe with the reader. Newline included.
#[must_use]
pub fn encode_ack(to: u64) -> String {
    format!("ack {to}\n")
}

/// Reads an acknowledgement line, with or without its newline. `None` for anything else.
#[must_use]
pub fn parse_ack(line: &[u8]) -> Option<u64> {
    let digits = line.strip_suffix(b"\n").unwrap_or(line).strip_prefix(b"ack ")?;
    if digits.is_empty() || digits.len() > 20 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
