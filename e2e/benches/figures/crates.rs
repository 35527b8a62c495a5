//! Figures 4 and 5: the benchmarks of single crates, which need no cluster. They print a JSON object a line; here they become rows.

use std::process::Stdio;

use agentsession_e2e::cluster::checkout;
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::report::{Goal, Row};

/// One line of a crate's benchmark.
#[derive(Debug, Deserialize)]
struct Line {
    figure: String,
    case: String,
    ms: f64,
    /// What the limit is.
    limit: String,
    limit_ms: f64,
    ratio: f64,
    goal: Option<f64>,
    /// Whether the ratio is to be at least the goal instead of at most.
    #[serde(default)]
    at_least: bool,
    runs: usize,
}

/// Figure 4.
pub async fn parse() -> Result<Vec<Row>> {
    rows(4, "agentsession-transcript", "parse").await
}

/// Figure 5.
pub async fn store() -> Result<Vec<Row>> {
    rows(5, "agentsession-store", "append").await
}

async fn rows(figure: u8, package: &str, bench: &str) -> Result<Vec<Row>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["bench", "--quiet", "--locked", "--package", package, "--bench", bench])
        .current_dir(checkout())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    // Its exit code says that a goal was missed, and so do the rows.
    let output = cargo.output().await.context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let rows = lines.map(|line| Ok(row(figure, &serde_json::from_str(line).with_context(|| line.to_owned())?)));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    ensure!(!rows.is_empty(), "the benchmark {bench} of {package} printed nothing");
    Ok(rows)
}

fn row(figure: u8, line: &Line) -> Row {
    let row = Row::value(figure, &format!("{}: {}", line.figure, line.case), line.ms, "ms").runs(line.runs);
    let row = row.against(&line.limit, line.limit_ms).ratio(line.ratio);
    match line.goal {
        Some(goal) if line.at_least => row.goal(Goal::AtLeast(goal)),
        Some(goal) => row.goal(Goal::AtMost(goal)),
        None => row,
    }
}
