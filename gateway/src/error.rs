//! What a client is told when it does not get what it asked for: a status, a code and a sentence that names field, value and way out.
//!
//! "Forbidden" is not among them. Who may not read a session is told what one is told who asks for a session that does not exist, byte for byte.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use store::{Category, StoreError};

use crate::{cluster::ClusterError, names};

/// Why a request is not answered with what it asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// There is no token.
    #[error("request without a token")]
    TokenMissing,
    /// The token is not one that the API server vouches for.
    #[error("token not accepted")]
    TokenRejected,
    /// The session is not there, or not for this reader.
    #[error("session absent or not readable")]
    SessionNotFound {
        /// As it was asked for.
        namespace: String,
        /// As it was asked for.
        name: String,
    },
    /// The namespace is not for this reader.
    #[error("namespace not readable")]
    NamespaceNotFound {
        /// As it was asked for.
        namespace: String,
    },
    /// No route.
    #[error("no such path")]
    PathNotFound,
    /// A route, but not for this method.
    #[error("method not offered")]
    MethodNotAllowed,
    /// A parameter is not what it has to be.
    #[error("invalid parameter: {0}")]
    InvalidParameter(String),
    /// More is asked at once than this process takes on.
    #[error("too many {0} at once")]
    Busy(&'static str),
    /// The answer took too long.
    #[error("request timed out")]
    TimedOut,
    /// The API server does not answer as it should.
    #[error("API server unavailable")]
    Cluster(#[source] ClusterError),
    /// The store does not answer as it should.
    #[error("store unavailable")]
    Store(#[source] StoreError),
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    code: &'a str,
    message: String,
}

impl ApiError {
    fn status(&self) -> StatusCode {
        match self {
            Self::TokenMissing | Self::TokenRejected => StatusCode::UNAUTHORIZED,
            Self::SessionNotFound { .. } | Self::NamespaceNotFound { .. } | Self::PathNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::InvalidParameter(_) => StatusCode::BAD_REQUEST,
            Self::Store(error) if !heals(error) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Busy(_) | Self::TimedOut | Self::Cluster(_) | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The word that programs look at.
    fn code(&self) -> &'static str {
        match self {
            Self::TokenMissing | Self::TokenRejected => "unauthenticated",
            Self::SessionNotFound { .. } | Self::NamespaceNotFound { .. } | Self::PathNotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::InvalidParameter(_) => "invalid_parameter",
            Self::Busy(_) => "busy",
            Self::TimedOut => "timeout",
            Self::Cluster(_) => "cluster_unavailable",
            Self::Store(error) if !heals(error) => "store_failed",
            Self::Store(_) => "store_unavailable",
        }
    }

    /// The sentence for people. Nothing of a cause is in it: causes are for the operator's log.
    fn message(&self) -> String {
        match self {
            Self::TokenMissing => "this request has no token: send the header Authorization: Bearer <token>, or X-Agentsession-Token: <token> \
                                   where a proxy takes the first away; kubectl create token makes one"
                .to_owned(),
            Self::TokenRejected => "the API server does not accept this token: it may have expired or be for another audience; make a new one with \
                                    kubectl create token"
                .to_owned(),
            Self::SessionNotFound { namespace, name } => format!(
                "there is no AgentSession {} in namespace {} that this token may read: check both names, or ask for the verb get on \
                 agentsessions/transcript there",
                names::shown(name),
                names::shown(namespace)
            ),
            Self::NamespaceNotFound { namespace } => format!(
                "there are no AgentSessions in namespace {} that this token may list: check the name, or ask for the verb get on \
                 agentsessions/transcript there",
                names::shown(namespace)
            ),
            Self::PathNotFound => {
                "there is nothing at this path: sessions are at /v1/namespaces/{namespace}/agentsessions/{name}".to_owned()
            }
            Self::MethodNotAllowed => "this path is only there to be read: use GET".to_owned(),
            Self::InvalidParameter(sentence) => sentence.clone(),
            Self::Busy(what) => format!("this gateway has as many {what} open as it takes: try again in a few seconds"),
            Self::TimedOut => "the answer took too long: try again in a few seconds".to_owned(),
            Self::Cluster(_) => {
                "the API server could not be asked who may read this: nothing is wrong with the request, try again in a few seconds".to_owned()
            }
            Self::Store(error) if !heals(error) => {
                "the transcript store has a record that cannot be read: trying again will not help, the gateway's log has the reason".to_owned()
            }
            Self::Store(_) => {
                "the transcript store cannot be read at the moment: nothing is wrong with the request, try again in a few seconds".to_owned()
            }
        }
    }
}

/// Whether asking the store again can help.
pub(crate) fn heals(error: &StoreError) -> bool {
    match error.category() {
        Category::Unavailable | Category::Full | Category::Unusable => true,
        Category::Refused | Category::Fenced => false,
    }
}

/// A cause chain on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if matches!(self, Self::Cluster(_) | Self::Store(_)) {
            tracing::warn!(error = chain(&self), "a request could not be answered");
        }
        let status = self.status();
        let body = Envelope { error: Inner { code: self.code(), message: self.message() } };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"agentsession\""));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            _ => {}
        }
        response
    }
}
