//! `/livez` and `/readyz`, without a token: they say nothing about any session.

use std::time::Duration;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use tokio::{sync::Mutex, time::Instant};

use crate::{Gateway, error::chain, routes::no_store};

/// How long one answer of the store is good for: however often somebody asks, the store is asked once.
const BELIEVED: Duration = Duration::from_secs(1);
/// Time for the store to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last answer of the store.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    last: Mutex<Option<(Instant, bool)>>,
}

/// The process serves.
pub(crate) async fn live() -> Response {
    no_store("ok\n".into_response())
}

/// The store answers. The API server is not asked: were it gone, a gateway that is out of service helps nobody, and each request says what is wrong.
pub(crate) async fn ready(State(gateway): State<Gateway>) -> Response {
    let mut last = gateway.inner.readiness.last.lock().await;
    let good = match *last {
        Some((at, good)) if at.elapsed() < BELIEVED => good,
        before => {
            let good = ping(&gateway, before.is_none_or(|(_, good)| good)).await;
            *last = Some((Instant::now(), good));
            good
        }
    };
    no_store(match good {
        true => "ok\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the transcript store does not answer\n").into_response(),
    })
}

/// Asks the store; says so in the log when the answer changes.
async fn ping(gateway: &Gateway, was_good: bool) -> bool {
    let answer = tokio::time::timeout(PATIENCE, gateway.inner.store.ping()).await;
    let problem = match answer {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(chain(&error)),
        Err(_) => Some("no answer in time".to_owned()),
    };
    match (&problem, was_good) {
        (Some(error), true) => tracing::warn!(%error, "not ready: the store does not answer"),
        (None, false) => tracing::info!("ready again: the store answers"),
        _ => {}
    }
    problem.is_none()
}
