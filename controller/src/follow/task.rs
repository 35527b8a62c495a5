//! One follower: connect, take frames, store, acknowledge, and begin again when it breaks.

use std::{sync::Arc, time::Duration};

use rand::Rng;
use store::{Category, StoreError};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use transcript::{AgentStatus, IndexSet, Reason, Turn, frame::Header, line::Position, scan::LogScanner};

use super::{FollowSpec, FollowTrouble, FollowView, Shared};
use crate::{
    exec::{
        ExecError, MemoryHold, RecorderCommand, Transfer, error_chain,
        frames::{Frame, FrameStep, Frames},
    },
    harvest::{
        Checkpoint,
        deposit::{Deposit, DepositSpec, bounded},
        store_reason,
    },
};

/// Bytes that are scanned between two looks at the batch.
const SCAN_BYTES: usize = 256 << 10;

/// Pause between two questions to a driver whose frames wait for the store.
const LISTEN: Duration = Duration::from_secs(5);

pub(super) struct Follower {
    shared: Arc<Shared>,
    spec: FollowSpec,
    view: watch::Sender<FollowView>,
    log: FollowedLog,
    backoff: Backoff,
    /// When the driver was last asked how it is while the store was away.
    listened: Option<Instant>,
}

/// What is known of the log, over all connections.
struct FollowedLog {
    turn: Turn,
    scanner: LogScanner,
    /// `None` until the store has said what it holds.
    deposit: Option<Deposit>,
    /// Indexes that earlier scanners saw.
    seen: IndexSet,
    /// Whether everything before the scanner's line is plain: no damage, no marker, no other turn's parts, nothing refused by the store.
    plain: bool,
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>, spec: FollowSpec, view: watch::Sender<FollowView>) -> Self {
        let log = FollowedLog {
            turn: spec.turn,
            scanner: LogScanner::new(spec.turn),
            deposit: None,
            seen: IndexSet::new(),
            plain: true,
        };
        let backoff = Backoff::new(shared.settings.backoff_min, shared.settings.backoff_max);
        Self { shared, spec, view, log, backoff, listened: None }
    }

    /// Follows until the recorder is over.
    pub(super) async fn run(mut self) {
        loop {
            let error = self.connect_and_follow().await;
            if error.is_ended() {
                self.view.send_modify(|view| view.ended = true);
                self.poke();
                tracing::debug!(
                    session.uid = %self.spec.session_uid, pod.uid = %self.spec.pod.uid, turn = %self.spec.turn,
                    "follower ended with its recorder"
                );
                return;
            }
            self.trouble(Reason::ReadFailed, &error);
            let pause = self.backoff.next();
            tracing::debug!(
                session.uid = %self.spec.session_uid, pod.uid = %self.spec.pod.uid, turn = %self.spec.turn,
                offset_bytes = self.log.scanner.position().offset, pause_ms = pause.as_millis(), error = error.chain(),
                "follower broken"
            );
            sleep(pause).await;
            self.view.send_modify(|view| view.restarts += 1);
        }
    }

    /// One connection; ends with what broke it.
    async fn connect_and_follow(&mut self) -> ExecError {
        let from = self.log.restart();
        let max = self.shared.settings.harvest.frame_bytes;
        let interval = self.spec.interval;
        let command = RecorderCommand::Read { turn: self.spec.turn, from, max, follow: Some(interval) };
        let execs = self.shared.execs.clone();
        let mut transfer = match execs.open(&self.spec.pod, &command, execs.settings().follow(interval)).await {
            Ok(transfer) => transfer,
            Err(error) => return error,
        };
        let mut frames = Frames::new(self.spec.turn, from, max);
        let error = loop {
            if let Err(error) = self.one_frame(&mut transfer, &mut frames).await {
                break error;
            }
        };
        execs.cut(&self.spec.pod, transfer, error).await
    }

    async fn one_frame(&mut self, transfer: &mut Transfer, frames: &mut Frames) -> Result<(), ExecError> {
        let execs = self.shared.execs.clone();
        transfer.set_idle(execs.settings().follow(self.spec.interval).idle);
        transfer.release_permit();
        let mut hold: Option<MemoryHold> = None;
        let frame = loop {
            match frames.next(transfer).await? {
                FrameStep::Announced { bytes, .. } => {
                    if bytes > 0 {
                        // Only now does it cost anything: a slot and memory are taken for the frame, not for the wait.
                        hold = Some(self.shared.memory.take(bytes, None).await?);
                        transfer.hold_permit(execs.permit(None).await?);
                    }
                    transfer.set_idle(execs.settings().idle);
                }
                FrameStep::Frame(frame) => break frame,
            }
        };
        transfer.release_permit();
        let Frame { header, body } = *frame;
        self.heard(&header);
        if !body.is_empty() {
            self.store(&body).await;
        }
        drop((body, hold));
        self.stored();
        frames.acknowledge(transfer, header.to).await
    }

    /// Publishes what a verified header says, before anything that could take time.
    fn heard(&mut self, header: &Header) {
        self.backoff.reset();
        let mut changed = false;
        self.view.send_modify(|view| {
            changed = speaks_differently(view.status.as_ref(), header.status.as_ref());
            if header.status.is_some() {
                view.status.clone_from(&header.status);
            }
            view.last_frame_at = Some(Instant::now());
            view.frames += 1;
            if view.trouble.take_if(|trouble| trouble.reason == Reason::ReadFailed).is_some() {
                changed = true;
            }
        });
        if changed {
            self.poke();
        }
    }

    /// Stores the whole lines of a frame, however long the store takes: the acknowledgement waits, and so does the remote.
    async fn store(&mut self, body: &[u8]) {
        if self.log.deposit.is_none() {
            self.look().await;
        }
        for chunk in body.chunks(SCAN_BYTES) {
            let FollowedLog { scanner, deposit: Some(deposit), .. } = &mut self.log else { return };
            scanner.push(chunk, |part| deposit.offer(&part));
            let result = deposit.flush_full(self.shared.store.as_ref()).await;
            self.settle_result(result).await;
        }
        let result = self.flush().await;
        self.settle_result(result).await;
    }

    async fn flush(&mut self) -> Result<(), StoreError> {
        match &mut self.log.deposit {
            Some(deposit) => deposit.flush(self.shared.store.as_ref()).await,
            None => Ok(()),
        }
    }

    /// Tries again until the store took what waits, or said that it will not.
    async fn settle_result(&mut self, mut result: Result<(), StoreError>) {
        let mut backoff = Backoff::new(self.shared.settings.backoff_min, self.shared.settings.backoff_max);
        while let Err(error) = result {
            if error.category() == Category::Fenced {
                // Another attempt's turn, or one that is complete: the fence did its work, and the settling read says the rest.
                tracing::debug!(
                    session.uid = %self.spec.session_uid, turn = %self.spec.turn, error = error_chain(&error),
                    "store keeps a follower's parts out"
                );
                self.log.plain = false;
                if let Some(deposit) = &mut self.log.deposit {
                    deposit.forget();
                }
                return;
            }
            self.trouble(store_reason(&error), &error);
            sleep(backoff.next()).await;
            self.listen().await;
            result = self.flush().await;
        }
        self.store_is_well();
    }

    /// Asks the driver how it is while the store keeps a frame waiting, and with it all that come after: the end of a turn must be seen although nothing can
    /// be stored. Costs an exec, so not too often; one that fails is no news.
    async fn listen(&mut self) {
        if self.listened.is_some_and(|at| at.elapsed() < LISTEN) {
            return;
        }
        self.listened = Some(Instant::now());
        let execs = self.shared.execs.clone();
        let command = RecorderCommand::Read { turn: self.spec.turn, from: 0, max: 1, follow: None };
        let Ok(mut transfer) = execs.open(&self.spec.pod, &command, execs.settings().small()).await else { return };
        let mut frames = Frames::new(self.spec.turn, 0, 1);
        let result = match frames.frame(&mut transfer).await {
            Ok(frame) => {
                self.heard(&frame.header);
                frames.acknowledge(&mut transfer, frame.header.to).await
            }
            Err(error) => Err(error),
        };
        let _ = execs.close(&self.spec.pod, transfer, result).await;
    }

    /// Asks the store once what it has of the turn, so that a new process does not send it all again.
    async fn look(&mut self) {
        let mut backoff = Backoff::new(self.shared.settings.backoff_min, self.shared.settings.backoff_max);
        let settings = self.shared.settings.harvest.clone();
        let present = loop {
            let look = self.shared.store.progress(&self.spec.session_uid, self.spec.turn);
            match bounded(settings.store_call, "reading progress", look).await {
                Ok(progress) => break progress.present,
                Err(error) if error.category() == Category::Fenced => break IndexSet::new(),
                Err(error) => self.trouble(store_reason(&error), &error),
            }
            sleep(backoff.next()).await;
            self.listen().await;
        };
        let spec = DepositSpec {
            session: self.spec.session_uid.clone(),
            turn: self.spec.turn,
            attempt: self.spec.attempt,
            quota_bytes: self.spec.quota_bytes,
            batch: settings.batch,
            call: settings.store_call,
        };
        self.log.deposit = Some(Deposit::new(spec, present));
    }

    /// Publishes how far the log is stored.
    fn stored(&self) {
        let Some(deposit) = &self.log.deposit else { return };
        let tally = deposit.tally();
        let at = self.log.scanner.position();
        let checkpoint = self.log.checkpoint(at, tally.over_quota == 0 && tally.conflicts == 0);
        self.view.send_modify(|view| {
            view.offset = at.offset;
            view.parts_stored = tally.inserted;
            view.checkpoint = checkpoint;
        });
    }

    fn trouble(&self, reason: Reason, error: &(dyn std::error::Error + Send + Sync)) {
        let message = error_chain(error);
        let new = self.view.send_if_modified(|view| {
            let same_reason = view.trouble.as_ref().is_some_and(|trouble| trouble.reason == reason);
            let since = view.trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
            view.trouble = Some(FollowTrouble { reason, message, since });
            !same_reason
        });
        if new {
            self.poke();
        }
    }

    fn store_is_well(&self) {
        let healed = self.view.send_if_modified(|view| view.trouble.take().is_some());
        if healed {
            self.poke();
        }
    }

    fn poke(&self) {
        self.shared.poke.poke(&self.spec.session);
    }
}

impl FollowedLog {
    /// Goes back to the last whole line, for a new connection, and says where that is.
    fn restart(&mut self) -> u64 {
        let at = self.scanner.position();
        let account = self.scanner.account();
        self.plain &= is_plain(account);
        self.seen.extend_from(&account.seen);
        self.scanner = LogScanner::resume(self.turn, at);
        at.offset
    }

    fn checkpoint(&self, at: Position, all_stored: bool) -> Option<Checkpoint> {
        let account = self.scanner.account();
        if !(self.plain && all_stored && is_plain(account)) {
            return None;
        }
        let mut seen = self.seen.clone();
        seen.extend_from(&account.seen);
        Some(Checkpoint { at, seen })
    }
}

fn is_plain(account: &transcript::scan::LogAccount) -> bool {
    account.damage.lines == 0
        && account.bounds.worst().is_none()
        && account.of_other_turns == 0
        && account.repeated == 0
}

/// Whether a reconcile could decide otherwise on the new status than on the old one. Counters that only grow are no news.
fn speaks_differently(old: Option<&AgentStatus>, new: Option<&AgentStatus>) -> bool {
    match (old, new) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => {
            (old.state, old.turn, old.attempt, old.agent_ready) != (new.state, new.turn, new.attempt, new.agent_ready)
                || old.exit != new.exit
                || old.error != new.error
        }
    }
}

/// Doubling pauses with jitter, so that followers that broke together do not come back together.
struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.max);
        pause.mul_f64(rand::rng().random_range(0.75..1.25))
    }

    fn reset(&mut self) {
        self.next = self.min;
    }
}
