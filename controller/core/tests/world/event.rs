//! What can happen next.

use transcript::{PodUid, SessionUid};

use super::{chaos::Fault, sandbox::Act};

/// Which watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Sessions,
    Pods,
}

#[derive(Clone, Debug)]
pub enum Event {
    /// A reconcile that is due.
    Pass { process: usize, epoch: u32, session: SessionUid },
    /// The next operation of a pass that is under way.
    Op { process: usize, epoch: u32, session: SessionUid },
    /// A watch delivers what happened up to a place in the history.
    Watch { process: usize, epoch: u32, watch: Watch, upto: usize },
    /// A follower's remote sends.
    Follow { process: usize, epoch: u32, pod: PodUid, kick: bool, life: u32 },
    /// The next step of a settling read.
    Harvest { process: usize, epoch: u32, session: SessionUid, id: u64 },
    /// The sweep.
    Sweep { process: usize, epoch: u32 },
    /// A session's object is gone.
    Gone { process: usize, epoch: u32, session: SessionUid, tries: u32 },
    /// A process comes up.
    Restart { process: usize },
    /// Kubelet or driver.
    Pod(PodUid, Act),
    /// The garbage collector looks.
    Collect,
    /// A fault, or something that somebody does.
    Fault(Fault),
    /// Everything behaves from here on.
    Heal,
}
