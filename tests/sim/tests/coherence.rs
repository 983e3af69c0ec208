//! The cache under a network that delays, loses and reorders.

use portcullis_sim::{Plant, World};

const SEEDS: u64 = 1_000;

#[test]
fn no_client_is_told_what_was_overwritten_before_it_asked() {
    let (mut answers, mut hits) = (0, 0);
    for seed in 0..SEEDS {
        let outcome = World::new(seed, Plant::Nothing, false).run();
        assert_eq!(outcome.violations, [""; 0], "seed {seed}");
        answers += outcome.answers;
        hits += outcome.hits;
    }
    println!("{SEEDS} seeds: {answers} answers, {hits} of them from the cache");
    assert!(hits > answers / 20, "the cache hardly answers, so this proves nothing: {hits}");
}

#[test]
fn a_planted_late_fill_is_found() {
    let found = (0..SEEDS)
        .find(|&seed| !World::new(seed, Plant::LateFill, false).run().violations.is_empty());
    let seed = found.expect("a reply older than an invalidation fills the cache unnoticed");
    println!("found by seed {seed}");
    let again = World::new(seed, Plant::LateFill, false).run();
    assert!(!again.violations.is_empty(), "seed {seed} does not show it again");
    assert_eq!(World::new(seed, Plant::Nothing, false).run().violations, [""; 0], "seed {seed}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let run = || World::new(seed, Plant::Nothing, false).run();
        assert_eq!(run(), run(), "seed {seed}");
    }
    let other = World::new(21, Plant::Nothing, false).run();
    assert_ne!(World::new(22, Plant::Nothing, false).run().fingerprint, other.fingerprint);
}
