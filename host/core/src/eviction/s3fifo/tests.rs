//! Known answers, a plain model under random events, and bounds.

use std::collections::{HashMap, VecDeque};

use super::*;
use crate::eviction::Class;

fn id(slot: u32) -> ObjectId {
    ObjectId::new(slot, 1)
}

fn insert(slot: u32, weight_bytes: u32) -> Event {
    Event::Insert { id: id(slot), key: slot.into(), class: Class::Asked, weight_bytes }
}

fn hit(slot: u32) -> Event {
    Event::Hit { id: id(slot), count: 1 }
}

fn evicted(slot: u32) -> Event {
    Event::Remove { id: id(slot), reason: Removal::Evicted }
}

fn policy(capacity_bytes: u64) -> S3Fifo {
    S3Fifo::new(PolicyLimits { capacity_bytes, seed: 0 })
}

/// Proposes one victim and removes it, as a host short of memory does.
fn evict(policy: &mut S3Fifo) -> u32 {
    let victim = policy.propose(0, 1)[0];
    policy.on_events(0, &[Event::Remove { id: victim, reason: Removal::Evicted }]);
    victim.slot()
}

#[test]
fn an_object_hit_twice_in_small_moves_to_main_and_one_hit_once_leaves() {
    let mut policy = policy(1_000);
    policy.on_events(0, &[insert(1, 10), insert(2, 10), insert(3, 10)]);
    policy.on_events(0, &[hit(1), hit(2), hit(2)]);
    assert_eq!([evict(&mut policy), evict(&mut policy)], [1, 3]);
    // Its count was cleared on the way into main, so it gets no second round there.
    assert_eq!(evict(&mut policy), 2);
    assert!(policy.propose(0, 1).is_empty());
}

#[test]
fn a_key_in_the_ghost_enters_main() {
    let mut policy = policy(1_000);
    policy.on_events(0, &[insert(1, 10)]);
    assert_eq!(evict(&mut policy), 1);
    let again = Event::Insert { id: id(9), key: 1, class: Class::Asked, weight_bytes: 10 };
    policy.on_events(0, &[again, insert(2, 10)]);
    // Small, with 2 in it, holds more than its tenth.
    assert_eq!([evict(&mut policy), evict(&mut policy)], [2, 9]);
    // It left from main, so its key is no longer remembered: back to small, behind 3.
    let third = Event::Insert { id: id(10), key: 1, class: Class::Asked, weight_bytes: 10 };
    policy.on_events(0, &[insert(3, 10), third]);
    assert_eq!([evict(&mut policy), evict(&mut policy)], [3, 10]);
}

#[test]
fn main_gives_a_round_for_each_hit_up_to_three() {
    let mut policy = policy(1_000);
    for slot in [1, 2] {
        policy.on_events(0, &[insert(slot, 10), hit(slot), hit(slot)]);
    }
    policy.on_events(0, &[insert(3, 10)]);
    assert_eq!(evict(&mut policy), 3, "1 and 2 are promoted on the way");
    policy.on_events(0, &[Event::Hit { id: id(1), count: 9 }, hit(2), hit(2)]);
    // 1 counts three, 2 counts two: 2 runs out first.
    assert_eq!([evict(&mut policy), evict(&mut policy)], [2, 1]);
}

#[test]
fn small_owns_a_tenth_of_the_bytes() {
    let mut policy = policy(1_000);
    // 900 bytes in main, 100 in small.
    for slot in 0..9 {
        policy.on_events(0, &[insert(slot, 100), hit(slot), hit(slot)]);
    }
    policy.on_events(0, &[insert(50, 100)]);
    assert_eq!(evict(&mut policy), 50);
    // Below its tenth, small is left alone; a heavier object in it tips the share.
    policy.on_events(0, &[insert(51, 99)]);
    assert_eq!(evict(&mut policy), 0);
    policy.on_events(0, &[insert(52, 1)]);
    assert_eq!(evict(&mut policy), 51);
}

#[test]
fn a_spared_object_enters_main() {
    let mut policy = policy(1_000);
    policy.on_events(0, &[insert(1, 10), insert(2, 10), insert(3, 10)]);
    assert_eq!(policy.propose(0, 2), [id(1), id(2)]);
    assert_eq!(policy.propose(0, 2), [id(3)], "proposed ones are not proposed again");
    policy.on_events(0, &[Event::Spare { id: id(1) }, evicted(2), evicted(3)]);
    policy.on_events(0, &[insert(4, 10)]);
    assert_eq!([evict(&mut policy), evict(&mut policy)], [4, 1]);
}

#[test]
fn a_listed_object_starts_as_any_other() {
    let mut policy = policy(1_000);
    let listed = Event::Insert { id: id(1), key: 1, class: Class::Listed, weight_bytes: 10 };
    policy.on_events(0, &[listed, insert(2, 10)]);
    assert_eq!([evict(&mut policy), evict(&mut policy)], [1, 2]);
}

#[test]
fn what_one_miss_evicts_does_not_push_its_own_key_out_of_the_ghost() {
    // The ghost remembers 90 bytes.
    let mut policy = policy(100);
    policy.on_events(0, &[insert(1, 30), evicted(1)]);
    policy.on_events(0, &[insert(2, 40), insert(3, 40), evicted(2), evicted(3)]);
    let again = Event::Insert { id: id(9), key: 1, class: Class::Asked, weight_bytes: 30 };
    policy.on_events(0, &[again, insert(4, 30)]);
    assert_eq!([evict(&mut policy), evict(&mut policy)], [4, 9], "9 is in main");
}

#[test]
fn an_invalidated_key_is_not_remembered() {
    let mut policy = policy(1_000);
    let gone = Event::Remove { id: id(1), reason: Removal::Invalidated };
    policy.on_events(0, &[insert(1, 10), gone]);
    let again = Event::Insert { id: id(2), key: 1, class: Class::Asked, weight_bytes: 10 };
    policy.on_events(0, &[again, insert(3, 10)]);
    assert_eq!([evict(&mut policy), evict(&mut policy)], [2, 3], "2 is in small, not in main");
}

#[test]
fn a_call_gives_a_bounded_number_of_second_chances() {
    const OBJECTS: u32 = CHANCES_MAX as u32 * 2;
    let mut policy = policy(1 << 40);
    for slot in 0..OBJECTS {
        policy.on_events(0, &[insert(slot, 10), Event::Hit { id: id(slot), count: 3 }]);
    }
    let first = policy.propose(0, 3);
    let after = CHANCES_MAX as u32;
    assert_eq!(first, [id(after), id(after + 1), id(after + 2)]);
}

/// The same policy, written for clarity: queues of whole records, searched from end to end.
#[derive(Default)]
struct Model {
    resident: HashMap<u32, Resident>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Key and weight, oldest first.
    ghost: Vec<(u64, u32)>,
    window_bytes: u64,
}

struct Resident {
    generation: u32,
    key: u64,
    weight_bytes: u32,
    hits: u32,
    from_small: bool,
}

impl Model {
    fn bytes(&self, queue: &VecDeque<u32>) -> u64 {
        queue.iter().map(|slot| u64::from(self.resident[slot].weight_bytes)).sum()
    }

    fn forget(&mut self, slot: u32) -> Option<Resident> {
        self.small.retain(|&other| other != slot);
        self.main.retain(|&other| other != slot);
        self.resident.remove(&slot)
    }

    fn on_event(&mut self, event: Event) {
        let of = |id: ObjectId, model: &Self| {
            model.resident.get(&id.slot()).is_some_and(|r| r.generation == id.generation())
        };
        match event {
            Event::Insert { id, key, weight_bytes, .. } => {
                self.forget(id.slot());
                let ghosts = self.ghost.len();
                self.ghost.retain(|&(ghost, _)| ghost != key);
                let known = self.ghost.len() < ghosts;
                while self.ghost.iter().map(|&(_, weight)| u64::from(weight)).sum::<u64>()
                    > self.window_bytes
                {
                    self.ghost.remove(0);
                }
                let generation = id.generation();
                let resident =
                    Resident { generation, key, weight_bytes, hits: 0, from_small: !known };
                self.resident.insert(id.slot(), resident);
                let queue = if known { &mut self.main } else { &mut self.small };
                queue.push_back(id.slot());
            }
            Event::Hit { id, count } if of(id, self) => {
                let resident = self.resident.get_mut(&id.slot()).unwrap();
                resident.hits = (resident.hits + count).min(3);
            }
            Event::Remove { id, reason } if of(id, self) => {
                let gone = self.forget(id.slot()).unwrap();
                if reason == Removal::Evicted && gone.from_small {
                    self.ghost.retain(|&(key, _)| key != gone.key);
                    self.ghost.push((gone.key, gone.weight_bytes));
                }
            }
            Event::Spare { id } if of(id, self) => {
                let slot = id.slot();
                if !self.small.contains(&slot) && !self.main.contains(&slot) {
                    self.resident.get_mut(&slot).unwrap().from_small = false;
                    self.main.push_back(slot);
                }
            }
            _ => {}
        }
    }

    fn victim_of(&mut self, small: bool) -> Option<ObjectId> {
        loop {
            let queue = if small { &mut self.small } else { &mut self.main };
            let slot = queue.pop_front()?;
            let resident = self.resident.get_mut(&slot).unwrap();
            if resident.hits < if small { 2 } else { 1 } {
                resident.hits = 0;
                return Some(ObjectId::new(slot, resident.generation));
            }
            resident.hits = if small { 0 } else { resident.hits - 1 };
            resident.from_small = false;
            self.main.push_back(slot);
        }
    }

    fn propose(&mut self, want: usize) -> Vec<ObjectId> {
        let mut victims = Vec::new();
        while victims.len() < want {
            let small = self.bytes(&self.small);
            let first = small * 10 >= small + self.bytes(&self.main);
            let Some(id) = self.victim_of(first).or_else(|| self.victim_of(!first)) else { break };
            victims.push(id);
        }
        victims
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// Any event in any order, also such as no host sends: both must answer alike throughout.
#[test]
fn answers_as_the_model_under_random_events() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let capacity_bytes = 1 + chance.below(4_000);
        let mut policy = policy(capacity_bytes);
        let mut model = Model { window_bytes: capacity_bytes / 10 * 9, ..Model::default() };
        let slots = 1 + chance.below(60);
        for step in 0..600 {
            let slot = chance.below(slots) as u32;
            // Far apart too: several pages, and the last slots there are.
            let slot = if slot.is_multiple_of(3) { u32::MAX - slot * 1_000 } else { slot };
            let id = ObjectId::new(slot, chance.below(2) as u32);
            let event = match chance.below(8) {
                0..=2 => Event::Insert {
                    id,
                    key: chance.below(80),
                    class: Class::Listed,
                    weight_bytes: chance.below(120) as u32,
                },
                3 | 4 => Event::Hit { id, count: chance.below(4) as u32 },
                5 => Event::Remove { id, reason: Removal::Evicted },
                6 => Event::Remove { id, reason: Removal::Invalidated },
                _ => Event::Spare { id },
            };
            policy.on_events(step, &[event]);
            model.on_event(event);
            if chance.below(4) == 0 {
                let want = chance.below(5) as usize;
                assert_eq!(policy.propose(step, want), model.propose(want), "seed {seed}");
            }
            assert_eq!(policy.resident(), model.resident.len());
            assert_eq!(policy.small.bytes(), model.bytes(&model.small));
            assert_eq!(policy.main.bytes(), model.bytes(&model.main));
        }
    }
}

#[test]
fn memory_follows_the_residents() {
    const OBJECTS: u32 = 100_000;
    let mut policy = policy(u64::from(OBJECTS) * 100);
    for slot in 0..OBJECTS {
        policy.on_events(0, &[insert(slot, 100)]);
    }
    let full = policy.memory_bytes();
    assert!(full < OBJECTS as usize * 26, "{full} bytes, nothing has left yet");
    // Ten turnovers, each object under a new key: the ghost fills.
    for slot in 0..OBJECTS * 10 {
        let victim = policy.propose(0, 1)[0];
        let key = u64::from(slot) + u64::from(OBJECTS);
        let id = ObjectId::new(victim.slot(), victim.generation() + 1);
        policy.on_events(
            0,
            &[
                Event::Remove { id: victim, reason: Removal::Evicted },
                Event::Insert { id, key, class: Class::Asked, weight_bytes: 100 },
            ],
        );
    }
    let turned = policy.memory_bytes();
    assert!(turned < OBJECTS as usize * 42, "{turned} bytes with a full ghost");
    // Everything leaves: the table of nodes returns its pages.
    while let Some(&victim) = policy.propose(0, 1).first() {
        policy.on_events(0, &[Event::Remove { id: victim, reason: Removal::Invalidated }]);
    }
    assert_eq!(policy.resident(), 0);
    assert!(policy.nodes.memory_bytes() < full / 10);
}
