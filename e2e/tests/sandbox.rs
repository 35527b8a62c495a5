//! The Pod without a controller: what its two containers do when a hand delivers a prompt and reads the log.

use std::process::Stdio;

use agentsession_e2e::{
    Test, await_condition,
    cluster::{self, Said},
    pods, run,
    wait::seconds,
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};
use transcript::frame::{Header, Trailer};

const PROGRAM: &str = crds::names::PATH_SANDBOX;

/// The Pod of `cases/agent-pod.yaml`, idle.
async fn by_hand(t: &Test) -> Result<()> {
    t.apply_yaml(include_str!("../cases/agent-pod.yaml")).await?;
    t.kubectl(&["wait", "--for=condition=Ready", "pod/by-hand", "--timeout=60s"]).await?;
    await_condition("the driver to be idle", seconds(60), async || {
        let status =
            exec(t, &["exec", "by-hand", "-c", "agent", "--", "cat", "/agentsession/log/status.json"], "").await?;
        Ok(status.out.contains("\"state\":\"idle\"").then_some(()))
    })
    .await
}

async fn exec(t: &Test, arguments: &[&str], stdin: &str) -> Result<Said> {
    t.cluster.kubectl(&[&["-n", &t.namespace], arguments].concat(), Some(stdin)).await
}

async fn recorder(t: &Test, arguments: &[&str], stdin: &str) -> Result<Said> {
    exec(t, &[&["exec", "-i", "by-hand", "-c", "recorder", "--", PROGRAM], arguments].concat(), stdin).await
}

/// Delivers a prompt. Returns the digest of what stands, or why nothing was written.
async fn deliver(t: &Test, turn: u32, prompt: &str) -> Result<(String, Option<String>)> {
    let body = json!({"turn": turn, "prompt": prompt}).to_string();
    let digest = hex::encode(Sha256::digest(&body));
    let head = json!({"v": 1, "count": body.len(), "sha256": digest});
    let said = recorder(t, &["deliver", "--turn", &turn.to_string()], &format!("{head}\n{body}")).await?;
    let answer: Value = serde_json::from_str(&said.out).with_context(|| format!("{said:?}"))?;
    let refusal = answer["error"].as_str().map(str::to_owned);
    ensure!(refusal.is_some() || answer["sha256"] == digest, "{answer}");
    Ok((digest, refusal))
}

/// Reads a frame, whose proof must hold, and acknowledges it. The other end goes when its stdin ends, so that is held open until then.
async fn read(t: &Test, turn: u32) -> Result<(Header, String)> {
    let mut command = Command::new(cluster::program("kubectl"));
    command.env("KUBECONFIG", &t.cluster.kubeconfig).args([
        "-n",
        &t.namespace,
        "exec",
        "-i",
        "by-hand",
        "-c",
        "recorder",
        "--",
    ]);
    command
        .args([PROGRAM, "read", "--turn", &turn.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let mut stdout = BufReader::new(child.stdout.take().context("no stdout")?);
    let mut line = String::new();
    stdout.read_line(&mut line).await?;
    let header: Header = serde_json::from_str(&line).with_context(|| line.clone())?;
    let mut bytes = vec![0; usize::try_from(header.to - header.from)?];
    stdout.read_exact(&mut bytes).await?;
    line.clear();
    stdout.read_line(&mut line).await?;
    ensure!(line == "\n", "no newline after the bytes: {line:?}");
    line.clear();
    stdout.read_line(&mut line).await?;
    let trailer: Trailer = serde_json::from_str(&line).with_context(|| line.clone())?;
    ensure!(
        trailer.count == bytes.len() as u64 && trailer.sha256 == hex::encode(Sha256::digest(&bytes)),
        "{trailer:?}"
    );
    stdin.write_all(format!("ack {}\n", header.to).as_bytes()).await?;
    ensure!(child.wait().await?.success(), "the reader did not go well");
    Ok((header, String::from_utf8(bytes)?))
}

async fn read_when(t: &Test, turn: u32, state: &str) -> Result<(Header, String)> {
    await_condition(state, seconds(30), async || {
        let (header, bytes) = read(t, turn).await?;
        let now = header.status.as_ref().map(|status| serde_json::to_value(status.state)).transpose()?;
        Ok((now == Some(state.into())).then_some((header, bytes)))
    })
    .await
}

fn text(log: &str) -> Result<String> {
    let parts = pods::parts_of_log(log)?;
    let values: Vec<Value> = parts.iter().map(|part| serde_json::from_str(part)).collect::<Result<_, _>>()?;
    Ok(agentsession_e2e::stored::deltas(&values).concat())
}

async fn container(t: &Test, name: &str) -> Result<ContainerState> {
    let pod: Pod = pods::api(t).get("by-hand").await?;
    let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    statuses.into_iter().find(|status| status.name == name).and_then(|status| status.state).context("no such container")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_delivered_once_and_its_log_is_read_with_its_proof() {
    run("by-hand", async |t| {
        by_hand(t).await?;
        deliver(t, 1, "- say: hello\n").await?;
        let (header, log) = read_when(t, 1, "succeeded").await?;
        assert_eq!(text(&log)?, "hello");
        let status = header.status.context("no status")?;
        assert_eq!((u64::from(status.parts), status.log_bytes), (log.lines().count() as u64, header.size));
        // The same again changes nothing, another one is refused, and the next turn is taken by the same agent.
        assert_eq!(deliver(t, 1, "- say: hello\n").await?.1, None);
        assert!(deliver(t, 1, "- say: other\n").await?.1.is_some());
        deliver(t, 2, "- say: again\n").await?;
        assert_eq!(text(&read_when(t, 2, "succeeded").await?.1)?, "again");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_says_its_abort_and_waits_to_be_released() {
    run("by-hand-grace", async |t| {
        by_hand(t).await?;
        deliver(t, 1, "- say: hello\n- wait: 10m\n").await?;
        await_condition("the agent to speak", seconds(10), async || {
            Ok(text(&read(t, 1).await?.1)?.contains("hello").then_some(()))
        })
        .await?;
        t.kubectl(&["delete", "pod", "by-hand", "--wait=false"]).await?;
        let (header, log) = read_when(t, 1, "canceled").await?;
        assert!(!header.status.context("no status")?.agent_ready);
        let last: Value = serde_json::from_str(log.lines().last().context("no line")?)?;
        assert_eq!(last["part"]["type"], "abort");
        // The kubelet does not say that the agent's container has ended while the Pod is Terminating; the driver's status does.
        assert!(container(t, "recorder").await?.running.is_some(), "the recorder outlives SIGTERM");
        let released = std::time::Instant::now();
        recorder(t, &["deliver", "--release"], "").await?;
        t.kubectl(&["wait", "--for=delete", "pod/by-hand", "--timeout=20s"]).await?;
        assert!(released.elapsed() < seconds(5), "{:?}", released.elapsed());
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_an_agent_that_was_killed_can_be_read() {
    run("by-hand-crash", async |t| {
        by_hand(t).await?;
        deliver(t, 1, "- parts: 12\n- crash: KILL\n").await?;
        let (header, log) = read_when(t, 1, "failed").await?;
        assert_eq!(text(&log)?, agentsession_e2e::pieces(12).concat());
        let status = header.status.context("no status")?;
        assert_eq!(status.exit.context("no exit")?.signal, Some(9));
        assert_eq!(status.reason.as_deref(), Some("AgentExited"));
        assert!(!status.agent_ready);
        Ok(())
    })
    .await;
}
