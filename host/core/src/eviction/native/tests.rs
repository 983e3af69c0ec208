//! What must hold of every native policy.

use std::collections::HashMap;

use super::*;
use crate::eviction::{Class, Event, ObjectId, Removal};

const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 10_000, seed: 3 };

#[test]
fn every_name_has_its_policy() {
    assert!(NAMES.iter().all(|name| native(name, LIMITS).is_some()));
    assert!(native("opt", LIMITS).is_none());
}

/// Inserts, hits, removals and proposals at random, in batches: what is proposed is resident and not
/// proposed already, everything is proposed in the end, and the same events give the same answers.
#[test]
fn proposals_are_of_residents_and_of_each_once() {
    for name in NAMES {
        for seed in 0..20 {
            let answers = [0, 1].map(|_| work(name, seed));
            assert_eq!(answers[0], answers[1], "{name}, seed {seed}");
        }
    }
}

fn work(name: &str, seed: u64) -> Vec<ObjectId> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut policy = native(name, LIMITS).expect("it has a policy");
    // Whether it is proposed.
    let mut resident = HashMap::<u32, (ObjectId, bool)>::new();
    let mut answers = Vec::new();
    let mut events = Vec::new();
    for step in 1..3_000 {
        let slot = random.u32(0..120);
        let known = resident.get(&slot).copied();
        events.push(match (known, random.u8(0..8)) {
            (None, _) => {
                let id = ObjectId::new(slot, step);
                resident.insert(slot, (id, false));
                let (key, weight_bytes) = (random.u64(0..300), random.u32(0..200));
                Event::Insert { id, key, class: Class::Asked, weight_bytes }
            }
            (Some((id, true)), 0..=3) => {
                resident.insert(slot, (id, false));
                Event::Spare { id }
            }
            (Some((id, _)), 0 | 4) => {
                resident.remove(&slot);
                let reason = [Removal::Evicted, Removal::Invalidated][random.usize(0..2)];
                Event::Remove { id, reason }
            }
            (Some((id, _)), _) => Event::Hit { id, count: random.u32(1..4) },
        });
        if random.u8(0..4) == 0 {
            policy.on_events(0, &events);
            events.clear();
            for victim in policy.propose(0, random.usize(0..6)) {
                accept(&mut resident, victim, name);
                answers.push(victim);
            }
        }
    }
    policy.on_events(0, &events);
    for victim in policy.propose(0, 1_000) {
        accept(&mut resident, victim, name);
    }
    assert!(resident.values().all(|&(_, proposed)| proposed), "{name} keeps some for itself");
    answers
}

fn accept(resident: &mut HashMap<u32, (ObjectId, bool)>, victim: ObjectId, name: &str) {
    let known = resident.get_mut(&victim.slot()).filter(|(id, _)| *id == victim);
    let (_, proposed) = known.unwrap_or_else(|| panic!("{name} proposes {victim:?}, which left"));
    assert!(!std::mem::replace(proposed, true), "{name} proposes {victim:?} twice");
}
