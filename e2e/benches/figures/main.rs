//! The figures of docs/BENCHMARKS.md, each measured against a limit that is measured in the same run, on a real cluster.
//!
//! `make bench`, or `make bench FIGURES="1 8"`. On stdout: a JSON object a line as they come, then all of them as one table; what goes on meanwhile
//! is on stderr. Exit code 1 when a figure misses its goal or cannot be measured.

mod conditions;
mod crates;
mod end;
mod faults;
mod harvest;
mod memory;
mod pairs;
mod pod;
mod report;
mod stats;
mod writes;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use agentsession_e2e::{Test, attempt};
use anyhow::{Result, bail};

use crate::report::Row;

/// Each figure by its number, and what it is.
const FIGURES: [(u8, &str); 9] = [
    (1, "harvest of a whole log"),
    (2, "short reads that nobody noticed"),
    (3, "rate of a read by exec"),
    (4, "split, parse and look at types"),
    (5, "idempotent store"),
    (6, "controller memory during a harvest"),
    (7, "controller memory of a session with its Pod"),
    (8, "writes to the API server"),
    (9, "from the end of a turn to the end of its Pod"),
];

/// Set by Ctrl-C: what runs cleans up, and nothing more begins.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

#[tokio::main]
async fn main() -> ExitCode {
    let figures = match wanted(std::env::args().skip(1)) {
        Ok(figures) => figures,
        Err(error) => {
            eprintln!("bench: {error:#}");
            return ExitCode::from(2);
        }
    };
    println!("{}", conditions::line().await);
    let (mut rows, mut is_well) = (Vec::new(), true);
    for (number, title) in figures {
        if INTERRUPTED.load(Ordering::Relaxed) {
            break;
        }
        eprintln!("--- {number}: {title} (load {:.2})", conditions::load());
        match measure(number).await {
            Ok(measured) => {
                measured.iter().for_each(|row| println!("{}", row.json()));
                rows.extend(measured);
            }
            Err(error) => {
                is_well = false;
                eprintln!("bench: figure {number}, {title}: {error:#}");
            }
        }
    }
    print!("\n{}", report::table(&rows));
    is_well &= rows.iter().all(|row| row.is_within() != Some(false));
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn wanted(arguments: impl Iterator<Item = String>) -> Result<Vec<(u8, &'static str)>> {
    let mut figures = Vec::new();
    // Cargo adds --bench.
    for word in arguments.filter(|word| !word.starts_with('-')) {
        match FIGURES.iter().find(|(number, _)| number.to_string() == word) {
            Some(figure) => figures.push(*figure),
            None => bail!("there is no figure {word:?}; give numbers from 1 to {}", FIGURES.len()),
        }
    }
    Ok(if figures.is_empty() { FIGURES.to_vec() } else { figures })
}

async fn measure(number: u8) -> Result<Vec<Row>> {
    match number {
        1 => within("bench-harvest", harvest::whole).await,
        2 => within("bench-faults", faults::short_reads).await,
        3 => within("bench-read", harvest::rate).await,
        4 => crates::parse().await,
        5 => crates::store().await,
        6 => within("bench-memory", memory::one_harvest).await,
        7 => within("bench-pairs", pairs::each).await,
        8 => within("bench-writes", writes::all).await,
        9 => within("bench-end", end::of_turns).await,
        other => bail!("there is no figure {other}"),
    }
}

/// Measures in a namespace of its own, which goes afterwards, also when it is interrupted.
async fn within(name: &str, work: impl AsyncFnOnce(&Test) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    let interruptible = async |test: &Test| {
        tokio::select! {
            rows = Box::pin(work(test)) => rows,
            pressed = tokio::signal::ctrl_c() => {
                pressed?;
                INTERRUPTED.store(true, Ordering::Relaxed);
                bail!("interrupted")
            }
        }
    };
    attempt(name, interruptible).await
}
