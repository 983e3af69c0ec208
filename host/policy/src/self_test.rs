//! Tries a policy with made-up objects, before it is let near those of a cache.
//!
//! It is an instance of its own, which is dropped afterwards: nothing of the test stays in the one that
//! works.

use std::collections::HashSet;

use portcullis_core::eviction::{Class, Event, ObjectId, PolicyLimits, Removal};
use portcullis_core::limits::POLICY_SHORTFALLS_MAX;

use crate::error::{Fault, Refusal};
use crate::loaded::LoadedPolicy;
use crate::recipe::Recipe;

/// Made-up objects.
const OBJECTS: u32 = 512;
const WEIGHT_BYTES: u32 = 1_000;
/// Victims asked for at once.
const WANT: usize = 16;

/// Makes an instance and sees whether it proposes victims. Wants a deep stack.
pub(crate) fn self_test(recipe: &Recipe, limits: PolicyLimits) -> Result<(), Refusal> {
    let mut policy = recipe.start(limits)?;
    let insert = |slot: u32| Event::Insert {
        id: ObjectId::new(slot, 1),
        key: u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        class: if slot.is_multiple_of(2) { Class::Asked } else { Class::Listed },
        weight_bytes: WEIGHT_BYTES,
    };
    let hit = |slot: u32| Event::Hit { id: ObjectId::new(slot, 1), count: 1 + slot % 5 };
    let events = (0..OBJECTS).map(insert).chain((0..OBJECTS).step_by(3).map(hit));
    policy.on_events(0, &events.collect::<Vec<_>>())?;

    let mut left = HashSet::new();
    let first = victims(&mut policy, 1, &left)?;
    // Half of them leave, the others are spared.
    let answers = first.iter().enumerate().map(|(number, &id)| match number % 2 {
        0 => {
            left.insert(id);
            Event::Remove { id, reason: Removal::Evicted }
        }
        _ => Event::Spare { id },
    });
    policy.on_events(2, &answers.collect::<Vec<_>>())?;
    victims(&mut policy, 3, &left)?;
    Ok(())
}

/// Usable victims, which a policy may give late, but has to give.
fn victims(
    policy: &mut LoadedPolicy,
    now_ms: u64,
    left: &HashSet<ObjectId>,
) -> Result<Vec<ObjectId>, Refusal> {
    for _ in 0..POLICY_SHORTFALLS_MAX {
        let proposed = policy.propose(now_ms, WANT)?;
        let mut seen = HashSet::new();
        let is_known = |id: ObjectId| id.slot() < OBJECTS && id.generation() == 1;
        let foreign = proposed.iter().filter(|id| !is_known(**id)).count();
        if foreign > 0 {
            return Err(Fault::Foreign { count: foreign as u64 }.into());
        }
        let usable = |id: &ObjectId| !left.contains(id) && seen.insert(*id);
        let usable: Vec<ObjectId> = proposed.into_iter().filter(usable).collect();
        if !usable.is_empty() {
            return Ok(usable);
        }
    }
    Err(Refusal::SelfTest(format!("of {OBJECTS} objects it proposes none")))
}
