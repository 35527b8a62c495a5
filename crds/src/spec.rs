//! The AgentSession resource and its `spec`: what a user asks for.
//!
//! Doc comments here are what `kubectl explain` prints.
#![expect(
    clippy::duplicated_attributes,
    reason = "each printcolumn has a type and some a priority; the lint takes them for one list"
)]

use std::fmt;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    claim::ClaimTemplate,
    duration::HumanDuration,
    env::{EnvVar, Resources},
    pod::PodTemplate,
    rules,
    status::AgentSessionStatus,
};

/// One conversation with a coding agent. The operator runs the agent in a Pod, turn by turn, and keeps the transcript: it outlives the Pod.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "agentsession.dev",
    version = "v1alpha1",
    kind = "AgentSession",
    plural = "agentsessions",
    singular = "agentsession",
    shortname = "as",
    category = "agents",
    namespaced,
    status = "AgentSessionStatus",
    derive = "PartialEq",
    doc = "One conversation with a coding agent. The operator runs the agent in a Pod, turn by turn, and keeps the transcript: it outlives the Pod.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Turn", type_ = "integer", json_path = ".status.turn"),
    printcolumn(name = "Transcript", type_ = "string", json_path = ".status.transcript.verdict"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason"),
    printcolumn(name = "Parts", type_ = "integer", json_path = ".status.transcript.parts"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Pod", type_ = "string", json_path = ".status.podName", priority = 1),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1)
)]
#[x_kube(validation = rules::no_turns_after_cancel())]
#[serde(rename_all = "camelCase")]
pub struct AgentSessionSpec {
    /// How turns are folded into messages for people: Interactive keeps what has visible text, Autonomous also keeps turns of tools and
    /// thinking only, as evidence. It also decides the default of idleTimeout. Cannot be changed.
    #[serde(default)]
    #[x_kube(validation = rules::mode_immutable())]
    pub mode: Mode,

    /// The agent: an image and a command that speaks the protocol on stdin and stdout. A change counts from the next attempt.
    pub agent: AgentSpec,

    /// The prompts, in order. Append-only: to go on, add one at the end and apply again. They are readable by everyone who may get this object.
    #[schemars(length(max = 64))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = rules::turns_not_empty(),
        validation = rules::turns_not_fewer(),
        validation = rules::turns_append_only(),
        validation = rules::prompts_in_sum(),
        validation = rules::turn_ids_unique()
    )]
    pub turns: Vec<TurnSpec>,

    /// From a turn being the next to run to its agent running. Default 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration_day("startTimeout"))]
    pub start_timeout: Option<HumanDuration>,

    /// How long one turn may run before it is cancelled and settled as Failed. Default 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration_day("turnTimeout"))]
    pub turn_timeout: Option<HumanDuration>,

    /// How long the Pod waits for another turn after the last one. Default 15m for Interactive, 0s for Autonomous.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration_day_or_zero("idleTimeout"))]
    pub idle_timeout: Option<HumanDuration>,

    /// Active; Suspended: the turn that runs is cancelled, the Pod goes, a claimed workspace stays; Canceled: for good.
    #[serde(default)]
    #[x_kube(validation = rules::canceled_is_for_good())]
    pub desired_state: DesiredState,

    /// The agent's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,

    /// How the transcript is captured and kept.
    #[serde(default)]
    pub transcript: TranscriptSpec,

    /// Delete this object so long after its last turn was settled. Unset: never. Not for objects that GitOps would create again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration_year("ttlAfterFinished"))]
    pub ttl_after_finished: Option<HumanDuration>,

    /// What the agent Pod has beside our containers. A change counts from the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_template: Option<PodTemplate>,
}

/// How turns are folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// A person reads along: turns with visible text.
    #[default]
    Interactive,
    /// Nobody does: also turns of tools and thinking only.
    Autonomous,
}

impl Mode {
    /// The word that stands in the object and in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "Interactive",
            Self::Autonomous => "Autonomous",
        }
    }
}

/// What the user wants of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DesiredState {
    /// Run turns.
    #[default]
    Active,
    /// No Pod; turns wait.
    Suspended,
    /// No Pod, no further turn, for good.
    Canceled,
}

/// The agent.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// Any image that has the command in it; ours is added to the Pod, not baked in. Pulled if not present.
    #[schemars(length(max = 512))]
    #[x_kube(validation = rules::image("image"))]
    pub image: String,

    /// The program and its arguments, without a shell. The image's entrypoint is not used.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = rules::command("command"))]
    pub command: Vec<Word>,

    /// What the command speaks: ACP (Agent Client Protocol). StreamJSON is not supported yet. Cannot be changed.
    #[serde(default)]
    #[x_kube(validation = rules::protocol_supported(), validation = rules::protocol_immutable())]
    pub protocol: Protocol,

    /// Environment of the agent, beside HOME and what is ours.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,

    /// Requests and limits of the agent container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

impl AgentSpec {
    /// The command as plain texts.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        self.command.iter().map(|word| word.0.clone()).collect()
    }
}

/// One word of a command, at most 4096 characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(pub String);

impl From<&str> for Word {
    fn from(word: &str) -> Self {
        Self(word.to_owned())
    }
}

impl JsonSchema for Word {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "maxLength": 4096,
            "x-kubernetes-validations": [rules::no_nul("a word")],
        })
    }
}

/// What the agent speaks on its stdin and stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// Agent Client Protocol, JSON-RPC over stdio.
    #[default]
    ACP,
    /// One JSON object a line. Refused by validation until it is acted on.
    StreamJSON,
}

/// One prompt. Its ordinal in the list, from 1, is the number of the turn.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TurnSpec {
    /// What the agent is to do; at most 32768 characters, all prompts together at most 131072.
    #[schemars(length(max = 32768))]
    #[x_kube(validation = rules::prompt_not_blank(), validation = rules::no_nul("prompt"))]
    pub prompt: String,

    /// An id of the client's choice, once in the list; adding a turn with an id that is there already adds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    #[x_kube(validation = rules::turn_id())]
    pub id: Option<String>,
}

impl TurnSpec {
    /// A turn without an id.
    #[must_use]
    pub fn new(prompt: impl Into<String>) -> Self {
        Self { prompt: prompt.into(), id: None }
    }
}

/// Without the prompt: it must not reach a log.
impl fmt::Debug for TurnSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnSpec")
            .field("prompt", &format_args!("<{} bytes>", self.prompt.len()))
            .field("id", &self.id)
            .finish()
    }
}

/// The agent's working directory, `/workspace`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    /// A claim that is made once and kept over attempts and suspension. Unset: an emptyDir, and a new attempt starts with an empty workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_claim_template: Option<ClaimTemplate>,

    /// One init container with the workspace mounted, run for each attempt: git clone and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Setup>,
}

/// What fills the workspace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Setup {
    /// Default: the agent's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    #[x_kube(validation = rules::image("image"))]
    pub image: Option<String>,

    /// The program and its arguments, without a shell. With a claim it also runs when the workspace has content already.
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = rules::command("command"))]
    pub command: Vec<Word>,

    /// Environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub env: Vec<EnvVar>,
}

impl Setup {
    /// The command as plain texts.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        self.command.iter().map(|word| word.0.clone()).collect()
    }
}

/// How the transcript is captured and kept.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TranscriptSpec {
    /// Checkpoint: stored every checkpointInterval and at the end of a turn. Continuous is not supported yet.
    #[serde(default)]
    #[x_kube(validation = rules::capture_supported())]
    pub capture: Capture,

    /// What a lost node can cost, at most. Default 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration_day("checkpointInterval"))]
    pub checkpoint_interval: Option<HumanDuration>,

    /// How long the Pod is kept as the buffer while reading or storing fails and nothing forces it to go. Default 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration_day("holdTimeout"))]
    pub hold_timeout: Option<HumanDuration>,

    /// The same while the session or its Pod is being deleted. Default 2m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rules::duration_day("harvestTimeout"))]
    pub harvest_timeout: Option<HumanDuration>,

    /// Retain: what is stored outlives this object. Delete: it goes with it.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,
}

/// When parts are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Capture {
    /// Every `checkpointInterval`, and at the end of a turn.
    #[default]
    Checkpoint,
    /// As they come. Refused by validation until it is acted on.
    Continuous,
}

/// What becomes of the stored transcript when the object is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// It stays.
    #[default]
    Retain,
    /// It goes too.
    Delete,
}
