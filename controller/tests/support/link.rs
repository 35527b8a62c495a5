//! The way between the controller and a pretended Pod, with faults as exec has them. As with the real client, a stream that breaks does not
//! end: its reader would wait for ever.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use agentsession_controller::exec::{
    Channel, ExecError, PodTarget, RecorderCommand, RecorderExec, RemoteEnd, Standing,
};
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::oneshot,
};
use tokio_util::task::AbortOnDropHandle;

use super::pod::Pod;

/// What goes wrong with one exec.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing.
    None,
    /// The API server says no.
    Refused,
    /// The connection is not made.
    NoConnection,
    /// The server accepts and says nothing.
    NoAnswer,
    /// After so many bytes the connection breaks: no end of the stream, no status.
    Reset(usize),
    /// After so many bytes the stream ends, with this said of the remote.
    Ended(usize, RemoteEnd),
    /// After so many bytes nothing comes any more.
    Stall(usize),
    /// The bytes of this range arrive changed.
    Flipped(usize),
    /// This byte arrives twice.
    Doubled(usize),
    /// The status overtakes everything that the remote wrote within its first frame.
    StatusFirst,
    /// The remote writes for ever.
    Endless,
    /// The remote does its work, and neither goes nor says so.
    NeverGoes,
    /// Every byte comes alone.
    ByteByByte,
}

/// [`RecorderExec`] into a [`Pod`].
pub struct Link {
    pod: Arc<Pod>,
    faults: Mutex<VecDeque<Fault>>,
    /// What happens when no fault is queued.
    otherwise: Mutex<Fault>,
    opened: AtomicUsize,
    looked: AtomicUsize,
    live: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

struct Living(Arc<AtomicUsize>);

impl Drop for Living {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Link {
    pub fn to(pod: &Arc<Pod>) -> Arc<Self> {
        Self::with(pod, [])
    }

    /// A link whose first execs fail so, one each.
    pub fn with(pod: &Arc<Pod>, faults: impl IntoIterator<Item = Fault>) -> Arc<Self> {
        Arc::new(Self {
            pod: Arc::clone(pod),
            faults: Mutex::new(faults.into_iter().collect()),
            otherwise: Mutex::new(Fault::None),
            opened: AtomicUsize::new(0),
            looked: AtomicUsize::new(0),
            live: Arc::default(),
        })
    }

    /// From now on every exec fails so.
    pub fn always(&self, fault: Fault) {
        *self.otherwise.lock().unwrap() = fault;
    }

    /// Execs so far.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// Look-ups of the Pod so far.
    pub fn looked(&self) -> usize {
        self.looked.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// Waits until no connection and no remote process is left.
    pub async fn gone(&self) {
        super::soon("a connection or a remote", async {
            while self.live() > 0 || self.pod.remotes() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    fn next_fault(&self) -> Fault {
        let queued = self.faults.lock().unwrap().pop_front();
        queued.unwrap_or_else(|| self.otherwise.lock().unwrap().clone())
    }

    fn channel(&self, command: &RecorderCommand, fault: Fault) -> Channel {
        let (stdin, remote_stdin) = tokio::io::duplex(64 << 10);
        let (remote_stdout, from_remote) = tokio::io::duplex(64 << 10);
        let (to_reader, stdout) = tokio::io::duplex(8 << 20);
        let (say_end, end) = oneshot::channel();
        let (pod, argv) = (Arc::clone(&self.pod), command.argv());
        self.live.fetch_add(1, Ordering::SeqCst);
        let living = Living(Arc::clone(&self.live));
        let task = tokio::spawn(async move {
            let _living = living;
            let (code, exit) = oneshot::channel();
            let remote = async {
                let _ = code.send(pod.exec(argv, remote_stdin, remote_stdout).await);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = remote => {}
                () = carry(fault, from_remote, to_reader, say_end, exit) => {}
            }
        });
        Channel {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            end: end.map(|end| end.unwrap_or(RemoteEnd::NoStatus)).boxed(),
            guard: Box::new(AbortOnDropHandle::new(task)),
        }
    }
}

/// Carries the remote's output to the reader until the fault strikes or the remote has gone.
async fn carry(
    fault: Fault,
    mut from: DuplexStream,
    mut to: DuplexStream,
    say_end: oneshot::Sender<RemoteEnd>,
    exit: oneshot::Receiver<i32>,
) {
    let mut buffer = vec![0; if matches!(fault, Fault::ByteByByte) { 1 } else { 16 << 10 }];
    let mut sent = 0;
    let mut say_end = Some(say_end);
    loop {
        if let Fault::Endless = fault {
            if to.write_all(&[b'x'; 4096]).await.is_err() {
                return;
            }
            continue;
        }
        let Ok(count @ 1..) = from.read(&mut buffer).await else { break };
        let mut bytes = buffer[..count].to_vec();
        let strikes = |at: usize| (sent..sent + count).contains(&at);
        match fault {
            Fault::Flipped(at) if strikes(at) => bytes[at - sent] ^= 0x01,
            Fault::Doubled(at) if strikes(at) => bytes.insert(at - sent, bytes[at - sent]),
            Fault::Reset(at) | Fault::Stall(at) | Fault::Ended(at, _) if sent + count > at => bytes.truncate(at - sent),
            _ => {}
        }
        sent += count;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
        match fault {
            Fault::Reset(at) if sent > at => {
                say_end.take();
                std::future::pending::<()>().await;
            }
            Fault::Stall(at) if sent > at => std::future::pending::<()>().await,
            Fault::Ended(at, end) if sent > at => {
                to.shutdown().await.unwrap();
                let _ = say_end.take().unwrap().send(end);
                std::future::pending::<()>().await;
            }
            Fault::StatusFirst => {
                if let Some(say_end) = say_end.take() {
                    // Whatever is written at once is in the pipe before anybody reads it.
                    while let Some(Ok(count @ 1..)) = from.read(&mut buffer).now_or_never() {
                        to.write_all(&buffer[..count]).await.unwrap();
                    }
                    let _ = say_end.send(RemoteEnd::Success);
                    std::future::pending::<()>().await;
                }
            }
            _ => {}
        }
    }
    if matches!(fault, Fault::NeverGoes) {
        std::future::pending::<()>().await;
    }
    let code = exit.await.unwrap_or(137);
    let _ = to.shutdown().await;
    if let Some(say_end) = say_end {
        let _ = say_end.send(if code == 0 { RemoteEnd::Success } else { RemoteEnd::Failure(Some(code)) });
    }
    std::future::pending::<()>().await;
}

impl RecorderExec for Link {
    fn open<'a>(&'a self, _: &'a PodTarget, command: &'a RecorderCommand) -> BoxFuture<'a, Result<Channel, ExecError>> {
        async {
            self.opened.fetch_add(1, Ordering::SeqCst);
            match self.next_fault() {
                Fault::Refused => Err(ExecError::Refused("pods/exec is forbidden".into())),
                Fault::NoConnection => Err(ExecError::Connect("connection refused".into())),
                Fault::NoAnswer => std::future::pending().await,
                fault => Ok(self.channel(command, fault)),
            }
        }
        .boxed()
    }

    fn standing<'a>(&'a self, _: &'a PodTarget) -> BoxFuture<'a, Result<Standing, ExecError>> {
        self.looked.fetch_add(1, Ordering::SeqCst);
        let standing = self.pod.standing();
        async move { Ok(standing) }.boxed()
    }
}
