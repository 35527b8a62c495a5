//! Figures 1 and 3: a whole log by exec, with the store behind it and without, against kubectl reading the same file.

use std::{process::Stdio, time::Duration};

use agentsession_e2e::{Test, cluster, postgres::Postgres, stored};
use anyhow::{Result, ensure};
use controller::{
    exec::{
        ExecSettings, Execs, RecorderCommand, Transfer,
        frames::{FrameStep, Frames},
    },
    harvest::HarvestSettings,
};
use store::SharedStore;
use tokio::process::Command;

use crate::{
    pod::{LoggedPod, TURN, execs, harvester, is_complete},
    report::{Goal, Row},
    stats::{Samples, timed},
};

const RUNS: usize = 7;
/// What kubectl runs against.
const CAT: &str = "kubectl exec … cat >/dev/null";
/// As the controller asks when it settles.
const FOLLOW: Duration = Duration::from_millis(100);

/// Figure 1.
pub async fn whole(t: &Test) -> Result<Vec<Row>> {
    let pod = LoggedPod::start(t).await?;
    let postgres = Postgres::start(t).await?;
    postgres.migrate().await?;
    let backends =
        [("SQLite", stored::open(&t.sqlite()).await?, 1.6), ("Postgres", stored::open(&postgres.url()).await?, 2.0)];
    let execs = execs(t.cluster.client.clone(), ExecSettings::default());
    let mut cat = Samples::default();
    let mut harvests: [(Samples, Samples); 2] = Default::default();
    // The first round warms up caches and pools, of both sides.
    for round in 0..=RUNS {
        let limit = kubectl(t, &["cat", &log_path()]).await?;
        if round > 0 {
            cat.push_ms(limit);
        }
        for ((_, store, _), (whole, read)) in backends.iter().zip(&mut harvests) {
            let (took, reading) = harvest(&execs, store, &pod).await?;
            if round > 0 {
                whole.push_ms(took);
                read.push_ms(reading);
            }
        }
    }
    let rows = backends.iter().zip(&harvests).map(|((backend, _, goal), (whole, read))| {
        let case =
            format!("harvest of {:.1} MiB, {} parts, recorder to committed rows, {backend}", mib(&pod), pod.parts);
        Row::median(1, &case, whole, "ms").against(CAT, cat.median()).goal(Goal::AtMost(*goal)).note(format!(
            "last frame after {:.0} ms; {:.0} to {:.0} ms",
            read.median(),
            whole.min(),
            whole.max()
        ))
    });
    Ok(rows.collect())
}

/// One harvest of a log that is new to the store: how long it took, and until its last frame was there.
async fn harvest(execs: &Execs, store: &SharedStore, pod: &LoggedPod) -> Result<(Duration, Duration)> {
    let request = pod.session(store).await?;
    let harvester = harvester(execs, store, HarvestSettings::default());
    let (took, harvested) = timed(harvester.harvest(&request)).await;
    let harvested = harvested?;
    ensure!(is_complete(&harvested), "not complete: {:?}", harvested.figures);
    ensure!(pod.is_whole_in(store, &request.session).await?, "complete, and not all of it is stored");
    Ok((took, harvested.figures.read))
}

/// Figure 3.
pub async fn rate(t: &Test) -> Result<Vec<Row>> {
    let pod = LoggedPod::start(t).await?;
    let execs = execs(t.cluster.client.clone(), ExecSettings::default());
    let [mut cat, mut nothing, mut ours, mut ours_nothing]: [Samples; 4] = Default::default();
    for round in 0..=RUNS {
        let limit = kubectl(t, &["cat", &log_path()]).await?;
        let (read, bytes) = timed(read(&execs, &pod, 0)).await;
        ensure!(bytes? == pod.log_bytes, "not all of the log was read");
        let limit_nothing = kubectl(t, &["true"]).await?;
        let (read_nothing, bytes) = timed(self::read(&execs, &pod, pod.log_bytes)).await;
        ensure!(bytes? == 0, "there is more than the log");
        if round > 0 {
            cat.push_ms(limit);
            nothing.push_ms(limit_nothing);
            ours.push_ms(read);
            ours_nothing.push_ms(read_nothing);
        }
    }
    let rate = |whole: f64, empty: f64| pod.log_bytes as f64 / 1e6 / ((whole - empty).max(1.0) / 1e3);
    let net = rate(ours.median(), ours_nothing.median());
    let detail = format!(
        "the whole exec {:.0} ms, kubectl's {:.0}; one without bytes {:.0}, kubectl's {:.0}",
        ours.median(),
        cat.median(),
        ours_nothing.median(),
        nothing.median()
    );
    let case = format!("read of {:.1} MiB in proven frames, without set-up", mib(&pod));
    Ok(vec![
        Row::value(3, &case, net, "MB/s")
            .runs(ours.len())
            .against(
                "client-go over WebSocket, kubectl exec … cat, without set-up",
                rate(cat.median(), nothing.median()),
            )
            .goal(Goal::AtLeast(0.55))
            .note(detail),
        Row::value(3, "the same with set-up", rate(ours.median(), 0.0), "MB/s")
            .runs(ours.len())
            .against("kubectl exec … cat with set-up", rate(cat.median(), 0.0)),
    ])
}

/// Reads the log from a byte to its end as the controller does, without a store. Returns how many bytes were proven.
async fn read(execs: &Execs, pod: &LoggedPod, from: u64) -> Result<u64> {
    let max = HarvestSettings::default().frame_bytes;
    let command = RecorderCommand::Read { turn: TURN, from, max, follow: Some(FOLLOW) };
    let mut transfer = execs.open(&pod.target, &command, execs.settings().read()).await?;
    let result = frames(&mut transfer, from, max).await;
    Ok(execs.close(&pod.target, transfer, result).await?)
}

async fn frames(transfer: &mut Transfer, from: u64, max: u64) -> Result<u64, controller::exec::ExecError> {
    let mut frames = Frames::new(TURN, from, max);
    loop {
        if let FrameStep::Frame(frame) = frames.next(transfer).await? {
            frames.acknowledge(transfer, frame.header.to).await?;
            if frame.header.to >= frame.header.size {
                return Ok(frame.header.to - from);
            }
        }
    }
}

/// Runs a command in the agent container by kubectl, its output into nothing.
async fn kubectl(t: &Test, command: &[&str]) -> Result<Duration> {
    let mut kubectl = Command::new(cluster::program("kubectl"));
    kubectl
        .env("KUBECONFIG", &t.cluster.kubeconfig)
        .args(["-n", &t.namespace, "exec", "by-hand", "-c", crds::names::CONTAINER_AGENT, "--"])
        .args(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    let (took, status) = timed(kubectl.status()).await;
    ensure!(status?.success(), "kubectl exec {command:?} failed");
    Ok(took)
}

fn log_path() -> String {
    format!("{}/turn-{TURN}.jsonl", crds::names::PATH_LOG)
}

fn mib(pod: &LoggedPod) -> f64 {
    pod.log_bytes as f64 / f64::from(1 << 20)
}
