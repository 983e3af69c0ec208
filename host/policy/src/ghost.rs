//! A cache of keys alone, with a policy of its own: what that policy would have kept, seen from beside
//! live traffic.
//!
//! It goes as an exact replay does: the policy knows of every use when it is asked for a victim, and is
//! asked for one at a time. What must hold: nothing here touches the cache that is watched, nor the
//! policy that works there; what it remembers is bounded by its capacity.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use portcullis_core::ab::estimate::Cell;
use portcullis_core::eviction::{Class, Event, ObjectId, Removal};
use portcullis_core::limits::{CACHE_SHARDS, POLICY_EVENTS_MAX};

use crate::error::Fault;
use crate::loaded::LoadedPolicy;

/// A use of an object.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// What the object stands for.
    pub key: u64,
    /// Hash of its directory.
    pub dir: u64,
    /// Why it came.
    pub class: Class,
    /// What it weighs, in bytes.
    pub weight_bytes: u32,
    /// Whether it counts, and is a use; else it only makes the object resident.
    pub counted: bool,
}

/// See the module.
pub struct GhostCache {
    policy: LoadedPolicy,
    capacity_bytes: u64,
    used_bytes: u64,
    slots: Vec<Resident>,
    free: Vec<u32>,
    slot_of: HashMap<u64, u32, FixedState>,
    events: Vec<Event>,
    /// The host's own choice, where the policy proposes nothing of use.
    hand: usize,
    shortfall: u64,
    /// What came since it was made, in bytes.
    filled_bytes: u64,
    /// Misses of requests, by part of the directories.
    cells: Box<[Cell; CACHE_SHARDS]>,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    key: u64,
    generation: u32,
    weight_bytes: u32,
    live: bool,
}

impl GhostCache {
    /// An empty one for a policy that knows of no object yet.
    pub fn new(policy: LoadedPolicy, capacity_bytes: u64) -> Self {
        Self {
            policy,
            capacity_bytes,
            used_bytes: 0,
            slots: Vec::new(),
            free: Vec::new(),
            slot_of: HashMap::default(),
            events: Vec::new(),
            hand: 0,
            shortfall: 0,
            filled_bytes: 0,
            cells: Box::new([Cell::default(); CACHE_SHARDS]),
        }
    }

    /// The policy.
    pub fn policy(&self) -> &LoadedPolicy {
        &self.policy
    }

    /// Misses of requests that were counted, by part of the directories.
    pub fn cells(&self) -> &[Cell; CACHE_SHARDS] {
        &self.cells
    }

    /// Counts anew from here on.
    pub fn clear_counts(&mut self) {
        *self.cells = [Cell::default(); CACHE_SHARDS];
    }

    /// How often what it may hold has been filled in.
    pub fn turnovers(&self) -> f64 {
        self.filled_bytes as f64 / self.capacity_bytes.max(1) as f64
    }

    /// Objects resident.
    pub fn objects(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Victims chosen for want of a useful proposal.
    pub fn shortfall(&self) -> u64 {
        self.shortfall
    }

    /// An object is used, or comes.
    ///
    /// # Errors
    /// What the policy did wrong; it must not be called again.
    pub fn touch(&mut self, now_ms: u64, touch: Touch) -> Result<(), Fault> {
        let slot = self.slot_of.get(&touch.key).copied();
        if touch.counted {
            let cell = &mut self.cells[touch.dir as usize % CACHE_SHARDS];
            cell.whole += 1.0;
            cell.part += f64::from(u8::from(slot.is_none()));
        }
        match slot {
            Some(slot) if touch.counted => {
                let id = ObjectId::new(slot, self.slots[slot as usize].generation);
                self.tell(now_ms, Event::Hit { id, count: 1 })
            }
            Some(_) => Ok(()),
            None => self.admit(now_ms, touch),
        }
    }

    /// What an object stood for is no longer true.
    ///
    /// # Errors
    /// As [`GhostCache::touch`].
    pub fn forget(&mut self, now_ms: u64, key: u64) -> Result<(), Fault> {
        let Some(&slot) = self.slot_of.get(&key) else { return Ok(()) };
        self.remove(now_ms, slot, Removal::Invalidated)
    }

    fn admit(&mut self, now_ms: u64, touch: Touch) -> Result<(), Fault> {
        let Touch { key, class, weight_bytes, .. } = touch;
        if u64::from(weight_bytes) > self.capacity_bytes {
            return Ok(());
        }
        while self.used_bytes + u64::from(weight_bytes) > self.capacity_bytes {
            let Some(victim) = self.victim(now_ms)? else { break };
            self.remove(now_ms, victim, Removal::Evicted)?;
        }
        let (slot, generation) = match self.free.pop() {
            Some(slot) => (slot, self.slots[slot as usize].generation.wrapping_add(1).max(1)),
            None => (self.slots.len() as u32, 1),
        };
        let resident = Resident { key, generation, weight_bytes, live: true };
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = resident,
            None => self.slots.push(resident),
        }
        self.slot_of.insert(key, slot);
        self.used_bytes += u64::from(weight_bytes);
        self.filled_bytes += u64::from(weight_bytes);
        let id = ObjectId::new(slot, generation);
        self.tell(now_ms, Event::Insert { id, key, class, weight_bytes })
    }

    fn remove(&mut self, now_ms: u64, slot: u32, reason: Removal) -> Result<(), Fault> {
        let resident = &mut self.slots[slot as usize];
        resident.live = false;
        let Resident { key, generation, weight_bytes, .. } = *resident;
        self.slot_of.remove(&key);
        self.free.push(slot);
        self.used_bytes -= u64::from(weight_bytes);
        self.tell(now_ms, Event::Remove { id: ObjectId::new(slot, generation), reason })
    }

    /// The policy's victim, or the next in turn where that is none; `None` where nothing is resident.
    fn victim(&mut self, now_ms: u64) -> Result<Option<u32>, Fault> {
        self.flush(now_ms)?;
        for id in self.policy.propose(now_ms, 1)? {
            let resident = self.slots.get(id.slot() as usize);
            if resident.is_some_and(|found| found.live && found.generation == id.generation()) {
                return Ok(Some(id.slot()));
            }
        }
        self.shortfall += 1;
        for _ in 0..self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            if self.slots[self.hand].live {
                return Ok(Some(self.hand as u32));
            }
        }
        Ok(None)
    }

    fn tell(&mut self, now_ms: u64, event: Event) -> Result<(), Fault> {
        self.events.push(event);
        if self.events.len() >= POLICY_EVENTS_MAX { self.flush(now_ms) } else { Ok(()) }
    }

    fn flush(&mut self, now_ms: u64) -> Result<(), Fault> {
        let told = self.policy.on_events(now_ms, &self.events);
        self.events.clear();
        told
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::eviction::PolicyLimits;

    use super::*;

    fn ghost(capacity_bytes: u64) -> GhostCache {
        let limits = PolicyLimits { capacity_bytes, seed: 1 };
        GhostCache::new(LoadedPolicy::stand_in(limits), capacity_bytes)
    }

    fn touch(key: u64, counted: bool) -> Touch {
        Touch { key, dir: key % 7, class: Class::Asked, weight_bytes: 100, counted }
    }

    fn counts(ghost: &GhostCache) -> (f64, f64) {
        let cells = ghost.cells().iter();
        cells.fold((0.0, 0.0), |(part, whole), cell| (part + cell.part, whole + cell.whole))
    }

    #[test]
    fn what_comes_is_a_miss_once_and_uncounted_touches_count_nothing() {
        let mut ghost = ghost(1_000);
        for (key, counted) in [(1, false), (1, true), (2, true), (2, true), (1, false)] {
            ghost.touch(0, touch(key, counted)).expect("native");
        }
        assert_eq!(counts(&ghost), (1.0, 3.0));
        ghost.forget(0, 2).expect("native");
        ghost.touch(0, touch(2, true)).expect("native");
        assert_eq!(counts(&ghost), (2.0, 4.0));
        ghost.clear_counts();
        assert_eq!(counts(&ghost), (0.0, 0.0));
    }

    #[test]
    fn it_holds_what_it_may_and_no_more() {
        let mut ghost = ghost(1_000);
        for key in 0..5_000 {
            ghost.touch(key, touch(key % 40, true)).expect("native");
            assert!(ghost.objects() <= 10);
        }
        assert_eq!(ghost.objects(), 10);
        assert_eq!(ghost.slots.len(), 10, "places are used again");
        assert_eq!(ghost.shortfall(), 0);
        assert!(ghost.turnovers() > 100.0);
        ghost.touch(0, Touch { weight_bytes: 1_001, ..touch(77, true) }).expect("native");
        assert_eq!(ghost.objects(), 10, "what is larger than all of it does not enter");
    }
}
