//! Watches AgentSessions and Pods, runs agents, harvests and settles their transcripts.

pub mod deliver;
pub mod exec;
pub mod follow;
pub mod harvest;
