//! LRU: the least recently used object goes first.
//!
//! The classic, in the form of Mattson, Gecsei, Slutz and Traiger, "Evaluation techniques for storage
//! hierarchies", IBM Systems Journal 9(2), 1970: one line, a use moves its object to the new end.
//! An object that was spared is one that was used.

use super::line::Line;
use super::{Event, EvictionPolicy, ObjectId};

/// The policy. One instance serves one cache.
#[derive(Default)]
pub struct Lru {
    line: Line,
}

impl Lru {
    /// Name by which the policy is known.
    pub const NAME: &str = "lru";

    /// Objects that came and did not leave.
    pub fn resident(&self) -> usize {
        self.line.len()
    }
}

impl EvictionPolicy for Lru {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, weight_bytes, .. } => self.line.insert(id, weight_bytes),
                Event::Hit { id, .. } => self.line.renew(id),
                Event::Remove { id, .. } => self.line.remove(id),
                Event::Spare { id } => self.line.spare(id),
            }
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize) -> Vec<ObjectId> {
        self.line.propose(want)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::testing::{Played, evicted, hit, id, insert};

    /// Three places, requests 1 2 3 1 4 2: 4 pushes 2 out, 2 pushes 3 out.
    #[test]
    fn the_least_recently_used_goes_first() {
        let played = Played::play(Lru::default(), 3, &[1, 2, 3, 1, 4, 2]);
        assert_eq!((played.victims, played.hits), (vec![2, 3], 1));
    }

    #[test]
    fn a_spared_object_is_the_most_recent() {
        let mut lru = Lru::default();
        lru.on_events(0, &[insert(1), insert(2), insert(3)]);
        assert_eq!(lru.propose(0, 2), [id(1), id(2)]);
        lru.on_events(0, &[hit(1), Event::Spare { id: id(1) }, evicted(2)]);
        assert_eq!(lru.propose(0, 9), [id(3), id(1)]);
        assert_eq!(lru.propose(0, 9), [], "what is proposed is not proposed again");
        assert_eq!(lru.resident(), 2);
    }
}
