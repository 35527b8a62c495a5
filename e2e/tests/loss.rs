//! The Pod is taken away without a chance to read its log.

use agentsession_e2e::{Cluster, Draft, Stored, cluster, pieces, pods, run, wait::seconds};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use tokio::process::Command;

use crate::common::{has_stored, stored};

/// A turn that goes on saying pieces for longer than any test.
const LONG: &str = "- parts: {count: 6000, every: 100ms}\n";

/// What is stored begins at the beginning and has no hole.
fn check_prefix(stored: &Stored, at_least: usize) -> Result<()> {
    let said = stored.deltas(1);
    ensure!(said.len() >= at_least, "only {} of {at_least} pieces that were stored before", said.len());
    ensure!(said == pieces(6000)[..said.len()], "not what was said: {said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_by_force_keeps_what_was_stored() {
    run("force", async |t| {
        let _operator = t.operator().await?;
        let session = t.apply(Draft::new("force").turn(LONG).set("spec/transcript/checkpointInterval", "1s")).await?;
        let pod = pods::running(t, &session).await?;
        let before = has_stored(t, &session, 25).await?;
        pods::delete(t, &pod, Some(0)).await?;
        let status = session.finished().await?;
        let turn = status.turn(1)?;
        assert_eq!((turn.outcome.as_deref(), turn.reason.as_deref()), (Some("Lost"), Some("PodDeleted")));
        let stored = stored(t, &session).await?;
        check_prefix(&stored, before)?;
        // Complete only with the proof that the abort is.
        let proven = stored.types(1).last().is_some_and(|kind| kind == "abort");
        assert_eq!(turn.transcript.as_deref(), Some(if proven { "Complete" } else { "Incomplete" }), "{turn:?}");
        assert_eq!(turn.transcript_reason.is_some(), !proven);
        pods::none(t, &session, seconds(90)).await
    })
    .await;
}

/// Ends a node of the project's own cluster: containerd, kubelet and every container, for good.
async fn kill_node(node: &str) -> Result<()> {
    let record = std::fs::read_to_string(cluster::state_dir().join(format!("run/{node}.pid")))?;
    let pid = record.split_whitespace().next().context("no pid")?;
    ensure!(Command::new("kill").args(["-KILL", pid]).status().await?.success(), "cannot kill {node}");
    Ok(())
}

/// Brings the cluster's nodes back.
async fn revive_nodes() -> Result<()> {
    let nodes = std::env::var("CLUSTER_NODES").unwrap_or_else(|_| "2".into());
    let mut up = Command::new(cluster::checkout().join("e2e/cluster/up"));
    up.env_remove("KUBECONFIG").env("CLUSTER_NODES", nodes);
    let said = cluster::run(up, None).await?;
    ensure!(said.ok, "up: {}", said.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_node_keeps_what_was_stored_and_doubles_nothing_when_it_returns() {
    run("node-lost", async |t| {
        if !t.cluster.is_own() {
            eprintln!("not run: it would destroy a node of a cluster that is not ours");
            return Ok(());
        }
        let node = Cluster::spare_node(&t.cluster).await?;
        let _operator = t.operator().await?;
        let draft =
            Draft::new("node-lost").turn(LONG).set("spec/transcript/checkpointInterval", "1s").on_spare_node(&node);
        let session = t.apply(draft).await?;
        let pod = pods::running(t, &session).await?;
        let before = has_stored(t, &session, 25).await?;
        kill_node(&node).await?;
        // 40 s until the node is seen to be lost, 5 s of toleration, the Pod's grace of 60 s and 10 s more.
        let status = session.finished_within(seconds(240)).await;
        let revived = revive_nodes().await;
        let status = status?;
        revived?;
        assert_eq!(status.turn(1)?.summary(), "Lost NodeLost Incomplete NodeLost");
        let lost = stored(t, &session).await?;
        check_prefix(&lost, before)?;
        pods::none(t, &session, seconds(60)).await?;
        let after = stored(t, &session).await?;
        assert_eq!(after.raw(1), lost.raw(1), "nothing is added to {} after its verdict", pod.name_any());
        Ok(())
    })
    .await;
}
