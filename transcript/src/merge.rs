//! What a harvest found, and what follows from it. (The types are shared with the controller's core and its harvest; extend, keep the names.)

use crate::{AgentStatus, Attempt, IndexSet, Outcome, Reason, Turn, Verdict, status::Usage};

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// Whether the file is there.
    pub exists: bool,
    /// Its size when the last frame's header was written.
    pub size: u64,
    /// One past the last byte that a verified frame proved.
    pub read_to: u64,
    /// Lines that could not be understood.
    pub damaged_lines: u32,
    /// The first few defects, for people.
    pub defects: Vec<String>,
    /// A last line without its newline.
    pub torn_tail: bool,
    /// The bound that a marker line or a replaced part names, if any.
    pub marker: Option<Reason>,
    /// Indexes of this turn's parts in the file.
    pub indexes: IndexSet,
}

/// What a settling harvest found, read by read and row by row verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// `status.json`, read before the log's size.
    pub status: Option<AgentStatus>,
    /// The log.
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
    /// Why.
    pub reason: Option<Reason>,
    /// How much is held.
    pub verdict: Verdict,
    /// What is missing.
    pub verdict_reason: Option<Reason>,
    /// For people.
    pub message: Option<String>,
    /// Usage from the final status.
    pub usage: Option<Usage>,
    /// Whether reading again could bring more: the turn has no end yet. Then the rest is what would stand if it ended here.
    pub pending: bool,
}

/// Judges one turn by what was read and stored.
#[must_use]
pub fn judge(turn: Turn, attempt: Attempt, evidence: &Evidence, agent_end: Option<&ContainerEnd>) -> Judgement {
    let _ = (turn, attempt, evidence, agent_end);
    Judgement {
        outcome: Outcome::Lost,
        reason: None,
        verdict: Verdict::Incomplete,
        verdict_reason: Some(Reason::StatusMissing),
        message: None,
        usage: None,
        pending: true,
    }
}
