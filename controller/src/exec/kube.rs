//! [`RecorderExec`] over a Kubernetes client: pods/exec by WebSocket.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    apimachinery::pkg::apis::meta::v1::Status,
};
use kube::{Api, Client, api::AttachParams};

use super::{Channel, ExecError, PodTarget, RecorderCommand, RecorderExec, RemoteEnd, Standing};

/// The container that answers exec.
const CONTAINER: &str = crds::names::CONTAINER_RECORDER;

/// What the client may buffer of stdout. Its default of 1 KiB costs six sevenths of the rate.
const STDOUT_BUFFER: usize = 256 << 10;

/// What the client may buffer of stdin: more than a prompt in one go makes no difference.
const STDIN_BUFFER: usize = 64 << 10;

/// Execs by the API server.
#[derive(Clone)]
pub struct KubeExec {
    client: Client,
}

impl std::fmt::Debug for KubeExec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeExec")
    }
}

impl KubeExec {
    /// Execs with the rights of `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn pods(&self, pod: &PodTarget) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }

    async fn attach(&self, pod: &PodTarget, command: &RecorderCommand) -> Result<Channel, ExecError> {
        // stderr is not attached: unread, its pipe would block stdout. stdin is always: some runtimes end a stream early without it.
        let params = AttachParams::default()
            .container(CONTAINER)
            .stdin(true)
            .stdout(true)
            .stderr(false)
            .max_stdin_buf_size(STDIN_BUFFER)
            .max_stdout_buf_size(STDOUT_BUFFER);
        let mut process = self.pods(pod).exec(&pod.name, command.argv(), &params).await.map_err(refused_or_broken)?;
        let streams = (process.stdin(), process.stdout(), process.take_status());
        let (Some(stdin), Some(stdout), Some(status)) = streams else {
            return Err(ExecError::Connect("the client attached no streams".into()));
        };
        Ok(Channel {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            end: status.map(remote_end).boxed(),
            // Its drop aborts the task that owns the socket.
            guard: Box::new(process),
        })
    }

    async fn look(&self, pod: &PodTarget) -> Result<Standing, ExecError> {
        let found = self.pods(pod).get_opt(&pod.name).await.map_err(|error| ExecError::Lookup(error.into()))?;
        Ok(found.map_or(Standing::Gone, |found| standing(&found, pod)))
    }
}

impl RecorderExec for KubeExec {
    fn open<'a>(
        &'a self,
        pod: &'a PodTarget,
        command: &'a RecorderCommand,
    ) -> BoxFuture<'a, Result<Channel, ExecError>> {
        self.attach(pod, command).boxed()
    }

    fn standing<'a>(&'a self, pod: &'a PodTarget) -> BoxFuture<'a, Result<Standing, ExecError>> {
        self.look(pod).boxed()
    }
}

/// A 4xx is an answer (rights, admission, a Pod without that container); anything else is the way there.
fn refused_or_broken(error: kube::Error) -> ExecError {
    match &error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 408 | 429) => {
            ExecError::Refused(error.into())
        }
        _ => ExecError::Connect(error.into()),
    }
}

fn remote_end(status: Option<Status>) -> RemoteEnd {
    match status {
        None => RemoteEnd::NoStatus,
        Some(status) if status.status.as_deref() == Some("Success") => RemoteEnd::Success,
        Some(status) => RemoteEnd::Failure(exit_code(&status)),
    }
}

fn exit_code(status: &Status) -> Option<i32> {
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_deref()?.parse().ok()
}

fn standing(found: &Pod, wanted: &PodTarget) -> Standing {
    if found.metadata.uid.as_deref() != Some(wanted.uid.as_str()) {
        return Standing::Replaced;
    }
    let status = found.status.as_ref();
    if matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed")) {
        return Standing::Ended;
    }
    let recorder = status
        .and_then(|status| status.container_statuses.as_ref())
        .and_then(|containers| containers.iter().find(|container| container.name == CONTAINER));
    recorder.map_or(Standing::NotStarted, recorder_standing)
}

fn recorder_standing(recorder: &ContainerStatus) -> Standing {
    let ended = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
        state.as_ref().is_some_and(|state| state.terminated.is_some())
    };
    // A recorder that ran before is over even when something started it again: its inbox and its promises are gone.
    if ended(&recorder.state) || ended(&recorder.last_state) {
        Standing::Ended
    } else if recorder.state.as_ref().is_some_and(|state| state.running.is_some()) {
        Standing::Running
    } else {
        Standing::NotStarted
    }
}
