//! GDSF, Greedy-Dual-Size-Frequency: what is small and often used stays, and everything ages.
//!
//! After Cherkasova, "Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching
//! policy", HP Laboratories HPL-98-69, 1998. The priority of an object is the cache's age plus its
//! uses divided by its weight, taken anew with each use; the lowest goes first, and its priority
//! becomes the cache's age. Among equals the one that was used least recently goes first. For objects
//! of one weight this is LFU with ageing; it shows its worth where weights differ.
//!
//! What must hold: a resident is in the [`heap`], or proposed; priorities are finite.

mod heap;

use super::nodes::Nodes;
use super::{Event, EvictionPolicy, ObjectId};
use heap::{Heap, Rank};

/// Priorities are in millionths of a use per byte, so that they are not all tiny.
const SCALE: f64 = 1e6;

/// What is kept for a resident.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Where it is in the heap, `None` while it is proposed.
    at: Option<u32>,
    uses: u32,
}

/// The policy. One instance serves one cache.
#[derive(Default)]
pub struct Gdsf {
    nodes: Nodes<State>,
    heap: Heap,
    /// Priority of the latest victim.
    age: f64,
    /// Number of the next use.
    next: u64,
}

impl Gdsf {
    /// Name by which the policy is known.
    pub const NAME: &str = "gdsf";

    /// Objects that came and did not leave.
    pub fn resident(&self) -> usize {
        self.nodes.len()
    }

    fn insert(&mut self, id: ObjectId, weight_bytes: u32) {
        // The slot may still hold an object whose removal was never told.
        if let Some(index) = self.nodes.find_slot(id.slot()) {
            self.detach(index);
        }
        if let Some(index) = self.nodes.add(id, weight_bytes, State { at: None, uses: 1 }) {
            let rank = self.rank(index);
            self.heap.push(&mut self.nodes, index, rank);
        }
    }

    fn hit(&mut self, id: ObjectId, count: u32) {
        let Some(index) = self.nodes.find(id) else { return };
        let state = &mut self.nodes.at_mut(index).state;
        state.uses = state.uses.saturating_add(count);
        if let Some(at) = state.at {
            let rank = self.rank(index);
            self.heap.change(&mut self.nodes, at, rank);
        }
    }

    fn spare(&mut self, id: ObjectId) {
        let Some(index) = self.nodes.find(id) else { return };
        if self.nodes.at(index).state.at.is_none() {
            let rank = self.rank(index);
            self.heap.push(&mut self.nodes, index, rank);
        }
    }

    fn detach(&mut self, index: u32) {
        if let Some(at) = self.nodes.at(index).state.at {
            self.heap.remove(&mut self.nodes, at);
        }
        self.nodes.remove(index);
    }

    /// The rank of a resident that is used now.
    fn rank(&mut self, index: u32) -> Rank {
        let node = self.nodes.at(index);
        let weight_bytes = f64::from(node.weight_bytes.max(1));
        let priority = self.age + f64::from(node.state.uses) * SCALE / weight_bytes;
        self.next += 1;
        Rank { priority, used: self.next }
    }
}

impl EvictionPolicy for Gdsf {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, weight_bytes, .. } => self.insert(id, weight_bytes),
                Event::Hit { id, count } => self.hit(id, count),
                Event::Remove { id, .. } => {
                    if let Some(index) = self.nodes.find(id) {
                        self.detach(index);
                    }
                }
                Event::Spare { id } => self.spare(id),
            }
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize) -> Vec<ObjectId> {
        let mut victims = Vec::with_capacity(want.min(self.nodes.len()));
        while victims.len() < want {
            let Some((index, rank)) = self.heap.pop(&mut self.nodes) else { break };
            self.age = rank.priority;
            victims.push(self.nodes.id(index));
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::testing::{Played, evicted, hit, id, weighing};

    /// A cache of 100 bytes. 1 weighs 50 and is used twice (4 per hundred bytes), 2 weighs 20 (5),
    /// 3 weighs 30 (3.3). 4, of 40 bytes, pushes out 3, then 1: the age is 4. 4 ranks at 6.5 and 2
    /// still at 5, so 5, of 50 bytes, pushes out 2.
    #[test]
    fn the_least_used_for_its_weight_goes_first_and_the_rest_age() {
        let weight = |slot| [0, 50, 20, 30, 40, 50][slot as usize];
        let played = Played::play_weighing(Gdsf::default(), 100, &[1, 2, 3, 1, 4, 5], weight);
        assert_eq!((played.victims, played.hits), (vec![3, 1, 2], 1));
        assert_eq!(played.policy.age, SCALE / 20.0);
        assert_eq!(played.policy.resident(), 2);
    }

    /// 1 was used last, so 2 goes first although it came later.
    #[test]
    fn among_equals_the_least_recently_used_goes_first() {
        let mut gdsf = Gdsf::default();
        gdsf.on_events(0, &[weighing(1, 20), weighing(2, 10), weighing(3, 30), hit(1)]);
        assert_eq!(gdsf.propose(0, 9), [id(3), id(2), id(1)]);
    }

    #[test]
    fn a_spared_object_keeps_its_uses() {
        let mut gdsf = Gdsf::default();
        gdsf.on_events(0, &[weighing(1, 10), weighing(2, 4), hit(2)]);
        assert_eq!(gdsf.propose(0, 1), [id(1)]);
        gdsf.on_events(0, &[hit(1), Event::Spare { id: id(1) }, hit(1), weighing(3, 10)]);
        // The age is that of 1 when it was proposed, 1/10: so 1 has 4/10, 3 has 2/10, 2 has 2/4.
        assert_eq!(gdsf.propose(0, 9), [id(3), id(1), id(2)]);
        gdsf.on_events(0, &[evicted(1), evicted(2), evicted(3)]);
        assert_eq!((gdsf.resident(), gdsf.propose(0, 1).len()), (0, 0));
    }
}
