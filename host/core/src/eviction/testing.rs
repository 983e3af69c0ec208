//! For tests of native policies: events in short, and a host that asks for one victim at a time.

use std::collections::HashMap;

use super::{Class, Event, EvictionPolicy, ObjectId, Removal};

/// The only generation of `slot`.
pub(super) fn id(slot: u32) -> ObjectId {
    ObjectId::new(slot, 1)
}

/// An object of one byte comes; its key is its slot.
pub(super) fn insert(slot: u32) -> Event {
    weighing(slot, 1)
}

/// An object comes; its key is its slot.
pub(super) fn weighing(slot: u32, weight_bytes: u32) -> Event {
    Event::Insert { id: id(slot), key: slot.into(), class: Class::Asked, weight_bytes }
}

/// It is hit once.
pub(super) fn hit(slot: u32) -> Event {
    Event::Hit { id: id(slot), count: 1 }
}

/// It leaves to make room.
pub(super) fn evicted(slot: u32) -> Event {
    Event::Remove { id: id(slot), reason: Removal::Evicted }
}

/// What a policy did under a sequence of requests.
pub(super) struct Played<P> {
    pub(super) policy: P,
    /// Whom it evicted, in order.
    pub(super) victims: Vec<u32>,
    pub(super) hits: u32,
}

impl<P: EvictionPolicy> Played<P> {
    /// Requests for objects of one byte, by number; a cache with room for `capacity` of them.
    pub(super) fn play(policy: P, capacity: usize, requests: &[u32]) -> Self {
        Self::play_weighing(policy, capacity, requests, |_| 1)
    }

    /// The same with objects of these weights.
    pub(super) fn play_weighing(
        mut policy: P,
        capacity_bytes: usize,
        requests: &[u32],
        weight_bytes: impl Fn(u32) -> u32,
    ) -> Self {
        let (mut victims, mut hits) = (Vec::new(), 0);
        let mut generations = HashMap::<u32, u32>::new();
        let mut resident = HashMap::<u32, ObjectId>::new();
        for &slot in requests {
            if let Some(&id) = resident.get(&slot) {
                hits += 1;
                policy.on_events(0, &[Event::Hit { id, count: 1 }]);
                continue;
            }
            let weight = weight_bytes(slot);
            let used = |resident: &HashMap<u32, ObjectId>| {
                resident.keys().map(|&slot| weight_bytes(slot) as usize).sum::<usize>()
            };
            while used(&resident) + weight as usize > capacity_bytes {
                let victim = policy.propose(0, 1)[0];
                assert_eq!(resident.remove(&victim.slot()), Some(victim), "it is resident");
                victims.push(victim.slot());
                policy.on_events(0, &[Event::Remove { id: victim, reason: Removal::Evicted }]);
            }
            let generation = generations.entry(slot).or_default();
            *generation += 1;
            let id = ObjectId::new(slot, *generation);
            resident.insert(slot, id);
            let class = Class::Asked;
            let key = slot.into();
            policy.on_events(0, &[Event::Insert { id, key, class, weight_bytes: weight }]);
        }
        Self { policy, victims, hits }
    }
}
