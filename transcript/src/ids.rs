//! Newtypes for the numbers and names that could be swapped by mistake.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                Self(value.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(value: String) -> Self {
                Self(value)
            }
        }
    };
}

number! {
    /// Ordinal of a turn within its session, from 1.
    Turn(u32)
}
number! {
    /// Ordinal of a published part within its turn, from 0.
    PartIndex(u32)
}
number! {
    /// Per-session cursor in insertion order, from 1, given by the store and never renumbered.
    Seq(u64)
}
number! {
    /// Ordinal of an agent Pod within its session, from 1. Every write of a harvest names it.
    Attempt(u32)
}
text! {
    /// `metadata.uid` of the AgentSession: the identity of a session, never its name.
    SessionUid
}
text! {
    /// `metadata.uid` of an agent Pod.
    PodUid
}
