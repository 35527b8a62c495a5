//! What end-to-end tests are written with: a real cluster, a namespace of its own for each test, the operator as a process that can be
//! paused and killed, faults between it and the API server, and the transcript as the store and the gateway have it.
//!
//! A test is a function from [`Test`] to a result, run by [`run`]. It says what it expects; on failure everything that its namespace held is
//! written down before it is deleted.

pub mod aisdk;
pub mod cluster;
pub mod operator;
pub mod pods;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod replay;
pub mod session;
pub mod stored;
pub mod test;
pub mod wait;

pub use cluster::Cluster;
pub use operator::{Operator, Role};
pub use proxy::{Fault, FaultProxy};
pub use replay::Stream;
pub use session::{Draft, Session, Status, TurnStatus};
pub use stored::Stored;
pub use test::{Test, attempt, run};
pub use wait::{await_condition, eventually};

/// The texts that the scripted agent says for `parts: count`.
#[must_use]
pub fn pieces(count: usize) -> Vec<String> {
    (1..=count).map(|ordinal| format!("piece {ordinal} of {count}\n")).collect()
}
