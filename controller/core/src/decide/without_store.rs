//! The ledger cannot be read. Pods are held as the buffer; what is being deleted is let go at its deadline, and the loss is said.

use std::time::Duration;

use crate::{
    model::{Clock, ContainerState, Observed, PodView, Step, Trouble},
    settled::Settled,
};

use super::Desk;

/// When a session that has something to lose looks again.
const SOON: Duration = Duration::from_secs(5);
/// When any other does.
const LATER: Duration = Duration::from_secs(60);

pub(super) fn step(desk: &mut Desk<'_>, trouble: &Trouble) -> Step {
    desk.waiting = Some((trouble.reason, trouble.message.clone()));
    let observed = desk.observed;
    let session = &observed.session;
    // Without the seed a Pod of ours is known by what only we put on it together: owner and finalizer.
    let ours: Vec<&PodView> = observed.pods.iter().filter(|pod| pod.owned && pod.has_finalizer).collect();

    let going = session.deleting || session.releasing;
    // What has neither a Pod nor a wish to go has no deadline: it must not stand in the way of those that have.
    let pressing = going || !ours.is_empty();
    desk.look_again(if pressing { SOON } else { LATER });
    if going || ours.iter().any(|pod| pod.deleting.is_some()) {
        let elapsed = desk.since(Clock::Forced);
        if !desk.over(elapsed, session.timeouts.harvest) {
            return Step::Wait;
        }
        return abandon(desk, &ours, trouble, going);
    }
    if ours.iter().any(|pod| is_over(observed, pod)) {
        let elapsed = desk.since(Clock::Holding);
        if desk.over(elapsed, session.timeouts.hold) {
            return abandon(desk, &ours, trouble, false);
        }
    }
    Step::Wait
}

/// Whether nothing more will come from a Pod: its turn is over, or its agent.
fn is_over(observed: &Observed, pod: &PodView) -> bool {
    let ended = matches!(pod.agent, ContainerState::Ended(_));
    let told = observed
        .drivers
        .get(&pod.uid)
        .and_then(|driver| driver.status.as_ref())
        .is_some_and(|status| status.state.is_terminal());
    ended || told
}

fn abandon(desk: &mut Desk<'_>, ours: &[&PodView], trouble: &Trouble, going: bool) -> Step {
    for pod in ours {
        let wanted = going || pod.deleting.is_some() || is_over(desk.observed, pod);
        if !wanted {
            continue;
        }
        desk.tearing_down = true;
        if let Some(step) = desk.take_down(pod, Settled::abandoned(trouble.reason)) {
            return step;
        }
    }
    if going && desk.observed.session.has_finalizer {
        return Step::ReleaseSession { proof: Settled::abandoned(trouble.reason) };
    }
    Step::Wait
}
