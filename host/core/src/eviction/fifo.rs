//! FIFO: the object that came first goes first, used or not.
//!
//! After Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966. An object that the host spares comes in anew.

use super::line::Line;
use super::{Event, EvictionPolicy, ObjectId};

/// The policy. One instance serves one cache.
#[derive(Default)]
pub struct Fifo {
    line: Line,
}

impl Fifo {
    /// Name by which the policy is known.
    pub const NAME: &str = "fifo";

    /// Objects that came and did not leave.
    pub fn resident(&self) -> usize {
        self.line.len()
    }
}

impl EvictionPolicy for Fifo {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, weight_bytes, .. } => self.line.insert(id, weight_bytes),
                Event::Hit { .. } => {}
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
    use crate::eviction::testing::{Played, id, insert};

    /// Three places, requests 1 2 3 1 4 2: 4 pushes 1 out, for all that it was used.
    #[test]
    fn the_first_goes_first_used_or_not() {
        let played = Played::play(Fifo::default(), 3, &[1, 2, 3, 1, 4, 2]);
        assert_eq!((played.victims, played.hits), (vec![1], 2));
    }

    #[test]
    fn a_spared_object_comes_in_anew() {
        let mut fifo = Fifo::default();
        fifo.on_events(0, &[insert(1), insert(2)]);
        assert_eq!(fifo.propose(0, 1), [id(1)]);
        fifo.on_events(0, &[Event::Spare { id: id(1) }]);
        assert_eq!(fifo.propose(0, 9), [id(2), id(1)]);
        assert_eq!(fifo.resident(), 2);
    }
}
