//! What the invariants look at: the facts of one event.

use crds::AgentSessionStatus;
use transcript::{Attempt, PartIndex, PodUid, SessionUid, Turn};

use agentsession_controller_core::model::TurnView;

#[derive(Clone, Debug)]
pub enum Fact {
    /// A controller's DELETE or removal of our finalizer took effect on a Pod.
    PodTakenDown { session: SessionUid, pod: PodUid, deleted: bool, abandoned: bool, deleting: bool },
    /// Our finalizer was taken off a session by a controller.
    SessionReleased { session: SessionUid, abandoned: bool },
    /// A driver began to run a prompt.
    TurnRan { session: SessionUid, turn: Turn, pod: PodUid },
    /// The store said that a part is stored.
    Acknowledged { session: SessionUid, turn: Turn, attempt: Attempt, index: PartIndex, seq: u64, raw: String },
    /// The store changed a turn record.
    TurnChanged { session: SessionUid, before: Option<Box<TurnView>>, after: Box<TurnView> },
    /// A status was written.
    StatusWritten { before: Option<Box<AgentSessionStatus>>, after: Box<AgentSessionStatus> },
    /// A controller made a Pod.
    PodMade { session: SessionUid, pod: PodUid, attempt: Attempt },
    /// A controller's write hit another Pod than it meant.
    WrongPod { meant: PodUid, hit: PodUid },
    /// A controller executed something in a Pod.
    Executed { pod: PodUid },
    /// A controller's write changed an object's finalizers.
    FinalizersChanged { before: Vec<String>, after: Vec<String> },
    /// An API effect on an object took effect: the same process must not do it twice.
    Effect { process: usize, epoch: u32, key: String },
    /// The store was emptied.
    Emptied,
}
