//! SIEVE: a line in order of arrival, a mark for the used, and a hand that looks for the unused.
//!
//! After Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU: an efficient turn-key
//! eviction algorithm for web caches", NSDI 2024. A use marks its object and moves nothing. The hand
//! goes from the old end to the new: it clears marks, and the first object that has none is the
//! victim; the next search goes on from there, and from the old end again where the hand has passed
//! the new one.
//!
//! An object that is proposed keeps its place while the hand goes on. If the host spares it,
//! because it was touched since, it is where the hand would have left it, had the touch been known:
//! in its place, behind the hand, without a mark. The touch that saved it may be told before the
//! sparing or after it; it is counted once, as that.
//!
//! What must hold: every resident is in the line; the hand is at one of them or at the end.

use super::nodes::{Nodes, Queue};
use super::{CHANCES_MAX, Event, EvictionPolicy, ObjectId};

/// What is kept for a resident.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    visited: bool,
    proposed: bool,
    /// It was spared for a touch that is yet to be told.
    owes: bool,
}

/// The policy. One instance serves one cache.
#[derive(Default)]
pub struct Sieve {
    nodes: Nodes<State>,
    line: Queue,
    /// Where the search goes on; at the oldest where there is none.
    hand: Option<u32>,
    /// Proposed ones, which the hand passes by.
    proposed: usize,
}

impl Sieve {
    /// Name by which the policy is known.
    pub const NAME: &str = "sieve";

    /// Objects that came and did not leave.
    pub fn resident(&self) -> usize {
        self.nodes.len()
    }

    fn insert(&mut self, id: ObjectId, weight_bytes: u32) {
        // The slot may still hold an object whose removal was never told.
        if let Some(index) = self.nodes.find_slot(id.slot()) {
            self.detach(index);
        }
        if let Some(index) = self.nodes.add(id, weight_bytes, State::default()) {
            self.line.push(&mut self.nodes, index);
        }
    }

    fn hit(&mut self, id: ObjectId, count: u32) {
        let Some(index) = self.nodes.find(id) else { return };
        let state = &mut self.nodes.at_mut(index).state;
        let owed = std::mem::take(&mut state.owes);
        if count > u32::from(owed) {
            state.visited = true;
        }
    }

    fn spare(&mut self, id: ObjectId) {
        let Some(index) = self.nodes.find(id) else { return };
        let state = &mut self.nodes.at_mut(index).state;
        if std::mem::take(&mut state.proposed) {
            self.proposed -= 1;
            state.owes = !std::mem::take(&mut state.visited);
        }
    }

    fn detach(&mut self, index: u32) {
        if self.hand == Some(index) {
            self.hand = self.line.newer(&self.nodes, index);
        }
        self.proposed -= usize::from(self.nodes.at(index).state.proposed);
        self.line.unlink(&mut self.nodes, index);
        self.nodes.remove(index);
    }

    /// The next victim; it stays in the line.
    fn victim(&mut self, chances: &mut usize) -> Option<ObjectId> {
        if self.proposed == self.nodes.len() {
            return None;
        }
        loop {
            let index = self.hand.or_else(|| self.line.oldest())?;
            self.hand = self.line.newer(&self.nodes, index);
            let state = &mut self.nodes.at_mut(index).state;
            if state.proposed {
                continue;
            }
            if std::mem::take(&mut state.visited) && *chances > 0 {
                *chances -= 1;
                continue;
            }
            state.proposed = true;
            self.proposed += 1;
            return Some(self.nodes.id(index));
        }
    }
}

impl EvictionPolicy for Sieve {
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
        let mut victims = Vec::with_capacity(want.min(self.nodes.len() - self.proposed));
        let mut chances = CHANCES_MAX;
        while victims.len() < want {
            let Some(id) = self.victim(&mut chances) else { break };
            victims.push(id);
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::testing::{Played, evicted, hit, id, insert};

    /// Three places. 4 finds 1 marked, clears that and takes 2; 5, 6, 2 and 7 each take the next;
    /// 8 finds 2 unmarked. 1 stays, having been looked at once; 7 is marked when 9 comes by it,
    /// so that takes 8, and 10 begins anew with 1.
    #[test]
    fn the_hand_goes_on_from_where_it_was() {
        let requests = [1, 2, 3, 1, 4, 5, 6, 2, 7, 7, 8, 9, 10];
        let played = Played::play(Sieve::default(), 3, &requests);
        assert_eq!((played.victims, played.hits), (vec![2, 3, 4, 5, 6, 2, 8, 1], 2));
    }

    #[test]
    fn marks_are_cleared_and_the_hand_comes_round() {
        let mut sieve = Sieve::default();
        sieve.on_events(0, &[insert(1), insert(2), insert(3), hit(1), hit(2), hit(3)]);
        assert_eq!(
            sieve.propose(0, 1),
            [id(1)],
            "all were marked: the oldest, on the second round"
        );
        sieve.on_events(0, &[evicted(1), insert(4)]);
        assert_eq!(sieve.propose(0, 9), [id(2), id(3), id(4)]);
        assert_eq!(sieve.propose(0, 9), []);
    }

    #[test]
    fn a_spared_object_keeps_its_place_and_its_touch_counts_once() {
        for told_before in [true, false] {
            let mut sieve = Sieve::default();
            sieve.on_events(0, &[insert(1), insert(2), insert(3)]);
            assert_eq!(sieve.propose(0, 1), [id(1)]);
            let spare = Event::Spare { id: id(1) };
            sieve.on_events(0, &if told_before { [hit(1), spare] } else { [spare, hit(1)] });
            assert_eq!(sieve.propose(0, 3), [id(2), id(3), id(1)], "behind the hand, unmarked");
        }
        let mut sieve = Sieve::default();
        sieve.on_events(0, &[insert(1), insert(2)]);
        assert_eq!(sieve.propose(0, 1), [id(1)]);
        let twice = Event::Hit { id: id(1), count: 2 };
        sieve.on_events(0, &[Event::Spare { id: id(1) }, twice, insert(3)]);
        assert_eq!(sieve.propose(0, 2), [id(2), id(3)]);
        sieve.on_events(0, &[evicted(2), evicted(3), insert(4)]);
        assert_eq!(sieve.propose(0, 1), [id(4)], "1 is marked");
        assert_eq!(sieve.resident(), 2);
    }

    #[test]
    fn the_hand_survives_the_removal_of_what_it_is_at() {
        let mut sieve = Sieve::default();
        sieve.on_events(0, &[insert(1), insert(2), insert(3), insert(4)]);
        assert_eq!(sieve.propose(0, 1), [id(1)]);
        sieve.on_events(0, &[evicted(2), evicted(1)]);
        assert_eq!(sieve.propose(0, 9), [id(3), id(4)]);
        sieve.on_events(0, &[evicted(4), evicted(3), insert(5)]);
        assert_eq!(sieve.propose(0, 9), [id(5)]);
    }
}
