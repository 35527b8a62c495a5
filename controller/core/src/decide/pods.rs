//! Which Pods are ours, which one counts, and how one is taken down.

use std::time::Duration;

use sha2::{Digest, Sha256};
use transcript::Attempt;

use super::Desk;
use crate::{
    model::{Clock, ContainerState, Done, Follow, LedgerView, PodPhase, PodRef, PodView, Step},
    settled::Settled,
};

/// How much longer than its grace a deleted Pod on a silent node is believed to run.
const SILENT_NODE_MARGIN: Duration = Duration::from_secs(10);

/// The nonce that the Pod of an attempt carries: the first 32 hex digits of SHA-256 over `seed:attempt`. The seed is in the store before the Pod is
/// made, so a Pod of the right name that somebody else made cannot have it.
#[must_use]
pub fn pod_nonce(seed: &str, attempt: Attempt) -> String {
    let digest = Sha256::digest(format!("{seed}:{attempt}"));
    let mut text = hex::encode(digest);
    text.truncate(32);
    text
}

/// Whether a Pod can no longer answer: nothing is executed in it and nothing dialled any more.
///
/// `deleting_for` is how long this process has seen it being deleted. A retained Pod IP means nothing.
#[must_use]
pub fn is_terminal(pod: &PodView, deleting_for: Duration) -> bool {
    let ended = matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    let recorder_ended = matches!(pod.recorder, ContainerState::Ended(_));
    let silent = pod.node_ready == Some(false)
        && pod.deleting.is_some_and(|grace| deleting_for >= grace.saturating_add(SILENT_NODE_MARGIN));
    ended || recorder_ended || silent
}

impl PodView {
    /// Name and UID, as effects carry them.
    #[must_use]
    pub fn reference(&self) -> PodRef {
        PodRef { name: self.name.clone(), uid: self.uid.clone() }
    }
}

impl Desk<'_> {
    /// [`is_terminal`], with the clock of the Pod's deletion.
    pub(super) fn is_terminal(&mut self, pod: &PodView) -> bool {
        let deleting_for = pod.deleting.map_or(Duration::ZERO, |grace| {
            let elapsed = self.since(Clock::PodDeleting(pod.uid.clone()));
            if pod.node_ready == Some(false) {
                let _ = self.over(elapsed, grace.saturating_add(SILENT_NODE_MARGIN));
            }
            elapsed
        });
        is_terminal(pod, deleting_for)
    }

    /// Whether a recorder can be talked to.
    pub(super) fn reachable(&mut self, pod: &PodView) -> bool {
        !self.is_terminal(pod) && pod.recorder == ContainerState::Running
    }

    /// Keeps the Pod's follower up on this turn while its recorder can be talked to.
    pub(super) fn follow(&mut self, pod: &PodView, turn: transcript::Turn) {
        if self.reachable(pod) {
            self.follow = Some(Follow { pod: pod.reference(), attempt: pod.attempt, turn });
        }
    }

    /// Takes a Pod down, one step at a time; `None` when a turn of it is not settled, or nothing is left to do.
    pub(super) fn tear_down(&mut self, ledger: &LedgerView, pod: &PodView) -> Option<Step> {
        let proof = Settled::for_pod(ledger, &pod.uid)?;
        self.take_down(pod, proof)
    }

    /// Takes a Pod down with a proof at hand: the recorder first, since a second DELETE would not shorten a grace that somebody else gave.
    pub(super) fn take_down(&mut self, pod: &PodView, proof: Settled) -> Option<Step> {
        let released = self.observed.done.contains(&Done::RecorderReleased(pod.uid.clone()));
        if !released && self.reachable(pod) {
            return Some(Step::ReleaseRecorder { pod: pod.reference(), proof });
        }
        if pod.deleting.is_none() {
            return Some(Step::DeletePod { pod: pod.reference(), proof });
        }
        pod.has_finalizer.then(|| Step::ReleasePod { pod: pod.reference(), proof })
    }

    /// Pods other than the one that counts: ours of earlier attempts go; one that only looks like ours is never touched, but for a finalizer of ours that would
    /// hold its deletion up.
    pub(super) fn strays(&mut self, ledger: &LedgerView, current: Option<&PodView>) -> Option<Step> {
        let observed = self.observed;
        for pod in &observed.pods {
            if current.is_some_and(|current| current.uid == pod.uid) {
                continue;
            }
            if is_ours(ledger, pod) {
                if let Some(step) = self.tear_down(ledger, pod) {
                    return Some(step);
                }
            } else if pod.has_finalizer && pod.deleting.is_some() {
                let proof = Settled::for_pod(ledger, &pod.uid)?;
                return Some(Step::ReleasePod { pod: pod.reference(), proof });
            }
        }
        None
    }
}

/// Whether a Pod is one that we made: it carries the nonce of its attempt. A store that was emptied knows no seed: then an owned Pod with our finalizer is
/// ours to take down, and nothing else.
pub(super) fn is_ours(ledger: &LedgerView, pod: &PodView) -> bool {
    if ledger.seed.is_empty() {
        pod.owned && pod.has_finalizer
    } else {
        pod.nonce == pod_nonce(&ledger.seed, pod.attempt)
    }
}

/// The Pod of the latest attempt, if it is there and ours.
pub(super) fn current<'a>(desk: &Desk<'a>, ledger: &LedgerView) -> Option<&'a PodView> {
    desk.observed.pods.iter().find(|pod| pod.attempt == ledger.attempt && is_ours(ledger, pod))
}
