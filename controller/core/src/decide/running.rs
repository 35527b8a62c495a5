//! A Pod has the turn: wait for its end or bring it about, read the log while that can be done, and settle.

use std::time::Duration;

use transcript::{AgentStatus, Outcome, Reason, TurnState};

use super::{Desk, accepted, settle};
use crate::model::{Clock, ContainerState, Done, HarvestView, LedgerView, PodView, Step, Trouble, TurnView};

/// How long a driver may take to end a turn that was told to stop: it gives its agent 10 s.
const STOP_GRACE: Duration = Duration::from_secs(20);
/// How often the log of a Pod that is being taken away is read again.
const AGAIN: Duration = Duration::from_secs(1);
/// When a prompt that the driver has not taken is delivered once more.
const REDELIVER: Duration = Duration::from_secs(15);
/// How long a follower may be in trouble before it is worth a word in the status.
const WORTH_SAYING: Duration = Duration::from_secs(10);
/// How long the news of why a turn was stopped may take.
const EXPLAINED: Duration = Duration::from_secs(5);
/// Longest pause between reads that fail.
const MAX_RETRY: Duration = Duration::from_secs(15);

pub(super) fn step(desk: &mut Desk<'_>, ledger: &LedgerView, turn: &TurnView) -> Step {
    let observed = desk.observed;
    let pod = observed.pods.iter().find(|pod| Some(&pod.uid) == turn.pod_uid.as_ref());
    let Some(pod) = pod else { return gone(desk, turn) };
    if desk.is_terminal(pod) {
        return terminal(desk, turn, pod);
    }
    let step = live(desk, turn, pod);
    if step == Step::Wait { desk.strays(ledger, Some(pod)).unwrap_or(Step::Wait) } else { step }
}

/// The Pod object is no more.
fn gone(desk: &mut Desk<'_>, turn: &TurnView) -> Step {
    if let Some(step) = from_last_read(desk, turn, None) {
        return step;
    }
    let reason = desk.observed.abandoned.unwrap_or(transcript::Reason::PodGone);
    settle::incomplete(desk, turn, None, reason)
}

/// The Pod cannot answer any more: replay-only.
fn terminal(desk: &mut Desk<'_>, turn: &TurnView, pod: &PodView) -> Step {
    if let Some(step) = from_last_read(desk, turn, Some(pod)) {
        return step;
    }
    let reason = desk.observed.abandoned.unwrap_or_else(|| settle::loss(Some(pod)));
    settle::incomplete(desk, turn, Some(pod), reason)
}

/// What a read that began in time has to say: its proof stands; one under way is bounded and waited for.
fn from_last_read(desk: &Desk<'_>, turn: &TurnView, pod: Option<&PodView>) -> Option<Step> {
    match &desk.observed.harvest {
        HarvestView::Running => Some(Step::Wait),
        HarvestView::Read { evidence, after_agent_end, .. } => {
            let judgement = settle::judged(turn, pod, evidence, *after_agent_end);
            (!judgement.pending).then(|| settle::by_judgement(desk, turn, pod, judgement))
        }
        HarvestView::None | HarvestView::Failed { .. } => None,
    }
}

fn live(desk: &mut Desk<'_>, turn: &TurnView, pod: &PodView) -> Step {
    desk.follow(pod, turn.turn);
    let status = desk.status_of(pod);
    let ended = matches!(pod.agent, ContainerState::Ended(_));
    let over = ended || status.is_some_and(|status| status.turn == turn.turn && status.state.is_terminal());
    let stop = settle::stop_reason(desk, turn).is_some();

    if over || pod.deleting.is_some() || turn.state == TurnState::Harvesting {
        return harvest(desk, turn, pod, ended, over);
    }
    if stop {
        return stop_turn(desk, turn, pod, ended);
    }
    if let Some(age) = turn.running_for {
        let _ = desk.over(age, desk.observed.session.timeouts.turn);
    }
    if unheard_too_long(desk, pod) {
        return harvest(desk, turn, pod, ended, false);
    }
    deliver(desk, turn, pod, status)
}

/// Whether a Pod could not be read, or its parts not be stored, for as long as it may be held for that. Nobody knows then whether its turn still runs.
fn unheard_too_long(desk: &mut Desk<'_>, pod: &PodView) -> bool {
    let observed = desk.observed;
    let trouble = observed.drivers.get(&pod.uid).and_then(|driver| driver.trouble.as_ref());
    let Some(trouble) = trouble else { return false };
    let elapsed = desk.since(Clock::Holding);
    if elapsed >= WORTH_SAYING {
        desk.waiting = Some((trouble.reason, trouble.message.clone()));
    } else {
        desk.look_again(WORTH_SAYING - elapsed);
    }
    desk.over(elapsed, observed.session.timeouts.hold)
}

/// Gives the prompt to a driver that still waits for it.
fn deliver(desk: &mut Desk<'_>, turn: &TurnView, pod: &PodView, status: Option<&AgentStatus>) -> Step {
    let untaken = status.is_some_and(|status| accepted::is_ready_for(status, turn));
    if !untaken {
        return Step::Wait;
    }
    let delivered = desk.observed.done.contains(&Done::Delivered(pod.uid.clone(), turn.turn));
    if delivered {
        let elapsed = desk.since(Clock::Untaken(turn.turn));
        if !desk.over(elapsed, REDELIVER) {
            return Step::Wait;
        }
        // Counted anew from this delivery.
        desk.clocks.remove(&Clock::Untaken(turn.turn));
    }
    Step::Deliver { turn: turn.turn, pod: pod.reference() }
}

/// Tells the driver to stop and gives it the time to; then the log is read as it is.
fn stop_turn(desk: &mut Desk<'_>, turn: &TurnView, pod: &PodView, ended: bool) -> Step {
    let stopping = desk.since(Clock::Stopping(turn.turn));
    if desk.over(stopping, STOP_GRACE) {
        return harvest(desk, turn, pod, ended, false);
    }
    if desk.observed.done.contains(&Done::Canceled(pod.uid.clone(), turn.turn)) {
        Step::Wait
    } else {
        Step::CancelTurn { turn: turn.turn, pod: pod.reference() }
    }
}

fn harvest(desk: &mut Desk<'_>, turn: &TurnView, pod: &PodView, ended: bool, over: bool) -> Step {
    let attempt = turn.attempt.unwrap_or_default();
    if turn.state == TurnState::Running {
        return Step::BeginHarvest { turn: turn.turn, attempt };
    }
    if !desk.reachable(pod) {
        // Not terminal, and nobody to ask: what its status says is not all there is. Bounded like any read that fails.
        let trouble = Trouble { reason: Reason::ReadFailed, message: "the recorder does not run".to_owned() };
        return failed(desk, turn, pod, Step::Wait, &trouble, 0, Duration::ZERO);
    }
    let read = Step::Harvest { turn: turn.turn, attempt, pod: pod.reference(), after_agent_end: ended };
    // A read that is asked for or under way ends nothing that a deadline is counted from.
    desk.keep_clocks(|clock| matches!(clock, Clock::Holding | Clock::Forced) || *clock == Clock::Stopping(turn.turn));
    match &desk.observed.harvest {
        HarvestView::None => read,
        HarvestView::Running => Step::Wait,
        HarvestView::Failed { trouble, tries, age } => failed(desk, turn, pod, read, trouble, *tries, *age),
        HarvestView::Read { evidence, after_agent_end, age } => {
            let judgement = settle::judged(turn, Some(pod), evidence, *after_agent_end);
            if !judgement.pending {
                if judgement.outcome == Outcome::Canceled && unexplained(desk, turn, pod) {
                    return Step::Wait;
                }
                return settle::by_judgement(desk, turn, Some(pod), judgement);
            }
            unfinished(desk, turn, pod, read, over, *age)
        }
    }
}

/// Whether a turn was stopped and nothing says by whom: the news that its Pod is being deleted may come later than the driver's own word.
fn unexplained(desk: &mut Desk<'_>, turn: &TurnView, pod: &PodView) -> bool {
    if settle::stop_reason(desk, turn).is_some() || !settle::stands(pod) {
        return false;
    }
    let waited = desk.since(Clock::Stopping(turn.turn));
    !desk.over(waited, EXPLAINED)
}

/// The log was read and the turn had no end in it yet.
fn unfinished(desk: &mut Desk<'_>, turn: &TurnView, pod: &PodView, read: Step, over: bool, age: Duration) -> Step {
    if !over && pod.deleting.is_none() {
        // A turn that was told to stop and whose driver says nothing: what stands now is what stands.
        let stopping = desk.since(Clock::Stopping(turn.turn));
        let told = desk.observed.done.contains(&Done::Canceled(pod.uid.clone(), turn.turn));
        if !told {
            return Step::CancelTurn { turn: turn.turn, pod: pod.reference() };
        }
        if desk.over(stopping, STOP_GRACE) {
            return last_word(desk, turn, pod);
        }
    }
    if over {
        // The end is known and the read did not see it: it began before. A driver whose status never comes right is not waited for without end.
        let elapsed = desk.since(Clock::Forced);
        if desk.over(elapsed, desk.observed.session.timeouts.harvest) {
            return last_word(desk, turn, pod);
        }
    }
    if desk.over(age, AGAIN) { read } else { Step::Wait }
}

/// Settles by what the last read would say if the turn ended here.
fn last_word(desk: &Desk<'_>, turn: &TurnView, pod: &PodView) -> Step {
    match &desk.observed.harvest {
        HarvestView::Read { evidence, after_agent_end, .. } => {
            let judgement = settle::judged(turn, Some(pod), evidence, *after_agent_end);
            settle::by_judgement(desk, turn, Some(pod), judgement)
        }
        HarvestView::None | HarvestView::Running | HarvestView::Failed { .. } => Step::Wait,
    }
}

/// The log could not be read or stored: the Pod is kept as the buffer until the deadline.
fn failed(
    desk: &mut Desk<'_>,
    turn: &TurnView,
    pod: &PodView,
    read: Step,
    trouble: &Trouble,
    tries: u32,
    age: Duration,
) -> Step {
    let session = &desk.observed.session;
    let forced = session.deleting || session.releasing || pod.deleting.is_some();
    let (clock, bound) =
        if forced { (Clock::Forced, session.timeouts.harvest) } else { (Clock::Holding, session.timeouts.hold) };
    let elapsed = desk.since(clock);
    if desk.over(elapsed, bound) {
        return settle::unread(desk, turn, pod, trouble);
    }
    desk.waiting = Some((trouble.reason, trouble.message.clone()));
    let pause = Duration::from_millis(500).saturating_mul(1 << tries.min(8)).min(MAX_RETRY);
    if desk.over(age, pause) { read } else { Step::Wait }
}
