//! Parts of a log + what the store has → what is missing, and what the whole proves. Last stage of a harvest.
//!
//! Merging is idempotent: what is present is never offered again, an identity is offered once, and an index that an earlier writer left out is
//! offered as any other. The order is that of the log. After the append, [`judge`] makes a [`Judgement`] of the [`Evidence`].

use crate::{AgentStatus, IndexSet, Outcome, Reason, Verdict, parse::Part, status::Usage};

mod judge;

pub use judge::{MESSAGE_BYTES, judge};

/// How the agent container ended, as containerStatuses say (a `lastState` counts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerEnd {
    /// Exit code.
    pub exit_code: i32,
    /// Signal number, when one ended it.
    pub signal: Option<i32>,
    /// Whether the kubelet says `OOMKilled`.
    pub oom_killed: bool,
    /// The kubelet's reason and message, for people.
    pub message: Option<String>,
}

/// What a turn's log looked like, read from its first byte to `read_to`.
///
/// An account that begins later, because the store held every index of the lines before, takes those indexes in as well: what a harvest cannot say
/// of the whole file it must not say at all. [`LogScanner::facts`](crate::scan::LogScanner::facts) makes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// Whether the file is there.
    pub exists: bool,
    /// Its size when the last frame's header was written.
    pub size: u64,
    /// One past the last byte that a verified frame proved.
    pub read_to: u64,
    /// Lines that could not be understood, or only with replacements.
    pub damaged_lines: u32,
    /// The first few defects, for people.
    pub defects: Vec<String>,
    /// A last line without its newline.
    pub torn_tail: bool,
    /// The bound that a marker line or a replaced part names, if any; of several the one that cut most (see [`judge`]).
    pub marker: Option<Reason>,
    /// Indexes of this turn's parts in the file.
    pub indexes: IndexSet,
}

/// What a settling harvest found, read by read and row by row verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// `status.json`, read before the log's size.
    pub status: Option<AgentStatus>,
    /// The log. Read *after* the end of the agent container was seen, where that is what the judgement rests on.
    pub facts: LogFacts,
    /// Indexes of this turn in the store after the last append.
    pub stored: IndexSet,
    /// Parts that the session's quota kept out.
    pub over_quota: u32,
    /// Parts that this harvest inserted.
    pub inserted: u32,
    /// Identities that stood already with other bytes.
    pub conflicts: u32,
}

/// The verdict and the outcome that the evidence proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// How the turn ended.
    pub outcome: Outcome,
    /// Why; `None` when it simply succeeded, or was canceled for a reason that only the caller knows.
    pub reason: Option<Reason>,
    /// How much is held.
    pub verdict: Verdict,
    /// What is missing; `None` with `Complete`.
    pub verdict_reason: Option<Reason>,
    /// For people, at most [`MESSAGE_BYTES`].
    pub message: Option<String>,
    /// Usage from the last status of this turn.
    pub usage: Option<Usage>,
    /// Whether reading again could bring more: the turn has no end yet, or its log is not read and stored as far as it goes. Then the rest is
    /// what would stand if it ended here, and that is never `Complete`.
    pub pending: bool,
}

impl Judgement {
    /// What is settled when proof is out of reach: a Pod that is gone, a deadline that passed. Never `Complete`.
    #[must_use]
    pub fn incomplete(outcome: Outcome, reason: Option<Reason>, missing: Reason, message: Option<&str>) -> Self {
        Self {
            outcome,
            reason,
            verdict: Verdict::Incomplete,
            verdict_reason: Some(missing),
            message: message.map(judge::bounded),
            usage: None,
            pending: false,
        }
    }
}

/// How large a batch may become. A part over the bound on bytes makes a batch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit {
    /// Parts.
    pub rows: usize,
    /// Bytes of their JSON text.
    pub bytes: usize,
}

impl Default for BatchLimit {
    fn default() -> Self {
        Self { rows: 4096, bytes: 4 << 20 }
    }
}

/// The parts of a turn that the store does not have, in the order given, each identity once (the first stays).
pub fn missing<'p, 'a: 'p>(
    parts: impl IntoIterator<Item = &'p Part<'a>>,
    present: &IndexSet,
) -> impl Iterator<Item = &'p Part<'a>> {
    let mut taken = present.clone();
    parts.into_iter().filter(move |part| taken.insert(part.index))
}

/// Groups parts into batches that keep to a limit. No batch is empty, and none is held but the one that is handed out.
pub fn batches<'p, 'a: 'p>(
    parts: impl IntoIterator<Item = &'p Part<'a>>,
    limit: BatchLimit,
) -> impl Iterator<Item = Vec<&'p Part<'a>>> {
    let mut parts = parts.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = parts.next()?;
        let mut bytes = first.raw.len();
        let mut batch = vec![first];
        while batch.len() < limit.rows {
            let Some(part) = parts.next_if(|part| bytes + part.raw.len() <= limit.bytes) else { break };
            bytes += part.raw.len();
            batch.push(part);
        }
        Some(batch)
    })
}
