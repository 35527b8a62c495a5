//! `status`: what people see. A projection of the store, never the truth; of all this the controller reads back only `acceptedTurns`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use transcript::{Outcome, Reason, Verdict};

/// Turn records that stand in the status: the last ones.
pub const STATUS_TURNS: usize = 20;

/// Observed state. Every field has a default, so that a status of another version can be read.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AgentSessionStatus {
    /// The generation of the object that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// A summary for people: Pending, Provisioning, Running, Harvesting, Idle, Completed, Failed, Canceled or Suspended.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Why the phase is what it is: of the latest turn's outcome, of its verdict, or what the session waits for.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reason_schema")]
    pub reason: Option<Reason>,

    /// The same in a sentence, with the cluster's own words where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The turn that is active, or the last one that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<i32>,

    /// How many turns the store has been given. Those at or below it are never run again, whatever the store says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_turns: Option<i32>,

    /// Ordinal of the latest agent Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,

    /// The agent Pod, while there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,

    /// Its address, while it can be dialled.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "podIP")]
    pub pod_ip: Option<String>,

    /// What is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<TranscriptStatus>,

    /// What the agent said that it used, over all turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageStatus>,

    /// The last 20 turns.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub turns: Vec<TurnStatus>,

    /// PodReady, TranscriptComplete, Finished and Suspended: always all four, once set.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A summary for people. Decisions never read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// A turn waits: for quota, for an earlier Pod to go, for the controller. Active.
    Pending,
    /// The agent Pod is being created, scheduled or started. Active.
    Provisioning,
    /// The agent works on a turn. Active.
    Running,
    /// The turn is over and its log is being read and stored. Active.
    Harvesting,
    /// Every turn is settled and the Pod waits for another one.
    Idle,
    /// Every turn is settled, the last one Succeeded, and no Pod is left.
    Completed,
    /// The same, and the last one Failed or was Lost.
    Failed,
    /// The session, or its last turn, was canceled.
    Canceled,
    /// No Pod, by request; turns wait.
    Suspended,
}

impl Phase {
    /// Whether a turn is active.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Provisioning | Self::Running | Self::Harvesting)
    }

    /// The word in the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Provisioning => "Provisioning",
            Self::Running => "Running",
            Self::Harvesting => "Harvesting",
            Self::Idle => "Idle",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Canceled => "Canceled",
            Self::Suspended => "Suspended",
        }
    }
}

/// What is stored of the session.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TranscriptStatus {
    /// The worst verdict of the settled turns (Incomplete, then Truncated, then Complete); unset before the first.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "verdict_schema")]
    pub verdict: Option<Verdict>,
    /// Parts stored.
    #[serde(default)]
    pub parts: i64,
    /// Bytes of their JSON text.
    #[serde(default)]
    pub bytes: i64,
    /// Cursor of the last stored part.
    #[serde(default)]
    pub last_seq: i64,
    /// Assistant and system messages, as the transcript is folded for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_count: Option<i64>,
}

/// Counts as the agent reported them, summed over turns.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageStatus {
    /// Requests to the model.
    #[serde(default)]
    pub requests: i64,
    /// Tokens read by the model.
    #[serde(default)]
    pub input_tokens: i64,
    /// Tokens written by the model.
    #[serde(default)]
    pub output_tokens: i64,
    /// All tokens.
    #[serde(default)]
    pub total_tokens: i64,
}

/// One turn.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnStatus {
    /// Its number, from 1.
    pub turn: i32,
    /// How it ended: Succeeded, Failed, Canceled or Lost; unset while it is active.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "outcome_schema")]
    pub outcome: Option<Outcome>,
    /// Why it ended so.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reason_schema")]
    pub reason: Option<Reason>,
    /// How much of its transcript is held: Complete, Truncated or Incomplete; unset while it is active.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "verdict_schema")]
    pub transcript: Option<Verdict>,
    /// What is missing of it, and why.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reason_schema")]
    pub transcript_reason: Option<Reason>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Parts stored of it.
    #[serde(default)]
    pub parts: i64,
    /// When it began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it was settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
}

/// A word that this build does not know, written by a newer one, reads as none instead of making the object unreadable.
fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// Reasons are an open list for readers, so the schema does not enumerate them.
fn reason_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true })
}

fn words(words: impl Iterator<Item = &'static str>) -> Schema {
    let words: Vec<_> = words.collect();
    json_schema!({ "type": "string", "enum": words })
}

fn verdict_schema(_: &mut SchemaGenerator) -> Schema {
    words(Verdict::ALL.iter().map(|verdict| verdict.as_str()))
}

fn outcome_schema(_: &mut SchemaGenerator) -> Schema {
    words(Outcome::ALL.iter().map(|outcome| outcome.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_an_older_or_newer_version_can_be_read() {
        let old: AgentSessionStatus = serde_json::from_str("{}").unwrap();
        assert_eq!(old, AgentSessionStatus::default());

        let newer: AgentSessionStatus = serde_json::from_value(serde_json::json!({
            "phase": "Hibernating", "reason": "OfThatTime", "acceptedTurns": 2, "novel": {"a": 1},
            "transcript": {"verdict": "Doubtful", "parts": 7},
            "turns": [{"turn": 1, "outcome": "Postponed", "transcript": "Complete", "reason": "OOMKilled"}],
        }))
        .unwrap();
        assert_eq!(newer.phase, None);
        assert_eq!(newer.accepted_turns, Some(2));
        let turn = &newer.turns[0];
        assert_eq!(
            (turn.outcome, turn.transcript, turn.reason),
            (None, Some(Verdict::Complete), Some(Reason::OOMKilled))
        );
        assert_eq!(newer.transcript.map(|t| (t.verdict, t.parts)), Some((None, 7)));
    }

    #[test]
    fn the_words_of_a_phase_are_those_of_its_json() {
        for phase in [
            Phase::Pending,
            Phase::Provisioning,
            Phase::Running,
            Phase::Harvesting,
            Phase::Idle,
            Phase::Completed,
            Phase::Failed,
            Phase::Canceled,
            Phase::Suspended,
        ] {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        }
    }
}
