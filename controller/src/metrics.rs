//! What the controller counts. No name, namespace or uid is ever a label: labels are bounded words.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// One word as a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabel {
    /// The effect.
    pub step: &'static str,
}

/// The effect and how it failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepErrorLabel {
    /// The effect.
    pub step: &'static str,
    /// Bounded category of the error.
    pub category: &'static str,
}

/// How a turn was settled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SettledLabel {
    /// Outcome.
    pub outcome: &'static str,
    /// Verdict.
    pub verdict: &'static str,
    /// The verdict's reason, else the outcome's, else empty.
    pub reason: &'static str,
}

/// A reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The reason.
    pub reason: &'static str,
}

/// What is being watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Watched {
    /// AgentSessions.
    Sessions,
    /// Agent Pods.
    Pods,
}

/// A watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WatchLabel {
    /// Its resource.
    pub resource: Watched,
}

/// All metrics of the controller.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Effects carried out.
    pub steps: Family<StepLabel, Counter>,
    /// Effects that failed; expected refusals are not failures.
    pub step_errors: Family<StepErrorLabel, Counter>,
    /// Status writes.
    pub status_writes: Counter,
    /// Writes refused since something newer stood.
    pub conflicts: Counter,
    /// Turns settled by this process.
    pub settled: Family<SettledLabel, Counter>,
    /// Records abandoned at a deadline with the store out of reach.
    pub abandoned: Family<ReasonLabel, Counter>,
    /// Settling reads that failed.
    pub harvest_failures: Family<ReasonLabel, Counter>,
    /// Duration of a settling read with its appends.
    pub harvest_seconds: Histogram,
    /// Parts inserted by settling reads.
    pub harvest_parts: Counter,
    /// Parts kept out since their identity stood with other bytes.
    pub part_conflicts: Counter,
    /// Errors of watches.
    pub watch_errors: Family<WatchLabel, Counter>,
    /// Sessions remembered.
    pub sessions: Gauge,
    /// Followers up.
    pub followers: Gauge,
    /// Whether this process is the leader.
    pub leader: Gauge,
}

impl Metrics {
    /// Registers all of them.
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("agentsession_controller");
        let metrics = Self {
            steps: Family::default(),
            step_errors: Family::default(),
            status_writes: Counter::default(),
            conflicts: Counter::default(),
            settled: Family::default(),
            abandoned: Family::default(),
            harvest_failures: Family::default(),
            harvest_seconds: Histogram::new(exponential_buckets(0.05, 2.0, 12)),
            harvest_parts: Counter::default(),
            part_conflicts: Counter::default(),
            watch_errors: Family::default(),
            sessions: Gauge::default(),
            followers: Gauge::default(),
            leader: Gauge::default(),
        };
        registry.register("steps", "Effects carried out", metrics.steps.clone());
        registry.register("step_errors", "Effects that failed", metrics.step_errors.clone());
        registry.register("status_writes", "Status writes", metrics.status_writes.clone());
        registry.register("conflicts", "Writes refused since something newer stood", metrics.conflicts.clone());
        registry.register("settled_turns", "Turns settled by this process", metrics.settled.clone());
        registry.register(
            "abandoned_records",
            "Records abandoned at a deadline with the store out of reach",
            metrics.abandoned.clone(),
        );
        registry.register("harvest_failures", "Settling reads that failed", metrics.harvest_failures.clone());
        registry.register_with_unit(
            "harvest_duration",
            "Duration of a settling read with its appends",
            Unit::Seconds,
            metrics.harvest_seconds.clone(),
        );
        registry.register("harvest_parts", "Parts inserted by settling reads", metrics.harvest_parts.clone());
        registry.register(
            "part_conflicts",
            "Parts kept out since their identity stood with other bytes",
            metrics.part_conflicts.clone(),
        );
        registry.register("watch_errors", "Errors of watches", metrics.watch_errors.clone());
        registry.register("sessions", "Sessions remembered", metrics.sessions.clone());
        registry.register("followers", "Followers up", metrics.followers.clone());
        registry.register("leader", "1 while this process may act", metrics.leader.clone());
        metrics
    }
}
