//! Figure 8: how often the controller writes to the API server: in the life of a session, and when there is nothing to do.

use std::{collections::BTreeMap, time::Duration};

use agentsession_e2e::{
    Draft, FaultProxy, Operator, Session, Test, await_condition, pods, proxy::Write, wait::seconds,
};
use anyhow::{Result, ensure};
use crds::AgentSession;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api,
    api::{ListParams, PostParams, PropagationPolicy},
};

use crate::{
    report::{Goal, Row},
    stats::Samples,
};

const RUNS: usize = 5;
/// Sessions that are over.
const SETTLED: usize = 1000;
/// How long they are watched.
const MINUTE: Duration = Duration::from_secs(60);
/// How long nothing may have been written before it counts as over.
const QUIET: Duration = Duration::from_secs(10);
const ABREAST: usize = 16;

/// Figure 8.
pub async fn all(t: &Test) -> Result<Vec<Row>> {
    let proxy = FaultProxy::start(t).await?;
    let mut operator = Operator::start(t, t.settings().through(&proxy.kubeconfig)).await?;
    let mut rows = lives(t, &proxy).await?;
    settle_many(t).await?;
    quiet(&proxy).await;
    rows.push(minute(&proxy, "in 60 s").await);
    operator.process.kill().await?;
    let before = proxy.writes().len();
    let _operator = Operator::start(t, t.settings().through(&proxy.kubeconfig)).await?;
    tokio::time::sleep(MINUTE).await;
    rows.push(none(&proxy.writes()[before..], "in 60 s from a restart of the controller"));
    Ok(rows)
}

/// From apply to gone, one after the other with nothing else to do.
async fn lives(t: &Test, proxy: &FaultProxy) -> Result<Vec<Row>> {
    let [mut own, mut until_gone, mut events]: [Samples; 3] = Default::default();
    let mut last = Vec::new();
    for round in 0..RUNS {
        let before = proxy.writes().len();
        let script = "- think: hm\n- say: hello\n- tool: {name: look, output: nothing}\n- say: done\n";
        let session = t.apply(Draft::new(&format!("life-{round}")).turn(script)).await?;
        live(t, &session).await?;
        quiet(proxy).await;
        until_gone.push(of_its_own(&proxy.writes()[before..]).len() as f64);
        session.delete(PropagationPolicy::Background).await?;
        session.gone(seconds(60)).await?;
        quiet(proxy).await;
        let writes = proxy.writes().split_off(before);
        events.push(writes.iter().filter(|write| resource(write) == "events").count() as f64);
        last = of_its_own(&writes);
        own.push(last.len() as f64);
    }
    let note = format!("{}; at most {:.0}", tally(&last), own.max());
    Ok(vec![
        Row::median(8, "API writes in the life of a one-turn session, from apply to its own deletion", &own, "writes")
            .goal(Goal::AtMost(8.0))
            .note(note),
        Row::median(8, "of them until its Pod is gone", &until_gone, "writes"),
        Row::median(8, "events of it", &events, "writes").goal(Goal::AtMost(4.0)),
    ])
}

async fn live(t: &Test, session: &Session) -> Result<()> {
    let status = session.finished().await?;
    ensure!(status.turn(1)?.summary() == "Succeeded - Complete -", "{:?}", status.turn(1)?);
    pods::none(t, session, seconds(60)).await
}

/// Sessions that were canceled before a Pod ran: settled by the controller itself, without a node having to run a thousand Pods.
async fn settle_many(t: &Test) -> Result<()> {
    let api: Api<AgentSession> = Api::namespaced(t.cluster.client.clone(), &t.namespace);
    let one = async |ordinal: usize| {
        let draft =
            Draft::new(&format!("settled-{ordinal}")).turn("- say: never\n").set("spec/desiredState", "Canceled");
        let session: AgentSession = serde_json::from_value(draft.object().clone())?;
        api.create(&PostParams::default(), &session).await?;
        anyhow::Ok(())
    };
    futures::stream::iter((0..SETTLED).map(one)).buffer_unordered(ABREAST).try_collect::<()>().await?;
    await_condition("every session to be settled", seconds(300), async || {
        let sessions = api.list(&ListParams::default()).await?.items;
        let is_settled = |session: &&AgentSession| {
            let turns = session.status.as_ref().map(|status| status.turns.as_slice()).unwrap_or_default();
            turns.iter().any(|turn| turn.outcome.is_some())
        };
        let settled = sessions.iter().filter(is_settled).count();
        ensure!(settled == SETTLED, "{settled} of {SETTLED}");
        Ok(Some(()))
    })
    .await
}

async fn minute(proxy: &FaultProxy, when: &str) -> Row {
    let before = proxy.writes().len();
    tokio::time::sleep(MINUTE).await;
    none(&proxy.writes()[before..], when)
}

fn none(writes: &[Write], when: &str) -> Row {
    let row = Row::value(8, &format!("API writes of {SETTLED} settled sessions {when}"), writes.len() as f64, "writes");
    let row = if writes.is_empty() { row } else { row.note(tally(writes)) };
    row.goal(Goal::AtMost(0.0))
}

/// Waits until nothing has been written for a while.
async fn quiet(proxy: &FaultProxy) {
    let mut before = usize::MAX;
    while before != proxy.writes().len() {
        before = proxy.writes().len();
        tokio::time::sleep(QUIET).await;
    }
}

/// Without events, claims and the one NetworkPolicy of a namespace, which are counted apart.
fn of_its_own(writes: &[Write]) -> Vec<Write> {
    let apart = ["events", "networkpolicies", "persistentvolumeclaims"];
    writes.iter().filter(|write| !apart.contains(&resource(write))).cloned().collect()
}

/// The resource in a path such as `/apis/<group>/<version>/namespaces/<name>/<resource>/…`; the path itself when it has none.
fn resource(write: &Write) -> &str {
    let mut words = write.path.split('/').skip_while(|word| *word != "namespaces").skip(2);
    words.next().unwrap_or(&write.path)
}

/// Each kind of write and how many there were.
fn tally(writes: &[Write]) -> String {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for write in writes {
        let subresource = if write.path.ends_with("/status") { "/status" } else { "" };
        *counts.entry(format!("{} {}{subresource}", write.method, resource(write))).or_default() += 1;
    }
    counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}
