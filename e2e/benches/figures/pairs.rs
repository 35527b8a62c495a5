//! Figure 7: what a session with its Pod costs the controller in memory, at a thousand of them and at two.
//!
//! The API server is a real one; the Pods are what the controller makes, except that no scheduler takes them, so that they cost no node. Their
//! status says that their containers are being made: the controller waits, and follows none of them.

use agentsession_e2e::{Draft, Operator, Role, Test, await_condition, stored, test::SANDBOX_IMAGE, wait::seconds};
use anyhow::{Context as _, Result, ensure};
use controller_core::{
    decide::pod_nonce,
    pod_spec::{PodPlan, PodSettings, agent_pod},
};
use crds::AgentSession;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use store::{NewSession, NewTurn, SharedStore};
use transcript::{Attempt, SessionUid, Turn};

use crate::{
    memory::hold_still,
    report::{Goal, Row},
    stats::Samples,
};

/// Pairs that are added each time.
const STEP: usize = 1000;
/// Starts of a controller at each size.
const RUNS: usize = 5;
/// Objects that are made at once.
const ABREAST: usize = 16;
const ATTEMPT: Attempt = Attempt(1);
/// A prompt of the usual length.
const PROMPT: &str = "Fix the login bug: a user whose session has expired is sent back to the start page without a word. Keep the page where the \
    user was, ask for the password there, and go on. Run the tests, and say in two sentences what you changed and why.";

/// Figure 7.
pub async fn each(t: &Test) -> Result<Vec<Row>> {
    // Opened first: the controller finds the schema made.
    let store = stored::open(&t.sqlite()).await?;
    let none = starts(t, 0).await?;
    make(t, &store, 0).await?;
    let one = starts(t, STEP).await?;
    make(t, &store, STEP).await?;
    let two = starts(t, 2 * STEP).await?;
    let per_pair = |more: &Samples, less: &Samples, pairs: usize| (more.median() - less.median()) / pairs as f64 / 1e3;
    let (first, both) = (per_pair(&one, &none, STEP), per_pair(&two, &none, 2 * STEP));
    let note = |at: &Samples| format!("{:.1} MB, without any {:.1} MB", at.median() / 1e6, none.median() / 1e6);
    let row = |pairs: usize, kb: f64, at: &Samples| {
        let case = format!("controller memory of a session with its Pod, at {pairs} of them");
        Row::value(7, &case, kb, "KB").runs(RUNS).goal(Goal::AtMost(12.0)).note(note(at))
    };
    Ok(vec![
        row(STEP, first, &one),
        row(2 * STEP, both, &two),
        Row::value(7, "of the second thousand", per_pair(&two, &one, STEP), "KB")
            .runs(RUNS)
            .against("of the first", first)
            .goal(Goal::AtMost(1.2)),
    ])
}

/// Starts a controller some times, and sees what it holds once it knows every pair.
async fn starts(t: &Test, pairs: usize) -> Result<Samples> {
    let mut samples = Samples::default();
    if pairs > 0 {
        // The first one has statuses to write; what that leaves behind is not what is measured.
        let mut operator = know_all(t, pairs).await?;
        statuses(t, pairs).await?;
        operator.process.kill().await?;
    }
    for _ in 0..RUNS {
        let mut operator = know_all(t, pairs).await?;
        samples.push(hold_still(operator.process.id().context("the controller has ended")?).await?);
        operator.process.kill().await?;
    }
    Ok(samples)
}

async fn know_all(t: &Test, pairs: usize) -> Result<Operator> {
    let operator = Operator::start(t, t.settings().role(Role::Controller)).await?;
    await_condition("the controller to know every session", seconds(120), async || {
        Ok((operator.metric("agentsession_controller_sessions").await? >= pairs as f64).then_some(()))
    })
    .await?;
    Ok(operator)
}

/// Waits until every session says what it waits for.
async fn statuses(t: &Test, pairs: usize) -> Result<()> {
    let sessions: Api<AgentSession> = Api::namespaced(t.cluster.client.clone(), &t.namespace);
    await_condition("every status to be written", seconds(300), async || {
        let items = sessions.list(&ListParams::default()).await?.items;
        let said = items.iter().filter(|session| session.status.is_some()).count();
        ensure!(said >= pairs, "{said} of {pairs}");
        Ok(Some(()))
    })
    .await
}

/// Makes a step of pairs, as they are when a controller has just made the Pods.
async fn make(t: &Test, store: &SharedStore, from: usize) -> Result<()> {
    let pairs = (from..from + STEP).map(|ordinal| one(t, store, ordinal));
    futures::stream::iter(pairs).buffer_unordered(ABREAST).try_collect().await
}

async fn one(t: &Test, store: &SharedStore, ordinal: usize) -> Result<()> {
    let draft = Draft::new(&format!("pair-{ordinal}")).turn(PROMPT).set("spec/startTimeout", "24h");
    let mut session: AgentSession = serde_json::from_value(draft.object().clone())?;
    session.finalizers_mut().push(crds::names::FINALIZER.to_owned());
    let params = PostParams::default();
    let session = Api::namespaced(t.cluster.client.clone(), &t.namespace).create(&params, &session).await?;
    let uid = SessionUid(session.uid().context("an object without UID")?);
    let row = NewSession {
        uid: uid.clone(),
        namespace: t.namespace.clone(),
        namespace_uid: "bench".to_owned(),
        name: session.name_any(),
        mode: "Autonomous".to_owned(),
    };
    store.ensure_session(&row).await?;
    store
        .accept_turn(&NewTurn { session: uid.clone(), turn: Turn(1), client_id: None, prompt: PROMPT.to_owned() })
        .await?;
    let seed = format!("{:032x}", rand::random::<u128>());
    store.open_attempt(&uid, ATTEMPT, &seed).await?;
    let plan = PodPlan { attempt: ATTEMPT, nonce: pod_nonce(&seed, ATTEMPT), recorder_token_sha256: None };
    let mut pod = agent_pod(&session, &plan, &PodSettings::new(SANDBOX_IMAGE));
    pod.spec.get_or_insert_default().scheduler_name = Some("none".to_owned());
    let pods: Api<Pod> = Api::namespaced(t.cluster.client.clone(), &t.namespace);
    let pod = pods.create(&params, &pod).await?;
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(starting())).await?;
    Ok(())
}

/// The status of a Pod that a kubelet has begun with.
fn starting() -> Value {
    let condition = |name: &str, is_true: bool| {
        let status = if is_true { "True" } else { "False" };
        json!({"type": name, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let container = |name: &str, reason: &str| {
        json!({
            "name": name, "image": "localhost/image:dev", "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason}},
        })
    };
    json!({"status": {
        "phase": "Pending",
        "hostIP": "192.0.2.1",
        "hostIPs": [{"ip": "192.0.2.1"}],
        "startTime": "2026-01-01T00:00:00Z",
        "qosClass": "Burstable",
        "conditions": [
            condition("PodScheduled", true),
            condition("Initialized", false),
            condition("ContainersReady", false),
            condition("Ready", false),
        ],
        "initContainerStatuses": [container("install", "PodInitializing")],
        "containerStatuses": [container("agent", "PodInitializing"), container("recorder", "PodInitializing")],
    }})
}
