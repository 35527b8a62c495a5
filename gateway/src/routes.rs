//! The routes, and what every request goes through: a bound on how many, a bound on time, a count.

use std::time::Duration;

use axum::{
    Router,
    extract::{FromRequestParts, MatchedPath, Path, Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::time::Instant;

use crate::{Gateway, error::ApiError, health, listing, metrics::Route, pages, stream};

const STREAM: &str = "/v1/namespaces/{namespace}/agentsessions/{name}/stream";
const TRANSCRIPT: &str = "/v1/namespaces/{namespace}/agentsessions/{name}/transcript";
const SESSION: &str = "/v1/namespaces/{namespace}/agentsessions/{name}";
const SESSIONS: &str = "/v1/namespaces/{namespace}/agentsessions";

/// Every route of the gateway.
pub fn router(gateway: Gateway) -> Router {
    Router::new()
        .route(SESSIONS, get(listing::list))
        .route(SESSION, get(listing::describe))
        .route(TRANSCRIPT, get(pages::transcript))
        .route(STREAM, get(stream::stream))
        .fallback(async || ApiError::PathNotFound)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .layer(from_fn_with_state(gateway.clone(), bounded))
        // Probes pass by the bounds: a busy gateway is neither dead nor unready.
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .with_state(gateway)
}

/// Counts a request, and answers in its place when there are too many or when it takes too long.
async fn bounded(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let route = route(&request);
    let began = Instant::now();
    let response = match gateway.inner.requests.try_acquire() {
        Err(_) => ApiError::Busy("requests").into_response(),
        Ok(_permit) => tokio::time::timeout(gateway.inner.args.http_request_timeout, next.run(request))
            .await
            .unwrap_or_else(|_| ApiError::TimedOut.into_response()),
    };
    let took: Duration = began.elapsed();
    gateway.inner.metrics.request(route, response.status().as_u16(), took);
    response
}

fn route(request: &Request) -> Route {
    match request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) {
        Some(STREAM) => Route::stream,
        Some(TRANSCRIPT) => Route::transcript,
        Some(SESSION) => Route::session,
        Some(SESSIONS) => Route::sessions,
        _ => Route::other,
    }
}

/// Marks an answer as one that nobody may keep and no browser may guess the type of.
pub(crate) fn no_store(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An answer without a body.
pub(crate) fn nothing() -> Response {
    no_store(StatusCode::NO_CONTENT.into_response())
}

/// The names in the path of a session, decoded and not yet looked at: whether they can be names is for the gate, which answers a name that cannot
/// be one as it answers one that does not exist.
#[derive(Debug, Default)]
pub(crate) struct SessionPath {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The name in the path of a list, as [`SessionPath`].
#[derive(Debug, Default)]
pub(crate) struct NamespacePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        // What is not UTF-8 once decoded can be no name either.
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        Ok(path.map(|Path((namespace, name))| Self { namespace, name }).unwrap_or_default())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NamespacePath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        Ok(path.map(|Path(namespace)| Self(namespace)).unwrap_or_default())
    }
}
