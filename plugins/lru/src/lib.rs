//! LRU: the least recently used object goes first.
//!
//! The smallest useful policy, to read before writing one. Uses are numbered. A queue holds uses,
//! oldest first, and a map the latest use of each resident; a use that is no longer the latest of
//! its object is skipped when it comes to the front, so a hit only appends. An object that is
//! proposed is in neither until the host answers.

use std::collections::{HashMap, VecDeque};

use portcullis_sdk::{Event, EvictionPolicy, ObjectId, Policy, PolicyLimits, register_eviction};

/// The policy.
#[derive(Default)]
pub struct Lru {
    /// The latest use of each resident that is not proposed.
    latest: HashMap<ObjectId, u64>,
    /// Uses in order, with outdated ones among them.
    uses: VecDeque<(u64, ObjectId)>,
    /// Number of the next use.
    next: u64,
}

impl Lru {
    fn touch(&mut self, id: ObjectId) {
        self.latest.insert(id, self.next);
        self.uses.push_back((self.next, id));
        self.next += 1;
        // Hits append faster than victims are taken: drop outdated uses when they outnumber the
        // others. Each append pays for one of the moves this makes.
        if self.uses.len() > 64 + 2 * self.latest.len() {
            self.uses.retain(|(number, id)| self.latest.get(id) == Some(number));
        }
    }
}

impl Policy for Lru {
    const NAME: &str = "lru";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        if !config.is_empty() {
            return Err("lru takes no configuration".to_owned());
        }
        Ok(Self::default())
    }
}

impl EvictionPolicy for Lru {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, .. } | Event::Spare { id } => self.touch(id),
                // A hit of a proposed object needs nothing: the host will spare it.
                Event::Hit { id, .. } if self.latest.contains_key(&id) => self.touch(id),
                Event::Hit { .. } => {}
                Event::Remove { id, .. } => {
                    self.latest.remove(&id);
                }
            }
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize) -> Vec<ObjectId> {
        let mut victims = Vec::new();
        while victims.len() < want {
            let Some((number, id)) = self.uses.pop_front() else { break };
            if self.latest.get(&id) == Some(&number) {
                self.latest.remove(&id);
                victims.push(id);
            }
        }
        victims
    }
}

register_eviction!(Lru);

#[cfg(test)]
mod tests {
    use portcullis_sdk::{Class, Removal, testing};

    use super::*;

    fn id(slot: u32) -> ObjectId {
        ObjectId::new(slot, 1)
    }

    fn insert(slot: u32) -> Event {
        Event::Insert { id: id(slot), key: slot.into(), class: Class::Asked, weight_bytes: 1 }
    }

    fn hit(slot: u32) -> Event {
        Event::Hit { id: id(slot), count: 1 }
    }

    fn remove(slot: u32) -> Event {
        Event::Remove { id: id(slot), reason: Removal::Evicted }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut lru = Lru::default();
        lru.on_events(0, &[insert(1), insert(2), insert(3), hit(1), hit(1)]);
        assert_eq!(lru.propose(0, 2), [id(2), id(3)]);
        assert_eq!(lru.propose(0, 2), [id(1)]);
        assert_eq!(lru.propose(0, 2), [], "what is proposed is not proposed again");
    }

    #[test]
    fn a_spared_object_is_the_most_recent() {
        let mut lru = Lru::default();
        lru.on_events(0, &[insert(1), insert(2)]);
        assert_eq!(lru.propose(0, 1), [id(1)]);
        lru.on_events(0, &[hit(1), Event::Spare { id: id(1) }]);
        assert_eq!(lru.propose(0, 2), [id(2), id(1)]);
    }

    #[test]
    fn a_removed_object_is_forgotten() {
        let mut lru = Lru::default();
        lru.on_events(0, &[insert(1), insert(2), remove(1), hit(1)]);
        assert_eq!(lru.propose(0, 2), [id(2)]);
        lru.on_events(0, &[remove(2), remove(3)]);
        assert!(lru.latest.is_empty());
    }

    #[test]
    fn it_does_what_a_policy_must() {
        testing::eviction::<Lru>(b"");
    }

    #[test]
    fn memory_follows_the_residents() {
        let mut lru = Lru::default();
        for slot in 0..100 {
            lru.on_events(0, &[insert(slot)]);
        }
        for number in 0..100_000 {
            lru.on_events(0, &[hit(number % 100)]);
        }
        assert_eq!(lru.latest.len(), 100);
        assert!(lru.uses.len() <= 64 + 2 * 100);
    }
}
