//! What really happened, for the invariants to compare with what is said.

use std::collections::{BTreeMap, BTreeSet};

use transcript::{AgentState, PartIndex, PodUid, SessionUid, Turn};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogKey {
    pub session: SessionUid,
    pub turn: Turn,
    pub pod: PodUid,
}

/// A turn's log as its driver wrote it.
#[derive(Clone, Debug, Default)]
pub struct TrueLog {
    pub parts: Vec<String>,
    pub damaged: bool,
    /// Nothing is written to it any more.
    pub ended: bool,
    pub state: Option<AgentState>,
}

#[derive(Debug, Default)]
pub struct Truth {
    pub logs: BTreeMap<LogKey, TrueLog>,
    /// Which Pods ran a prompt.
    pub runs: BTreeMap<(SessionUid, Turn), Vec<PodUid>>,
    /// Every part that the store acknowledged.
    pub acknowledged: BTreeMap<(SessionUid, Turn, PartIndex), (u64, String)>,
    /// Highest seq that anybody saw.
    pub last_seq: BTreeMap<SessionUid, u64>,
    pub foreign: BTreeSet<PodUid>,
    /// Sessions for which somebody asked for an end: deleted, canceled, suspended, released.
    pub stopped: BTreeSet<SessionUid>,
    /// When a session or a Pod was asked to go.
    pub going_since: BTreeMap<String, u64>,
    pub emptied: bool,
    /// How often somebody took finalizers off by force.
    pub strips: u32,
    /// A reply was lost: what was done may be done again.
    pub reply_lost: bool,
    /// Sessions whose history was deleted with them.
    pub reclaimed: BTreeSet<SessionUid>,
    pub effects: BTreeSet<(usize, u32, String)>,
    /// Prompts that a status said were accepted.
    pub prompts: BTreeMap<(SessionUid, Turn), String>,
}
