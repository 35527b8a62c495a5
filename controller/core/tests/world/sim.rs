//! The world: one clock, one queue of events, one source of chance. The same plan and seed give the same life, event by event.

use std::collections::{BTreeMap, VecDeque};

use transcript::{PodUid, SessionUid};

use super::{
    api::Api,
    chaos::{Fault, Plan},
    event::Event,
    invariants::{self, Violation},
    journal::Fact,
    mutation::Mutation,
    process::Process,
    rng::Rng,
    sandbox::Sandbox,
    store::Store,
    truth::Truth,
};

/// Lines of the trace that are kept.
const TRACE: usize = 60;
/// Events after which a world that has not come to rest never will.
const EVENTS: u64 = 100_000;
/// How long after the last fault a world may take to come to rest.
const REST: u64 = 3600 * 1000;

pub struct World {
    pub now: u64,
    pub rng: Rng,
    pub plan: Plan,
    pub mutation: Option<Mutation>,
    pub api: Api,
    pub store: Store,
    pub boxes: BTreeMap<PodUid, Sandbox>,
    pub procs: Vec<Process>,
    pub truth: Truth,
    /// Names of all effects, in order.
    pub effects: Vec<&'static str>,
    pub facts: Vec<Fact>,
    pub verbose: bool,
    pub violation: Option<Violation>,
    pub is_api_down: bool,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    sweeps: u64,
    trace: VecDeque<String>,
    healed: bool,
}

impl World {
    pub fn new(seed: u64, plan: Plan, mutation: Option<Mutation>, verbose: bool) -> Self {
        let processes = plan.processes;
        let mut world = Self {
            now: 0,
            rng: Rng::new(seed),
            plan,
            mutation,
            api: Api::default(),
            store: Store::new(mutation),
            boxes: BTreeMap::new(),
            procs: (0..processes).map(|_| Process::default()).collect(),
            truth: Truth::default(),
            effects: Vec::new(),
            facts: Vec::new(),
            verbose,
            violation: None,
            is_api_down: false,
            queue: BTreeMap::new(),
            events: 0,
            sweeps: 0,
            trace: VecDeque::new(),
            healed: false,
        };
        for process in 0..processes {
            world.at(process as u64 * 7, Event::Restart { process });
        }
        for (after, fault) in world.plan.script.clone() {
            world.at(after, Event::Fault(fault));
        }
        let heal = world.plan.heal_at;
        world.at(heal, Event::Heal);
        world
    }

    /// Whether faults still happen.
    pub fn faulty(&self) -> bool {
        self.now < self.plan.heal_at
    }

    pub fn api_down(&self) -> bool {
        self.is_api_down
    }

    pub fn at(&mut self, after: u64, event: Event) {
        self.events += 1;
        if matches!(event, Event::Sweep { .. }) {
            self.sweeps += 1;
        }
        self.queue.insert((self.now.saturating_add(after), self.events), event);
    }

    pub fn fact(&mut self, fact: Fact) {
        self.facts.push(fact);
    }

    /// One line of the trace.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.trace.len() == TRACE && !self.verbose {
            self.trace.pop_front();
        }
        let (seconds, millis) = (self.now / 1000, self.now % 1000);
        self.trace.push_back(format!("{seconds:>6}.{millis:03} {}", line()));
    }

    pub fn trace_tail(&self, lines: usize) -> String {
        let skip = self.trace.len().saturating_sub(lines);
        self.trace.iter().skip(skip).map(|line| format!("  {line}\n")).collect()
    }

    /// Runs until nothing more happens by itself; the first violation ends it.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.run_to_rest()?;
        // What no event tells of: an emptied store, turns of a session that was gone before they were accepted.
        self.poke_all();
        self.sweep_now();
        self.run_to_rest()?;
        invariants::at_rest(self)?;
        // A further reconcile changes nothing.
        let (api, store) = (self.api.writes, self.store.writes);
        self.poke_all();
        self.run_to_rest()?;
        if (self.api.writes, self.store.writes) != (api, store) {
            return Err(Violation::new("9 an idle session causes no writes", "a further reconcile wrote something"));
        }
        Ok(())
    }

    fn sweep_now(&mut self) {
        for process in 0..self.procs.len() {
            self.sweep_once(process);
        }
    }

    fn poke_all(&mut self) {
        for process in 0..self.procs.len() {
            let known: Vec<SessionUid> = self.procs[process].sessions.keys().cloned().collect();
            for session in known {
                self.poke(process, &session);
            }
        }
    }

    fn run_to_rest(&mut self) -> Result<(), Violation> {
        while self.queue.len() as u64 > self.sweeps {
            if self.truth.emptied
                && self.queue.values().all(|event| matches!(event, Event::Follow { .. } | Event::Sweep { .. }))
            {
                // A Pod that was orphaned and that an emptied store knows nothing of is nobody's to stop following.
                break;
            }
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            if matches!(event, Event::Sweep { .. }) {
                self.sweeps -= 1;
            }
            self.now = self.now.max(at);
            if self.now > self.plan.heal_at + REST || self.events > EVENTS {
                let queue: Vec<_> = [&event].into_iter().chain(self.queue.values()).take(8).collect();
                return Err(Violation::new("5 a fixpoint in bounded steps", &format!("no rest: {queue:?}")));
            }
            self.dispatch(event);
            self.check()?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Violation> {
        let facts = std::mem::take(&mut self.facts);
        if let Some(violation) = self.violation.take() {
            return Err(violation);
        }
        invariants::after_event(self, &facts)
    }

    fn dispatch(&mut self, event: Event) {
        let owner = match &event {
            Event::Pass { process, epoch, .. }
            | Event::Op { process, epoch, .. }
            | Event::Watch { process, epoch, .. }
            | Event::Follow { process, epoch, .. }
            | Event::Harvest { process, epoch, .. }
            | Event::Sweep { process, epoch }
            | Event::Gone { process, epoch, .. } => Some((*process, *epoch)),
            Event::Restart { .. } | Event::Pod(..) | Event::Collect | Event::Fault(_) | Event::Heal => None,
        };
        if let Some((process, epoch)) = owner {
            let proc = &self.procs[process];
            if !proc.up || proc.epoch != epoch {
                return;
            }
            if self.now < proc.paused_until {
                let after = proc.paused_until - self.now;
                self.at(after, event);
                return;
            }
        }
        match event {
            Event::Pass { process, session, .. } => self.pass(process, &session),
            Event::Op { process, session, .. } => self.op(process, &session),
            Event::Watch { process, watch, upto, .. } => self.watch(process, watch, upto),
            Event::Follow { process, pod, kick, life, .. } => self.follow_event(process, &pod, kick, life),
            Event::Harvest { process, session, id, .. } => self.harvest_event(process, &session, id),
            Event::Sweep { process, epoch } => self.sweep(process, epoch),
            Event::Gone { process, session, tries, .. } => self.gone(process, &session, tries),
            Event::Restart { process } => self.restart(process),
            Event::Pod(pod, act) => self.pod_act(&pod, &act),
            Event::Collect => self.collect(),
            Event::Fault(fault) => self.strike(&fault),
            Event::Heal => self.heal(),
        }
    }

    fn heal(&mut self) {
        if std::mem::replace(&mut self.healed, true) {
            return;
        }
        self.say(|| "everything behaves from here on".to_owned());
        for process in 0..self.procs.len() {
            self.procs[process].paused_until = 0;
            self.procs[process].stalled_until = [0; 2];
            if !self.procs[process].up {
                self.at(100, Event::Restart { process });
            }
        }
        self.strike(&Fault::Store(super::store::Health::Up));
        self.strike(&Fault::Api { down: false });
        self.strike(&Fault::NodeUp);
        self.api.quota = None;
        self.published();
        self.collect_soon();
    }
}
