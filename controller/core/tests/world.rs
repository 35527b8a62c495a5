//! The simulated world: the real `decide` and the real projection in a cluster, a store and a clock that are made up, seeded, and as unkind as real ones.
//!
//! What stands between them is a copy of what the shell does: caches that lag, one step a pass, memory that a crash loses. After each event the
//! invariants are checked; when the last fault is over, that everything comes to its end. `WORLD_SEED=n` replays one seed with a line an event,
//! `WORLD_SEEDS=n` runs more of them.

#![expect(clippy::unwrap_used, reason = "the made-up cluster stops at the first thing that it did not foresee")]
#![expect(clippy::disallowed_methods, reason = "how many seeds, and how long they took, is for the person who runs them")]
#![expect(clippy::cast_possible_truncation, reason = "numbers of a small world")]

use std::{collections::BTreeMap, time::Instant};

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

use chaos::Plan;
use effects::Fate;
use mutation::Mutation;
use sim::World;

/// Seeds of an ordinary run.
const SEEDS: u64 = 2000;
/// Seeds within which each seeded bug must be found.
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
        let workers: Vec<_> =
            (0..threads).map(|first| scope.spawn(move || run_seeds(first, threads, count))).collect();
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
    let left = format!("{} sessions, {} Pods left, {} runs", world.api.sessions.len(), world.api.pods.len(), world.truth.runs.len());
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

#[test]
fn every_seeded_bug_is_found() {
    let mut missed = Vec::new();
    for mutation in Mutation::ALL {
        let found = (0..MUTANT_SEEDS).find_map(|seed| {
            let mut world = World::new(seed, Plan::random(seed), Some(*mutation), false);
            world.run().err().map(|violation| (seed, violation))
        });
        match found {
            Some((seed, violation)) => println!("{mutation:?}: seed {seed}: {violation:.200}"),
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "not found in {MUTANT_SEEDS} seeds: {missed:?}");
}
