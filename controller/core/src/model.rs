//! What goes into a decision; `decision` has what comes out of it.

mod decision;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use transcript::{
    AgentStatus, Attempt, Outcome, PodUid, Reason, SessionUid, Turn, TurnState, Verdict,
    merge::{ContainerEnd, Evidence},
    status::Usage,
};

pub use decision::{Decision, Follow, PodRef, Settle, Step};

/// Everything that one reconcile of one session may know. It is a value: the same value always gives the same decision.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The AgentSession, from the watch cache.
    pub session: SessionView,
    /// What the store says, or why it does not answer.
    pub ledger: Result<LedgerView, Trouble>,
    /// Every Pod that carries our session's uid label or the name of one of its attempts, from the watch cache.
    pub pods: Vec<PodView>,
    /// What the followers last heard from drivers, by Pod.
    pub drivers: BTreeMap<PodUid, DriverView>,
    /// The settling read of the current turn's log.
    pub harvest: HarvestView,
    /// The API server's last refusal to create the Pod of an attempt.
    pub refusal: Option<PodRefusal>,
    /// How long each state has been held, as far as this process has seen.
    pub elapsed: BTreeMap<Clock, Duration>,
    /// Why the records of a torn down Pod were abandoned, if this process did so while the store was away.
    pub abandoned: Option<Reason>,
    /// Marks of effects that leave no trace elsewhere: prompts and cancels delivered by this process.
    pub done: BTreeSet<Done>,
    /// Randomness, should this decision need some: the seed of Pod nonces for a session that has none yet.
    pub fresh_seed: String,
}

/// An AgentSession as far as decisions need it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// `metadata.uid`.
    pub uid: SessionUid,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Whether our finalizer is on it.
    pub has_finalizer: bool,
    /// Whether `agentsession release` asks for it to be let go.
    pub releasing: bool,
    /// `spec.desiredState`.
    pub desired: Desired,
    /// `spec.turns`, first is turn 1.
    pub turns: Vec<SpecTurn>,
    /// `spec.agent.image`.
    pub image: String,
    /// Digest of what a Pod is made from (`agent`, `podTemplate`, `workspace`): a Pod with another one is outdated.
    pub template_digest: String,
    /// `status.acceptedTurns`: the high-water mark, the only part of status that decisions read.
    pub accepted_turns: u32,
    /// Durations with their defaults resolved.
    pub timeouts: Timeouts,
    /// Whether stored history goes with the object (`reclaimPolicy: Delete`).
    pub reclaim_delete: bool,
    /// Why the object cannot be acted on at all: a stored value that no rule let in today. Says field, value and way out.
    pub invalid: Option<String>,
}

impl SessionView {
    /// A session whose object cannot be read: nothing of it is run, and it is let go when it is deleted.
    #[must_use]
    pub fn unreadable(
        uid: SessionUid,
        namespace: String,
        name: String,
        deleting: bool,
        has_finalizer: bool,
        why: String,
    ) -> Self {
        let never = Duration::MAX;
        Self {
            uid,
            namespace,
            name,
            deleting,
            has_finalizer,
            releasing: false,
            desired: Desired::Active,
            turns: Vec::new(),
            image: String::new(),
            template_digest: String::new(),
            accepted_turns: 0,
            timeouts: Timeouts {
                start: never,
                turn: never,
                idle: never,
                hold: Duration::from_secs(3600),
                harvest: Duration::from_secs(120),
                ttl: None,
            },
            reclaim_delete: false,
            invalid: Some(why),
        }
    }
}

/// `spec.desiredState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Desired {
    /// Run.
    #[default]
    Active,
    /// No Pod; turns wait.
    Suspended,
    /// For good.
    Canceled,
}

/// One entry of `spec.turns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecTurn {
    /// The client's id.
    pub id: Option<String>,
    /// The prompt.
    pub prompt: String,
}

/// Durations of a session with their defaults resolved.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From being next to run until the agent runs.
    pub start: Duration,
    /// One turn.
    pub turn: Duration,
    /// How long a Pod waits for another turn.
    pub idle: Duration,
    /// How long the Pod is kept while reading or storing fails and nothing forces us.
    pub hold: Duration,
    /// The same while the session or its Pod is being deleted.
    pub harvest: Duration,
    /// When a finished session is deleted; `None` is never.
    pub ttl: Option<Duration>,
}

/// What the store says of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerView {
    /// Whether the store has a row of the session.
    pub known: bool,
    /// Latest attempt; 0 before the first.
    pub attempt: Attempt,
    /// Seed of the nonces that the session's Pods carry; empty before the first attempt.
    pub seed: String,
    /// Turns, in order.
    pub turns: Vec<TurnView>,
    /// Parts of the whole session.
    pub parts: u64,
    /// Bytes of the whole session.
    pub bytes: u64,
    /// Last seq.
    pub last_seq: u64,
}

/// A turn in the store. Ages are by the store's clock alone.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnView {
    /// The turn.
    pub turn: Turn,
    /// State.
    pub state: TurnState,
    /// Attempt that ran it.
    pub attempt: Option<Attempt>,
    /// Pod that ran it.
    pub pod_uid: Option<PodUid>,
    /// Outcome, once settled.
    pub outcome: Option<Outcome>,
    /// Why.
    pub reason: Option<Reason>,
    /// Verdict, once settled.
    pub verdict: Option<Verdict>,
    /// What is missing.
    pub verdict_reason: Option<Reason>,
    /// For people.
    pub message: Option<String>,
    /// Parts stored.
    pub parts: u32,
    /// Usage.
    pub usage: Option<Usage>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it began to run.
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    pub settled_at: Option<Timestamp>,
    /// How long it has been running.
    pub running_for: Option<Duration>,
    /// How long ago it was settled.
    pub settled_for: Option<Duration>,
}

/// Why the store does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// `StoreUnavailable` or `StoreFull`.
    pub reason: Reason,
    /// For people.
    pub message: String,
}

/// A Pod of the session.
#[derive(Clone, Debug)]
pub struct PodView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: PodUid,
    /// The attempt that its name or annotation says.
    pub attempt: Attempt,
    /// The nonce that it carries.
    pub nonce: String,
    /// Whether its controlling owner is this session.
    pub owned: bool,
    /// Digest of the template that it was made from.
    pub template_digest: String,
    /// Whether our finalizer is on it.
    pub has_finalizer: bool,
    /// Set when it is being deleted: the grace period.
    pub deleting: Option<Duration>,
    /// Its IP.
    pub ip: Option<String>,
    /// Phase.
    pub phase: PodPhase,
    /// The container `agent`.
    pub agent: ContainerState,
    /// The container `recorder`.
    pub recorder: ContainerState,
    /// Why the cluster takes it away, in the cluster's words, when it says so (eviction, preemption, taint).
    pub disruption: Option<(Reason, String)>,
    /// What keeps it from starting.
    pub start_error: Option<StartError>,
    /// Whether its node answers; `None` when it has no node or nobody could tell.
    pub node_ready: Option<bool>,
}

/// `status.phase` of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// Bound, and a container runs or did.
    Running,
    /// All containers ended well.
    Succeeded,
    /// A container ended badly, or the kubelet gave up on the Pod.
    Failed,
    /// The node stopped answering.
    Unknown,
}

/// State of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Not there yet.
    Waiting,
    /// Running.
    Running,
    /// Ended (a `lastState` counts: nothing in our Pods restarts by intent).
    Ended(ContainerEnd),
}

/// What keeps a Pod from starting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    /// The reason.
    pub reason: Reason,
    /// The cluster's own words.
    pub message: String,
    /// Whether waiting can heal it (an image that is pushed late, a Secret that comes, room on a node).
    pub heals: bool,
}

/// A refusal to create the Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRefusal {
    /// The attempt whose Pod it was.
    pub attempt: Attempt,
    /// What to make of it.
    pub kind: RefusalKind,
    /// The API server's own words.
    pub message: String,
    /// How long ago it was.
    pub age: Duration,
}

/// What a refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// "exceeded quota": waits without end.
    Quota,
    /// The name is taken by a Pod that is not ours: next attempt.
    NameTaken,
    /// The namespace is going away: nothing can be created any more.
    NamespaceTerminating,
    /// Cannot heal.
    Fatal,
}

/// What the follower of a Pod last heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverView {
    /// `status.json` of the last verified frame.
    pub status: Option<AgentStatus>,
    /// Why checkpoints are not being stored or read, if so.
    pub trouble: Option<Trouble>,
}

/// The settling read of the current turn.
#[derive(Clone, Debug)]
pub enum HarvestView {
    /// None was asked for.
    None,
    /// One is under way.
    Running,
    /// The last one failed.
    Failed {
        /// Why.
        trouble: Trouble,
        /// How many have failed in a row.
        tries: u32,
        /// How long ago this one did.
        age: Duration,
    },
    /// The last one came through.
    Read {
        /// What it found.
        evidence: Box<Evidence>,
        /// Whether the agent container was seen to have ended before the read began: only then does its end prove anything.
        after_agent_end: bool,
        /// How long ago it was.
        age: Duration,
    },
}

/// A state whose duration counts. The shell starts a clock when a decision first names it and drops it when one no longer does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clock {
    /// This accepted turn is the next to run.
    Next(Turn),
    /// This Pod is being deleted.
    PodDeleting(PodUid),
    /// The turn is over and its log cannot be read or stored; nothing forces us.
    Holding,
    /// The log cannot be read or stored while the session or its Pod is being deleted.
    Forced,
    /// The prompt was delivered and the driver has not taken it yet.
    Untaken(Turn),
    /// This turn was told to stop.
    Stopping(Turn),
    /// A fresh attempt waits for its turn to try.
    Backoff(Attempt),
}

/// An effect that this process has carried out and that nothing else shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Done {
    /// A prompt was delivered to this Pod.
    Delivered(PodUid, Turn),
    /// A cancel was delivered to this Pod.
    Canceled(PodUid, Turn),
    /// The recorder of this Pod was told that it may go.
    RecorderReleased(PodUid),
    /// The history's owner was noted as gone, or the history deleted.
    Reclaimed,
}
