//! The spec with its defaults resolved: what the controller reads instead of the optional fields.

use std::time::Duration;

use crate::{AgentSessionSpec, HumanDuration, InvalidDuration, Mode};

/// `spec.startTimeout`.
pub const START_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// `spec.turnTimeout`.
pub const TURN_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// `spec.idleTimeout` of an Interactive session.
pub const IDLE_TIMEOUT_INTERACTIVE: Duration = Duration::from_secs(15 * 60);
/// `spec.idleTimeout` of an Autonomous session.
pub const IDLE_TIMEOUT_AUTONOMOUS: Duration = Duration::ZERO;
/// `spec.transcript.checkpointInterval`.
pub const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(15);
/// `spec.transcript.holdTimeout`.
pub const HOLD_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// `spec.transcript.harvestTimeout`.
pub const HARVEST_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// A stored duration that is none; the default, or for `ttlAfterFinished` "never", is used in its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is not usable, its default is in force")]
pub struct InvalidField {
    /// Path of the field.
    pub field: &'static str,
    /// What is wrong with it.
    #[source]
    pub source: InvalidDuration,
}

fn or(value: Option<&HumanDuration>, default: Duration) -> Duration {
    value.and_then(|duration| duration.get().ok()).unwrap_or(default)
}

impl AgentSessionSpec {
    /// From a turn being the next to run to its agent running.
    #[must_use]
    pub fn start_timeout(&self) -> Duration {
        or(self.start_timeout.as_ref(), START_TIMEOUT)
    }

    /// How long one turn may run.
    #[must_use]
    pub fn turn_timeout(&self) -> Duration {
        or(self.turn_timeout.as_ref(), TURN_TIMEOUT)
    }

    /// How long the Pod waits for another turn; zero: not at all.
    #[must_use]
    pub fn idle_timeout(&self) -> Duration {
        let default = match self.mode {
            Mode::Interactive => IDLE_TIMEOUT_INTERACTIVE,
            Mode::Autonomous => IDLE_TIMEOUT_AUTONOMOUS,
        };
        or(self.idle_timeout.as_ref(), default)
    }

    /// Time between two checkpoints of a running turn.
    #[must_use]
    pub fn checkpoint_interval(&self) -> Duration {
        or(self.transcript.checkpoint_interval.as_ref(), CHECKPOINT_INTERVAL)
    }

    /// How long the Pod is the buffer while reading or storing fails and nothing forces it to go.
    #[must_use]
    pub fn hold_timeout(&self) -> Duration {
        or(self.transcript.hold_timeout.as_ref(), HOLD_TIMEOUT)
    }

    /// The same while the session or its Pod is being deleted.
    #[must_use]
    pub fn harvest_timeout(&self) -> Duration {
        or(self.transcript.harvest_timeout.as_ref(), HARVEST_TIMEOUT)
    }

    /// How long a finished session stays; `None`: for ever.
    #[must_use]
    pub fn ttl_after_finished(&self) -> Option<Duration> {
        self.ttl_after_finished.as_ref().and_then(|duration| duration.get().ok())
    }

    /// Stored durations that are none. Validation lets none in, so this is empty unless the schema was changed under the object;
    /// the controller says it by an event instead of refusing to look at the session.
    #[must_use]
    pub fn invalid_fields(&self) -> Vec<InvalidField> {
        let transcript = &self.transcript;
        [
            ("spec.startTimeout", &self.start_timeout),
            ("spec.turnTimeout", &self.turn_timeout),
            ("spec.idleTimeout", &self.idle_timeout),
            ("spec.ttlAfterFinished", &self.ttl_after_finished),
            ("spec.transcript.checkpointInterval", &transcript.checkpoint_interval),
            ("spec.transcript.holdTimeout", &transcript.hold_timeout),
            ("spec.transcript.harvestTimeout", &transcript.harvest_timeout),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some(InvalidField { field, source: value.as_ref()?.get().err()? }))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: serde_json::Value) -> AgentSessionSpec {
        let mut base = serde_json::json!({"agent": {"image": "i", "command": ["c"]}, "turns": [{"prompt": "p"}]});
        if let (Some(base), serde_json::Value::Object(more)) = (base.as_object_mut(), json) {
            base.extend(more);
        }
        serde_json::from_value(base).unwrap()
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let spec = spec(serde_json::json!({}));
        let minute = Duration::from_secs(60);
        assert_eq!(spec.start_timeout(), 10 * minute);
        assert_eq!(spec.turn_timeout(), 30 * minute);
        assert_eq!(spec.checkpoint_interval(), minute / 4);
        assert_eq!(spec.hold_timeout(), 60 * minute);
        assert_eq!(spec.harvest_timeout(), 2 * minute);
        assert_eq!(spec.ttl_after_finished(), None);
        assert!(spec.invalid_fields().is_empty());
    }

    #[test]
    fn the_default_idle_timeout_goes_by_mode_and_zero_can_be_asked_for() {
        assert_eq!(spec(serde_json::json!({})).idle_timeout(), Duration::from_secs(900));
        assert_eq!(spec(serde_json::json!({"mode": "Autonomous"})).idle_timeout(), Duration::ZERO);
        assert_eq!(spec(serde_json::json!({"idleTimeout": "0s"})).idle_timeout(), Duration::ZERO);
        assert_eq!(
            spec(serde_json::json!({"mode": "Autonomous", "idleTimeout": "2m"})).idle_timeout(),
            Duration::from_secs(120)
        );
    }

    #[test]
    fn a_stored_duration_that_is_none_leaves_the_object_readable_and_is_told() {
        let spec = spec(serde_json::json!({
            "turnTimeout": "half an hour", "ttlAfterFinished": "1w", "transcript": {"holdTimeout": "90s"}
        }));
        assert_eq!(spec.turn_timeout(), TURN_TIMEOUT);
        assert_eq!(spec.ttl_after_finished(), None);
        assert_eq!(spec.hold_timeout(), Duration::from_secs(90));
        let fields: Vec<_> = spec.invalid_fields().iter().map(|invalid| invalid.field).collect();
        assert_eq!(fields, ["spec.turnTimeout", "spec.ttlAfterFinished"]);
    }
}
