//! What can go wrong with an exec, by what the caller does about it.

use std::time::Duration;

use super::RemoteEnd;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A failed exec. `Display` leaves the cause to the error chain.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// Every transfer slot was taken until the deadline.
    #[error("no exec slot became free in time")]
    Busy,
    /// The Pod could not be looked up.
    #[error("the agent pod could not be looked up")]
    Lookup(#[source] Cause),
    /// The API server did not answer the look-up.
    #[error("the agent pod could not be looked up within {after:?}")]
    LookupTimeout {
        /// The deadline.
        after: Duration,
    },
    /// The recorder has not started yet.
    #[error("the recorder has not started")]
    NotStarted,
    /// The recorder is over: nothing can be read from this Pod any more.
    #[error("the recorder has ended")]
    Ended,
    /// The Pod is gone.
    #[error("the agent pod is gone")]
    Gone,
    /// Another Pod has the name.
    #[error("another pod has the name of the agent pod")]
    Replaced,
    /// The API server said no for good: rights, admission, a Pod that is over.
    #[error("the API server refused the exec")]
    Refused(#[source] Cause),
    /// The connection did not come about.
    #[error("the exec did not connect")]
    Connect(#[source] Cause),
    /// The connection did not come about in time.
    #[error("the exec did not connect within {after:?}")]
    ConnectTimeout {
        /// The deadline.
        after: Duration,
    },
    /// Nothing came, or nothing could be sent, for too long.
    #[error("the exec was silent for {after:?}")]
    Idle {
        /// The deadline.
        after: Duration,
    },
    /// The whole took too long.
    #[error("the exec did not finish in time")]
    Deadline,
    /// The remote sent more than it may.
    #[error("the answer is over {limit} bytes")]
    Overrun {
        /// The bound.
        limit: u64,
    },
    /// The stream ended before what was due.
    #[error("the stream ended early ({end})")]
    Cut {
        /// How it ended.
        end: RemoteEnd,
    },
    /// What came is not what was promised: header, trailer, digest or answer.
    #[error("the answer does not hold")]
    Protocol(#[source] Cause),
    /// The recorder answered that it could not do it.
    #[error("the recorder could not do it: {0}")]
    Declined(String),
}

/// Bounded label of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// Too much at once here.
    Busy,
    /// Not yet.
    NotStarted,
    /// Never again: the recorder or the Pod is gone. No dial any more.
    Ended,
    /// The API server says no; an operator must act.
    Refused,
    /// The link: try again.
    Transport,
    /// A deadline passed: try again.
    Timeout,
    /// What came was wrong: try again, it may have been the link.
    Protocol,
}

impl Category {
    /// The label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::NotStarted => "not_started",
            Self::Ended => "ended",
            Self::Refused => "refused",
            Self::Transport => "transport",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
        }
    }
}

impl ExecError {
    /// The category.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Busy => Category::Busy,
            Self::NotStarted => Category::NotStarted,
            Self::Ended | Self::Gone | Self::Replaced => Category::Ended,
            Self::Refused(_) => Category::Refused,
            Self::Lookup(_) | Self::Connect(_) | Self::Cut { .. } => Category::Transport,
            Self::LookupTimeout { .. } | Self::ConnectTimeout { .. } | Self::Idle { .. } | Self::Deadline => {
                Category::Timeout
            }
            Self::Overrun { .. } | Self::Protocol(_) | Self::Declined(_) => Category::Protocol,
        }
    }

    /// Whether the recorder is over for good, so that nothing may be dialled again.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.category() == Category::Ended
    }

    /// The error with its causes, in one line for people.
    #[must_use]
    pub fn chain(&self) -> String {
        error_chain(self)
    }
}

/// An error with its causes, in one line for people.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
