//! Figure 9: from the end of a turn, as its driver wrote it, until its Pod is gone; and where the time goes.
//!
//! On the project's own cluster the Pod's clock is this host's, so times of both can be compared. On another cluster the first part is as
//! good as the clocks of its nodes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agentsession_e2e::{Draft, Operator, Session, Stored, Test, await_condition, pods, wait::seconds};
use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt as _,
    runtime::watcher::{Config, Event, watcher},
};
use serde_json::Value;

use crate::{report::Row, stats::Samples};

const SESSIONS: usize = 50;

/// When each Pod was seen to be gone, by the session that it belonged to.
type Gone = Arc<Mutex<HashMap<String, Timestamp>>>;

/// Moments of one session.
#[derive(Clone, Copy, Debug)]
struct Moments {
    /// The driver's last part; its status follows in the same moment.
    ended: Timestamp,
    /// The controller knew.
    seen: Timestamp,
    /// The log was read to its end, and stored.
    read: Timestamp,
    /// How much of that the read took, with what it stored.
    read_ms: f64,
    /// The verdict stood.
    settled: Timestamp,
    /// The controller asked for the Pod's deletion.
    deleted: Timestamp,
    /// The controller let the Pod go: its finalizer is not needed while the kubelet ends the Pod.
    released: Timestamp,
    /// The Pod was gone.
    gone: Timestamp,
}

/// Figure 9.
pub async fn of_turns(t: &Test) -> Result<Vec<Row>> {
    let settings = t.settings().variable("AGENTSESSION_LOG_FORMAT", "json");
    let operator = Operator::start(t, settings).await?;
    let gone = Gone::default();
    let watch = tokio::spawn(watch(t.cluster.client.clone(), t.namespace.clone(), Arc::clone(&gone)));
    let mut all = Vec::new();
    for ordinal in 0..SESSIONS {
        let session = t.apply(Draft::new(&format!("end-{ordinal}")).turn("- parts: 200\n")).await?;
        session.finished().await?;
        pods::none(t, &session, seconds(60)).await?;
        all.push(moments(t, &operator, &session, &gone).await?);
    }
    watch.abort();
    Ok(rows(&all))
}

fn rows(all: &[Moments]) -> Vec<Row> {
    let row = |case: &str, part: fn(&Moments) -> f64| {
        let mut samples = Samples::default();
        all.iter().for_each(|moments| samples.push(part(moments)));
        let note = format!("p90 {:.0}, {:.0} to {:.0}", samples.quantile(0.9), samples.min(), samples.max());
        Row::median(9, case, &samples, "ms").note(note)
    };
    vec![
        row("turn end to Pod gone", |at| between(at.ended, at.gone)),
        row("… watch: the controller knows", |at| between(at.ended, at.seen)),
        row("… exec: the rest of the log is read and stored", |at| at.read_ms),
        row("… store: harvest begun, verdict settled", |at| between(at.seen, at.settled) - at.read_ms),
        row("…   of it from read to settled", |at| between(at.read, at.settled)),
        row("… delete: from settled to gone", |at| between(at.settled, at.gone)),
        row("…   of it the recorder is told to go", |at| between(at.settled, at.deleted)),
        row("…   of it the Pod is deleted, its finalizer let go", |at| between(at.deleted, at.released)),
        row("…   of it the kubelet ends the Pod", |at| between(at.released, at.gone)),
    ]
}

/// Notes when Pods go.
async fn watch(client: kube::Client, namespace: String, gone: Gone) {
    let api: kube::Api<Pod> = kube::Api::namespaced(client, &namespace);
    let config = Config::default().labels(crds::names::LABEL_SESSION_UID);
    let mut events = std::pin::pin!(watcher(api, config));
    while let Some(event) = events.next().await {
        // A watch that breaks begins again; a Pod whose end it missed fails the figure.
        if let Ok(Event::Delete(pod)) = event
            && let Some(session) = pod.labels().get(crds::names::LABEL_SESSION_UID)
        {
            gone.lock().unwrap_or_else(PoisonError::into_inner).insert(session.clone(), Timestamp::now());
        }
    }
}

async fn moments(t: &Test, operator: &Operator, session: &Session, gone: &Gone) -> Result<Moments> {
    let gone = await_condition("the watch to see the Pod's end", seconds(10), async || {
        Ok(gone.lock().unwrap_or_else(PoisonError::into_inner).get(&session.uid).copied())
    })
    .await?;
    let stored = Stored::read(&t.sqlite(), session).await?;
    let last = stored.values(1).pop().context("no part is stored")?;
    ensure!(last["type"] == "finish", "the turn ended with {last}");
    let log = operator.process.said();
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let lines: Vec<&Value> = lines.iter().filter(|line| line["session.uid"] == session.uid.as_str()).collect();
    let decided = |step: &str| first(&lines, |line| line["message"] == "decided" && line["step"] == step);
    let said = |message: &str| first(&lines, |line| line["message"] == message);
    let read = said("log read and stored")?;
    Ok(Moments {
        ended: last["at"].as_str().context("a part without its time")?.parse()?,
        seen: time(decided("begin-harvest")?)?,
        read: time(read)?,
        read_ms: read["duration_ms"].as_f64().context("a read without its duration")?,
        settled: time(said("turn settled")?)?,
        deleted: time(decided("delete")?)?,
        released: time(decided("release-pod")?)?,
        gone,
    })
}

fn first<'a>(lines: &[&'a Value], wanted: impl Fn(&Value) -> bool) -> Result<&'a Value> {
    lines.iter().copied().find(|line| wanted(line)).context("the controller's log does not say so")
}

fn time(line: &Value) -> Result<Timestamp> {
    Ok(line["timestamp"].as_str().context("a line without its time")?.parse()?)
}

fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}
