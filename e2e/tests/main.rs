//! The tests on a real cluster, one file a theme. All in one program: they wait more than they work, so they run beside each other.

mod agent_end;
mod bytes;
mod chart;
mod common;
mod crash;
mod deletion;
mod exec_faults;
mod life;
mod loss;
mod names;
mod real_agent;
mod sandbox;
mod start_errors;
mod store_faults;
mod validation;
