//! What it costs to read a log: split, parse and look at the type of every part of 16 MiB, as a ratio to the least that any reader must do
//! with the same bytes: a memchr split, a UTF-8 check, and serde_json finding where the value of each line ends.
//!
//! Prints one JSON object a line; `cargo bench -p agentsession-transcript --bench parse`. Fails when the ratio is over its goal.

use std::{hint::black_box, process::ExitCode, time::Instant};

use agentsession_transcript::{
    Turn,
    merge::{BatchLimit, batches, missing},
    replay::{Replay, ReplayOptions},
    scan::{LogScanner, ScannedLog, scan},
};
use serde_json::value::RawValue;

const RUNS: usize = 9;
const GOAL: f64 = 4.0;
const LOG_BYTES: usize = 16 << 20;
const PIPE_BYTES: usize = 256 << 10;

/// A log like those of agents: nearly all of it short deltas, a tool output of some kilobytes now and then.
fn log() -> Vec<u8> {
    let mut log = String::with_capacity(LOG_BYTES + (64 << 10));
    let mut index = 0;
    let mut line = |log: &mut String, part: &str| {
        log.push_str(&format!(
            "{{\"at\":\"2026-11-30T18:00:00.123Z\",\"type\":\"ui-message\",\"turn\":1,\"partIndex\":{index},\"part\":{part}}}\n"
        ));
        index += 1;
    };
    let output = "drwxr-xr-x 2 agent agent 4096 src\\n".repeat(360);
    while log.len() < LOG_BYTES {
        for word in ["The ", "login ", "form ", "posts \\u00e9 ", "to \\\"/session\\\" ", "\u{1f980} "]
            .into_iter()
            .cycle()
            .take(60)
        {
            line(
                &mut log,
                &format!(
                    "{{\"type\":\"text-delta\",\"id\":\"x1\",\"delta\":\"{word}\",\"at\":\"2026-11-30T18:00:00.123Z\"}}"
                ),
            );
        }
        line(
            &mut log,
            &format!(
                "{{\"type\":\"tool-output-available\",\"toolCallId\":\"t1\",\"output\":\"{output}\",\"dynamic\":true}}"
            ),
        );
    }
    log.into_bytes()
}

/// The least: what the goal is a multiple of.
fn limit(log: &[u8]) -> usize {
    let mut begin = 0;
    let mut bytes = 0;
    for end in memchr::memchr_iter(b'\n', log) {
        if let Ok(text) = std::str::from_utf8(&log[begin..end])
            && let Ok(value) = serde_json::from_str::<&RawValue>(text)
        {
            bytes += value.get().len();
        }
        begin = end + 1;
    }
    bytes
}

fn whole(log: &[u8]) -> usize {
    scan(Turn(1), log).parts.len()
}

fn streamed(log: &[u8]) -> usize {
    let mut scanner = LogScanner::new(Turn(1));
    let mut parts = 0;
    for chunk in log.chunks(PIPE_BYTES) {
        scanner.push(chunk, |part| {
            black_box(&part);
            parts += 1;
        });
    }
    parts
}

fn merged(log: &[u8]) -> usize {
    let found = scan(Turn(1), log);
    batches(missing(&found.parts, &Default::default()), BatchLimit::default()).map(|batch| batch.len()).sum()
}

fn replayed(found: &ScannedLog<'_>) -> usize {
    let mut replay = Replay::new(&"bench".into(), Vec::new(), ReplayOptions::default());
    let (mut out, mut bytes) = (Vec::with_capacity(PIPE_BYTES), 0);
    for part in &found.parts {
        replay.push(part.turn, part.index, &part.raw, &mut out);
        if out.len() > PIPE_BYTES / 2 {
            bytes += out.len();
            out.clear();
        }
    }
    bytes + out.len()
}

fn timed(run: impl FnOnce() -> usize) -> f64 {
    let begin = Instant::now();
    black_box(run());
    begin.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Medians of the limit and of a case, measured by turns so that a busy machine is as busy for both.
fn compare(log: &[u8], mut run: impl FnMut() -> usize) -> (f64, f64) {
    let (least, taken) = (0..RUNS).map(|_| (timed(|| limit(black_box(log))), timed(&mut run))).unzip();
    (median(least), median(taken))
}

fn main() -> ExitCode {
    let log = log();
    let found = scan(Turn(1), &log);
    let mut is_within = found.account.damage.lines == 0;
    for (name, run) in [("whole", whole as fn(&[u8]) -> usize), ("streamed", streamed), ("whole+batches", merged)] {
        let (limit_ms, ms) = compare(&log, || run(black_box(&log)));
        is_within &= ms / limit_ms <= GOAL;
        report("parse", name, &log, &found, (limit_ms, ms), Some(GOAL));
    }
    report("replay", "events", &log, &found, compare(&log, || replayed(black_box(&found))), None);
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(figure: &str, case: &str, log: &[u8], found: &ScannedLog<'_>, (limit_ms, ms): (f64, f64), goal: Option<f64>) {
    let line = serde_json::json!({
        "figure": figure, "case": case, "bytes": log.len(), "parts": found.parts.len(), "runs": RUNS,
        "ms": round(ms), "limit": "memchr split, UTF-8 check, RawValue", "limit_ms": round(limit_ms), "ratio": round(ms / limit_ms), "goal": goal,
    });
    println!("{line}");
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
