//! The chart, as it is installed by default: the operator runs in the cluster with the rights that it asks for and no others.

use agentsession_e2e::{
    Draft, Session, Stream, Test, await_condition,
    cluster::{self, checkout, program},
    eventually, pieces, pods, run,
    wait::seconds,
};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

/// Name of the release and of what it makes.
const RELEASE: &str = "agentsession";

async fn helm(t: &Test, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program("helm"));
    command.env("KUBECONFIG", &t.cluster.kubeconfig).args(["--namespace", &t.namespace]).args(arguments);
    let said = cluster::run(command, None).await?;
    ensure!(said.ok, "helm {}: {}", arguments.join(" "), said.err);
    Ok(())
}

/// Installs the chart, or upgrades it, for the test's namespace alone.
async fn install(t: &Test, more: &[&str]) -> Result<()> {
    let chart = checkout().join("manifests/chart/agentsession").display().to_string();
    let namespaces = format!("watchNamespaces={{{}}}", t.namespace);
    let values = [
        "image.repository=localhost/agentsession",
        "image.tag=dev",
        "sandbox.image=localhost/agentsession-sandbox:dev",
        &namespaces,
    ];
    let values: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    helm(t, &[&["upgrade", "--install", RELEASE, &chart, "--wait", "--timeout", "3m"], &values[..], more].concat())
        .await
}

/// Two sessions in the middle of their turns.
async fn two_live(t: &Test, wait: &str) -> Result<[Session; 2]> {
    let draft = |name| Draft::new(name).turn(&format!("- parts: 20\n- wait: {wait}\n- say: end\n"));
    let sessions = [t.apply(draft("one")).await?, t.apply(draft("two")).await?];
    for session in &sessions {
        crate::common::has_said(t, session, 20).await?;
    }
    Ok(sessions)
}

/// The replay of a session, by way of the Service and a port-forward.
async fn replay(t: &Test, session: &Session) -> Result<Stream> {
    let port = agentsession_e2e::process::free_port()?;
    let mut command = Command::new(program("kubectl"));
    command.env("KUBECONFIG", &t.cluster.kubeconfig);
    command.args(["-n", &t.namespace, "port-forward", &format!("service/{RELEASE}"), &format!("{port}:8080")]);
    let _forward = agentsession_e2e::process::Process::spawn(command, &t.next_log("port-forward"))?;
    let token = agentsession_e2e::replay::reader_token(t).await?;
    let url = format!("http://127.0.0.1:{port}/v1/namespaces/{}/agentsessions/{}/stream", t.namespace, session.name);
    let answer = await_condition("the gateway to answer", seconds(30), async || {
        Ok(Some(agentsession_e2e::replay::get(&url, Some(&token)).await?))
    })
    .await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    Stream::parse(answer.body)
}

async fn log_is_quiet(t: &Test) -> Result<()> {
    let selector = "app.kubernetes.io/name=agentsession";
    let log = t.kubectl(&["logs", "--selector", selector, "--all-containers", "--tail=-1"]).await?;
    ensure!(!log.contains("forbidden"), "a right is missing: {log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_upgraded_and_uninstalled_with_live_sessions() {
    run("chart", async |t| {
        install(t, &[]).await?;
        // Over an upgrade sessions go on.
        let sessions = two_live(t, "15s").await?;
        install(t, &["--set", "podAnnotations.e2e=again"]).await?;
        for session in &sessions {
            let status = session.finished_within(seconds(120)).await?;
            ensure!(status.turn(1)?.summary() == crate::common::WELL, "{:?}", status.turn(1)?);
            ensure!(status.attempt == 1, "attempt {}", status.attempt);
            let said = replay(t, session).await?.deltas();
            ensure!(said[..20] == pieces(20) && said[20..] == ["end"], "{said:?}");
            session.delete(kube::api::PropagationPolicy::Background).await?;
            session.gone(seconds(30)).await?;
        }
        log_is_quiet(t).await?;
        uninstall(t).await
    })
    .await;
}

/// With live sessions: they are harvested, released and kept, and nothing is left Terminating.
async fn uninstall(t: &Test) -> Result<()> {
    let sessions = two_live(t, "10m").await?;
    helm(t, &["uninstall", RELEASE, "--wait", "--timeout", "5m"]).await?;
    for session in &sessions {
        let object = session.get().await?.context("the object is gone")?;
        ensure!(object.metadata.finalizers.as_ref().is_none_or(Vec::is_empty), "{:?}", object.metadata.finalizers);
        let turn: &Value = &object.data["status"]["turns"][0];
        ensure!(turn["transcript"] == "Complete" && turn["parts"].as_u64().is_some_and(|parts| parts >= 23), "{turn}");
        pods::none(t, session, seconds(30)).await?;
        session.delete(kube::api::PropagationPolicy::Background).await?;
    }
    for session in &sessions {
        session.gone(seconds(10)).await?;
    }
    eventually("nothing of the release to be left", seconds(60), async || {
        let left = t.kubectl(&["get", "pods,deployments,statefulsets,jobs", "-o", "name"]).await?;
        Ok(left.trim().is_empty())
    })
    .await?;
    let crd = format!("crd/{}.{}", crds::names::PLURAL, crds::names::GROUP);
    t.cluster.kubectl_ok(&["get", &crd], None).await?;
    Ok(())
}
