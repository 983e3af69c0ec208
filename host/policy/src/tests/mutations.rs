//! Components that are nearly right: shipped ones with bytes changed, moved, cut or doubled at
//! random. Whatever the loader makes of them, it does not panic, and what it does load cannot do
//! harm. The seed is printed; `PORTCULLIS_SEED` runs one again.

use std::fs;

use portcullis_core::eviction::{Class, Event, ObjectId};

use super::{Chance, LIMITS, built, bytes};
use crate::{LoadedPolicy, PolicyError, Refusal};

const SEEDS: u64 = 120;

/// One to four changes.
fn mutate(chance: &mut Chance, whole: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=chance.below(4) {
        let len = bytes.len() as u64;
        let at = chance.below(len) as usize;
        let span = at..(at + 1 + chance.below(64) as usize).min(bytes.len());
        match chance.below(7) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = chance.below(256) as u8,
            2 => bytes.truncate(at.max(1)),
            3 => bytes[span].fill(chance.below(256) as u8),
            4 => drop(bytes.drain(span)),
            5 => {
                let doubled = bytes[span.clone()].to_vec();
                bytes.splice(span.start..span.start, doubled);
            }
            _ => {
                // Lengths and counts are here: a byte that says that more follows.
                bytes[at] |= 0x80;
            }
        }
    }
    bytes
}

/// Makes it work, as far as it does.
fn use_it(policy: &mut LoadedPolicy) {
    for round in 0..20u32 {
        let inserts = (0..50).map(|slot| Event::Insert {
            id: ObjectId::new(slot, round + 1),
            key: u64::from(slot),
            class: Class::Asked,
            weight_bytes: 100,
        });
        let events: Vec<_> = inserts.collect();
        if policy.on_events(u64::from(round), &events).is_err() {
            return;
        }
        match policy.propose(u64::from(round), 16) {
            Ok(victims) => assert!(victims.len() <= 16),
            Err(_) => return,
        }
    }
}

/// H-33.
#[test]
fn a_mutated_component_never_makes_the_loader_panic() {
    let shipped = ["s3fifo", "lru", "sieve", "w-tinylfu", "gdsf"];
    let shipped = shipped.map(|name| fs::read(built(name)).expect("it can be read"));
    let one = std::env::var("PORTCULLIS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let (mut loaded, mut refused) = (0, 0);
    for seed in seeds {
        let mut chance = Chance(seed);
        let whole = &shipped[chance.below(shipped.len() as u64) as usize];
        let mutated = mutate(&mut chance, whole);
        let outcome = LoadedPolicy::load(bytes("mutated", mutated), LIMITS);
        match outcome {
            Ok(mut policy) => {
                loaded += 1;
                use_it(&mut policy);
            }
            Err(PolicyError::Refused { source: Refusal::Panicked, .. }) => {
                panic!("seed {seed}: the loader panicked");
            }
            Err(error) => {
                refused += 1;
                let message = error.to_string();
                assert!(message.starts_with("mutated: "), "seed {seed}: {message}");
                assert!(!message.contains('\0'), "seed {seed}: {message:?}");
            }
        }
    }
    println!("{loaded} loaded, {refused} refused");
    assert!(one.is_some() || refused > SEEDS / 2, "{loaded} of {SEEDS} were loaded");
}
