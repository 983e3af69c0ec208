//! W-TinyLFU: a window for the new, a main space for the often used, and a sketch of frequencies that
//! decides who of two leaves.
//!
//! After Einziger, Friedman and Manes, "TinyLFU: a highly efficient cache admission policy", ACM
//! Transactions on Storage 13(4), 2017. A new object enters the *window*, an LRU line. When room is
//! needed and the window holds its share, its oldest object (the candidate) is weighed against the
//! oldest of the main space: the one whose key was seen less often leaves, and a candidate that wins
//! enters the main space. That is a segmented LRU: it is entered *on probation*, and a hit there
//! moves an object to the *protected* segment, whose oldest go back on probation when it outgrows its
//! share. The [`sketch`] counts keys, those of objects that left too, and forgets slowly.
//!
//! In the paper a resident that beats a candidate stays the oldest, to be weighed against the next one
//! as well; so one that was used often once turns everybody away until the sketch has forgotten it.
//! (OLTP, 32,000 entries: 1.3 points of the hit ratio.) Here it has earned
//! another turn: it goes to the new end of its segment, and the next candidate meets the next resident.
//!
//! How large the window is worth being depends on the trace: after Einziger, Eytan, Friedman and
//! Manes, "Adaptive software cache management", Middleware 2018, the [`climber`] moves the border in
//! the direction in which the hit ratio rises.
//!
//! Shares are of the *level*: the bytes that were in the segments when victims were last chosen
//! (and of those spared since), so that neither what came since nor a cache that is not quite full tilts them. Where the main space
//! holds less than its share (the cache has just filled, the border moved, much was invalidated), the
//! oldest of the window enter it without being weighed. An object that the host spares is one that
//! was hit where it was: one of the window is the youngest there again, another is protected.
//!
//! What must hold: a resident is in exactly one segment, or proposed; memory is a fixed multiple of
//! the most residents there were; one call takes bounded time.

mod climber;
mod sketch;

use super::nodes::{Nodes, Queue};
use super::{CHANCES_MAX, Event, EvictionPolicy, ObjectId, PolicyLimits};
use climber::Climber;
use sketch::Sketch;

/// What the window and the protected segment have together, of all bytes; the rest is for probation.
const WINDOW_AND_PROTECTED: f64 = 0.802;

/// Where a resident is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Window,
    Probation,
    Protected,
    Proposed,
}

/// What is kept for a resident.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// What the sketch knows it by.
    fingerprint: u32,
    place: Place,
    /// What is proposed was proposed out of the window.
    was_candidate: bool,
}

/// The policy. One instance serves one cache.
pub struct WTinyLfu {
    nodes: Nodes<State>,
    window: Queue,
    probation: Queue,
    protected: Queue,
    sketch: Sketch,
    climber: Climber,
    /// Bytes in the segments when victims were last chosen, and of those spared since; `None` before.
    level_bytes: Option<u64>,
}

impl WTinyLfu {
    /// Name by which the policy is known.
    pub const NAME: &str = "w-tinylfu";

    /// A policy that knows of no object yet.
    pub fn new(limits: PolicyLimits) -> Self {
        Self {
            nodes: Nodes::default(),
            window: Queue::default(),
            probation: Queue::default(),
            protected: Queue::default(),
            sketch: Sketch::new(limits.seed),
            climber: Climber::new(),
            level_bytes: None,
        }
    }

    /// Objects that came and did not leave.
    pub fn resident(&self) -> usize {
        self.nodes.len()
    }

    /// The share of the window, of all bytes.
    pub fn window_share(&self) -> f64 {
        self.climber.window_share()
    }

    fn insert(&mut self, id: ObjectId, key: u64, weight_bytes: u32) {
        // The slot may still hold an object whose removal was never told.
        if let Some(index) = self.nodes.find_slot(id.slot()) {
            self.detach(index);
        }
        let fingerprint = sketch::fingerprint(key);
        let state = State { fingerprint, ..State::default() };
        if let Some(index) = self.nodes.add(id, weight_bytes, state) {
            self.window.push(&mut self.nodes, index);
        }
        self.sketch.make_room(self.nodes.len());
        self.sketch.count(fingerprint, 1);
        self.climber.note(0, 1, self.sketch.sample());
    }

    fn hit(&mut self, id: ObjectId, count: u32) {
        let Some(index) = self.nodes.find(id) else { return };
        self.sketch.count(self.nodes.at(index).state.fingerprint, count);
        match self.nodes.at(index).state.place {
            Place::Proposed => {}
            Place::Window => self.enter(index, Place::Window),
            Place::Probation | Place::Protected => self.enter(index, Place::Protected),
        }
        self.climber.note(count, 0, self.sketch.sample());
    }

    fn spare(&mut self, id: ObjectId) {
        let Some(index) = self.nodes.find(id) else { return };
        let State { place, was_candidate, .. } = self.nodes.at(index).state;
        if place == Place::Proposed {
            let weight_bytes = u64::from(self.nodes.at(index).weight_bytes);
            self.level_bytes = self.level_bytes.map(|level| level + weight_bytes);
            self.enter(index, if was_candidate { Place::Window } else { Place::Protected });
        }
    }

    /// Moves a resident to the new end of a segment.
    fn enter(&mut self, index: u32, place: Place) {
        self.leave(index);
        self.nodes.at_mut(index).state.place = place;
        match place {
            Place::Window => self.window.push(&mut self.nodes, index),
            Place::Probation => self.probation.push(&mut self.nodes, index),
            Place::Protected => self.protected.push(&mut self.nodes, index),
            Place::Proposed => {}
        }
    }

    /// Takes a resident out of its segment.
    fn leave(&mut self, index: u32) {
        match self.nodes.at(index).state.place {
            Place::Window => self.window.unlink(&mut self.nodes, index),
            Place::Probation => self.probation.unlink(&mut self.nodes, index),
            Place::Protected => self.protected.unlink(&mut self.nodes, index),
            Place::Proposed => {}
        }
    }

    fn detach(&mut self, index: u32) {
        self.leave(index);
        self.nodes.remove(index);
    }

    /// Bytes of all that is in a segment.
    fn bytes(&self) -> u64 {
        self.window.bytes() + self.probation.bytes() + self.protected.bytes()
    }

    /// Brings the segments to their shares, at most `chances` moves away.
    fn settle(&mut self, level_bytes: f64, chances: &mut usize) {
        let share = self.climber.window_share();
        let main_max = ((1.0 - share) * level_bytes) as u64;
        while *chances > 0 {
            let Some(index) = self.window.oldest() else { break };
            let weight_bytes = u64::from(self.nodes.at(index).weight_bytes);
            if self.probation.bytes() + self.protected.bytes() + weight_bytes > main_max {
                break;
            }
            self.enter(index, Place::Probation);
            *chances -= 1;
        }
        let protected_max = ((WINDOW_AND_PROTECTED - share).max(0.0) * level_bytes) as u64;
        while self.protected.bytes() > protected_max && *chances > 0 {
            let Some(index) = self.protected.oldest() else { break };
            self.enter(index, Place::Probation);
            *chances -= 1;
        }
    }

    /// The next victim, out of its segment.
    fn victim(&mut self, level_bytes: f64) -> Option<ObjectId> {
        let candidate = self.window.oldest();
        let oldest = self.probation.oldest().or_else(|| self.protected.oldest());
        let window_max = (self.climber.window_share() * level_bytes) as u64;
        let loser = match (candidate, oldest) {
            (None, None) => return None,
            (Some(loser), None) | (None, Some(loser)) => loser,
            (Some(_), Some(oldest)) if self.window.bytes() < window_max => oldest,
            (Some(candidate), Some(oldest)) => {
                if self.frequency(candidate) > self.frequency(oldest) {
                    self.enter(candidate, Place::Probation);
                    oldest
                } else {
                    self.enter(oldest, self.nodes.at(oldest).state.place);
                    candidate
                }
            }
        };
        self.leave(loser);
        let state = &mut self.nodes.at_mut(loser).state;
        state.was_candidate = state.place == Place::Window;
        state.place = Place::Proposed;
        Some(self.nodes.id(loser))
    }

    fn frequency(&self, index: u32) -> u8 {
        self.sketch.frequency(self.nodes.at(index).state.fingerprint)
    }
}

impl EvictionPolicy for WTinyLfu {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, key, weight_bytes, .. } => self.insert(id, key, weight_bytes),
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
        let mut chances = CHANCES_MAX;
        let level_bytes = self.level_bytes.unwrap_or_else(|| self.bytes()) as f64;
        while victims.len() < want {
            self.settle(level_bytes, &mut chances);
            let Some(id) = self.victim(level_bytes) else { break };
            victims.push(id);
        }
        if !victims.is_empty() {
            self.level_bytes = Some(self.bytes());
        }
        victims
    }
}

#[cfg(test)]
mod tests;
