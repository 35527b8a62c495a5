//! A log, read whole or as it grows → its parts and what can be said of it. Joins [`mod@line`] and [`parse`](crate::parse) and keeps the account.

use crate::{
    IndexSet, Reason, Turn, limits,
    line::{self, Line, LineSplitter, Position, TornTail},
    merge::LogFacts,
    parse::{DefectKind, Marker, Parsed, Part, PartKind, parse_line},
};

/// Defects that are kept one by one; the others are only counted.
pub const DEFECTS_KEPT: usize = 8;

/// One defect and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// Where the line stands.
    pub at: Position,
    /// What is wrong with it.
    pub kind: DefectKind,
}

/// The damage of a log: all of it counted, the first few defects named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Lines that were damaged, repaired ones included.
    pub lines: u64,
    /// The first [`DEFECTS_KEPT`] of them.
    pub first: Vec<Defect>,
}

impl Damage {
    fn note(&mut self, at: Position, kind: DefectKind) {
        self.lines += 1;
        if self.first.len() < DEFECTS_KEPT {
            self.first.push(Defect { at, kind });
        }
    }
}

/// Which bounds a log says were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The driver could not write.
    pub log_write_failed: bool,
    /// The log reached its size.
    pub log_limit: bool,
    /// The turn reached its number of parts.
    pub part_count_limit: bool,
    /// A part was over its size.
    pub part_limit: bool,
}

impl Bounds {
    /// Adds a bound. `false` for a reason that is no bound of a log.
    pub fn add(&mut self, reason: Reason) -> bool {
        match reason {
            Reason::LogWriteFailed => self.log_write_failed = true,
            Reason::LogLimit => self.log_limit = true,
            Reason::PartCountLimit => self.part_count_limit = true,
            Reason::PartLimit => self.part_limit = true,
            _ => return false,
        }
        true
    }

    /// The bound that cut most, if any was reached.
    #[must_use]
    pub fn worst(self) -> Option<Reason> {
        [
            (self.log_write_failed, Reason::LogWriteFailed),
            (self.log_limit, Reason::LogLimit),
            (self.part_count_limit, Reason::PartCountLimit),
            (self.part_limit, Reason::PartLimit),
        ]
        .into_iter()
        .find_map(|(reached, reason)| reached.then_some(reason))
    }
}

impl std::fmt::Display for Defect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} at byte {}: {}", self.at.line, self.at.offset, self.kind)
    }
}

/// What is known of a turn's log after reading it. Parts of other turns in the file are not in `seen`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogAccount {
    /// Damage.
    pub damage: Damage,
    /// Bounds that were reached, from markers and from `data-omitted` parts.
    pub bounds: Bounds,
    /// Indexes of the turn's parts.
    pub seen: IndexSet,
    /// Parts whose identity had been seen before in this log; the first one counts.
    pub repeated: u64,
    /// Parts that name another turn.
    pub of_other_turns: u64,
    /// The turn's last terminal part.
    pub terminal: Option<PartKind>,
}

impl LogAccount {
    fn facts(&self, exists: bool, size: u64, read_to: u64, torn_tail: bool) -> LogFacts {
        LogFacts {
            exists,
            size,
            read_to,
            damaged_lines: u32::try_from(self.damage.lines).unwrap_or(u32::MAX),
            defects: self.damage.first.iter().map(ToString::to_string).collect(),
            torn_tail,
            marker: self.bounds.worst(),
            indexes: self.seen.clone(),
        }
    }

    fn take<'a>(&mut self, turn: Turn, line: Line<'a>) -> Option<Part<'a>> {
        let (at, bytes) = match line {
            Line::Whole { at, bytes } => (at, bytes),
            Line::TooLong { at, .. } => {
                self.damage.note(at, DefectKind::LineTooLong);
                return None;
            }
        };
        match parse_line(bytes) {
            Parsed::Part(part) => self.part(turn, at, part),
            Parsed::Repaired(part, kind) => {
                self.damage.note(at, kind);
                self.part(turn, at, part)
            }
            Parsed::Marker(marker) => {
                self.marker(turn, at, &marker);
                None
            }
            Parsed::Defect(kind) => {
                self.bounds.part_count_limit |= kind == DefectKind::IndexTooHigh;
                self.damage.note(at, kind);
                None
            }
        }
    }

    fn part<'a>(&mut self, turn: Turn, at: Position, part: Part<'a>) -> Option<Part<'a>> {
        if part.turn != turn {
            self.of_other_turns += 1;
            return Some(part);
        }
        if !self.seen.insert(part.index) {
            self.repeated += 1;
            self.damage.note(at, DefectKind::Repeated);
            return None;
        }
        self.bounds.part_limit |= part.kind == PartKind::Omitted;
        if part.kind.is_terminal() {
            self.terminal = Some(part.kind);
        }
        Some(part)
    }

    fn marker(&mut self, turn: Turn, at: Position, marker: &Marker) {
        if marker.turn == turn && !self.bounds.add(marker.reason) {
            self.damage.note(at, DefectKind::UnknownType);
        }
    }
}

/// Reads a log as it comes, in chunks of any size and in bounded memory.
#[derive(Clone, Debug)]
pub struct LogScanner {
    turn: Turn,
    splitter: LineSplitter,
    account: LogAccount,
}

impl LogScanner {
    /// A scanner of the turn's log from its first byte.
    #[must_use]
    pub fn new(turn: Turn) -> Self {
        Self::resume(turn, Position { line: 1, offset: 0 })
    }

    /// A scanner that begins at a later line. It knows nothing of what stands before, which its account cannot say: see
    /// [`LogFacts::contiguous`](crate::merge::LogFacts).
    #[must_use]
    pub fn resume(turn: Turn, at: Position) -> Self {
        Self { turn, splitter: LineSplitter::resume(at, limits::LINE_BYTES), account: LogAccount::default() }
    }

    /// Takes a chunk; every part that ends in it goes to `sink`, in log order: the turn's own, each identity once, and those of other turns
    /// as they come.
    pub fn push(&mut self, chunk: &[u8], mut sink: impl FnMut(Part<'_>)) {
        let Self { turn, splitter, account } = self;
        splitter.push(chunk, |line| {
            if let Some(part) = account.take(*turn, line) {
                sink(part);
            }
        });
    }

    /// The account so far.
    #[must_use]
    pub fn account(&self) -> &LogAccount {
        &self.account
    }

    /// What [`judge`](crate::merge::judge) wants to know, for a scanner that began at the first byte, with what the last verified header said
    /// of the file.
    #[must_use]
    pub fn facts(&self, exists: bool, size: u64) -> LogFacts {
        self.account.facts(exists, size, self.read_to(), self.torn_tail().is_some())
    }

    /// What stands after the last newline, if anything does.
    #[must_use]
    pub fn torn_tail(&self) -> Option<TornTail> {
        self.splitter.torn_tail()
    }

    /// Where the next line begins: what to read on from after a broken connection.
    #[must_use]
    pub fn position(&self) -> Position {
        self.splitter.position()
    }

    /// Bytes taken so far, as an offset in the file.
    #[must_use]
    pub fn read_to(&self) -> u64 {
        self.splitter.read_to()
    }
}

/// A log that was read in one piece: its parts as slices of it, and the account.
#[derive(Clone, Debug)]
pub struct ScannedLog<'a> {
    /// The turn's parts, each identity once, in log order.
    pub parts: Vec<Part<'a>>,
    /// Parts that name another turn, in log order.
    pub of_other_turns: Vec<Part<'a>>,
    /// The account.
    pub account: LogAccount,
    /// Bytes that were read.
    pub read_to: u64,
    /// What stands after the last newline, if anything does.
    pub torn_tail: Option<TornTail>,
}

impl ScannedLog<'_> {
    /// What [`judge`](crate::merge::judge) wants to know of a file that is there and had this size when it was last looked at.
    #[must_use]
    pub fn facts(&self, size: u64) -> LogFacts {
        self.account.facts(true, size, self.read_to, self.torn_tail.is_some())
    }
}

/// Reads a turn's log that is in memory from its first byte. No copy is made but of lines that are not UTF-8.
#[must_use]
pub fn scan(turn: Turn, log: &[u8]) -> ScannedLog<'_> {
    let mut account = LogAccount::default();
    let (mut parts, mut of_other_turns) = (Vec::new(), Vec::new());
    let mut lines = line::lines(log);
    for line in &mut lines {
        match account.take(turn, line) {
            Some(part) if part.turn == turn => parts.push(part),
            Some(part) => of_other_turns.push(part),
            None => {}
        }
    }
    ScannedLog { parts, of_other_turns, account, read_to: log.len() as u64, torn_tail: lines.torn_tail() }
}
