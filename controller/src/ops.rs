//! `/livez`, `/readyz` and `/metrics`, on a port of their own that users do not reach.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use futures::future::BoxFuture;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Asks one part of the process whether it is ready; the answer says what is not.
pub type Check = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// What the operations port serves.
#[derive(Clone)]
pub struct Ops {
    registry: Arc<Registry>,
    checks: Arc<Vec<(&'static str, Check)>>,
}

/// The port could not be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} (--ops-listen)")]
pub struct OpsError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

impl Ops {
    /// Serves these metrics and checks.
    #[must_use]
    pub fn new(registry: Registry, checks: Vec<(&'static str, Check)>) -> Self {
        Self { registry: Arc::new(registry), checks: Arc::new(checks) }
    }

    /// The routes.
    pub fn router(self) -> Router {
        Router::new()
            .route("/livez", get(|| async { "ok" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self)
    }

    /// Serves until shut down.
    ///
    /// # Errors
    /// [`OpsError`] when the address cannot be had.
    pub async fn serve(self, address: SocketAddr, shutdown: CancellationToken) -> Result<(), OpsError> {
        let failed = |source| OpsError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        tracing::info!(address = %listener.local_addr().map_err(failed)?, "serving /livez, /readyz and /metrics");
        axum::serve(listener, self.router())
            .with_graceful_shutdown(async move { shutdown.cancelled().await })
            .await
            .map_err(failed)
    }
}

async fn ready(State(ops): State<Ops>) -> impl IntoResponse {
    let mut lines = Vec::new();
    for (name, check) in ops.checks.iter() {
        if let Err(why) = check().await {
            lines.push(format!("{name}: {why}"));
        }
    }
    if lines.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, lines.join("\n"))
    }
}

async fn metrics(State(ops): State<Ops>) -> impl IntoResponse {
    let mut text = String::new();
    match encode(&mut text, &ops.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
