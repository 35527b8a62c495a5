//! The phase: a summary for people. Nothing is decided by it.

use crds::Phase;
use transcript::{Outcome, TurnState};

use super::{Projection, in_pod};
use crate::model::{Desired, LedgerView};

impl Projection<'_> {
    pub(super) fn phase(&self, ledger: &LedgerView) -> Phase {
        let facts = self.facts;
        if let Some(turn) = in_pod(ledger) {
            // An ordinary harvest is over before anybody has read that it began.
            let slow = facts.slow_harvest || (turn.state == TurnState::Harvesting && facts.waiting.is_some());
            return if slow { Phase::Harvesting } else { Phase::Running };
        }
        if self.session.desired == Desired::Suspended && self.pod_is_leaving() {
            return Phase::Suspended;
        }
        if self.taken(ledger).is_some() {
            return Phase::Running;
        }
        if ledger.turns.iter().any(|turn| turn.state == TurnState::Accepted) {
            return self.waiting_phase();
        }
        if self.has_unaccepted(ledger) && !self.session.deleting {
            return Phase::Pending;
        }
        if !self.pod_is_leaving() {
            return Phase::Idle;
        }
        if self.session.desired == Desired::Canceled {
            return Phase::Canceled;
        }
        match ledger.turns.last().and_then(|turn| turn.outcome) {
            Some(Outcome::Succeeded) => Phase::Completed,
            Some(Outcome::Failed | Outcome::Lost) => Phase::Failed,
            Some(Outcome::Canceled) => Phase::Canceled,
            None => Phase::Pending,
        }
    }

    /// A turn is accepted and no Pod has it: something has to happen first, or the Pod is on its way.
    fn waiting_phase(&self) -> Phase {
        if self.facts.waiting.is_some() && self.pod.is_none() { Phase::Pending } else { Phase::Provisioning }
    }

    /// No Pod, or one that is only being cleared away: the end of a session and the end of its Pod are one status.
    pub(super) fn pod_is_leaving(&self) -> bool {
        self.pod.is_none() || self.facts.tearing_down
    }
}
