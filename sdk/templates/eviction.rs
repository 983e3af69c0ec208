//! An eviction policy to begin with: first in, first out, with a second chance for what was hit.
//!
//! Change it to what you have in mind. `portcullis policy test` says whether it does what a policy must,
//! `portcullis policy replay` how good it is.

use std::collections::{HashMap, VecDeque};

use portcullis_sdk::{Event, EvictionPolicy, ObjectId, Policy, PolicyLimits, register_eviction};

/// The policy. One instance serves one cache.
#[derive(Default)]
pub struct SecondChance {
    /// Residents that are not proposed, oldest first, with some among them that have left.
    queue: VecDeque<ObjectId>,
    /// Whether they were hit since they came or were passed over.
    hit: HashMap<ObjectId, bool>,
}

impl Policy for SecondChance {
    const NAME: &str = env!("CARGO_PKG_NAME");
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        if !config.is_empty() {
            return Err(format!("{} takes no configuration", Self::NAME));
        }
        Ok(Self::default())
    }
}

impl EvictionPolicy for SecondChance {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                // What was proposed and is spared is a resident like any other again.
                Event::Insert { id, .. } | Event::Spare { id } => {
                    self.queue.push_back(id);
                    self.hit.insert(id, false);
                }
                Event::Hit { id, .. } => {
                    if let Some(hit) = self.hit.get_mut(&id) {
                        *hit = true;
                    }
                }
                Event::Remove { id, .. } => {
                    self.hit.remove(&id);
                    // Those that have left must not outnumber those that are there.
                    if self.queue.len() > 64 + 2 * self.hit.len() {
                        self.queue.retain(|id| self.hit.contains_key(id));
                    }
                }
            }
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize) -> Vec<ObjectId> {
        let mut victims = Vec::new();
        while victims.len() < want {
            let Some(id) = self.queue.pop_front() else { break };
            match self.hit.get_mut(&id) {
                // It has left.
                None => {}
                Some(hit) if *hit => {
                    *hit = false;
                    self.queue.push_back(id);
                }
                Some(_) => {
                    self.hit.remove(&id);
                    victims.push(id);
                }
            }
        }
        victims
    }
}

register_eviction!(SecondChance);

#[cfg(test)]
mod tests {
    use portcullis_sdk::{Class, testing};

    use super::*;

    fn id(slot: u32) -> ObjectId {
        ObjectId::new(slot, 1)
    }

    fn insert(slot: u32) -> Event {
        Event::Insert { id: id(slot), key: slot.into(), class: Class::Asked, weight_bytes: 100 }
    }

    #[test]
    fn what_was_hit_has_a_second_chance() {
        let mut policy = SecondChance::default();
        policy.on_events(0, &[insert(1), insert(2), Event::Hit { id: id(1), count: 3 }]);
        assert_eq!(policy.propose(0, 1), [id(2)]);
        assert_eq!(policy.propose(0, 8), [id(1)]);
    }

    /// Seeded events: the answers keep to the interface and are the same twice; and, where
    /// `portcullis policy test` runs this, the same as the component's.
    #[test]
    fn it_does_what_a_policy_must() {
        testing::eviction::<SecondChance>(b"");
    }
}
