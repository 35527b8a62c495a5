//! Figure 2: whether a bad connection can make a harvest short without anybody noticing. Its limit is none at all.

use std::time::Duration;

use agentsession_e2e::{Cluster, Fault, FaultProxy, Test, stored};
use anyhow::{Context as _, Result, ensure};
use controller::{
    exec::{ExecSettings, Execs},
    harvest::{HarvestSettings, Harvester},
};
use futures::future::join_all;
use kube::Client;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use store::SharedStore;

use crate::{
    pod::{LoggedPod, execs, harvester, is_complete},
    report::{Goal, Row},
    stats::{Samples, timed},
};

/// Harvests whose connection is cut.
const CUT: usize = 100;
/// Harvests that are drained slowly at once; twice, in two ways of asking.
const ABREAST: usize = 10;
/// How long draining takes.
const DRAIN: Duration = Duration::from_secs(70);
/// A deadline that lets it, which the controller's own of 45 s does not.
const PATIENCE: Duration = Duration::from_secs(150);
/// Tries of one harvest before it counts as never complete; the controller's bound is time, an hour of it.
const TRIES: u32 = 8;
/// Where the requests of reads can be told from others.
const READ: &str = "command=read";

/// What came of a number of harvests.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Said to be complete, and not all of it stored.
    short: u32,
    /// Complete in the end.
    complete: u32,
    /// Tries that said that they failed.
    failed: u32,
    /// Execs, of those that came through.
    execs: u32,
}

impl Outcome {
    fn add(&mut self, other: Self) {
        let Self { short, complete, failed, execs } = other;
        self.short += short;
        self.complete += complete;
        self.failed += failed;
        self.execs += execs;
    }
}

/// Figure 2.
pub async fn short_reads(t: &Test) -> Result<Vec<Row>> {
    let pod = LoggedPod::start(t).await?;
    let proxy = FaultProxy::start(t).await?;
    let client = Cluster::from_file(&proxy.kubeconfig).await?.client;
    let mut rows = cut(t, &pod, &proxy, client.clone()).await?;
    proxy.heal();
    let controller_frames = HarvestSettings::default();
    // One frame for the whole log: the other end holds it for less time than draining takes, so this is where tails are lost.
    let one_frame = HarvestSettings { frame_bytes: 17 << 20, ..HarvestSettings::default() };
    for (name, settings) in [("in frames of 4 MiB", controller_frames), ("in one frame", one_frame)] {
        rows.extend(slow(t, &pod, &proxy, client.clone(), (name, settings)).await?);
        proxy.heal();
    }
    Ok(rows)
}

async fn cut(t: &Test, pod: &LoggedPod, proxy: &FaultProxy, client: Client) -> Result<Vec<Row>> {
    let seed = std::env::var("BENCH_SEED").ok().map_or_else(|| Ok(rand::random()), |seed| seed.parse::<u64>());
    let seed = seed.context("BENCH_SEED is no number")?;
    let mut random = StdRng::seed_from_u64(seed);
    let execs = execs(client, ExecSettings::default());
    let (mut outcome, mut times) = (Outcome::default(), Samples::default());
    let before = proxy.hits();
    for ordinal in 0..CUT {
        // One to three in a row: what goes on after a cut is cut again.
        for _ in 0..=ordinal % 3 {
            proxy.inject(READ, Fault::Cut { after: random.random_range(0..pod.log_bytes) }, 1);
        }
        let dir = tempfile::tempdir_in(&t.dir)?;
        let store = stored::open(&format!("sqlite://{}", dir.path().join("store.db").display())).await?;
        let (took, one) = timed(until_complete(pod, &execs, &store, HarvestSettings::default())).await;
        outcome.add(one?);
        times.push_ms(took);
        proxy.heal();
    }
    let note = format!(
        "{} cuts, {} execs, {} tries that said they failed; {:.0} ms each; BENCH_SEED={seed}",
        proxy.hits() - before,
        outcome.execs,
        outcome.failed,
        times.median()
    );
    Ok(both(&format!("{CUT} harvests cut at random bytes"), u32::try_from(CUT)?, &outcome, &note))
}

async fn slow(
    t: &Test,
    pod: &LoggedPod,
    proxy: &FaultProxy,
    client: Client,
    (name, settings): (&str, HarvestSettings),
) -> Result<Vec<Row>> {
    let execs = execs(client, ExecSettings { read_whole: PATIENCE, ..ExecSettings::default() });
    let throttle = Fault::Throttle { per_second: pod.log_bytes / DRAIN.as_secs() };
    proxy.inject(READ, throttle, u32::try_from(ABREAST)?);
    let dir = tempfile::tempdir_in(&t.dir)?;
    let store = stored::open(&format!("sqlite://{}", dir.path().join("store.db").display())).await?;
    let (mut outcome, mut times) = (Outcome::default(), Samples::default());
    for (took, one) in
        join_all((0..ABREAST).map(|_| timed(until_complete(pod, &execs, &store, settings.clone())))).await
    {
        outcome.add(one?);
        times.push_ms(took);
    }
    let seconds = |ms: f64| ms / 1e3;
    ensure!(seconds(times.max()) > 30.0, "nothing was slow: {:.0} s", seconds(times.max()));
    let note = format!(
        "{} execs, {} tries that said they failed; {:.0} to {:.0} s each",
        outcome.execs,
        outcome.failed,
        seconds(times.min()),
        seconds(times.max())
    );
    let case = format!("{ABREAST} harvests abreast, drained over {} s, {name}", DRAIN.as_secs());
    Ok(both(&case, u32::try_from(ABREAST)?, &outcome, &note))
}

/// Harvests one log as the controller does: again until it is complete.
async fn until_complete(
    pod: &LoggedPod,
    execs: &Execs,
    store: &SharedStore,
    settings: HarvestSettings,
) -> Result<Outcome> {
    let request = pod.session(store).await?;
    let harvester: Harvester = harvester(execs, store, settings);
    let mut outcome = Outcome::default();
    for _ in 0..TRIES {
        match harvester.harvest(&request).await {
            Ok(harvested) => {
                outcome.execs += harvested.figures.execs;
                if is_complete(&harvested) {
                    let is_whole = pod.is_whole_in(store, &request.session).await?;
                    outcome.short += u32::from(!is_whole);
                    outcome.complete += u32::from(is_whole);
                    break;
                }
                outcome.failed += 1;
            }
            Err(error) => {
                eprintln!("    detected: {}", error.chain());
                outcome.failed += 1;
            }
        }
    }
    Ok(outcome)
}

fn both(case: &str, harvests: u32, outcome: &Outcome, note: &str) -> Vec<Row> {
    let runs = harvests as usize;
    vec![
        Row::value(2, &format!("{case}: short and called complete"), outcome.short.into(), "harvests")
            .runs(runs)
            .goal(Goal::AtMost(0.0))
            .note(note),
        Row::value(2, &format!("{case}: complete in the end"), outcome.complete.into(), "harvests")
            .runs(runs)
            .goal(Goal::AtLeast(harvests.into())),
    ]
}
