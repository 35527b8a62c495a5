//! `log/status.json`: what the driver last said of itself. Written to a temporary name and renamed, last of all.

use serde::{Deserialize, Serialize};

use crate::{Attempt, Turn};

/// State of the driver. A terminal state is written after the log is flushed, so who sees it knows that the log is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentState {
    /// The agent is being spawned and initialised.
    Starting,
    /// The agent is up and waits for a first turn.
    Idle,
    /// A turn runs.
    Running,
    /// The turn ended by itself.
    Succeeded,
    /// The turn, or the start of the agent (`turn` 0), failed; `error` says how.
    Failed,
    /// The turn was cancelled.
    Canceled,
}

impl AgentState {
    /// Whether the turn that the status names is over.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

/// How the agent process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentExit {
    /// Exit code, when it exited.
    #[serde(default)]
    pub code: Option<i32>,
    /// Signal number, when a signal ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Whether the kernel's OOM killer ended it.
    #[serde(default)]
    pub oom: bool,
}

/// Token counts as the agent reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Requests to the model.
    pub requests: u64,
    /// Tokens read by the model.
    pub input_tokens: u64,
    /// Tokens written by the model.
    pub output_tokens: u64,
    /// All tokens.
    pub total_tokens: u64,
}

/// The whole of `log/status.json`, at most [`STATUS_BYTES`](crate::limits::STATUS_BYTES).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// State of the driver.
    pub state: AgentState,
    /// The turn that the status speaks of; 0 before the first.
    pub turn: Turn,
    /// The attempt whose Pod this is.
    pub attempt: Attempt,
    /// Parts published in this turn.
    #[serde(default)]
    pub parts: u32,
    /// Bytes of this turn's log.
    #[serde(default)]
    pub log_bytes: u64,
    /// Whether a bound cut something.
    #[serde(default)]
    pub truncated: bool,
    /// Which bound, as a [`Reason`](crate::Reason) word: `LogLimit`, `PartLimit`, `PartCountLimit` or `LogWriteFailed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated_reason: Option<String>,
    /// What went wrong, for people.
    #[serde(default)]
    pub error: Option<String>,
    /// Why a failed turn failed, as a [`Reason`](crate::Reason) word such as `AgentExited`, `OOMKilled`, `AgentStartFailed`, `AgentError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How the agent process ended, when it did.
    #[serde(default)]
    pub exit: Option<AgentExit>,
    /// The agent's last words on stderr, at most 4 KiB, in the status of a turn that failed.
    #[serde(default)]
    pub stderr_tail: String,
    /// Whether the agent can take another turn.
    #[serde(default)]
    pub agent_ready: bool,
    /// The agent's own session id.
    #[serde(default)]
    pub agent_session_id: Option<String>,
    /// How the agent's session began: `new` or `load`.
    #[serde(default)]
    pub resume: Option<String>,
    /// The continuity rung that was used, if any.
    #[serde(default)]
    pub continuity: Option<String>,
    /// Usage of this turn, as the agent reported it.
    #[serde(default)]
    pub usage: Option<Usage>,
}
