//! Every reason there is: the same word in condition, event, metric, store and API.
//!
//! A reason either explains an *outcome* (how the turn ended) or a *verdict* (what is missing of its transcript). It stands
//! here, in the lowest crate, because the driver, the merge and the store speak it as well as the API types.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use crate::verdict::UnknownWord;
use crate::verdict::words;

words! {
    /// Why a turn ended as it did, why its transcript is not complete, or why a session waits.
    Reason {
        // --- outcome: Failed
        /// The agent process exited by itself while a turn ran; the message has code or signal.
        AgentExited = "AgentExited",
        /// The kernel ended the agent for want of memory.
        OOMKilled = "OOMKilled",
        /// The agent could not be started or did not speak the protocol; nothing was delivered.
        AgentStartFailed = "AgentStartFailed",
        /// The agent answered the prompt with an error.
        AgentError = "AgentError",
        /// `spec.turnTimeout` passed.
        TurnTimeout = "TurnTimeout",
        /// `spec.startTimeout` passed before the agent ran.
        StartTimeout = "StartTimeout",
        /// The image could not be pulled, or its name is invalid.
        ImagePullFailed = "ImagePullFailed",
        /// A ResourceQuota had no room. Waits; heals by itself.
        QuotaExceeded = "QuotaExceeded",
        /// The scheduler found no node.
        Unschedulable = "Unschedulable",
        /// An init container failed.
        InitFailed = "InitFailed",
        /// The API server or the kubelet refused the Pod.
        PodRefused = "PodRefused",
        /// A container could not be created from its configuration (a missing Secret or ConfigMap, an impossible user).
        ContainerConfigError = "ContainerConfigError",

        // --- outcome: Canceled
        /// `spec.desiredState: Canceled`.
        CanceledByUser = "CanceledByUser",
        /// `spec.desiredState: Suspended` while a turn ran.
        Suspended = "Suspended",
        /// The AgentSession was deleted while the turn was active.
        SessionDeleted = "SessionDeleted",
        /// An earlier turn of those accepted together did not succeed.
        EarlierTurnFailed = "EarlierTurnFailed",

        // --- outcome: Lost, and verdict: Incomplete
        /// The Pod was evicted (API eviction, drain, node pressure, preemption).
        Evicted = "Evicted",
        /// The Pod was deleted by somebody else.
        PodDeleted = "PodDeleted",
        /// The Pod or its recorder had ended before its log was read.
        PodTerminated = "PodTerminated",
        /// The Pod's node stopped answering.
        NodeLost = "NodeLost",
        /// The Pod object vanished.
        PodGone = "PodGone",
        /// Nothing ran: no Pod ever had this turn.
        NeverStarted = "NeverStarted",
        /// The store no longer knows a turn that it once had.
        StoreLost = "StoreLost",

        // --- verdict: Incomplete
        /// Reading the log failed until the deadline.
        ReadFailed = "ReadFailed",
        /// The store could not be reached until the deadline.
        StoreUnavailable = "StoreUnavailable",
        /// The store had no room until the deadline.
        StoreFull = "StoreFull",
        /// Indexes are missing without damage.
        PartsMissing = "PartsMissing",
        /// There is no log of the turn.
        LogMissing = "LogMissing",
        /// There is no status, or it speaks of another turn.
        StatusMissing = "StatusMissing",

        // --- verdict: Truncated
        /// The log reached its size bound.
        LogLimit = "LogLimit",
        /// A part was over its size bound and replaced by a marker.
        PartLimit = "PartLimit",
        /// The turn reached its bound on parts.
        PartCountLimit = "PartCountLimit",
        /// The session's quota was reached.
        QuotaReached = "QuotaReached",
        /// Lines of the log could not be understood.
        LogDamaged = "LogDamaged",
        /// The driver could not write its log.
        LogWriteFailed = "LogWriteFailed",

        // --- conditions and events, beside the above
        /// A turn is active.
        TurnActive = "TurnActive",
        /// A turn was settled, and neither its outcome nor its verdict needs an explanation.
        TurnSettled = "TurnSettled",
        /// Every turn in spec is settled.
        AllTurnsSettled = "AllTurnsSettled",
        /// Every verdict is `Complete`.
        AllTurnsComplete = "AllTurnsComplete",
        /// The agent Pod runs.
        PodRunning = "PodRunning",
        /// The agent Pod is being created, scheduled or started.
        PodStarting = "PodStarting",
        /// There is no agent Pod.
        NoPod = "NoPod",
        /// The session is not suspended.
        Active = "Active",
        /// A new attempt began.
        AttemptStarted = "AttemptStarted",
        /// A Pod that is not ours has the name of our next one.
        NameTaken = "NameTaken",
        /// A fresh attempt began with an empty workspace.
        WorkspaceEmpty = "WorkspaceEmpty",
        /// A stored field is none that validation would let in today; its default is in force.
        InvalidField = "InvalidField",
        /// Finalizers were taken off by `agentsession release`.
        Released = "Released",
    }
}
