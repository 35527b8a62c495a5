//! The HTTP face of agentsession: stored transcripts as streams and pages, for those who may read them.
//!
//! The way of a request, one file a stage:
//!
//! ```text
//! serve (sockets, shutdown) → routes (limits, time, metrics) → gate (who asks, may they, which session)
//!   → stream | pages | listing → store → transcript::replay → body
//! ```
//!
//! This crate reads. Its Kubernetes client has no `exec`, no `attach` and no `portforward` (the `ws` feature of kube is off, a test checks it), and nothing
//! in it creates, changes or wakes a Pod. What a Pod wrote reaches a client only through `transcript::replay`, which makes it legal to read.

mod access;
mod args;
mod cache;
mod cluster;
mod error;
mod gate;
mod guard;
mod health;
mod ledger;
mod listing;
mod metrics;
mod names;
mod pages;
mod query;
mod routes;
mod serve;
mod stream;
mod token;

use std::sync::Arc;

use store::SharedStore;
use tokio::sync::Semaphore;

pub use args::Args;
pub use metrics::Metrics;
pub use routes::router;
pub use serve::{ServeError, run, serve};

use crate::{access::Access, cluster::Cluster, health::Readiness};

/// Everything that answering a request needs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    args: Args,
    store: SharedStore,
    cluster: Arc<Cluster>,
    access: Arc<Access>,
    metrics: Metrics,
    readiness: Readiness,
    /// Requests that are being answered, up to their headers.
    requests: Arc<Semaphore>,
    /// Streams that are open.
    streams: Arc<Semaphore>,
    /// Pages that are held, until their client has taken them.
    pages: Arc<Semaphore>,
}

impl Gateway {
    /// A gateway over a store and an API server. Nothing is called until a request comes.
    #[must_use]
    pub fn new(args: Args, store: SharedStore, client: kube::Client, metrics: Metrics) -> Self {
        let cluster = Arc::new(Cluster::new(client, args.http_cluster_timeout, metrics.clone()));
        let access = Arc::new(Access::new(Arc::clone(&cluster), args.audience.clone(), metrics.clone()));
        Self {
            inner: Arc::new(Inner {
                requests: Arc::new(Semaphore::new(args.http_max_requests)),
                streams: Arc::new(Semaphore::new(args.http_max_streams)),
                pages: Arc::new(Semaphore::new(args.http_max_pages)),
                readiness: Readiness::default(),
                args,
                store,
                cluster,
                access,
                metrics,
            }),
        }
    }

    /// What it was started with.
    #[must_use]
    pub fn args(&self) -> &Args {
        &self.inner.args
    }
}
