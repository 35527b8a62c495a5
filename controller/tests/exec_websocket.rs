//! [`KubeExec`] against a scripted API server: the real client, real sockets, both protocols, and every way in which the client itself
//! would wait for ever.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{sync::Arc, time::Duration};

use agentsession_controller::{
    deliver::deliver_prompt,
    exec::{
        Category, ExecError, ExecSettings, Execs, KubeExec, RecorderCommand, RecorderExec, Standing,
        frames::{FrameStep, Frames},
    },
};
use serde_json::json;
use tokio::time::Instant;
use transcript::{AgentState, Turn, frame::Prompt};

use support::{
    apiserver::{ApiServer, Script, healthy},
    lines,
    pod::Pod,
    quick, soon, status, target,
};

mod support;

const V5: &str = "v5.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

fn pod_with_log(parts: u32) -> Arc<Pod> {
    let pod = Pod::new();
    pod.append(1, &lines(1, 0..parts));
    pod.set_status(status(AgentState::Succeeded, 1, parts));
    pod
}

fn execs(server: &ApiServer) -> Execs {
    Execs::new(Arc::new(KubeExec::new(server.client())), quick())
}

/// Reads the log in frames of `max` bytes.
async fn read(execs: &Execs, max: u64) -> Result<Vec<u8>, ExecError> {
    let command = RecorderCommand::Read { turn: Turn(1), from: 0, max, follow: Some(Duration::from_millis(100)) };
    let mut transfer = execs.open(&target(), &command, execs.settings().read()).await?;
    let result = async {
        let (mut log, mut frames) = (Vec::new(), Frames::new(Turn(1), 0, max));
        loop {
            let FrameStep::Frame(frame) = frames.next(&mut transfer).await? else { continue };
            log.extend_from_slice(&frame.body);
            frames.acknowledge(&mut transfer, frame.header.to).await?;
            if frame.header.to == frame.header.size {
                break Ok(log);
            }
        }
    }
    .await;
    execs.close(&target(), transfer, result).await
}

async fn gone(server: &ApiServer, pod: &Pod) {
    soon("a connection or a remote", async {
        while server.live() > 0 || pod.remotes() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_log_comes_whole_over_both_protocols() {
    let pod = pod_with_log(60_000);
    for protocol in [V5, V4] {
        let server = ApiServer::start(&pod, protocol, []).await;
        let log = soon("a read", read(&execs(&server), 1 << 20)).await.unwrap();
        assert!(log == pod.log(1) && log.len() > 5 << 20, "{protocol}");
        gone(&server, &pod).await;
        let query = server.queries().remove(0);
        assert!(query.contains("container=recorder") && query.contains("stdin=true"), "{query}");
        assert!(!query.contains("stderr=true") && !query.contains("tty=true"), "{query}");
    }
}

#[tokio::test]
async fn a_prompt_is_delivered_without_depending_on_half_close() {
    for protocol in [V5, V4] {
        let pod = Pod::new();
        let server = ApiServer::start(&pod, protocol, []).await;
        let prompt = Prompt { turn: Turn(1), prompt: "x".repeat(1 << 20), context: None };
        soon("a delivery", deliver_prompt(&execs(&server), &target(), &prompt)).await.unwrap();
        assert_eq!(pod.inbox()["turn-1.json"], prompt.encode().unwrap(), "{protocol}");
        gone(&server, &pod).await;
    }
}

#[tokio::test]
async fn every_broken_connection_is_an_error_and_none_hangs() {
    let pod = pod_with_log(3000);
    let faults = [
        (Script::Reset(0), Category::Transport),
        (Script::Reset(100_000), Category::Transport),
        (Script::CloseWithoutStatus(0), Category::Transport),
        (Script::CloseWithoutStatus(100_000), Category::Transport),
        (Script::StatusEarly(100_000), Category::Transport),
        (Script::BrokenStatus(100_000), Category::Transport),
        (Script::Stall(0), Category::Timeout),
        (Script::Stall(100_000), Category::Timeout),
        (Script::Mute, Category::Timeout),
        (Script::Http(403), Category::Refused),
        (Script::Http(500), Category::Transport),
    ];
    for protocol in [V5, V4] {
        for (script, category) in faults {
            let server = ApiServer::start(&pod, protocol, [script]).await;
            let begin = Instant::now();
            let error = soon("a read", read(&execs(&server), 4 << 20)).await.unwrap_err();
            assert_eq!(error.category(), category, "{protocol} {script:?}: {error:?}");
            assert!(begin.elapsed() < Duration::from_secs(3), "{protocol} {script:?}");
            gone(&server, &pod).await;
        }
    }
    assert!(pod.acknowledged().is_empty());
}

#[tokio::test]
async fn a_server_that_keeps_the_socket_after_the_end_costs_the_farewell() {
    let pod = pod_with_log(10);
    let server = ApiServer::start(&pod, V5, [Script::NeverCloses]).await;
    let begin = Instant::now();
    assert_eq!(soon("a read", read(&execs(&server), 4 << 20)).await.unwrap(), pod.log(1));
    assert!(begin.elapsed() < Duration::from_secs(2));
    gone(&server, &pod).await;
}

#[tokio::test]
async fn two_hundred_failures_leave_neither_task_nor_socket() {
    let pod = pod_with_log(300);
    let scripts = [Script::Reset(5000), Script::Stall(100), Script::CloseWithoutStatus(5000), Script::StatusEarly(9)];
    let server = ApiServer::start(&pod, V5, scripts.into_iter().cycle().take(200)).await;
    let settings = ExecSettings { idle: Duration::from_millis(30), ..quick() };
    let execs = Execs::new(Arc::new(KubeExec::new(server.client())), settings);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for round in 0..200 {
        assert!(soon("a read", read(&execs, 4 << 20)).await.is_err(), "round {round}");
    }
    gone(&server, &pod).await;
    soon("tasks", async {
        while tasks() > before + 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(read(&execs, 4 << 20).await.unwrap(), pod.log(1));
}

#[tokio::test]
async fn a_pod_object_says_whether_its_recorder_can_answer() {
    let pod = Pod::new();
    let server = ApiServer::start(&pod, V5, []).await;
    let exec = KubeExec::new(server.client());
    let uid = target().uid;
    let healthy = healthy(uid.as_str());
    let changed = |pointer: &str, value: serde_json::Value| {
        let mut object = healthy.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    let ended = json!({"terminated": {"exitCode": 0}});
    let mut restarted = healthy.clone();
    restarted["status"]["containerStatuses"][1]["lastState"] = ended.clone();
    let rows = [
        (Some(healthy.clone()), Standing::Running),
        (Some(changed("/metadata/uid", json!("other"))), Standing::Replaced),
        (Some(changed("/status/phase", json!("Failed"))), Standing::Ended),
        (Some(changed("/status/phase", json!("Succeeded"))), Standing::Ended),
        (Some(changed("/status/phase", json!("Unknown"))), Standing::Running),
        (Some(changed("/status/containerStatuses/1/state", ended)), Standing::Ended),
        (Some(restarted), Standing::Ended),
        (Some(changed("/status/containerStatuses/1/state", json!({"waiting": {}}))), Standing::NotStarted),
        (Some(changed("/status", json!({"phase": "Pending"}))), Standing::NotStarted),
        (None, Standing::Gone),
    ];
    for (object, wanted) in rows {
        server.set_pod(object.clone());
        assert_eq!(exec.standing(&target()).await.unwrap(), wanted, "{object:?}");
    }
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_an_error_of_the_look_up() {
    let pod = Pod::new();
    let server = ApiServer::start(&pod, V5, []).await;
    let execs = execs(&server);
    drop(server);
    let error = soon("a look-up", read(&execs, 4 << 20)).await.unwrap_err();
    assert!(matches!(error, ExecError::Lookup(_) | ExecError::LookupTimeout { .. }), "{error:?}");
}
