//! Frames over a [`Transfer`]: the only way in which bytes of a log become trusted.
//!
//! A frame is handed out whole, after its trailer, or not at all. A connection that breaks therefore costs the frame that was under way
//! and nothing else: what came of it is thrown away, whole lines too, since only the trailer proves them, and the next read begins at the
//! last *verified* byte. Asking for frames of a few MiB keeps that cost small.

use transcript::{
    Turn,
    frame::{FrameEvent, FrameReader, Header, encode_ack},
};

use super::{ExecError, Transfer};

/// Bytes of a log, proven by their trailer.
#[derive(Debug)]
pub struct Frame {
    /// What the remote said before the bytes. Its status was read before its size.
    pub header: Header,
    /// The bytes `header.from..header.to`.
    pub body: Vec<u8>,
}

/// What comes next on a stream of frames.
#[derive(Debug)]
pub enum FrameStep {
    /// A header came, not yet proven; so many bytes are to follow.
    Announced {
        /// Bytes of the body.
        bytes: u64,
        /// Bytes of the file as the remote sees it, from where this frame begins.
        ahead: u64,
    },
    /// A whole frame, proven.
    Frame(Box<Frame>),
}

/// Reads frames of one turn off a transfer.
#[derive(Debug)]
pub struct Frames {
    reader: FrameReader,
    header: Option<Header>,
    body: Vec<u8>,
    /// What came behind the last step.
    rest: Vec<u8>,
}

impl Frames {
    /// Frames of `turn` from byte `from` on, of at most `max` bytes each.
    #[must_use]
    pub fn new(turn: Turn, from: u64, max: u64) -> Self {
        Self { reader: FrameReader::new(turn, from, max), header: None, body: Vec::new(), rest: Vec::new() }
    }

    /// One past the last proven byte: where to read on after a failure.
    #[must_use]
    pub fn verified_to(&self) -> u64 {
        self.reader.verified_to()
    }

    /// Whether nothing of a next frame has come yet.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.header.is_none() && self.rest.is_empty() && self.reader.is_between_frames()
    }

    /// The next step.
    ///
    /// # Errors
    /// What [`Transfer::read`] says, and [`ExecError::Protocol`] when a frame does not hold.
    pub async fn next(&mut self, transfer: &mut Transfer) -> Result<FrameStep, ExecError> {
        let rest = std::mem::take(&mut self.rest);
        if let Some(step) = self.feed(&rest)? {
            return Ok(step);
        }
        loop {
            let bytes = transfer.read().await?;
            if let Some(step) = self.feed(bytes)? {
                return Ok(step);
            }
        }
    }

    /// The next whole frame.
    ///
    /// # Errors
    /// See [`Frames::next`].
    pub async fn frame(&mut self, transfer: &mut Transfer) -> Result<Frame, ExecError> {
        loop {
            if let FrameStep::Frame(frame) = self.next(transfer).await? {
                return Ok(*frame);
            }
        }
    }

    /// Tells the remote that everything before `to` is safe here, so that it may go on or go away.
    ///
    /// # Errors
    /// What [`Transfer::write`] says.
    pub async fn acknowledge(&self, transfer: &mut Transfer, to: u64) -> Result<(), ExecError> {
        transfer.write(encode_ack(to).as_bytes()).await
    }

    fn feed(&mut self, mut input: &[u8]) -> Result<Option<FrameStep>, ExecError> {
        while let Some(event) = self.reader.next(&mut input).map_err(|error| ExecError::Protocol(error.into()))? {
            match event {
                FrameEvent::Header(header) => {
                    let bytes = header.to.saturating_sub(header.from);
                    let ahead = header.size.saturating_sub(header.from);
                    // The reader has held the range against our bound already.
                    self.body = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
                    self.header = Some(*header);
                    self.rest = input.to_vec();
                    return Ok(Some(FrameStep::Announced { bytes, ahead }));
                }
                FrameEvent::Body(bytes) => self.body.extend_from_slice(bytes),
                FrameEvent::Verified { .. } => {
                    let body = std::mem::take(&mut self.body);
                    if let Some(header) = self.header.take() {
                        self.rest = input.to_vec();
                        return Ok(Some(FrameStep::Frame(Box::new(Frame { header, body }))));
                    }
                }
            }
        }
        Ok(None)
    }
}
