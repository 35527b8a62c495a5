//! The simulated world: the real `decide` and the real projection in a cluster, a store and a clock that are made up, seeded, and as unkind as real ones.
//!
//! What stands between them is a copy of what the shell does: caches that lag, one step a pass, memory that a crash loses. After each event the
//! invariants are checked; when the last fault is over, that everything comes to its end. `WORLD_SEED=n` replays one seed with a line an event,
//! `WORLD_SEEDS=n` runs more of them.

#![expect(clippy::unwrap_used, reason = "the made-up cluster stops at the first thing that it did not foresee")]
#![expect(
    clippy::disallowed_methods,
    reason = "how many seeds, and how long they took, is for the person who runs them"
)]
#![expect(clippy::cast_possible_truncation, reason = "numbers of a small world")]

use std::{collections::BTreeMap, ops::Range, time::Instant};

#[path = "world/api.rs"]
mod api;
#[path = "world/chaos.rs"]
mod chaos;
#[path = "world/cluster.rs"]
mod cluster;
#[path = "world/effects.rs"]
mod effects;
#[path = "world/event.rs"]
mod event;
#[path = "world/follower.rs"]
mod follower;
#[path = "world/invariants.rs"]
mod invariants;
#[path = "world/journal.rs"]
mod journal;
#[path = "world/memory.rs"]
mod memory;
#[path = "world/mutation.rs"]
mod mutation;
#[path = "world/process.rs"]
mod process;
#[path = "world/reconcile.rs"]
mod reconcile;
#[path = "world/rng.rs"]
mod rng;
#[path = "world/sandbox.rs"]
mod sandbox;
#[path = "world/sim.rs"]
mod sim;
#[path = "world/store.rs"]
mod store;
#[path = "world/truth.rs"]
mod truth;

use chaos::{Fault, Plan};
use effects::Fate;
use mutation::Mutation;
use sim::World;

/// Seeds of an ordinary run.
const SEEDS: u64 = 2000;
/// Seeds that are tried on a seeded bug first.
const QUICK_SEEDS: u64 = 200;
/// Seeds within which each seeded bug must be found, by one of them or by a plan.
const MUTANT_SEEDS: u64 = 4000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn replay(seed: u64) -> String {
    format!("WORLD_SEED={seed} cargo test -p agentsession-controller-core --test world -- --nocapture seeds")
}

#[test]
fn seeds_keep_every_invariant() {
    if let Some(seed) = setting("WORLD_SEED") {
        let mut world = World::new(seed, Plan::random(seed), None, true);
        let result = world.run();
        println!("{}", world.trace_tail(usize::MAX));
        assert!(result.is_ok(), "{}", result.unwrap_err());
        return;
    }
    let count = setting("WORLD_SEEDS").unwrap_or(SEEDS);
    let began = Instant::now();
    let threads = 2;
    let failures: Vec<(u64, String)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|first| scope.spawn(move || run_seeds(first, threads, count))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    println!("{count} seeds in {:.1} s, {} failed", began.elapsed().as_secs_f64(), failures.len());
    let mut kinds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, failure) in &failures {
        kinds.entry(failure.split(':').next().unwrap_or_default()).or_default().push(*seed);
    }
    if let Some((seed, failure)) = failures.iter().min_by_key(|(seed, _)| *seed) {
        panic!("seed {seed}: {failure}\nreplay: {}\nall: {kinds:?}", replay(*seed));
    }
}

fn run_seeds(first: u64, step: u64, count: u64) -> Vec<(u64, String)> {
    let mut failures = Vec::new();
    for seed in (first..count).step_by(step as usize) {
        let mut world = World::new(seed, Plan::random(seed), None, false);
        if let Err(violation) = world.run() {
            failures.push((seed, format!("{violation}\n{}", world.trace_tail(40))));
        }
    }
    failures
}

/// What a life comes to, apart from times and numbers of tries.
fn essence(world: &World) -> String {
    let turns = world.store.rows.values().flat_map(|row| row.turns.values()).map(|turn| {
        let view = &turn.view;
        format!("turn {} {:?} {:?} {:?} {:?}", view.turn, view.outcome, view.reason, view.verdict, view.verdict_reason)
    });
    let parts = world.store.rows.values().map(|row| format!("{} parts, last seq {}", row.parts.len(), row.last_seq));
    let left = format!(
        "{} sessions, {} Pods left, {} runs",
        world.api.sessions.len(),
        world.api.pods.len(),
        world.truth.runs.len()
    );
    turns.chain(parts).chain([left]).collect::<Vec<_>>().join("\n")
}

fn life(fates: BTreeMap<usize, Fate>) -> (World, Result<(), invariants::Violation>) {
    let mut plan = Plan::reference();
    plan.fates = fates;
    let mut world = World::new(7, plan, None, false);
    let result = world.run();
    (world, result)
}

#[test]
fn a_crash_or_a_lost_reply_at_any_effect_changes_nothing_that_matters() {
    let (reference, result) = life(BTreeMap::new());
    assert!(result.is_ok(), "{}\n{}", result.unwrap_err(), reference.trace_tail(60));
    let expected = essence(&reference);
    insta::assert_snapshot!("reference_effects", reference.effects.join("\n"));
    insta::assert_snapshot!("reference_end", expected);
    for number in 1..=reference.effects.len() {
        for fate in [Fate::CrashBefore, Fate::CrashAfter, Fate::ReplyLost, Fate::Fails] {
            let (world, result) = life(BTreeMap::from([(number, fate)]));
            let name = reference.effects[number - 1];
            assert!(result.is_ok(), "{fate:?} at {number} {name}: {}\n{}", result.unwrap_err(), world.trace_tail(60));
            assert_eq!(essence(&world), expected, "{fate:?} at {number} {name}\n{}", world.trace_tail(60));
        }
    }
}

/// What may happen while one of two controllers stands still.
const DISRUPTIONS: [Fault; 7] = [
    Fault::EvictKubelet,
    Fault::DeletePod { grace: 60 },
    Fault::DeletePod { grace: 0 },
    Fault::NewImage,
    Fault::NodeGone,
    Fault::Delete { finalizer: None },
    Fault::EmptyStore,
];

/// Every disruption at several times, with a pause before each effect of either controller: what `of` says of the first world that breaks.
fn disrupted(mutation: Option<Mutation>) -> (usize, Option<String>) {
    let mut count = 0;
    for fault in &DISRUPTIONS {
        for (at, deaf) in [(1500, false), (1500, true), (4000, false), (4000, true), (9000, false), (9000, true)] {
            for pause in [20_000, 55_000] {
                for number in 1..=40 {
                    count += 1;
                    let plan = Plan::disrupted(fault, at, deaf, number, pause);
                    let mut world = World::new(7, plan, mutation, false);
                    if let Err(violation) = world.run() {
                        let name = world.effects.get(number - 1).copied().unwrap_or_default();
                        let case = format!("{fault:?} at {at} deaf {deaf}, {pause} ms before {number} {name}");
                        return (count, Some(format!("{case}: {violation}\n{}", world.trace_tail(60))));
                    }
                }
            }
        }
    }
    (count, None)
}

#[test]
fn a_controller_that_stood_still_before_any_effect_breaks_nothing() {
    let (count, broken) = disrupted(None);
    println!("{count} plans");
    assert!(broken.is_none(), "{}", broken.unwrap());
}

#[test]
fn every_seeded_bug_is_found() {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        let found = |seeds: Range<u64>| {
            seeds.into_iter().find_map(|seed| {
                let mut world = World::new(seed, Plan::random(seed), Some(*mutation), false);
                world.run().err().map(|violation| format!("seed {seed}: {violation}"))
            })
        };
        let found =
            found(0..QUICK_SEEDS).or_else(|| disrupted(Some(*mutation)).1).or_else(|| found(QUICK_SEEDS..MUTANT_SEEDS));
        match found {
            Some(found) => println!("{mutation:?}: {:.300}", found.lines().next().unwrap_or_default()),
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "not found in {MUTANT_SEEDS} seeds: {missed:?}");
}
