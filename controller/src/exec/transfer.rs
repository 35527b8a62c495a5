//! Bytes over one exec, under deadlines and bounds.
//!
//! A reader must never wait for end-of-file alone: the client's pipe stays open for ever after a reset. So every wait is on the
//! stream, on the end of the remote, and on two clocks at once.

use std::{any::Any, fmt, io, pin::pin, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep_until, timeout},
};

use super::{Bounds, ExecError};

/// Read from the stream in pieces of this size; what the client buffers for us is 256 KiB.
const PIECE: usize = 64 << 10;

/// How the remote ended, as far as anybody said. For logs: nothing is decided by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteEnd {
    /// A status frame said Success.
    Success,
    /// A status frame said something else; the exit code when it was one.
    Failure(Option<i32>),
    /// The connection ended, or broke, without a status.
    NoStatus,
}

impl fmt::Display for RemoteEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("status success"),
            Self::Failure(Some(code)) => write!(f, "exit code {code}"),
            Self::Failure(None) => f.write_str("status failure"),
            Self::NoStatus => f.write_str("no status"),
        }
    }
}

/// The raw streams of one exec.
pub struct Channel {
    /// To the remote's stdin.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// From the remote's stdout.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Resolves when the remote or the connection ended, whichever way.
    pub end: BoxFuture<'static, RemoteEnd>,
    /// Dropping it ends the connection and everything that serves it.
    pub guard: Box<dyn Any + Send>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Channel")
    }
}

/// One open exec with its bounds. Dropping it cuts the connection.
pub struct Transfer {
    stdin: Box<dyn AsyncWrite + Send + Unpin>,
    stdout: Box<dyn AsyncRead + Send + Unpin>,
    end: BoxFuture<'static, RemoteEnd>,
    ended: Option<RemoteEnd>,
    guard: Box<dyn Any + Send>,
    bounds: Bounds,
    deadline: Option<Instant>,
    received: u64,
    permit: Option<OwnedSemaphorePermit>,
    piece: Box<[u8]>,
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("received", &self.received).field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// What a wait brought.
enum Event {
    Bytes(io::Result<usize>),
    Ended(RemoteEnd),
    Idle,
    Deadline,
}

impl Transfer {
    pub(super) fn new(
        channel: Channel,
        bounds: Bounds,
        deadline: Option<Instant>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let Channel { stdin, stdout, end, guard } = channel;
        Self {
            stdin,
            stdout,
            end,
            ended: None,
            guard,
            bounds,
            deadline,
            received: 0,
            permit: Some(permit),
            piece: vec![0; PIECE].into_boxed_slice(),
        }
    }

    /// Bytes received so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Changes how long the remote may be silent: long between two frames, short within one.
    pub fn set_idle(&mut self, idle: Duration) {
        self.bounds.idle = idle;
    }

    /// Gives the transfer slot back while nothing is under way.
    pub fn release_permit(&mut self) {
        self.permit = None;
    }

    /// Takes a transfer slot again.
    pub fn hold_permit(&mut self, permit: OwnedSemaphorePermit) {
        self.permit = Some(permit);
    }

    /// The next bytes, as they come. There is no end-of-file: a stream that ends while bytes are due was cut.
    ///
    /// # Errors
    /// [`ExecError::Cut`], [`ExecError::Idle`], [`ExecError::Deadline`] or [`ExecError::Overrun`].
    pub async fn read(&mut self) -> Result<&[u8], ExecError> {
        let count = loop {
            // Asked here too: a stream that is always ready would never let the clock be looked at.
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(ExecError::Deadline);
            }
            if let Some(end) = self.ended {
                // The end may overtake bytes that are in the pipe already; whoever is behind it has stopped, so what is ready is all.
                match self.stdout.read(&mut self.piece).now_or_never() {
                    Some(Ok(count)) if count > 0 => break count,
                    _ => return Err(ExecError::Cut { end }),
                }
            }
            match self.wait().await {
                Event::Bytes(Ok(count)) if count > 0 => break count,
                // End-of-file or a broken pipe: the status, if there is one, follows at once.
                Event::Bytes(_) => {
                    let end = timeout(Duration::from_secs(1), &mut self.end).await;
                    let end = end.unwrap_or(RemoteEnd::NoStatus);
                    self.ended = Some(end);
                    return Err(ExecError::Cut { end });
                }
                Event::Ended(end) => self.ended = Some(end),
                Event::Idle => {
                    return Err(ExecError::Idle { after: self.bounds.idle });
                }
                Event::Deadline => return Err(ExecError::Deadline),
            }
        };
        self.received = self.received.saturating_add(count as u64);
        if self.received > self.bounds.answer_bytes {
            return Err(ExecError::Overrun { limit: self.bounds.answer_bytes });
        }
        Ok(&self.piece[..count])
    }

    async fn wait(&mut self) -> Event {
        let idle = Instant::now() + self.bounds.idle;
        tokio::select! {
            biased;
            read = self.stdout.read(&mut self.piece) => Event::Bytes(read),
            end = &mut self.end => Event::Ended(end),
            event = first_deadline(idle, self.deadline) => event,
        }
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// [`ExecError::Cut`], [`ExecError::Idle`] or [`ExecError::Deadline`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ExecError> {
        if let Some(end) = self.ended {
            return Err(ExecError::Cut { end });
        }
        let idle = Instant::now() + self.bounds.idle;
        let stdin = &mut self.stdin;
        let sending = async move {
            stdin.write_all(bytes).await?;
            stdin.flush().await
        };
        let sending = pin!(sending);
        let event = tokio::select! {
            biased;
            sent = sending => Event::Bytes(sent.map(|()| bytes.len())),
            end = &mut self.end => Event::Ended(end),
            event = first_deadline(idle, self.deadline) => event,
        };
        match event {
            Event::Bytes(Ok(_)) => Ok(()),
            Event::Bytes(Err(_)) => Err(ExecError::Cut { end: RemoteEnd::NoStatus }),
            Event::Ended(end) => {
                self.ended = Some(end);
                Err(ExecError::Cut { end })
            }
            Event::Idle => Err(ExecError::Idle { after: self.bounds.idle }),
            Event::Deadline => Err(ExecError::Deadline),
        }
    }

    /// The last word: closes stdin, waits a little for the remote to exit, and cuts whatever is left.
    ///
    /// A dropped stdin is no end-of-file to the remote, so it is shut down; and the connection is kept until the remote has gone, or the
    /// shutdown might never be sent.
    pub async fn farewell(mut self, patience: Duration) -> RemoteEnd {
        if let Some(end) = self.ended {
            return end;
        }
        let goodbye = async {
            // A remote that is gone already cannot be told; its end says the rest.
            let _ = self.stdin.shutdown().await;
            loop {
                tokio::select! {
                    biased;
                    end = &mut self.end => return end,
                    read = self.stdout.read(&mut self.piece) => {
                        // Drained so that the status behind it can arrive; a stream that ended has no more to drain.
                        if !matches!(read, Ok(count) if count > 0) {
                            return (&mut self.end).await;
                        }
                    }
                }
            }
        };
        timeout(patience, goodbye).await.unwrap_or(RemoteEnd::NoStatus)
    }

    /// Cuts the connection.
    pub fn abort(self) {
        let Self { guard, .. } = self;
        drop(guard);
    }
}

async fn first_deadline(idle: Instant, deadline: Option<Instant>) -> Event {
    match deadline {
        Some(deadline) if deadline <= idle => {
            sleep_until(deadline).await;
            Event::Deadline
        }
        _ => {
            sleep_until(idle).await;
            Event::Idle
        }
    }
}
