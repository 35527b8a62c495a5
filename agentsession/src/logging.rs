//! What is logged, and how.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::{EnvFilter, fmt};

use crate::cli::{Format, Log};

/// Begins to log, to stderr.
pub fn init(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.filter).with_context(|| {
        format!("--log {:?} is no filter; give one such as info or info,agentsession_controller=debug", log.filter)
    })?;
    let colours = std::io::stderr().is_terminal();
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match log.log_format {
        Format::Text => builder.with_target(true).init(),
        Format::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
