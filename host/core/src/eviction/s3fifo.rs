//! S3-FIFO: two queues and a ghost.
//!
//! After Yang, Zhang, Qiu, Yue and Rashmi, "FIFO queues are all you need for cache eviction",
//! SOSP 2023, weighing objects by bytes: a new object enters the *small* queue, which owns a tenth
//! of the bytes; one whose key is in the *ghost* enters the *main* queue. At the old end of small
//! an object that was hit at least twice moves to main with its count cleared, any other leaves
//! and its key enters the ghost. At the old end of main an object that was hit goes round again
//! with its count lowered by one. Counts stop at three. (Implementations differ on the threshold
//! of two and on clearing; these are the paper's.)
//!
//! What the evictions for one newcomer push out of the ghost is dropped only when that newcomer was
//! looked up in it: for a host that evicts first and inserts then, the answer is the paper's, whose
//! ghost is asked before anything leaves.
//!
//! Two things the paper does not have. A victim is *proposed* before it leaves: meanwhile it is in
//! no queue. If the host spares it, because it was touched since, it enters main: had it left at
//! once, that touch would have found its key in the ghost. And one call of `propose` gives a
//! bounded number of second chances, so that it takes bounded time.
//!
//! [`nodes`](super::nodes) holds the residents and links the queues, [`ghost`] remembers who left. What must
//! hold: a resident is in exactly one queue, or proposed; every step costs O(1), with no pause for
//! growth, since policies have a deadline; memory is a fixed multiple of the residents.

mod ghost;

use super::nodes::{Node, Nodes, Queue};
use super::{CHANCES_MAX, Event, EvictionPolicy, ObjectId, PolicyLimits, Removal};
use ghost::Ghost;

/// The small queue owns one part in this many of the bytes.
const SMALL_SHARE: u64 = 10;
/// Hits that move an object from small to main.
const PROMOTE_HITS: u8 = 2;
/// Hits are counted up to here.
const HITS_MAX: u8 = 3;

/// Where a resident is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// In the small queue.
    #[default]
    Small,
    /// In the main queue.
    Main,
    /// Proposed from the small queue.
    LeftSmall,
    /// Proposed from the main queue.
    LeftMain,
}

/// What is kept for a resident.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// What the ghost remembers it by.
    fingerprint: u32,
    place: Place,
    /// Hits, up to three.
    hits: u8,
}

/// The policy. One instance serves one cache.
pub struct S3Fifo {
    nodes: Nodes<State>,
    small: Queue,
    main: Queue,
    ghost: Ghost,
}

impl S3Fifo {
    /// Name by which the policy is known.
    pub const NAME: &str = "s3-fifo";

    /// A policy that knows of no object yet.
    pub fn new(limits: PolicyLimits) -> Self {
        Self {
            nodes: Nodes::default(),
            small: Queue::default(),
            main: Queue::default(),
            ghost: Ghost::new(limits.capacity_bytes / SMALL_SHARE * (SMALL_SHARE - 1)),
        }
    }

    /// Objects that came and did not leave.
    pub fn resident(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes the policy takes itself.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes() + self.ghost.memory_bytes()
    }

    fn insert(&mut self, id: ObjectId, key: u64, weight_bytes: u32) {
        // The slot may still hold an object whose removal was never told.
        if let Some(index) = self.nodes.find_slot(id.slot()) {
            self.detach(index);
        }
        let fingerprint = ghost::fingerprint(key);
        let known = self.ghost.take(fingerprint);
        self.ghost.trim();
        let place = if known { Place::Main } else { Place::Small };
        let state = State { fingerprint, place, hits: 0 };
        let Some(index) = self.nodes.add(id, weight_bytes, state) else { return };
        let queue = if known { &mut self.main } else { &mut self.small };
        queue.push(&mut self.nodes, index);
    }

    fn hit(&mut self, id: ObjectId, count: u32) {
        if let Some(index) = self.nodes.find(id) {
            let state = &mut self.nodes.at_mut(index).state;
            state.hits = (u32::from(state.hits).saturating_add(count)).min(HITS_MAX.into()) as u8;
        }
    }

    fn remove(&mut self, id: ObjectId, reason: Removal) {
        let Some(index) = self.nodes.find(id) else { return };
        let node = self.detach(index);
        let State { fingerprint, place, .. } = node.state;
        if reason == Removal::Evicted && matches!(place, Place::Small | Place::LeftSmall) {
            // Of itself too: it was resident until now.
            let residents = self.nodes.len() + 1;
            self.ghost.insert(fingerprint, node.weight_bytes, residents);
        }
    }

    fn spare(&mut self, id: ObjectId) {
        let Some(index) = self.nodes.find(id) else { return };
        if matches!(self.nodes.at(index).state.place, Place::LeftSmall | Place::LeftMain) {
            self.enter_main(index);
        }
    }

    fn enter_main(&mut self, index: u32) {
        self.nodes.at_mut(index).state.place = Place::Main;
        self.main.push(&mut self.nodes, index);
    }

    /// Takes a resident out of its queue and out of the table.
    fn detach(&mut self, index: u32) -> Node<State> {
        match self.nodes.at(index).state.place {
            Place::Small => self.small.unlink(&mut self.nodes, index),
            Place::Main => self.main.unlink(&mut self.nodes, index),
            Place::LeftSmall | Place::LeftMain => {}
        }
        self.nodes.remove(index)
    }

    /// The next victim, out of its queue. The share is taken of the bytes in the queues, so that
    /// victims already proposed, or a cache that is not quite full, do not tilt it.
    fn victim(&mut self, chances: &mut usize) -> Option<ObjectId> {
        let bytes = self.small.bytes() + self.main.bytes();
        if self.small.bytes().saturating_mul(SMALL_SHARE) >= bytes {
            self.victim_of_small(chances).or_else(|| self.victim_of_main(chances))
        } else {
            self.victim_of_main(chances).or_else(|| self.victim_of_small(chances))
        }
    }

    fn victim_of_small(&mut self, chances: &mut usize) -> Option<ObjectId> {
        while let Some(index) = self.small.oldest() {
            self.small.unlink(&mut self.nodes, index);
            let state = &mut self.nodes.at_mut(index).state;
            let hits = std::mem::take(&mut state.hits);
            if hits < PROMOTE_HITS || *chances == 0 {
                state.place = Place::LeftSmall;
                return Some(self.nodes.id(index));
            }
            *chances -= 1;
            self.enter_main(index);
        }
        None
    }

    fn victim_of_main(&mut self, chances: &mut usize) -> Option<ObjectId> {
        while let Some(index) = self.main.oldest() {
            self.main.unlink(&mut self.nodes, index);
            let state = &mut self.nodes.at_mut(index).state;
            if state.hits == 0 || *chances == 0 {
                state.place = Place::LeftMain;
                state.hits = 0;
                return Some(self.nodes.id(index));
            }
            *chances -= 1;
            state.hits -= 1;
            self.enter_main(index);
        }
        None
    }
}

impl EvictionPolicy for S3Fifo {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, key, weight_bytes, .. } => self.insert(id, key, weight_bytes),
                Event::Hit { id, count } => self.hit(id, count),
                Event::Remove { id, reason } => self.remove(id, reason),
                Event::Spare { id } => self.spare(id),
            }
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize) -> Vec<ObjectId> {
        let mut victims = Vec::with_capacity(want.min(self.nodes.len()));
        let mut chances = CHANCES_MAX;
        while victims.len() < want {
            let Some(id) = self.victim(&mut chances) else { break };
            victims.push(id);
        }
        victims
    }
}

#[cfg(test)]
mod tests;
