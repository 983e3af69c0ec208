//! A small honest host: objects in slots, hits, a reserve of victims.

use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;

use parking_lot::Mutex;
use portcullis_core::eviction::{Class, Event, EvictionHost, ObjectId, Offered, Removal};
use portcullis_core::limits::RESERVE_MAX;

pub(super) struct TestHost {
    state: Mutex<State>,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    capacity_bytes: u64,
    used_bytes: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_key: HashMap<u64, u32>,
    reserve: VecDeque<ObjectId>,
    listening: bool,
    events: VecDeque<Event>,
    touched: Vec<u32>,
    newest: u32,
    counts: Counts,
}

#[derive(Clone, Copy)]
struct Slot {
    generation: u32,
    live: bool,
    proposed: bool,
    touched: bool,
    key: u64,
    weight_bytes: u32,
    hits: u32,
}

/// What a host counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Evictions of a policy's victims.
    pub(super) proposed: u64,
    /// Evictions of the host's own choice.
    pub(super) shortfall: u64,
    pub(super) drains: u64,
    pub(super) wakes: u64,
}

impl TestHost {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let state = State { capacity_bytes, ..State::default() };
        Self { state: Mutex::new(state), waker: OnceLock::new() }
    }

    /// A request for `key`: a hit, or a fill of `weight_bytes`.
    pub(super) fn request(&self, key: u64, weight_bytes: u32) {
        let mut state = self.state.lock();
        let wake = match state.by_key.get(&key).copied() {
            Some(slot) => state.touch(slot),
            None => {
                state.fill(key, weight_bytes);
                state.shortage() > 0
            }
        };
        state.counts.wakes += u64::from(wake);
        drop(state);
        if let (true, Some(waker)) = (wake, self.waker.get()) {
            waker();
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    pub(super) fn objects(&self) -> usize {
        self.state.lock().by_key.len()
    }

    pub(super) fn shortfall(&self) -> usize {
        self.state.lock().shortage()
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.state.lock().used_bytes
    }
}

impl State {
    fn id(&self, slot: u32) -> ObjectId {
        ObjectId::new(slot, self.slots[slot as usize].generation)
    }

    fn tell(&mut self, event: Event) {
        if self.listening {
            self.events.push_back(event);
        }
    }

    fn touch(&mut self, index: u32) -> bool {
        self.counts.hits += 1;
        let slot = &mut self.slots[index as usize];
        slot.touched = true;
        slot.hits += 1;
        if slot.hits == 1 {
            self.touched.push(index);
        }
        self.touched.len() == 256
    }

    fn fill(&mut self, key: u64, weight_bytes: u32) {
        self.counts.misses += 1;
        let slot = Slot {
            generation: 1,
            live: true,
            proposed: false,
            touched: false,
            key,
            weight_bytes,
            hits: 0,
        };
        let index = match self.free.pop() {
            Some(index) => {
                let generation = self.slots[index as usize].generation + 1;
                self.slots[index as usize] = Slot { generation, ..slot };
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.newest = index;
        self.by_key.insert(key, index);
        self.used_bytes += u64::from(weight_bytes);
        let id = self.id(index);
        self.tell(Event::Insert { id, key, class: Class::Asked, weight_bytes });
        while self.used_bytes > self.capacity_bytes {
            self.evict_one();
        }
    }

    fn evict_one(&mut self) {
        while let Some(id) = self.reserve.pop_front() {
            let slot = &mut self.slots[id.slot() as usize];
            if slot.generation != id.generation() || !slot.proposed {
                continue;
            }
            slot.proposed = false;
            if slot.touched {
                self.tell(Event::Spare { id });
                continue;
            }
            self.counts.proposed += 1;
            return self.evict(id.slot());
        }
        self.counts.shortfall += 1;
        // The first there is, but for what just came: so others stay, for a policy that is slow.
        let first = (0..self.slots.len() as u32)
            .find(|&index| self.slots[index as usize].live && index != self.newest);
        self.evict(first.unwrap_or(self.newest));
    }

    fn evict(&mut self, index: u32) {
        let id = self.id(index);
        self.tell(Event::Remove { id, reason: Removal::Evicted });
        let slot = &mut self.slots[index as usize];
        slot.live = false;
        slot.proposed = false;
        slot.hits = 0;
        let Slot { key, weight_bytes, .. } = *slot;
        self.by_key.remove(&key);
        self.used_bytes -= u64::from(weight_bytes);
        self.free.push(index);
    }

    fn drain(&mut self, max: usize, events: &mut Vec<Event>) -> bool {
        self.counts.drains += 1;
        let count = self.events.len().min(max);
        events.extend(self.events.drain(..count));
        if !self.events.is_empty() {
            return true;
        }
        for index in std::mem::take(&mut self.touched) {
            let id = self.id(index);
            let slot = &mut self.slots[index as usize];
            let count = std::mem::take(&mut slot.hits);
            if slot.live && count > 0 {
                events.push(Event::Hit { id, count });
            }
        }
        false
    }

    fn shortage(&self) -> usize {
        if self.used_bytes < self.capacity_bytes / 16 * 15 {
            return 0;
        }
        let target = (self.by_key.len() / 16).clamp(1, RESERVE_MAX);
        if self.reserve.len() > target / 2 { 0 } else { target - self.reserve.len() }
    }
}

impl EvictionHost for TestHost {
    fn drain(&self, max: usize, events: &mut Vec<Event>) -> bool {
        self.state.lock().drain(max, events)
    }

    fn shortage(&self) -> usize {
        self.state.lock().shortage()
    }

    fn offer(&self, victims: &[ObjectId]) -> Offered {
        let mut state = self.state.lock();
        let mut offered = Offered::default();
        for &id in victims {
            match state.slots.get_mut(id.slot() as usize) {
                Some(slot) if (1..=slot.generation).contains(&id.generation()) => {
                    if slot.generation != id.generation() || !slot.live {
                        offered.stale += 1;
                    } else if slot.proposed {
                        offered.repeated += 1;
                    } else {
                        slot.proposed = true;
                        slot.touched = false;
                        state.reserve.push_back(id);
                        offered.accepted += 1;
                    }
                }
                _ => offered.foreign += 1,
            }
        }
        offered
    }

    fn restart(&self, events: &mut Vec<Event>) {
        let mut state = self.state.lock();
        state.listening = true;
        state.reserve.clear();
        state.events.clear();
        state.touched.clear();
        for index in 0..state.slots.len() as u32 {
            let id = state.id(index);
            let slot = &mut state.slots[index as usize];
            slot.proposed = false;
            let count = std::mem::take(&mut slot.hits);
            if slot.live {
                let Slot { key, weight_bytes, .. } = *slot;
                events.push(Event::Insert { id, key, class: Class::Asked, weight_bytes });
                if count > 0 {
                    events.push(Event::Hit { id, count });
                }
            }
        }
    }

    fn residents(&self, pending: &mut Vec<Event>, residents: &mut Vec<Event>) {
        let mut state = self.state.lock();
        while state.drain(usize::MAX, pending) {}
        let live = (0..state.slots.len() as u32).filter(|&slot| state.slots[slot as usize].live);
        residents.extend(live.map(|slot| {
            let Slot { key, weight_bytes, .. } = state.slots[slot as usize];
            Event::Insert { id: state.id(slot), key, class: Class::Asked, weight_bytes }
        }));
    }

    fn usage(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.used_bytes, state.capacity_bytes)
    }

    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        let _ = self.waker.set(waker);
    }
}
