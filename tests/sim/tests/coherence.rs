//! Caches, leases and replays under a network that delays, loses and reorders, clocks that drift, and
//! nodes that freeze and restart.

use portcullis_sim::{PLANTS, Plant, World};

/// Runs without a fault. More of them: `cargo run -p portcullis-sim -- SEEDS`.
const SEEDS: u64 = 60;
/// Runs within which each planted fault is found.
const SEEDS_TO_FIND: u64 = 150;

#[test]
fn no_client_is_told_what_was_overwritten_before_it_asked() {
    let (mut answers, mut hits, mut mutations, mut unknown, mut longest_wait_us) = (0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let outcome = World::new(seed, Plant::Nothing, false).run();
        assert_eq!(outcome.violations, [""; 0], "seed {seed}");
        answers += outcome.counts.answers;
        mutations += outcome.counts.mutations;
        unknown += outcome.counts.unknown;
        longest_wait_us = outcome.counts.longest_wait_us.max(longest_wait_us);
        hits += outcome.hits;
    }
    println!(
        "{SEEDS} seeds: {answers} answers, {hits} of them from a cache, {mutations} mutations, \
         {unknown} of them not known; longest wait {longest_wait_us} us"
    );
    assert!(hits > answers / 20, "the caches hardly answer, so this proves nothing: {hits}");
    assert!(mutations > answers / 10 && unknown > 0, "{mutations} {unknown}");
}

fn find(plants: &[Plant]) {
    for &plant in plants {
        let violations = |seed, plant| World::new(seed, plant, false).run().violations;
        let found = (0..SEEDS_TO_FIND).find(|&seed| !violations(seed, plant).is_empty());
        assert!(found.is_some(), "{plant:?} is not noticed");
        let seed = found.unwrap_or_default();
        println!("{plant:?} is found by seed {seed}");
        assert_eq!(violations(seed, Plant::Nothing), [""; 0], "seed {seed}, without {plant:?}");
    }
}

/// S-STALE-2.
#[test]
fn planted_faults_are_found() {
    find(&PLANTS[..PLANTS.len() / 2]);
}

#[test]
fn the_other_planted_faults_are_found() {
    find(&PLANTS[PLANTS.len() / 2..]);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..3 {
        let run = || World::new(seed, Plant::Nothing, false).run();
        assert_eq!(run(), run(), "seed {seed}");
    }
    let other = World::new(4, Plant::Nothing, false).run();
    assert_ne!(World::new(5, Plant::Nothing, false).run().fingerprint, other.fingerprint);
}
