//! Bytes → lines. First stage after the frame: where a line begins and ends, and nothing of what it says.
//!
//! A line ends with `\n`. What follows the last newline is not a line yet: the writer may be in the middle of it, or died there.
//! A line over the bound is skipped to its newline without being held, and the one after it is read as if nothing had happened.

use crate::limits;

/// What the splitter found at one place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A whole line, without its newline.
    Whole {
        /// Where it stands.
        at: Position,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A line over the bound; its bytes are gone.
    TooLong {
        /// Where it stands.
        at: Position,
        /// How many bytes it had, its newline not counted.
        len: u64,
    },
}

/// Where a line stands in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Number of the line, from 1.
    pub line: u64,
    /// Offset of its first byte in the file.
    pub offset: u64,
}

/// Bytes after the last newline: a line that is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Where it would stand.
    pub at: Position,
    /// How many bytes there are of it.
    pub len: u64,
}

/// Splits a stream of chunks into lines. Holds at most one unfinished line, of at most the bound.
///
/// Any way of cutting the same bytes into chunks gives the same lines.
#[derive(Clone, Debug)]
pub struct LineSplitter {
    max: usize,
    at: Position,
    carry: Vec<u8>,
    /// Bytes of the current line that were seen, those let go included.
    pending: u64,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::new()
    }
}

impl LineSplitter {
    /// A splitter for a log that is read from its first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::resume(Position { line: 1, offset: 0 }, limits::LINE_BYTES)
    }

    /// A splitter for a log that is read on from the beginning of a line, with a bound of its own.
    #[must_use]
    pub fn resume(at: Position, max: usize) -> Self {
        Self { max, at, carry: Vec::new(), pending: 0 }
    }

    /// Takes a chunk and hands every line that ends in it to `sink`.
    pub fn push(&mut self, mut chunk: &[u8], mut sink: impl FnMut(Line<'_>)) {
        if self.pending > 0 {
            let Some(end) = memchr::memchr(b'\n', chunk) else {
                self.hold(chunk);
                return;
            };
            self.hold(&chunk[..end]);
            chunk = &chunk[end + 1..];
            let len = self.pending;
            let carry = std::mem::take(&mut self.carry);
            sink(self.end(&carry, len));
            // The buffer is kept for the next line that crosses a border.
            self.carry = carry;
            self.carry.clear();
        }
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', chunk) {
            let bytes = &chunk[begin..end];
            begin = end + 1;
            sink(self.end(bytes, bytes.len() as u64));
        }
        self.hold(&chunk[begin..]);
    }

    /// What stands after the last newline, if anything does.
    #[must_use]
    pub fn torn_tail(&self) -> Option<TornTail> {
        (self.pending > 0).then_some(TornTail { at: self.at, len: self.pending })
    }

    /// Where the next line begins: everything before it was handed out. Reading may be resumed here.
    #[must_use]
    pub fn position(&self) -> Position {
        self.at
    }

    /// Bytes taken so far, as an offset in the file.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.at.offset + self.pending
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.pending += bytes.len() as u64;
        if self.pending <= self.max as u64 {
            self.carry.extend_from_slice(bytes);
        } else {
            self.carry = Vec::new();
        }
    }

    fn end<'a>(&mut self, bytes: &'a [u8], len: u64) -> Line<'a> {
        let at = self.at;
        self.at = Position { line: at.line + 1, offset: at.offset + len + 1 };
        self.pending = 0;
        if len <= self.max as u64 { Line::Whole { at, bytes } } else { Line::TooLong { at, len } }
    }
}

/// The lines of a log that is in memory whole, as slices of it. The same lines as [`LineSplitter`] gives, with no copy.
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    rest: &'a [u8],
    at: Position,
    max: usize,
}

/// Splits a whole log into its lines.
#[must_use]
pub fn lines(log: &[u8]) -> Lines<'_> {
    Lines { rest: log, at: Position { line: 1, offset: 0 }, max: limits::LINE_BYTES }
}

impl Lines<'_> {
    /// What stands after the last newline, once the iterator is at its end.
    #[must_use]
    pub fn torn_tail(&self) -> Option<TornTail> {
        (!self.rest.is_empty()).then_some(TornTail { at: self.at, len: self.rest.len() as u64 })
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let end = memchr::memchr(b'\n', self.rest)?;
        let (bytes, at) = (&self.rest[..end], self.at);
        self.rest = &self.rest[end + 1..];
        let len = end as u64;
        self.at = Position { line: at.line + 1, offset: at.offset + len + 1 };
        Some(if end <= self.max { Line::Whole { at, bytes } } else { Line::TooLong { at, len } })
    }
}
