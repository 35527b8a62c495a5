//! What a process remembers of a session, as the shell's own memory does. All of it is lost in a crash.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use agentsession_controller_core::model::{Clock, Done, HarvestView, PodRefusal, Trouble};
use transcript::{Attempt, PodUid, Reason, Turn, merge::Evidence};

/// Pause between two writes to a store that takes none.
pub const STORE_RETRY: u64 = 2000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HarvestKey {
    pub turn: Turn,
    pub attempt: Attempt,
    pub pod: PodUid,
}

#[derive(Debug)]
pub enum HarvestState {
    Running,
    Failed(Trouble, u64),
    Read(Box<Evidence>, bool, u64),
}

#[derive(Debug)]
pub struct Harvest {
    pub key: HarvestKey,
    pub tries: u32,
    pub state: HarvestState,
}

#[derive(Debug, Default)]
pub struct Memory {
    pub clocks: BTreeMap<Clock, u64>,
    pub done: BTreeSet<Done>,
    pub refusal: Option<(PodRefusal, u64)>,
    pub harvest: Option<Harvest>,
    pub abandoned: Option<Reason>,
    pub session_written: Option<u64>,
    pub pod_written: Option<(u64, u64)>,
    pub failures: u32,
    pub store_trouble: Option<(Trouble, u64)>,
}

fn age(since: u64, now: u64) -> Duration {
    Duration::from_millis(now.saturating_sub(since))
}

impl Memory {
    pub fn elapsed(&self, now: u64) -> BTreeMap<Clock, Duration> {
        self.clocks.iter().map(|(clock, since)| (clock.clone(), age(*since, now))).collect()
    }

    pub fn hold(&mut self, clocks: &BTreeSet<Clock>, now: u64) {
        if self.store_trouble.is_none() {
            self.clocks.retain(|clock, _| clocks.contains(clock));
        }
        for clock in clocks {
            self.clocks.entry(clock.clone()).or_insert(now);
        }
    }

    pub fn refusal(&self, now: u64) -> Option<PodRefusal> {
        let (refusal, at) = self.refusal.as_ref()?;
        Some(PodRefusal { age: Duration::from_millis(now - at), ..refusal.clone() })
    }

    pub fn harvest(&self, turn: Option<Turn>, now: u64) -> HarvestView {
        let Some(harvest) = self.harvest.as_ref().filter(|harvest| Some(harvest.key.turn) == turn) else {
            return HarvestView::None;
        };
        match &harvest.state {
            HarvestState::Running => HarvestView::Running,
            HarvestState::Failed(trouble, at) => {
                HarvestView::Failed { trouble: trouble.clone(), tries: harvest.tries, age: age(*at, now) }
            }
            HarvestState::Read(evidence, after_agent_end, at) => {
                HarvestView::Read { evidence: evidence.clone(), after_agent_end: *after_agent_end, age: age(*at, now) }
            }
        }
    }

    pub fn begin_harvest(&mut self, key: HarvestKey) -> bool {
        let tries = match &self.harvest {
            Some(Harvest { state: HarvestState::Running, .. }) => return false,
            Some(harvest) if harvest.key == key => harvest.tries,
            _ => 0,
        };
        self.harvest = Some(Harvest { key, tries, state: HarvestState::Running });
        true
    }

    pub fn end_harvest(&mut self, key: &HarvestKey, result: Result<(Box<Evidence>, bool), Trouble>, now: u64) {
        let Some(harvest) = self.harvest.as_mut().filter(|harvest| harvest.key == *key) else { return };
        match result {
            Ok((evidence, after)) => {
                harvest.tries = 0;
                harvest.state = HarvestState::Read(evidence, after, now);
            }
            Err(trouble) => {
                harvest.tries += 1;
                harvest.state = HarvestState::Failed(trouble, now);
            }
        }
    }

    pub fn wrote_session(&mut self, rv: u64) {
        self.session_written = self.session_written.max(Some(rv));
    }

    pub fn wrote_pod(&mut self, rv: u64, now: u64) {
        if self.pod_written.is_none_or(|(last, _)| last < rv) {
            self.pod_written = Some((rv, now));
        }
    }

    pub fn caught_up(&self, session: u64, pods: u64, listed: Option<u64>) -> bool {
        self.session_written.is_none_or(|written| session >= written)
            && self.pod_written.is_none_or(|(written, at)| pods >= written || listed.is_some_and(|listed| listed > at))
    }
}
