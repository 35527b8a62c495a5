//! The agent's log as bytes and as parts: ids, limits, lines, frames, merge, verdict and replay.
//!
//! Everything here is pure: no async, no clock, no Kubernetes, no SQL. The driver writes what this crate
//! describes, the controller reads it, the store keeps it, the gateway replays it.

pub mod frame;
pub mod ids;
pub mod indexes;
pub mod limits;
pub mod line;
pub mod merge;
pub mod parse;
pub mod peek;
pub mod reason;
pub mod replay;
pub mod scan;
pub mod status;
pub mod verdict;

pub use ids::{Attempt, PartIndex, PodUid, Seq, SessionUid, Turn};
pub use indexes::IndexSet;
pub use reason::Reason;
pub use status::{AgentExit, AgentState, AgentStatus};
pub use verdict::{Outcome, TurnState, Verdict};
