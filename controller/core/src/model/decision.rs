//! What comes out of a decision: one step, and what goes with it.

use std::{collections::BTreeSet, time::Duration};

use transcript::{Attempt, Outcome, PodUid, Reason, Turn, Verdict, status::Usage};

use super::{Clock, SpecTurn};
use crate::settled::Settled;

/// What to do now: one step, what the object should say, and when to look again.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The one step.
    pub step: Step,
    /// When to look again if no event comes.
    pub requeue: Option<Duration>,
    /// What the session waits for, for its status; not an error.
    pub waiting: Option<(Reason, String)>,
    /// The states that hold now, whose clocks run on.
    pub clocks: BTreeSet<Clock>,
    /// The Pod whose follower should be up, and the turn that it follows.
    pub follow: Option<Follow>,
    /// Whether the session's Pod is on its way out: status no longer names it.
    pub tearing_down: bool,
}

/// A follower that should be up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    /// The Pod.
    pub pod: PodRef,
    /// The attempt.
    pub attempt: Attempt,
    /// The turn.
    pub turn: Turn,
}

/// A Pod, by name and UID. Every effect on a Pod carries both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: PodUid,
}

/// One effect. Nothing is left to choose for who carries it out, and every one may be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing until something changes.
    Wait,
    /// Store: make the session's row, and record these turns as accepted.
    AcceptTurns(Vec<(Turn, SpecTurn)>),
    /// Store: record these turns as lost by the store; they never run.
    RecordLostTurns(Vec<(Turn, SpecTurn)>),
    /// API: put our finalizer on the session.
    AddFinalizer,
    /// Store: open an attempt; the seed stands only for a session that has none.
    OpenAttempt {
        /// The attempt.
        attempt: Attempt,
        /// Seed of the session's Pod nonces.
        seed: String,
    },
    /// API: NetworkPolicy, claim, then the Pod.
    CreatePod {
        /// The attempt.
        attempt: Attempt,
        /// The nonce that the Pod carries.
        nonce: String,
        /// Whether earlier turns ran in another Pod, so that a workspace without a claim starts empty.
        fresh_workspace: bool,
    },
    /// Store: this Pod runs this turn.
    StartTurn {
        /// The turn.
        turn: Turn,
        /// The attempt.
        attempt: Attempt,
        /// The Pod.
        pod: PodRef,
    },
    /// Exec: give the turn's prompt to the driver.
    Deliver {
        /// The turn.
        turn: Turn,
        /// The Pod.
        pod: PodRef,
    },
    /// Exec: tell the driver to stop the turn.
    CancelTurn {
        /// The turn.
        turn: Turn,
        /// The Pod.
        pod: PodRef,
    },
    /// Store: the turn is over or being cut off.
    BeginHarvest {
        /// The turn.
        turn: Turn,
        /// The attempt.
        attempt: Attempt,
    },
    /// Task: read the turn's log and store what is missing.
    Harvest {
        /// The turn.
        turn: Turn,
        /// The attempt.
        attempt: Attempt,
        /// The Pod.
        pod: PodRef,
        /// Whether the agent container is seen to have ended already.
        after_agent_end: bool,
    },
    /// Store: the compare-and-set.
    Settle(Box<Settle>),
    /// Exec: the recorder may go.
    ReleaseRecorder {
        /// The Pod.
        pod: PodRef,
        /// The proof.
        proof: Settled,
    },
    /// API: delete the Pod, by UID, with a grace of one second.
    DeletePod {
        /// The Pod.
        pod: PodRef,
        /// The proof.
        proof: Settled,
    },
    /// API: take our finalizer off the Pod.
    ReleasePod {
        /// The Pod.
        pod: PodRef,
        /// The proof.
        proof: Settled,
    },
    /// Store: note that the object goes, or delete its history with it.
    Reclaim {
        /// Whether the history goes.
        delete: bool,
    },
    /// API: take our finalizer off the session.
    ReleaseSession {
        /// The proof.
        proof: Settled,
    },
    /// API: delete the session, its `ttlAfterFinished` being over.
    DeleteSession,
}

/// The record of a [`Step::Settle`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    /// The turn.
    pub turn: Turn,
    /// Attempt that the record must have.
    pub attempt: Option<Attempt>,
    /// Pod that the record must have.
    pub pod_uid: Option<PodUid>,
    /// Outcome.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<Reason>,
    /// Verdict.
    pub verdict: Verdict,
    /// What is missing.
    pub verdict_reason: Option<Reason>,
    /// For people.
    pub message: Option<String>,
    /// Usage.
    pub usage: Option<Usage>,
}

impl Step {
    /// Whether the step leans on what the status says: nothing runs of which the object does not say that it was accepted.
    #[must_use]
    pub fn needs_status(&self) -> bool {
        match self {
            Self::Wait
            | Self::AcceptTurns(_)
            | Self::RecordLostTurns(_)
            | Self::AddFinalizer
            | Self::OpenAttempt { .. }
            | Self::CreatePod { .. }
            | Self::StartTurn { .. }
            | Self::Deliver { .. }
            | Self::DeleteSession => true,
            Self::CancelTurn { .. }
            | Self::BeginHarvest { .. }
            | Self::Harvest { .. }
            | Self::Settle(_)
            | Self::ReleaseRecorder { .. }
            | Self::DeletePod { .. }
            | Self::ReleasePod { .. }
            | Self::Reclaim { .. }
            | Self::ReleaseSession { .. } => false,
        }
    }

    /// Name of the effect: failpoints, metrics and the simulated world's numbering go by it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::AcceptTurns(_) => "accept",
            Self::RecordLostTurns(_) => "record-lost",
            Self::AddFinalizer => "add-finalizer",
            Self::OpenAttempt { .. } => "open-attempt",
            Self::CreatePod { .. } => "create",
            Self::StartTurn { .. } => "start",
            Self::Deliver { .. } => "deliver",
            Self::CancelTurn { .. } => "cancel",
            Self::BeginHarvest { .. } => "begin-harvest",
            Self::Harvest { .. } => "harvest",
            Self::Settle(_) => "settle",
            Self::ReleaseRecorder { .. } => "release-recorder",
            Self::DeletePod { .. } => "delete",
            Self::ReleasePod { .. } => "release-pod",
            Self::Reclaim { .. } => "reclaim",
            Self::ReleaseSession { .. } => "release",
            Self::DeleteSession => "delete-session",
        }
    }
}
