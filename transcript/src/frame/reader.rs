//! The reader's half of a frame: incremental, bounded, and believing nothing before the trailer has been checked.

use serde::{Deserialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use super::{Header, Trailer, VERSION, is_understood};
use crate::{Turn, limits};

/// Why a stream of frames cannot be read on. Every one of them means that the read failed: try again from the last verified byte.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A header or trailer line is longer than it may be.
    #[error("{line} is over the bound of {max} bytes")]
    LineTooLong {
        /// `header` or `trailer`.
        line: &'static str,
        /// The bound in bytes.
        max: usize,
    },
    /// A header or trailer line is not what it should be.
    #[error("{line} could not be understood")]
    Malformed {
        /// `header` or `trailer`.
        line: &'static str,
        /// What the decoder says.
        #[source]
        source: serde_json::Error,
    },
    /// The writer speaks a version that this build does not understand.
    #[error("frame of version {v}, understood up to {VERSION}")]
    Version {
        /// The writer's version.
        v: u32,
    },
    /// The frame is of another turn than was asked for.
    #[error("frame of turn {got} instead of {asked}")]
    WrongTurn {
        /// The turn asked for.
        asked: Turn,
        /// The frame's turn.
        got: Turn,
    },
    /// The frame does not begin where the last one ended.
    #[error("frame begins at byte {got} instead of {expected}")]
    NotContiguous {
        /// Where it has to begin.
        expected: u64,
        /// Where it begins.
        got: u64,
    },
    /// The header's range is impossible: it ends before it begins, or after the file.
    #[error("range {from}..{to} of a file of {size} bytes")]
    Range {
        /// First byte.
        from: u64,
        /// One past the last byte.
        to: u64,
        /// Size of the file; 0 when there is none.
        size: u64,
    },
    /// The frame has more bytes than the caller takes.
    #[error("body of {count} bytes is over the bound of {max}")]
    BodyTooLong {
        /// Bytes that the header announces.
        count: u64,
        /// The caller's bound.
        max: u64,
    },
    /// The byte after the body is not a newline: more or fewer bytes came than were announced.
    #[error("body is not followed by a newline")]
    Unterminated,
    /// The trailer counts other bytes than came.
    #[error("trailer counts {said} bytes, {got} came")]
    WrongCount {
        /// What the trailer says.
        said: u64,
        /// What came.
        got: u64,
    },
    /// The trailer's digest is not that of the bytes that came.
    #[error("trailer's digest is not that of the bytes that came")]
    WrongDigest,
    /// The reader was used again after it had failed.
    #[error("stream failed before")]
    Failed,
}

/// What [`FrameReader::next`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameEvent<'a> {
    /// A frame begins. Nothing of it is trusted yet, the status neither.
    Header(Box<Header>),
    /// The next bytes of the body, not yet trusted.
    Body(&'a [u8]),
    /// The trailer was checked: header and body of this frame are as the writer sent them.
    Verified {
        /// One past the last byte that is safe: what to acknowledge once it is stored.
        to: u64,
    },
}

#[derive(Debug)]
enum State {
    Header,
    Body { left: u64 },
    Newline,
    Trailer,
    Failed,
}

/// Decodes a stream of frames from chunks of any size, in bounded memory: it buffers header and trailer lines, never the body.
///
/// ```
/// # use agentsession_transcript::{Turn, frame::{FrameReader, FrameEvent, FrameError}};
/// # fn read(chunks: &[&[u8]]) -> Result<Vec<u8>, FrameError> {
/// let mut reader = FrameReader::new(Turn(1), 0, 16 << 20);
/// let (mut pending, mut trusted) = (Vec::new(), Vec::new());
/// for chunk in chunks {
///     let mut rest = *chunk;
///     while let Some(event) = reader.next(&mut rest)? {
///         match event {
///             FrameEvent::Header(_) => pending.clear(),
///             FrameEvent::Body(bytes) => pending.extend_from_slice(bytes),
///             FrameEvent::Verified { .. } => trusted.append(&mut pending),
///         }
///     }
/// }
/// # Ok(trusted) }
/// ```
#[derive(Debug)]
pub struct FrameReader {
    turn: Turn,
    next_from: u64,
    max_body: u64,
    state: State,
    line: Vec<u8>,
    to: u64,
    count: u64,
    sha: Sha256,
}

impl FrameReader {
    /// A reader of the frames of `turn`, the first of which has to begin at byte `from` and each following one where the last ended.
    /// No frame may have more than `max_body` bytes.
    #[must_use]
    pub fn new(turn: Turn, from: u64, max_body: u64) -> Self {
        Self {
            turn,
            next_from: from,
            max_body,
            state: State::Header,
            line: Vec::new(),
            to: from,
            count: 0,
            sha: Sha256::new(),
        }
    }

    /// Takes bytes from the front of `input` until there is something to say; `None` when all of it is taken.
    ///
    /// # Errors
    /// Any [`FrameError`]; from then on every call gives [`FrameError::Failed`].
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<FrameEvent<'a>>, FrameError> {
        let result = self.step(input);
        if result.is_err() {
            self.state = State::Failed;
            self.line = Vec::new();
        }
        result
    }

    /// Whether the stream stands between two frames: at its end, whether nothing was cut off.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        matches!(self.state, State::Header) && self.line.is_empty()
    }

    /// One past the last verified byte: where to read on after a failure.
    #[must_use]
    pub fn verified_to(&self) -> u64 {
        self.next_from
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<FrameEvent<'a>>, FrameError> {
        while !input.is_empty() {
            match self.state {
                State::Failed => return Err(FrameError::Failed),
                State::Header => {
                    if self.take_line(input, "header", limits::HEADER_BYTES)? {
                        return self.header().map(Some);
                    }
                }
                State::Body { left } => {
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let (bytes, rest) = input.split_at(take);
                    *input = rest;
                    self.sha.update(bytes);
                    self.count += take as u64;
                    let left = left - take as u64;
                    self.state = if left == 0 { State::Newline } else { State::Body { left } };
                    return Ok(Some(FrameEvent::Body(bytes)));
                }
                State::Newline => {
                    if input[0] != b'\n' {
                        return Err(FrameError::Unterminated);
                    }
                    *input = &input[1..];
                    self.state = State::Trailer;
                }
                State::Trailer => {
                    if self.take_line(input, "trailer", limits::TRAILER_BYTES)? {
                        return self.trailer().map(Some);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Moves bytes up to a newline into `line`; `true` when the newline was there. The newline itself is dropped.
    fn take_line(&mut self, input: &mut &[u8], line: &'static str, max: usize) -> Result<bool, FrameError> {
        let end = memchr::memchr(b'\n', input);
        let take = end.unwrap_or(input.len());
        if self.line.len() + take > max {
            return Err(FrameError::LineTooLong { line, max });
        }
        self.line.extend_from_slice(&input[..take]);
        *input = &input[end.map_or(take, |at| at + 1)..];
        Ok(end.is_some())
    }

    fn header(&mut self) -> Result<FrameEvent<'static>, FrameError> {
        // The version first: what else a header of another version holds is not known.
        let Version { v } = decode(&self.line, "header")?;
        if !is_understood(v) {
            return Err(FrameError::Version { v });
        }
        let header: Header = decode(&self.line, "header")?;
        self.line.clear();
        if header.turn != self.turn {
            return Err(FrameError::WrongTurn { asked: self.turn, got: header.turn });
        }
        if header.from != self.next_from {
            return Err(FrameError::NotContiguous { expected: self.next_from, got: header.from });
        }
        let size = if header.exists { header.size } else { 0 };
        let range = FrameError::Range { from: header.from, to: header.to, size };
        let Some(count) = header.to.checked_sub(header.from) else { return Err(range) };
        if count > 0 && header.to > size {
            return Err(range);
        }
        if count > self.max_body {
            return Err(FrameError::BodyTooLong { count, max: self.max_body });
        }
        self.to = header.to;
        self.count = 0;
        self.sha = Sha256::new();
        self.state = if count == 0 { State::Newline } else { State::Body { left: count } };
        Ok(FrameEvent::Header(Box::new(header)))
    }

    fn trailer(&mut self) -> Result<FrameEvent<'static>, FrameError> {
        let trailer: Trailer = decode(&self.line, "trailer")?;
        self.line.clear();
        if trailer.count != self.count {
            return Err(FrameError::WrongCount { said: trailer.count, got: self.count });
        }
        if trailer.sha256 != hex::encode(self.sha.finalize_reset()) {
            return Err(FrameError::WrongDigest);
        }
        self.next_from = self.to;
        self.state = State::Header;
        Ok(FrameEvent::Verified { to: self.to })
    }
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

fn decode<T: DeserializeOwned>(bytes: &[u8], line: &'static str) -> Result<T, FrameError> {
    serde_json::from_slice(bytes).map_err(|source| FrameError::Malformed { line, source })
}
