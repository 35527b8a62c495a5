//! The controller: watches AgentSessions and Pods, runs agents, harvests and settles their transcripts.
//!
//! A [`reconcile`] is observe → decide → effect. `observe` reads caches, store and memory; the decision is made by the pure core; [`effect`]
//! carries one step out; [`project`] writes what the object should say. Outside of reconciles, which never wait, stand the followers ([`follow`]), the
//! settling reads ([`harvest`]) and the [`sweep`].

pub mod args;
pub mod context;
mod convert;
pub mod deliver;
pub mod directory;
pub mod effect;
pub mod exec;
mod failpoint;
pub mod follow;
pub mod harvest;
pub mod index;
pub mod key;
pub mod leader;
pub mod memory;
pub mod metrics;
pub mod observe;
pub mod ops;
pub mod project;
pub mod reconcile;
pub mod release;
mod run;
mod say;
pub mod sweep;
pub mod watch;

pub use args::Args;
pub use run::{Controller, RunError};
