//! The commands that a recorder answers. Fixed argument vectors: no shell, and nothing that a user wrote is ever in one.

use std::time::Duration;

use crds::names;
use transcript::Turn;

/// One command of `agentsession-sandbox` that exec may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecorderCommand {
    /// Frames of a turn's log.
    Read {
        /// The turn.
        turn: Turn,
        /// First byte.
        from: u64,
        /// Bytes of one frame, at most.
        max: u64,
        /// Keep sending frames, one at least this often; without, one frame and no more.
        follow: Option<Duration>,
    },
    /// Take the prompt of a turn from stdin.
    Deliver {
        /// The turn.
        turn: Turn,
    },
    /// Ask the driver to stop a turn.
    Cancel {
        /// The turn.
        turn: Turn,
    },
    /// The recorder may go.
    Release,
}

/// How long the remote keeps a frame for a reader that says nothing: longer than a reader's own deadline (`ExecSettings::read_whole`), or the
/// tail could go before it is read; and no longer than it must, since after a partition it is what ends the remote.
pub const HOLD: Duration = Duration::from_secs(60);

impl RecorderCommand {
    /// The argument vector.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        let mut argv = vec![names::PATH_SANDBOX.to_owned()];
        let mut push = |word: &str| argv.push(word.to_owned());
        match self {
            Self::Read { turn, from, max, follow } => {
                push("read");
                push("--turn");
                push(&turn.to_string());
                push("--from");
                push(&from.to_string());
                push("--max");
                push(&max.to_string());
                push("--hold");
                push(&format!("{}ms", HOLD.as_millis()));
                if let Some(interval) = follow {
                    push("--follow");
                    push(&format!("{}ms", interval.as_millis()));
                }
            }
            Self::Deliver { turn } => {
                push("deliver");
                push("--turn");
                push(&turn.to_string());
            }
            Self::Cancel { turn } => {
                push("deliver");
                push("--cancel");
                push(&turn.to_string());
            }
            Self::Release => {
                push("deliver");
                push("--release");
            }
        }
        argv
    }

    /// Bounded name for metrics and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Read { follow: None, .. } => "read",
            Self::Read { follow: Some(_), .. } => "follow",
            Self::Deliver { .. } => "deliver",
            Self::Cancel { .. } => "cancel",
            Self::Release => "release",
        }
    }
}
