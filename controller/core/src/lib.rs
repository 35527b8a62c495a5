//! The pure core of the controller.
//!
//! A reconcile is **observe → decide → effect**. The shell gathers one [`Observed`], [`decide`] turns it into one [`Decision`], the
//! shell carries out its [`Step`] and writes its status. Nothing here does IO, reads a clock or rolls dice: time is in
//! [`Observed`], as durations; randomness too. That is what lets the simulated world run the whole life of a session in microseconds.

pub mod decide;
pub mod events;
#[cfg(test)]
mod fixtures;
pub mod model;
pub mod names;
pub mod pod_spec;
pub mod settled;
pub mod status;
mod text;
pub mod view;

pub use decide::decide;
pub use model::{Decision, Observed, Step};
pub use settled::Settled;
