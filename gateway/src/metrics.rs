//! What can be counted of the gateway. Labels are words of this file: never a name, a UID or a text of a client.

use std::{sync::atomic::AtomicI64, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// What a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the variants are the label values")]
pub(crate) enum Route {
    stream,
    transcript,
    session,
    sessions,
    other,
}

/// A question to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Call {
    TokenReview,
    SubjectAccessReview,
    GetSession,
    ListSessions,
    GetNamespace,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum CallResult {
    Answered,
    Failed,
    TimedOut,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum StreamEnd {
    /// With `[DONE]`, after all that is stored.
    Done,
    /// With `[DONE]`, after a note that the store failed.
    StoreFailed,
    /// Broken off: the right to read was lost.
    AccessLost,
    /// The client went away, or was cut.
    ClientGone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: Route,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: Route,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    call: Call,
    result: CallResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AccessLabels {
    check: Call,
    granted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    end: StreamEnd,
}

/// The gateway's metrics. Clones count into the same numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
    connections: Gauge<i64, AtomicI64>,
    streams: Gauge<i64, AtomicI64>,
    streams_ended: Family<EndLabels, Counter>,
    stream_bytes: Counter,
    cluster_calls: Family<CallLabels, Counter>,
    access: Family<AccessLabels, Counter>,
}

/// Seconds to the headers of an answer.
const BUCKETS: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0];

impl Metrics {
    /// Registers every metric under its full name, `agentsession_gateway_…`.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            connections: Gauge::default(),
            streams: Gauge::default(),
            streams_ended: Family::default(),
            stream_bytes: Counter::default(),
            cluster_calls: Family::default(),
            access: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("agentsession_gateway");
        registry.register("requests", "Requests answered, by route and status code", metrics.requests.clone());
        registry.register(
            "request_duration_seconds",
            "Time from a request to the headers of its answer",
            metrics.seconds.clone(),
        );
        registry.register("connections", "Connections that are open", metrics.connections.clone());
        registry.register("streams", "Streams that are open", metrics.streams.clone());
        registry.register("streams_ended", "Streams that ended, by how", metrics.streams_ended.clone());
        registry.register("stream_bytes", "Bytes handed to clients in streams", metrics.stream_bytes.clone());
        registry.register(
            "cluster_calls",
            "Questions to the API server, by kind and result",
            metrics.cluster_calls.clone(),
        );
        registry.register(
            "access_decisions",
            "Answers of the API server about tokens and rights",
            metrics.access.clone(),
        );
        metrics
    }

    pub(crate) fn request(&self, route: Route, code: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { route, code }).inc();
        self.seconds.get_or_create(&RouteLabels { route }).observe(took.as_secs_f64());
    }

    pub(crate) fn cluster_call(&self, call: Call, result: CallResult) {
        self.cluster_calls.get_or_create(&CallLabels { call, result }).inc();
    }

    pub(crate) fn access(&self, check: Call, granted: bool) {
        self.access.get_or_create(&AccessLabels { check, granted }).inc();
    }

    /// Counts a connection for as long as the value lives.
    pub(crate) fn connection(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }

    /// Counts a stream for as long as the value lives.
    pub(crate) fn stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream { _open: Open(self.streams.clone()), end: StreamEnd::ClientGone, metrics: self.clone() }
    }
}

/// One that is open; counted out when dropped.
#[derive(Debug)]
pub(crate) struct Open(Gauge<i64, AtomicI64>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A stream that is open: says how it ended when dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    _open: Open,
    end: StreamEnd,
    metrics: Metrics,
}

impl OpenStream {
    /// Notes how it ended. Without a note the client went away.
    pub(crate) fn ended(&mut self, end: StreamEnd) {
        self.end = end;
    }

    /// Counts bytes that went out.
    pub(crate) fn sent(&self, bytes: usize) {
        self.metrics.stream_bytes.inc_by(bytes as u64);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics.streams_ended.get_or_create(&EndLabels { end: self.end }).inc();
    }
}
