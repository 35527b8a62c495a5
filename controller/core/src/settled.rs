//! The proof that tearing down is allowed.

use transcript::{PodUid, Reason};

use crate::model::LedgerView;

/// Proof that no turn would lose its record by a teardown. It cannot be made outside of this crate, so that an effect which
/// deletes a Pod or takes a finalizer off does not compile without a decision that had the proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled(Basis);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Basis {
    Ledger,
    Abandoned(Reason),
}

impl Settled {
    /// The standing records: no active turn belongs to this Pod.
    #[must_use]
    pub fn for_pod(ledger: &LedgerView, pod: &PodUid) -> Option<Self> {
        let held = ledger.turns.iter().any(|turn| turn.state.is_active() && turn.pod_uid.as_ref() == Some(pod));
        (!held).then_some(Self(Basis::Ledger))
    }

    /// The standing records: no turn of the session is active.
    pub(crate) fn for_session(ledger: &LedgerView) -> Option<Self> {
        let held = ledger.turns.iter().any(|turn| turn.state.is_active());
        (!held).then_some(Self(Basis::Ledger))
    }

    /// The deadline passed while the store was out of reach: condition, event and metric say so instead of a record.
    pub(crate) fn abandoned(reason: Reason) -> Self {
        Self(Basis::Abandoned(reason))
    }

    /// Why the records were abandoned, if this proof is not from the ledger.
    #[must_use]
    pub fn abandonment(&self) -> Option<Reason> {
        match self.0 {
            Basis::Ledger => None,
            Basis::Abandoned(reason) => Some(reason),
        }
    }
}
