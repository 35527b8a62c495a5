//! Sockets: accept, bound, and end. One task a connection, HTTP/1.1; TLS and HTTP/2 are for the ingress in front.
//!
//! Ending has two steps. First every connection is told to finish what it is at: answers run to their end, idle connections close. What is still
//! open when the drain timeout is over, a stream for instance whose reader is slow, is cut: its body breaks off without an end, so that a client
//! sees an interruption after which it can go on, and not a conversation that is over.

use std::{
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use store::SharedStore;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Args, Gateway, Metrics, metrics::Open, router};

/// Bytes of a request's head. A token alone may have 16 KiB.
const HEAD_BYTES: usize = 64 << 10;
/// After a failed accept, which is most often a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why the gateway does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Listens on `args.http_listen` and serves until `shutdown`, then ends every connection within `args.http_drain_timeout`.
///
/// # Errors
/// [`ServeError::Bind`].
pub async fn run(
    args: Args,
    store: SharedStore,
    client: kube::Client,
    metrics: Metrics,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let address = args.http_listen;
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Bind { address, source })?;
    serve(listener, Gateway::new(args, store, client, metrics), shutdown).await;
    Ok(())
}

/// Serves on a listener that is bound already, until `shutdown`.
pub async fn serve(listener: TcpListener, gateway: Gateway, shutdown: CancellationToken) {
    let args = gateway.args().clone();
    match listener.local_addr() {
        Ok(address) => tracing::info!(%address, "gateway listens"),
        Err(error) => tracing::warn!(%error, "gateway listens on an address that cannot be told"),
    }
    let connections = Arc::new(Semaphore::new(args.http_max_connections));
    let app = router(gateway.clone());
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    while let Some((socket, permit)) = next(&listener, &connections, &shutdown).await {
        let connection = Connection {
            app: app.clone(),
            header_timeout: args.http_header_timeout,
            stall_timeout: args.http_stall_timeout,
            shutdown: shutdown.clone(),
            cut: cut.clone(),
            _permit: permit,
            _open: gateway.inner.metrics.connection(),
        };
        tasks.spawn(connection.run(socket));
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(args.http_drain_timeout, tasks.wait()).await.is_err() {
        tracing::info!(connection.count = tasks.len(), "cutting connections that are still open");
        cut.cancel();
        tasks.wait().await;
    }
    tracing::info!("gateway has stopped");
}

/// The next connection, once there is room for it; `None` at shutdown. Without room, connections wait in the listener's backlog.
async fn next(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let accept = async {
        // The semaphore is never closed.
        let permit = Arc::clone(connections).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((socket, _)) => return Some((socket, permit)),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        accepted = accept => accepted,
    }
}

struct Connection {
    app: Router,
    header_timeout: Duration,
    stall_timeout: Duration,
    shutdown: CancellationToken,
    cut: CancellationToken,
    _permit: OwnedSemaphorePermit,
    _open: Open,
}

impl Connection {
    async fn run(self, socket: TcpStream) {
        // Without it a heartbeat or the last piece of an answer would wait for an acknowledgement.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps Nagle's algorithm");
        }
        let io = TokioIo::new(StallGuard::new(socket, self.stall_timeout));
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(io, TowerToHyperService::new(self.app));
        let mut served = pin!(served);
        let ended = tokio::select! {
            ended = served.as_mut() => ended,
            () = self.shutdown.cancelled() => {
                served.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = served => ended,
                    () = self.cut.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

/// A connection whose writes fail when the peer takes nothing for too long. A reader that stopped reading would otherwise keep its place for ever.
#[derive(Debug)]
struct StallGuard<T> {
    inner: T,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<T> StallGuard<T> {
    fn new(inner: T, patience: Duration) -> Self {
        Self { inner, patience, stalled: None }
    }

    /// Passes a result on; while there is none, the clock runs.
    fn watch<R>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for StallGuard<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for StallGuard<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.watch(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.watch(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, result)
    }
}
