//! What the tests of the gateway share: a scripted API server, a scripted store, and a gateway between them.
#![expect(dead_code, reason = "each test program uses some of it")]

pub mod api;
pub mod canned;
pub mod log;
pub mod memory;

use std::sync::Arc;

use agentsession_gateway::{Args, Gateway, Metrics};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode},
};
use http_body_util::BodyExt;
use prometheus_client::registry::Registry;
use store::SharedStore;
use tower::ServiceExt;

use self::{api::Api, memory::Memory};

pub const SESSION: &str = "/v1/namespaces/team-a/agentsessions/fix-login";

/// A gateway between a scripted API server and a scripted store. `alice` may read all of namespace `team-a`; her token is `alice-token`.
pub struct World {
    pub api: Api,
    pub store: Arc<Memory>,
    pub registry: Registry,
    pub gateway: Gateway,
}

impl World {
    pub fn new() -> Self {
        Self::with(Args::default())
    }

    pub fn with(args: Args) -> Self {
        let store = Arc::new(Memory::default());
        Self::over(args, store.clone(), store)
    }

    /// Over a real store; the scripted one stays empty.
    pub fn over_store(store: SharedStore) -> Self {
        Self::over(Args::default(), store, Arc::new(Memory::default()))
    }

    fn over(args: Args, read: SharedStore, store: Arc<Memory>) -> Self {
        let api = Api::new();
        api.token("alice-token", "alice", Some("agentsession"));
        api.allow("alice", Some("team-a"), None);
        api.namespace("team-a", "ns-1");
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let gateway = Gateway::new(args, read, api.client(), metrics);
        Self { api, store, registry, gateway }
    }

    pub fn router(&self) -> Router {
        agentsession_gateway::router(self.gateway.clone())
    }

    /// Asks as alice.
    pub async fn get(&self, uri: &str) -> Answer {
        self.get_with(uri, &[("authorization", "Bearer alice-token")]).await
    }

    pub async fn get_with(&self, uri: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::empty()).unwrap()).await
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string());
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// The metrics as they are scraped.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }
}

/// An answer, read to its end.
#[derive(Debug, PartialEq)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Result<Vec<u8>, String>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.body.as_ref().unwrap()).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Status and error code.
    pub fn error(&self) -> (u16, String) {
        (self.status.as_u16(), self.json()["error"]["code"].as_str().unwrap().to_owned())
    }

    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }
}
