//! How a turn stands: its state, its outcome and the verdict over its transcript.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word that stands in the store, in status and in the API.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { kind: stringify!($name), word: word.to_owned() }),
                }
            }
        }
    };
}
pub(crate) use words;

/// A word that is none of an enumeration's.
#[derive(Debug, thiserror::Error)]
#[error("{word:?} is not a {kind}")]
pub struct UnknownWord {
    /// The enumeration.
    pub kind: &'static str,
    /// The word.
    pub word: String,
}

words! {
    /// State of a turn in the store. All but `settled` are active.
    TurnState {
        /// Recorded with its prompt, not delivered.
        Accepted = "accepted",
        /// Claimed by an attempt's Pod; delivered or about to be.
        Running = "running",
        /// Over or being cut off; its log is being read.
        Harvesting = "harvesting",
        /// Closed by the one compare-and-set.
        Settled = "settled",
    }
}

impl TurnState {
    /// Whether the turn has no verdict yet.
    #[must_use]
    pub fn is_active(self) -> bool {
        self != Self::Settled
    }
}

words! {
    /// How the turn itself ended. Independent of the [`Verdict`].
    Outcome {
        /// The agent ended the turn by itself.
        Succeeded = "Succeeded",
        /// The agent, its start or a deadline failed it.
        Failed = "Failed",
        /// Somebody ended it: cancel, suspend or deletion.
        Canceled = "Canceled",
        /// Its Pod was taken away.
        Lost = "Lost",
    }
}

words! {
    /// How much of the turn's transcript is held. `Complete` needs positive proof.
    Verdict {
        /// All of it.
        Complete = "Complete",
        /// Cut at a bound.
        Truncated = "Truncated",
        /// A source was lost.
        Incomplete = "Incomplete",
    }
}
