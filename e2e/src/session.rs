//! AgentSessions as a user writes and reads them.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PropagationPolicy},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, Said},
    test::{AGENT_IMAGE, Test},
    wait::{await_condition, eventually},
};

/// How long a session may take that nothing disturbs.
pub const SOON: Duration = Duration::from_secs(60);

/// An AgentSession before it is applied.
#[derive(Clone, Debug)]
pub struct Draft {
    object: Value,
}

impl Draft {
    /// An autonomous session of the scripted agent without turns.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            object: json!({
                "apiVersion": crds::names::API_VERSION,
                "kind": crds::names::KIND,
                "metadata": {"name": name},
                "spec": {
                    "mode": "Autonomous",
                    "agent": {"image": AGENT_IMAGE, "command": ["/bin/agent", "acp"]},
                    "turns": [],
                },
            }),
        }
    }

    /// Sets a field, such as `spec/transcript/holdTimeout`.
    #[must_use]
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        let mut at = &mut self.object;
        for key in path.split('/') {
            at = &mut at[key];
        }
        *at = value.into();
        self
    }

    /// Adds a turn.
    #[must_use]
    pub fn turn(mut self, prompt: &str) -> Self {
        if let Some(turns) = self.object["spec"]["turns"].as_array_mut() {
            turns.push(json!({"prompt": prompt}));
        }
        self
    }

    /// Lets the Pod stay up after its turn.
    #[must_use]
    pub fn lingering(self) -> Self {
        self.set("spec/idleTimeout", "15m")
    }

    /// Puts the Pod on this node, which tests may destroy; it is evicted from it 5 s after the node is seen to be lost.
    #[must_use]
    pub fn on_spare_node(self, node: &str) -> Self {
        let lost = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let tolerations = json!([
            {"key": crate::cluster::SPARE_TAINT, "operator": "Exists"},
            lost("node.kubernetes.io/unreachable"),
            lost("node.kubernetes.io/not-ready"),
        ]);
        self.set("spec/podTemplate/nodeSelector", json!({"kubernetes.io/hostname": node}))
            .set("spec/podTemplate/tolerations", tolerations)
    }

    /// The object.
    #[must_use]
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Applies it by kubectl, which may be refused.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn try_apply(&self, test: &Test) -> Result<Said> {
        // JSON is YAML, and keeps every string a string.
        let text = self.object.to_string();
        test.cluster.kubectl(&["-n", &test.namespace, "apply", "-f", "-"], Some(&text)).await
    }
}

/// An AgentSession in the cluster.
#[derive(Clone, Debug)]
pub struct Session {
    /// What was applied last.
    pub draft: Draft,
    /// Its UID.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    api: Api<DynamicObject>,
}

/// The status, by the names of the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// The generation that it speaks of.
    pub observed_generation: i64,
    /// Phase.
    pub phase: String,
    /// The turn that runs or ran last.
    pub turn: u32,
    /// Turns that the store has or had.
    pub accepted_turns: u32,
    /// The latest attempt.
    pub attempt: u32,
    /// Name of its Pod.
    pub pod_name: Option<String>,
    /// Counts.
    pub transcript: Counts,
    /// The last turns.
    pub turns: Vec<TurnStatus>,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// Counts of a transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Parts.
    pub parts: u64,
    /// Bytes of their JSON text.
    pub bytes: u64,
    /// The last seq.
    pub last_seq: u64,
}

/// A turn in the status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TurnStatus {
    /// Ordinal.
    pub turn: u32,
    /// Outcome.
    pub outcome: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Verdict.
    pub transcript: Option<String>,
    /// What is missing.
    pub transcript_reason: Option<String>,
    /// For people.
    pub message: Option<String>,
    /// Parts.
    pub parts: u32,
}

impl TurnStatus {
    /// Outcome, reason, verdict and its reason in one line, `-` for none: what tests compare.
    #[must_use]
    pub fn summary(&self) -> String {
        let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "-".into());
        [&self.outcome, &self.reason, &self.transcript, &self.transcript_reason].map(word).join(" ")
    }

    /// The message, or nothing.
    #[must_use]
    pub fn message(&self) -> &str {
        self.message.as_deref().unwrap_or_default()
    }
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Type.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Reason.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The generation that it speaks of.
    pub observed_generation: i64,
}

impl Status {
    /// A condition.
    #[must_use]
    pub fn condition(&self, name: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.r#type == name)
    }

    /// A turn.
    ///
    /// # Errors
    /// When the status does not have it.
    pub fn turn(&self, turn: u32) -> Result<&TurnStatus> {
        self.turns.iter().find(|entry| entry.turn == turn).with_context(|| format!("no turn {turn} in {self:?}"))
    }
}

impl Session {
    /// Applies a draft, which must be accepted.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn apply(test: &Test, draft: Draft) -> Result<Self> {
        let said = draft.try_apply(test).await?;
        ensure!(said.ok, "kubectl apply: {}", said.err.trim());
        let api = Api::namespaced_with(test.cluster.client.clone(), &test.namespace, &Cluster::agent_sessions());
        let object: DynamicObject = api.get(draft.name()).await?;
        let uid = object.metadata.uid.context("an object without UID")?;
        Ok(Self { name: draft.name().to_owned(), namespace: test.namespace.clone(), draft, uid, api })
    }

    /// Adds a turn by applying the object again.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn add_turn(&mut self, test: &Test, prompt: &str) -> Result<()> {
        self.draft = self.draft.clone().turn(prompt);
        let said = self.draft.try_apply(test).await?;
        ensure!(said.ok, "kubectl apply: {}", said.err.trim());
        Ok(())
    }

    /// Merges a patch into the object.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn patch(&self, patch: &Value) -> Result<()> {
        self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The object; `None` when it is gone or another one has its name.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub async fn get(&self) -> Result<Option<DynamicObject>> {
        let object = self.api.get_opt(&self.name).await?;
        Ok(object.filter(|object| object.metadata.uid.as_deref() == Some(&self.uid)))
    }

    /// The status.
    ///
    /// # Errors
    /// When the object is gone.
    pub async fn status(&self) -> Result<Status> {
        let object = self.get().await?.with_context(|| format!("{} is gone", self.name))?;
        match object.data.get("status") {
            Some(status) => Ok(serde_json::from_value(status.clone())?),
            None => Ok(Status::default()),
        }
    }

    /// Waits for a status.
    ///
    /// # Errors
    /// When it does not come in time; with the last one.
    pub async fn until(&self, what: &str, timeout: Duration, wanted: impl Fn(&Status) -> bool) -> Result<Status> {
        await_condition(&format!("{}: {what}", self.name), timeout, async || {
            let status = self.status().await?;
            if wanted(&status) { Ok(Some(status)) } else { Err(anyhow!("{status:?}")) }
        })
        .await
    }

    /// Waits until every turn of the object as it is now is settled.
    ///
    /// # Errors
    /// When that does not come in time; with the last status.
    pub async fn finished_within(&self, timeout: Duration) -> Result<Status> {
        let object = self.get().await?.with_context(|| format!("{} is gone", self.name))?;
        let generation = object.metadata.generation.unwrap_or_default();
        self.until("Finished", timeout, |status| {
            let finished = status.condition(crds::names::CONDITION_FINISHED);
            finished.is_some_and(|condition| condition.status == "True" && condition.observed_generation >= generation)
        })
        .await
    }

    /// Waits until every turn is settled, as long as an undisturbed session may take.
    ///
    /// # Errors
    /// As [`finished_within`](Self::finished_within).
    pub async fn finished(&self) -> Result<Status> {
        self.finished_within(SOON).await
    }

    /// Deletes the object and does not wait.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn delete(&self, propagation: PropagationPolicy) -> Result<()> {
        let params = DeleteParams { propagation_policy: Some(propagation), ..DeleteParams::default() };
        self.api.delete(&self.name, &params).await?;
        Ok(())
    }

    /// Waits until the object is gone.
    ///
    /// # Errors
    /// When it is still there.
    pub async fn gone(&self, timeout: Duration) -> Result<()> {
        eventually(&format!("{} to be gone", self.name), timeout, async || Ok(self.get().await?.is_none())).await
    }
}
