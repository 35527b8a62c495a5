//! Followers and settling reads: what they read is scanned by the real scanner and stored in batches.

use agentsession_controller_core::model::{Follow, Trouble};
use transcript::{
    AgentStatus, Attempt, IndexSet, PartIndex, PodUid, Reason, SessionUid, Turn, line::Position, merge::Evidence,
    scan::LogScanner,
};

use super::{
    effects::Fate,
    event::Event,
    journal::Fact,
    memory::{HarvestKey, HarvestState},
    mutation::Mutation,
    sim::World,
    store::StoreFail,
};

/// Parts of one transaction.
const BATCH: usize = 3;
/// Bytes of one frame of a settling read.
const FRAME: usize = 500;
/// Bytes that a session may hold.
const QUOTA: u64 = 1 << 20;

/// Parts on their way into the store.
#[derive(Debug)]
pub struct Deposit {
    turn: Turn,
    attempt: Attempt,
    present: IndexSet,
    waiting: Vec<(Turn, PartIndex, String)>,
    over_quota: u32,
    conflicts: u32,
    inserted: u32,
    uncertain: bool,
}

impl Deposit {
    fn new(turn: Turn, attempt: Attempt, present: IndexSet) -> Self {
        Self { turn, attempt, present, waiting: Vec::new(), over_quota: 0, conflicts: 0, inserted: 0, uncertain: false }
    }

    fn offer(&mut self, turn: Turn, index: PartIndex, raw: &str) {
        if turn != self.turn || !self.present.contains(index) {
            self.waiting.push((turn, index, raw.to_owned()));
        }
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.uncertain = true;
    }
}

#[derive(Clone, Debug)]
pub struct Checkpoint {
    at: Position,
    seen: IndexSet,
}

pub struct Follower {
    pub name: String,
    pub session: SessionUid,
    pub turn: Turn,
    pub attempt: Attempt,
    pub status: Option<AgentStatus>,
    pub heard: bool,
    pub ended: bool,
    pub trouble: Option<Trouble>,
    pub checkpoint: Option<Checkpoint>,
    life: u32,
    scanner: LogScanner,
    deposit: Option<Deposit>,
    seen: IndexSet,
    plain: bool,
    storing: bool,
    broken: bool,
    backoff: u64,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("turn", &self.turn).finish_non_exhaustive()
    }
}

/// A settling read that is under way.
pub struct HarvestTask {
    pub id: u64,
    key: HarvestKey,
    name: String,
    after_agent_end: bool,
    checkpoint: Option<Checkpoint>,
    deadline: u64,
    stage: Stage,
    fruitless: u32,
    intake: Option<Intake>,
}

impl std::fmt::Debug for HarvestTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HarvestTask").field("key", &self.key).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Progress,
    Read,
    Store { more: bool },
    Stored,
}

struct Intake {
    from: u64,
    at: u64,
    scanner: LogScanner,
    deposit: Deposit,
    before: IndexSet,
    status: Option<AgentStatus>,
    exists: bool,
    size: u64,
    complete: bool,
}

/// One frame: what stands in its header, and its bytes.
struct Frame {
    status: Option<AgentStatus>,
    exists: bool,
    size: u64,
    body: Vec<u8>,
}

impl World {
    pub fn ensure_follower(&mut self, process: usize, session: &SessionUid, follow: &Follow) {
        let uid = follow.pod.uid.clone();
        let known = self.procs[process].followers.get(&uid);
        if known.is_some_and(|follower| follower.ended || follower.turn == follow.turn) {
            return;
        }
        let status = known.and_then(|follower| follower.status.clone());
        let life = known.map_or(0, |follower| follower.life + 1);
        let follower = Follower {
            name: follow.pod.name.clone(),
            session: session.clone(),
            turn: follow.turn,
            attempt: follow.attempt,
            status,
            heard: false,
            ended: false,
            trouble: None,
            checkpoint: None,
            life,
            scanner: LogScanner::new(follow.turn),
            deposit: None,
            seen: IndexSet::new(),
            plain: true,
            storing: false,
            broken: false,
            backoff: 250,
        };
        self.procs[process].followers.insert(uid.clone(), follower);
        let epoch = self.procs[process].epoch;
        self.at(100, Event::Follow { process, epoch, pod: uid, kick: false, life });
    }

    /// The recorder's answer to a read, honest about what it is.
    fn frame(&mut self, pod: &PodUid, turn: Turn, from: u64, max: usize) -> Option<Frame> {
        let sandbox = self.boxes.get(pod)?;
        let file = sandbox.files.get(&turn);
        let size = file.map_or(0, Vec::len);
        let from = usize::try_from(from).unwrap();
        let to = size.min(from.saturating_add(max)).max(from.min(size));
        let body = file.map(|bytes| bytes[from.min(size)..to].to_vec()).unwrap_or_default();
        Some(Frame { status: sandbox.status.clone(), exists: file.is_some(), size: size as u64, body })
    }

    pub fn follow_event(&mut self, process: usize, pod: &PodUid, kick: bool, life: u32) {
        let Some(follower) = self.procs[process].followers.get(pod) else { return };
        if follower.ended || (!kick && follower.life != life) || (kick && (follower.storing || follower.broken)) {
            return;
        }
        let (name, storing, life) = (follower.name.clone(), follower.storing, follower.life);
        if !storing {
            match self.exec(pod, &name) {
                Ok(()) => self.hear(process, pod),
                Err(true) => {
                    let follower = self.procs[process].followers.get_mut(pod).unwrap();
                    follower.ended = true;
                    let session = follower.session.clone();
                    self.poke(process, &session);
                    return;
                }
                Err(false) => {
                    let follower = self.procs[process].followers.get_mut(pod).unwrap();
                    follower.broken = true;
                    restart(follower);
                    let (session, pause) = (follower.session.clone(), follower.backoff);
                    follower.backoff = (pause * 2).min(10_000);
                    let new = follower.trouble.is_none();
                    follower.trouble =
                        Some(Trouble { reason: Reason::ReadFailed, message: "the exec did not connect".into() });
                    if new {
                        self.poke(process, &session);
                    }
                    if !kick {
                        self.follow_again(process, pod, pause, life);
                    }
                    return;
                }
            }
        }
        self.follow_store(process, pod);
        if !self.procs[process].up {
            return;
        }
        let Some(follower) = self.procs[process].followers.get(pod) else { return };
        let pause = if follower.storing { 1000 } else { self.plan.checkpoint };
        if !kick || follower.storing {
            let life = follower.life;
            self.follow_again(process, pod, pause, life);
        }
    }

    fn follow_again(&mut self, process: usize, pod: &PodUid, after: u64, life: u32) {
        let epoch = self.procs[process].epoch;
        self.at(after, Event::Follow { process, epoch, pod: pod.clone(), kick: false, life });
    }

    /// A frame came: its status first, then its bytes.
    fn hear(&mut self, process: usize, pod: &PodUid) {
        let follower = self.procs[process].followers.get_mut(pod).unwrap();
        follower.broken = false;
        follower.backoff = 250;
        let (turn, from) = (follower.turn, follower.scanner.read_to());
        let Some(frame) = self.frame(pod, turn, from, usize::MAX / 2) else { return };
        let follower = self.procs[process].followers.get_mut(pod).unwrap();
        let news = differs(follower.status.as_ref(), frame.status.as_ref())
            || follower.trouble.as_ref().is_some_and(|trouble| trouble.reason == Reason::ReadFailed);
        if frame.status.is_some() {
            follower.status.clone_from(&frame.status);
        }
        follower.heard = true;
        follower.trouble.take_if(|trouble| trouble.reason == Reason::ReadFailed);
        let session = follower.session.clone();
        if !frame.body.is_empty() {
            follower.storing = true;
            let mut parts = Vec::new();
            follower.scanner.push(&frame.body, |part| parts.push((part.turn, part.index, part.raw.to_string())));
            let deposit = follower.deposit.get_or_insert_with(|| Deposit::new(turn, follower.attempt, IndexSet::new()));
            for (turn, index, raw) in parts {
                deposit.offer(turn, index, &raw);
            }
        }
        if news {
            self.poke(process, &session);
        }
    }

    fn follow_store(&mut self, process: usize, pod: &PodUid) {
        let Some(mut follower) = self.procs[process].followers.remove(pod) else { return };
        let session = follower.session.clone();
        let mut result = Ok(());
        if let Some(deposit) = follower.deposit.as_mut() {
            while result.is_ok() && !deposit.waiting.is_empty() && self.procs[process].up {
                result = self.store_one(process, &session, deposit);
            }
        }
        if !self.procs[process].up {
            return;
        }
        match result {
            Err(fail) if !fail.fenced() => {
                follower.trouble = Some(Trouble { reason: fail.reason(), message: "store unavailable".into() });
                follower.storing = true;
            }
            other => {
                if other.is_err() {
                    follower.plain = false;
                    if let Some(deposit) = follower.deposit.as_mut() {
                        deposit.forget();
                    }
                }
                follower.trouble = None;
                follower.storing = false;
                let stored = follower.deposit.as_ref().is_none_or(|d| d.over_quota == 0 && d.conflicts == 0);
                follower.checkpoint = checkpoint(&follower, stored);
            }
        }
        self.procs[process].followers.insert(pod.clone(), follower);
    }

    /// One transaction of a deposit.
    fn store_one(&mut self, process: usize, session: &SessionUid, deposit: &mut Deposit) -> Result<(), StoreFail> {
        let turn = deposit.waiting[0].0;
        let count = deposit.waiting.iter().take(BATCH).take_while(|(of, ..)| *of == turn).count();
        let own = turn == deposit.turn;
        if own && deposit.over_quota > 0 {
            deposit.over_quota += u32::try_from(count).unwrap();
            deposit.waiting.drain(..count);
            return Ok(());
        }
        let fate = self.fate(process, "append");
        if fate == Fate::CrashBefore {
            self.crash(process, "before an append");
            return Err(StoreFail::Unavailable);
        }
        let flaky = self.faulty() && self.rng.chance(self.plan.store_errors);
        if fate == Fate::Fails || flaky || self.store.can_write().is_err() {
            return Err(StoreFail::Unavailable);
        }
        let parts: Vec<_> = deposit.waiting[..count].iter().map(|(_, index, raw)| (*index, raw.clone())).collect();
        let appended = self.store.append(session, turn, deposit.attempt, QUOTA, &parts);
        if let Ok(appended) = &appended {
            for (turn, index, seq, raw) in appended.inserted.clone() {
                let (session, attempt) = (session.clone(), deposit.attempt);
                self.fact(Fact::Acknowledged { session, turn, attempt, index, seq, raw });
            }
        }
        match fate {
            Fate::CrashAfter => {
                self.crash(process, "after an append");
                return Err(StoreFail::Unavailable);
            }
            Fate::ReplyLost => return Err(StoreFail::Unavailable),
            Fate::Fine | Fate::CrashBefore | Fate::Fails | Fate::StandsStill(_) => {}
        }
        match appended {
            Ok(appended) => {
                deposit.inserted += u32::try_from(appended.inserted.len()).unwrap();
                deposit.conflicts += appended.conflicts;
                if own {
                    deposit.over_quota += appended.over_quota;
                    if appended.over_quota == 0 {
                        for (index, _) in parts {
                            deposit.present.insert(index);
                        }
                    } else {
                        deposit.uncertain = true;
                    }
                }
            }
            Err(fail) if !own && fail.fenced() => {}
            Err(fail) => return Err(fail),
        }
        deposit.waiting.drain(..count);
        Ok(())
    }

    /// Begins the settling read, unless one is under way.
    pub fn begin_harvest(
        &mut self,
        process: usize,
        session: &SessionUid,
        key: HarvestKey,
        name: String,
        after_agent_end: bool,
    ) {
        let now = self.now;
        let proc = &mut self.procs[process];
        if !proc.memory.entry(session.clone()).or_default().begin_harvest(key.clone()) {
            return;
        }
        proc.ids += 1;
        let id = proc.ids;
        let checkpoint = proc
            .followers
            .get(&key.pod)
            .filter(|follower| follower.turn == key.turn)
            .and_then(|follower| follower.checkpoint.clone());
        let task = HarvestTask {
            id,
            key,
            name,
            after_agent_end,
            checkpoint,
            deadline: now + 30_000,
            stage: Stage::Progress,
            fruitless: 0,
            intake: None,
        };
        proc.harvests.insert(session.clone(), task);
        self.harvest_later(process, session, id);
    }

    fn harvest_later(&mut self, process: usize, session: &SessionUid, id: u64) {
        let after = self.rng.range(2, 80);
        let epoch = self.procs[process].epoch;
        self.at(after, Event::Harvest { process, epoch, session: session.clone(), id });
    }

    pub fn harvest_event(&mut self, process: usize, session: &SessionUid, id: u64) {
        let Some(mut task) = self.procs[process].harvests.remove(session) else { return };
        if task.id != id {
            self.procs[process].harvests.insert(session.clone(), task);
            return;
        }
        let result = match task.stage {
            Stage::Progress => self.harvest_progress(session, &mut task),
            Stage::Read => self.harvest_read(&mut task),
            Stage::Store { more } => self.harvest_store(process, session, &mut task, more),
            Stage::Stored => self.harvest_end(session, &mut task).map(Some),
        };
        if !self.procs[process].up {
            return;
        }
        let outcome = match result {
            Ok(None) => {
                self.procs[process].harvests.insert(session.clone(), task);
                self.harvest_later(process, session, id);
                return;
            }
            Ok(Some(evidence)) => Ok((Box::new(evidence), task.after_agent_end)),
            Err(reason) => Err(Trouble { reason, message: format!("the log could not be read or stored: {reason}") }),
        };
        let now = self.now;
        self.say(|| {
            format!("p{process} read of turn {} {:?}", task.key.turn, outcome.as_ref().map(|_| "came through"))
        });
        let memory = self.procs[process].memory.entry(session.clone()).or_default();
        debug_assert!(
            memory.harvest.as_ref().is_none_or(|h| h.key != task.key || matches!(h.state, HarvestState::Running))
        );
        memory.end_harvest(&task.key, outcome, now);
        self.poke(process, session);
    }

    fn harvest_progress(&mut self, session: &SessionUid, task: &mut HarvestTask) -> Result<Option<Evidence>, Reason> {
        if (self.faulty() && self.rng.chance(self.plan.store_errors)) || self.store.can_read().is_err() {
            return Err(Reason::StoreUnavailable);
        }
        let present = self.store.progress(session, task.key.turn).map_err(StoreFail::reason)?;
        let point = task.checkpoint.take().filter(|point| point.seen.is_subset(&present));
        let turn = task.key.turn;
        let from = point.as_ref().map_or(0, |point| point.at.offset);
        task.intake = Some(Intake {
            from,
            at: from,
            scanner: point.as_ref().map_or_else(|| LogScanner::new(turn), |point| LogScanner::resume(turn, point.at)),
            deposit: Deposit::new(turn, task.key.attempt, present),
            before: point.map(|point| point.seen).unwrap_or_default(),
            status: None,
            exists: false,
            size: 0,
            complete: false,
        });
        task.stage = Stage::Read;
        Ok(None)
    }

    fn harvest_read(&mut self, task: &mut HarvestTask) -> Result<Option<Evidence>, Reason> {
        let cut = self.faulty() && self.rng.chance(self.plan.cut_reads);
        let result = self.exec(&task.key.pod, &task.name);
        let blind = self.mutation == Some(Mutation::NoTrailerCheck);
        if let Err(ended) = result {
            task.fruitless += 1;
            if ended || task.fruitless >= 2 || self.now >= task.deadline {
                return Err(Reason::ReadFailed);
            }
            return Ok(None);
        }
        let intake = task.intake.as_mut().unwrap();
        let Some(mut frame) = self.frame(&task.key.pod, task.key.turn, intake.at, FRAME) else {
            return Err(Reason::ReadFailed);
        };
        if cut {
            if !blind {
                // The trailer did not come: nothing of this frame counts.
                task.fruitless += 1;
                return if task.fruitless >= 2 { Err(Reason::ReadFailed) } else { Ok(None) };
            }
            let half = frame.body.len() / 2;
            let line = frame.body[..half].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            frame.body.truncate(line);
            frame.size = intake.at + frame.body.len() as u64;
        }
        task.fruitless = 0;
        let Intake { scanner, deposit, .. } = intake;
        scanner.push(&frame.body, |part| deposit.offer(part.turn, part.index, &part.raw));
        intake.at += frame.body.len() as u64;
        intake.status = frame.status;
        intake.exists = frame.exists;
        intake.size = if frame.exists { frame.size } else { 0 };
        task.stage = Stage::Store { more: intake.at < intake.size };
        Ok(None)
    }

    fn harvest_store(
        &mut self,
        process: usize,
        session: &SessionUid,
        task: &mut HarvestTask,
        more: bool,
    ) -> Result<Option<Evidence>, Reason> {
        let intake = task.intake.as_mut().unwrap();
        if intake.complete || intake.deposit.waiting.is_empty() {
            task.stage = if more { Stage::Read } else { Stage::Stored };
            return Ok(None);
        }
        let result = self.store_one(process, session, &mut intake.deposit);
        match result {
            Ok(()) => Ok(None),
            Err(StoreFail::TurnComplete) => {
                intake.complete = true;
                intake.deposit.forget();
                Ok(None)
            }
            Err(fail) => Err(fail.reason()),
        }
    }

    fn harvest_end(&mut self, session: &SessionUid, task: &mut HarvestTask) -> Result<Evidence, Reason> {
        let intake = task.intake.as_mut().unwrap();
        if intake.size < intake.from {
            return Err(Reason::ReadFailed);
        }
        if intake.deposit.uncertain {
            if self.store.can_read().is_err() {
                return Err(Reason::StoreUnavailable);
            }
            intake.deposit.present = self.store.progress(session, task.key.turn).map_err(StoreFail::reason)?;
        }
        let mut facts = intake.scanner.facts(intake.exists, intake.size);
        facts.indexes.extend_from(&intake.before);
        Ok(Evidence {
            status: intake.status.clone(),
            facts,
            stored: intake.deposit.present.clone(),
            over_quota: intake.deposit.over_quota,
            inserted: intake.deposit.inserted,
            conflicts: intake.deposit.conflicts,
        })
    }
}

/// Goes back to the last whole line, for a new connection.
fn restart(follower: &mut Follower) {
    let at = follower.scanner.position();
    let account = follower.scanner.account();
    follower.plain &= is_plain(account);
    follower.seen.extend_from(&account.seen);
    follower.scanner = LogScanner::resume(follower.turn, at);
}

fn checkpoint(follower: &Follower, stored: bool) -> Option<Checkpoint> {
    let account = follower.scanner.account();
    if !(follower.plain && stored && is_plain(account)) {
        return None;
    }
    let mut seen = follower.seen.clone();
    seen.extend_from(&account.seen);
    Some(Checkpoint { at: follower.scanner.position(), seen })
}

fn is_plain(account: &transcript::scan::LogAccount) -> bool {
    account.damage.lines == 0
        && account.bounds.worst().is_none()
        && account.of_other_turns == 0
        && account.repeated == 0
}

fn differs(old: Option<&AgentStatus>, new: Option<&AgentStatus>) -> bool {
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
