//! An agent Pod without a controller, whose turn is over and whose log is about as long as a log may be; and harvests of it.

use std::sync::Arc;

use agentsession_e2e::{Test, await_condition, pods, wait::seconds};
use anyhow::{Context as _, Result, ensure};
use controller::{
    deliver::deliver_prompt,
    exec::{ExecSettings, Execs, KubeExec, PodTarget},
    harvest::{HarvestRequest, HarvestSettings, Harvested, Harvester},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _};
use store::{NewSession, NewTurn, SharedStore};
use transcript::{AgentState, AgentStatus, Attempt, SessionUid, Turn, Verdict, frame::Prompt, limits, merge::judge};

/// The turn whose log it is.
pub const TURN: Turn = Turn(1);
/// The attempt that the Pod's manifest names.
const ATTEMPT: Attempt = Attempt(1);
/// Name in the manifest.
const NAME: &str = "by-hand";
/// Start, steps and the rest are parts too, so that all of them are just below the bound on parts; and the file just below its own.
const SCRIPT: &str = "- parts: {count: 49980, size: 164}\n";

/// The same log for a session of the operator's.
pub const LONG_TURN: &str = SCRIPT;

/// The Pod and its log.
pub struct LoggedPod {
    /// Where it is.
    pub target: PodTarget,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Parts in it.
    pub parts: u32,
    /// Bytes of their JSON text: what must be in a store that has them all.
    pub part_bytes: u64,
}

impl LoggedPod {
    /// Makes the Pod and lets its agent speak.
    pub async fn start(t: &Test) -> Result<Self> {
        t.apply_yaml(include_str!("../../cases/agent-pod.yaml")).await?;
        let pod: Pod = await_condition("the Pod to run and its driver to be idle", seconds(90), async || {
            let pod = pods::api(t).get(NAME).await?;
            let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
            let runs = containers.is_some_and(|all| !all.is_empty() && all.iter().all(|container| container.ready));
            Ok((runs && status(t, &pod).await?.state == AgentState::Idle).then_some(pod))
        })
        .await?;
        let uid = pod.uid().context("a Pod without UID")?;
        let target = PodTarget { namespace: t.namespace.clone(), name: NAME.to_owned(), uid: uid.into() };
        let prompt = Prompt { turn: TURN, prompt: SCRIPT.to_owned(), context: None };
        deliver_prompt(&execs(t.cluster.client.clone(), ExecSettings::default()), &target, &prompt).await?;
        let status = ended(t, &pod).await?;
        let log = pods::log(t, &pod, TURN.0).await?;
        ensure!(log.len() as u64 == status.log_bytes, "{} bytes read of {}", log.len(), status.log_bytes);
        ensure!(!status.truncated, "the log was cut at {} bytes", status.log_bytes);
        let texts = pods::parts_of_log(&log)?;
        ensure!(texts.len() == status.parts as usize, "{} parts in the log, {} said", texts.len(), status.parts);
        let part_bytes = texts.iter().map(|text| text.len() as u64).sum();
        Ok(Self { target, log_bytes: status.log_bytes, parts: status.parts, part_bytes })
    }

    /// Makes a session of its own for the log, so that all of it is new to the store.
    pub async fn session(&self, store: &SharedStore) -> Result<HarvestRequest> {
        let session = SessionUid(format!("{:032x}", rand::random::<u128>()));
        let row = NewSession {
            uid: session.clone(),
            namespace: self.target.namespace.clone(),
            namespace_uid: "bench".to_owned(),
            name: "bench".to_owned(),
            mode: "Autonomous".to_owned(),
        };
        store.ensure_session(&row).await?;
        let turn = NewTurn { session: session.clone(), turn: TURN, client_id: None, prompt: SCRIPT.to_owned() };
        store.accept_turn(&turn).await?;
        store.start_turn(&session, TURN, ATTEMPT, &self.target.uid, "bench").await?;
        Ok(HarvestRequest {
            session,
            pod: self.target.clone(),
            turn: TURN,
            attempt: ATTEMPT,
            quota_bytes: limits::SESSION_BYTES,
            checkpoint: None,
        })
    }

    /// Whether the store has every part of it.
    pub async fn is_whole_in(&self, store: &SharedStore, session: &SessionUid) -> Result<bool> {
        let record = store.ledger(session).await?.session.context("the store does not know the session")?;
        let present = store.progress(session, TURN).await?.present;
        Ok(present.is_exactly(self.parts) && record.parts == u64::from(self.parts) && record.bytes == self.part_bytes)
    }
}

/// Execs by this client.
pub fn execs(client: Client, settings: ExecSettings) -> Execs {
    Execs::new(Arc::new(KubeExec::new(client)), settings)
}

/// Harvests by these execs into this store, as the controller does.
pub fn harvester(execs: &Execs, store: &SharedStore, settings: HarvestSettings) -> Harvester {
    Harvester::new(execs.clone(), Arc::clone(store), settings)
}

/// Whether a harvest would be settled as complete.
pub fn is_complete(harvested: &Harvested) -> bool {
    judge(TURN, ATTEMPT, &harvested.evidence, None).verdict == Verdict::Complete
}

/// Waits until the driver says that turn 1 succeeded. Returns what it says.
pub async fn ended(t: &Test, pod: &Pod) -> Result<AgentStatus> {
    let status = await_condition("the turn to end", seconds(120), async || {
        let status = status(t, pod).await?;
        Ok((status.turn == TURN && status.state.is_terminal()).then_some(status))
    })
    .await?;
    ensure!(status.state == AgentState::Succeeded, "{status:?}");
    Ok(status)
}

/// What the driver says.
pub async fn status(t: &Test, pod: &Pod) -> Result<AgentStatus> {
    let text = pods::exec(t, pod, &["cat", &format!("{}/status.json", crds::names::PATH_LOG)]).await?;
    Ok(serde_json::from_str(&text)?)
}
