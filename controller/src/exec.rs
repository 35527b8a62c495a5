//! pods/exec into recorders, bounded. Under deliver, harvest and follow; above nothing but the API server.
//!
//! Exec proves nothing by itself: it may drop the tail of a stream and say Success, end without a status, or never end. So the layers are kept
//! apart. [`RecorderExec`] opens a raw [`Channel`]; [`Execs`] checks the Pod by UID before and after, bounds how many transfers there are, and
//! explains a failure by one re-read of the Pod; [`Transfer`] moves bytes under deadlines and bounds and never waits on a
//! broken link; [`frames`] believes bytes only with their trailer. Nothing above reads an exit status.
//!
//! ```text
//! open: permit → Pod GET (uid, recorder runs) → connect (deadline) → Transfer
//! use:  read / write, each under idle and whole deadline, in bounded memory
//! close: Ok → stdin shutdown, short wait for the remote's exit, Pod GET (uid) · Err → abort, Pod GET: ended or transport
//! ```
//!
//! Dropping a [`Transfer`] at any point ends its connection and its task; there is no way to leak one.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use transcript::{PodUid, limits};

mod budget;
mod command;
mod error;
pub mod frames;
mod kube;
mod transfer;

pub(crate) use self::error::error_chain;
pub use self::{
    budget::{MemoryBudget, MemoryHold},
    command::RecorderCommand,
    error::{Category, ExecError},
    kube::KubeExec,
    transfer::{Channel, RemoteEnd, Transfer},
};

/// An agent Pod as exec addresses it: by name, and only while the UID behind the name is this one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodTarget {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: PodUid,
}

impl fmt::Display for PodTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// What one read of the Pod object says about its recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The Pod has this UID and its recorder runs: exec makes sense.
    Running,
    /// The Pod has this UID, its recorder has not started.
    NotStarted,
    /// The Pod has this UID, its recorder is over. It never comes back.
    Ended,
    /// Another Pod has the name.
    Replaced,
    /// No Pod has the name.
    Gone,
}

/// Opens raw channels into recorders. The production one is [`KubeExec`]; tests and fault injection stand in here.
pub trait RecorderExec: Send + Sync + fmt::Debug {
    /// Runs a command in the recorder container and returns once its streams are attached. Deadlines are the caller's.
    ///
    /// # Errors
    /// What refused or broke the connection; [`ExecError::Refused`] or [`ExecError::Connect`].
    fn open<'a>(
        &'a self,
        pod: &'a PodTarget,
        command: &'a RecorderCommand,
    ) -> BoxFuture<'a, Result<Channel, ExecError>>;

    /// Reads the Pod once, from the API server, not from a cache.
    ///
    /// # Errors
    /// [`ExecError::Lookup`] when the API server did not answer.
    fn standing<'a>(&'a self, pod: &'a PodTarget) -> BoxFuture<'a, Result<Standing, ExecError>>;
}

/// Bounds of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From asking until the streams are attached, Pod look-up included.
    pub connect: Duration,
    /// Longest silence of the remote while something is due from it, and longest stop of a write.
    pub idle: Duration,
    /// The whole transfer from connect to close; `None` for a follower, which lives as long as its Pod.
    pub whole: Option<Duration>,
    /// Bytes that the remote may send, at most; one more is a failure, never a shorter answer.
    pub answer_bytes: u64,
}

/// Settings of all execs.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    /// Transfers at once. A follower counts only while a frame is on its way.
    pub concurrent: usize,
    /// Deadline of connecting, see [`Bounds::connect`].
    pub connect: Duration,
    /// Deadline of silence, see [`Bounds::idle`].
    pub idle: Duration,
    /// Deadline of a small exec: deliver, cancel, release.
    pub small_whole: Duration,
    /// Deadline of one read of a log. The recorder's hold bound is longer, or the tail could go before it is read.
    pub read_whole: Duration,
    /// How long a Pod look-up may take.
    pub lookup: Duration,
    /// How long the remote may take to exit once it has been told that all is well.
    pub farewell: Duration,
}

impl Default for ExecSettings {
    fn default() -> Self {
        Self {
            concurrent: 32,
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(10),
            small_whole: Duration::from_secs(20),
            read_whole: Duration::from_secs(45),
            lookup: Duration::from_secs(5),
            farewell: Duration::from_secs(2),
        }
    }
}

impl ExecSettings {
    /// Bounds of a small exec.
    #[must_use]
    pub fn small(&self) -> Bounds {
        Bounds {
            connect: self.connect,
            idle: self.idle,
            whole: Some(self.small_whole),
            answer_bytes: limits::EXEC_ANSWER_BYTES,
        }
    }

    /// Bounds of a read of a log.
    #[must_use]
    pub fn read(&self) -> Bounds {
        Bounds {
            connect: self.connect,
            idle: self.idle,
            whole: Some(self.read_whole),
            answer_bytes: limits::READ_BUFFER_BYTES,
        }
    }

    /// Bounds of a follower whose remote says something at least every `interval`.
    #[must_use]
    pub fn follow(&self, interval: Duration) -> Bounds {
        Bounds {
            connect: self.connect,
            // Silence for the interval is what was asked for; a second one would be a lost frame.
            idle: interval.saturating_mul(2).saturating_add(self.idle),
            whole: None,
            answer_bytes: u64::MAX,
        }
    }
}

/// All execs of this process: one door, so that the bound on transfers holds.
#[derive(Clone, Debug)]
pub struct Execs {
    recorder: Arc<dyn RecorderExec>,
    settings: Arc<ExecSettings>,
    permits: Arc<Semaphore>,
}

impl Execs {
    /// Execs through `recorder`.
    #[must_use]
    pub fn new(recorder: Arc<dyn RecorderExec>, settings: ExecSettings) -> Self {
        let permits = Arc::new(Semaphore::new(settings.concurrent.max(1)));
        Self { recorder, settings: Arc::new(settings), permits }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &ExecSettings {
        &self.settings
    }

    /// Waits for its turn among all transfers; first come, first served.
    ///
    /// # Errors
    /// [`ExecError::Busy`] at the deadline.
    pub async fn permit(&self, deadline: Option<Instant>) -> Result<OwnedSemaphorePermit, ExecError> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = match deadline {
            Some(deadline) => timeout_at(deadline, permit).await.map_err(|_| ExecError::Busy)?,
            None => permit.await,
        };
        // The semaphore is never closed.
        permit.map_err(|_| ExecError::Busy)
    }

    /// Opens a transfer: takes a permit, checks the Pod, connects.
    ///
    /// # Errors
    /// [`ExecError`]; nothing is left open then.
    pub async fn open(
        &self,
        pod: &PodTarget,
        command: &RecorderCommand,
        bounds: Bounds,
    ) -> Result<Transfer, ExecError> {
        let deadline = bounds.whole.map(|whole| Instant::now() + whole);
        let permit = self.permit(deadline).await?;
        let connect_by = deadline
            .map_or_else(|| Instant::now() + bounds.connect, |deadline| deadline.min(Instant::now() + bounds.connect));
        self.require_running(pod).await?;
        let channel = match timeout_at(connect_by, self.recorder.open(pod, command)).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(self.explain(pod, error).await),
            Err(_) => {
                let error = ExecError::ConnectTimeout { after: bounds.connect };
                return Err(self.explain(pod, error).await);
            }
        };
        Ok(Transfer::new(channel, bounds, deadline, permit))
    }

    /// Closes a transfer. After success the remote is told to go and the Pod must still be the same one; after a failure the
    /// connection is cut and one re-read of the Pod decides between "ended" and "transport".
    ///
    /// # Errors
    /// The failure, explained; or [`ExecError::Replaced`] when the answer came from another Pod.
    pub async fn close<T>(
        &self,
        pod: &PodTarget,
        transfer: Transfer,
        result: Result<T, ExecError>,
    ) -> Result<T, ExecError> {
        match result {
            Ok(value) => {
                let end = transfer.farewell(self.settings.farewell).await;
                tracing::trace!(pod.uid = %pod.uid, remote.end = ?end, "exec closed");
                match self.lookup(pod).await? {
                    // What was read is proven by itself and came from this Pod, whatever became of it since.
                    Standing::Running | Standing::NotStarted | Standing::Ended | Standing::Gone => Ok(value),
                    Standing::Replaced => Err(ExecError::Replaced),
                }
            }
            Err(error) => Err(self.cut(pod, transfer, error).await),
        }
    }

    /// Cuts a transfer that failed, and says what the failure was.
    pub async fn cut(&self, pod: &PodTarget, transfer: Transfer, error: ExecError) -> ExecError {
        transfer.abort();
        self.explain(pod, error).await
    }

    async fn lookup(&self, pod: &PodTarget) -> Result<Standing, ExecError> {
        tokio::time::timeout(self.settings.lookup, self.recorder.standing(pod))
            .await
            .unwrap_or(Err(ExecError::LookupTimeout { after: self.settings.lookup }))
    }

    async fn require_running(&self, pod: &PodTarget) -> Result<(), ExecError> {
        match self.lookup(pod).await? {
            Standing::Running => Ok(()),
            Standing::NotStarted => Err(ExecError::NotStarted),
            Standing::Ended => Err(ExecError::Ended),
            Standing::Replaced => Err(ExecError::Replaced),
            Standing::Gone => Err(ExecError::Gone),
        }
    }

    /// One re-read of the Pod: a recorder that is over is why the exec failed; otherwise the failure stands as it is.
    async fn explain(&self, pod: &PodTarget, error: ExecError) -> ExecError {
        match self.lookup(pod).await {
            Ok(Standing::Ended) => ExecError::Ended,
            Ok(Standing::Gone) => ExecError::Gone,
            Ok(Standing::Replaced) => ExecError::Replaced,
            Ok(Standing::Running | Standing::NotStarted) | Err(_) => error,
        }
    }
}
