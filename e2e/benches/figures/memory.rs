//! What a process of the operator holds in memory; and figure 6: what one harvest adds to it.

use std::time::{Duration, Instant};

use agentsession_e2e::{Draft, Fault, FaultProxy, Operator, Role, Test, pods, wait::seconds};
use anyhow::{Context as _, Result, bail, ensure};
use transcript::AgentState;

use crate::{
    pod::{self, LONG_TURN},
    report::{Goal, Row},
    stats::Samples,
};

const RUNS: usize = 5;
/// How often a process is looked at until it holds still.
const LOOK: Duration = Duration::from_millis(500);
/// Looks in a row that must agree.
const STILL: usize = 12;
/// By how much they may differ.
const SLACK: f64 = 0.01;

/// Figure 6.
pub async fn one_harvest(t: &Test) -> Result<Vec<Row>> {
    let (mut added, mut idle, mut log_bytes) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..RUNS {
        let (log, before, peak) = harvest(t, round).await?;
        log_bytes.push(log);
        idle.push(before);
        added.push(peak - before);
    }
    let mb = |bytes: f64| bytes / 1e6;
    let note = format!("idle {:.1} MB; added {:.1} to {:.1} MB", mb(idle.median()), mb(added.min()), mb(added.max()));
    Ok(vec![
        Row::value(
            6,
            "peak of the controller's memory above idle, whole log after a restart",
            mb(added.median()),
            "MB",
        )
        .runs(added.len())
        .against("the log", mb(log_bytes.median()))
        .goal(Goal::AtMost(2.5))
        .note(note),
    ])
}

/// One controller delivers and is killed; another one finds the turn over and reads the whole log. Returns bytes: of the log, of the second
/// controller before it may read, and its peak.
async fn harvest(t: &Test, round: usize) -> Result<(f64, f64, f64)> {
    let settings = t.settings().role(Role::Controller);
    let mut first = Operator::start(t, settings.clone()).await?;
    let prompt = format!("- wait: 3s\n{LONG_TURN}");
    let session = t.apply(Draft::new(&format!("memory-{round}")).lingering().turn(&prompt)).await?;
    let pod = pods::running(t, &session).await?;
    agentsession_e2e::eventually("the turn to run", seconds(60), async || {
        Ok(pod::status(t, &pod).await?.state == AgentState::Running)
    })
    .await?;
    first.process.kill().await?;
    let log = pod::ended(t, &pod).await?.log_bytes;

    let proxy = FaultProxy::start(t).await?;
    proxy.inject("command=read", Fault::Refuse(500), u32::MAX);
    let mut second = Operator::start(t, settings.through(&proxy.kubeconfig)).await?;
    let id = second.process.id().context("the controller has ended")?;
    hold_still(id).await?;
    let before = memory(id, "VmRSS")?;
    // From here on the peak is counted anew.
    std::fs::write(format!("/proc/{id}/clear_refs"), "5")?;
    proxy.heal();
    let status = session.finished_within(seconds(120)).await?;
    let peak = memory(id, "VmHWM")?;
    ensure!(status.turn(1)?.summary() == "Succeeded - Complete -", "{:?}", status.turn(1)?);
    session.delete(kube::api::PropagationPolicy::Background).await?;
    session.gone(seconds(60)).await?;
    second.process.kill().await?;
    Ok((log as f64, before, peak))
}

/// Waits until a process has held the same memory of its own for a while.
pub async fn hold_still(id: u32) -> Result<f64> {
    let (began, mut last) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(180) {
        last.push(memory(id, "RssAnon")?);
        let tail = &last[last.len().saturating_sub(STILL)..];
        let (low, high) = tail.iter().fold((f64::MAX, 0.0_f64), |(low, high), &now| (low.min(now), high.max(now)));
        if tail.len() == STILL && high - low <= high * SLACK {
            return Ok(high);
        }
        tokio::time::sleep(LOOK).await;
    }
    bail!("its memory never held still: {last:?}")
}

/// A line of `/proc/<id>/status`, in bytes.
fn memory(id: u32, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).context("the process has ended")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).with_context(|| format!("no {name}"))?;
    Ok(kib.trim().parse::<f64>()? * 1024.0)
}
