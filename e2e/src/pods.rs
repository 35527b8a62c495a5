//! Agent Pods: whose they are, what is in them, and ways to end them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, EvictParams, ListParams},
};

use crate::{
    session::Session,
    test::Test,
    wait::{await_condition, eventually},
};

/// The Pods of the test's namespace.
#[must_use]
pub fn api(test: &Test) -> Api<Pod> {
    Api::namespaced(test.cluster.client.clone(), &test.namespace)
}

/// The Pods of a session.
///
/// # Errors
/// When the cluster does not answer.
pub async fn of(test: &Test, session: &Session) -> Result<Vec<Pod>> {
    let selector = format!("{}={}", crds::names::LABEL_SESSION_UID, session.uid);
    Ok(api(test).list(&ListParams::default().labels(&selector)).await?.items)
}

/// Waits for the session's one Pod with both containers running.
///
/// # Errors
/// When it does not come in time.
pub async fn running(test: &Test, session: &Session) -> Result<Pod> {
    await_condition("the agent Pod to run", Duration::from_secs(60), async || {
        let pods = of(test, session).await?;
        ensure!(pods.len() <= 1, "{} Pods", pods.len());
        Ok(pods.into_iter().next().filter(|pod| {
            let running = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
            let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            statuses.is_some_and(|statuses| statuses.len() == 2 && statuses.iter().all(running))
        }))
    })
    .await
}

/// Waits until the session has no Pod.
///
/// # Errors
/// When it still has one.
pub async fn none(test: &Test, session: &Session, timeout: Duration) -> Result<()> {
    eventually("the agent Pod to be gone", timeout, async || Ok(of(test, session).await?.is_empty())).await
}

/// Deletes a Pod with this grace; 0 is by force.
///
/// # Errors
/// When it is refused.
pub async fn delete(test: &Test, pod: &Pod, grace_seconds: Option<u32>) -> Result<()> {
    let params = DeleteParams { grace_period_seconds: grace_seconds, ..DeleteParams::default() };
    api(test).delete(&pod.name_any(), &params).await?;
    Ok(())
}

/// Evicts a Pod by the API.
///
/// # Errors
/// When it is refused.
pub async fn evict(test: &Test, pod: &Pod) -> Result<()> {
    api(test).evict(&pod.name_any(), &EvictParams::default()).await?;
    Ok(())
}

/// Runs a command in the agent container. The scripted agent's image has busybox.
///
/// # Errors
/// When the command fails.
pub async fn exec(test: &Test, pod: &Pod, command: &[&str]) -> Result<String> {
    let name = pod.name_any();
    test.kubectl(&[&["exec", &name, "-c", crds::names::CONTAINER_AGENT, "--"], command].concat()).await
}

/// The log of a turn, as the driver wrote it.
///
/// # Errors
/// When it cannot be read.
pub async fn log(test: &Test, pod: &Pod, turn: u32) -> Result<String> {
    exec(test, pod, &["cat", &format!("{}/turn-{turn}.jsonl", crds::names::PATH_LOG)]).await
}

/// The parts of a log as the driver wrote them: of each line the text of `part`.
///
/// # Errors
/// When a line has none.
pub fn parts_of_log(log: &str) -> Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        part: &'a serde_json::value::RawValue,
    }
    let part =
        |line: &str| Ok(serde_json::from_str::<Line<'_>>(line).with_context(|| line.to_owned())?.part.get().to_owned());
    log.lines().map(part).collect()
}

/// How many readers of logs run in a Pod, seen from this host; only on the project's own cluster, whose Pods are processes here.
///
/// # Errors
/// When the processes of this host cannot be listed.
pub fn readers(pod: &Pod) -> Result<usize> {
    let uid = pod.uid().context("a Pod without UID")?;
    let mut count = 0;
    for entry in std::fs::read_dir("/proc")? {
        let process = entry?.path();
        // A process may end while it is looked at.
        let read = |file: &str| {
            std::fs::read(process.join(file))
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .unwrap_or_default()
        };
        let command = read("cmdline");
        if command.contains("agentsession-sandbox\0read\0") && read("cgroup").contains(&uid) {
            count += 1;
        }
    }
    Ok(count)
}
