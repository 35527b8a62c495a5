//! What can go wrong in a store, by what the caller does about it.

use transcript::{Attempt, SessionUid, Turn};

/// A failed store call. `Display` leaves the cause to the error chain.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, timed out, or answered with something that heals by trying again (`read-only` included).
    #[error("store unavailable while {operation}")]
    Unavailable {
        /// What was tried.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store has no room left.
    #[error("store full while {operation}")]
    Full {
        /// What was tried.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The schema, a grant or the file itself is not what this build needs; the text names the way out.
    #[error("store unusable: {0}")]
    Unusable(String),
    /// The database refused a statement for a reason of its own.
    #[error("statement refused while {operation}")]
    Refused {
        /// What was tried.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No such session.
    #[error("session {0} is not in the store")]
    SessionUnknown(SessionUid),
    /// No such turn.
    #[error("turn {turn} of session {session} is not in the store")]
    TurnUnknown {
        /// The session.
        session: SessionUid,
        /// The turn.
        turn: Turn,
    },
    /// The turn belongs to another attempt.
    #[error("turn {turn} belongs to attempt {current:?}, not {attempt}")]
    AttemptSuperseded {
        /// The turn.
        turn: Turn,
        /// Who tried.
        attempt: Attempt,
        /// Whose it is.
        current: Option<Attempt>,
    },
    /// The turn is settled `Complete`: there is nothing to add.
    #[error("turn {0} is settled Complete")]
    TurnComplete(Turn),
    /// A stored value is none that this build knows.
    #[error("stored value is not understood: {0}")]
    Corrupt(String),
}

/// Bounded label of an error, for metrics and reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// Heals by trying again.
    Unavailable,
    /// No room.
    Full,
    /// An operator must act.
    Unusable,
    /// A bug or a broken row.
    Refused,
    /// A fence did its work: not an error of the store.
    Fenced,
}

impl StoreError {
    /// The category.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Unavailable { .. } => Category::Unavailable,
            Self::Full { .. } => Category::Full,
            Self::Unusable(_) => Category::Unusable,
            Self::Refused { .. } | Self::Corrupt(_) => Category::Refused,
            Self::SessionUnknown(_)
            | Self::TurnUnknown { .. }
            | Self::AttemptSuperseded { .. }
            | Self::TurnComplete(_) => Category::Fenced,
        }
    }
}
