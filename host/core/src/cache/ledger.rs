//! The objects of one shard, as policies know them: ids, weights, hits, and what to tell.
//!
//! The host owns the access words: a hit is counted here and reaches a policy only in a later
//! batch. An object that comes and goes between two batches is never told, so what waits to be
//! told is bounded by what was resident; no insert or removal is lost.

use crate::eviction::{Class, Event, ObjectId, Removal};
use crate::limits::{CACHE_SHARDS, TOUCHED_PER_SHARD_MAX};

const SHARD_BITS: u32 = CACHE_SHARDS.trailing_zeros();
/// `told_at` of an object whose insert has been drained.
const TOLD: u32 = u32::MAX;

/// Where an object lies in its shard: which directory, which of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) dir: u32,
    pub(super) slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    generation: u32,
    live: bool,
    /// In the reserve of victims.
    proposed: bool,
    /// Touched since it was proposed.
    touched: bool,
    /// Touched since the sweep last came by.
    recent: bool,
    class: Class,
    site: Site,
    weight_bytes: u32,
    hits: u32,
    key: u64,
    /// Order of insertion in this shard.
    born: u64,
    /// Index of the pending insert event, or [`TOLD`].
    told_at: u32,
}

/// What the reserve may do with a proposed victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accepted,
    Stale,
    Repeated,
    Foreign,
}

/// The objects of one shard.
#[derive(Debug)]
pub(super) struct Ledger {
    shard: u32,
    objects: Vec<Object>,
    free: Vec<u32>,
    /// Events to tell, `None` where an insert was taken back.
    events: Vec<Option<Event>>,
    taken_back: usize,
    /// Indices of objects with hits to tell.
    touched: Vec<u32>,
    hits_dropped: u64,
    /// Whether anybody listens; otherwise nothing is kept to tell.
    listening: bool,
    hand: usize,
    next_born: u64,
    live: u64,
}

impl Ledger {
    pub(super) fn new(shard: usize) -> Self {
        Self {
            shard: shard as u32,
            objects: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
            taken_back: 0,
            touched: Vec::new(),
            hits_dropped: 0,
            listening: false,
            hand: 0,
            next_born: 0,
            live: 0,
        }
    }

    /// The shard that an id belongs to.
    pub(super) fn shard_of(id: ObjectId) -> usize {
        (id.slot() & (CACHE_SHARDS as u32 - 1)) as usize
    }

    /// Notes a new object and returns its index in this ledger.
    pub(super) fn insert(&mut self, site: Site, key: u64, class: Class, weight_bytes: u32) -> u32 {
        let object = Object {
            generation: 1,
            live: true,
            proposed: false,
            touched: false,
            recent: false,
            class,
            site,
            weight_bytes,
            hits: 0,
            key,
            born: self.next_born,
            told_at: if self.listening { self.events.len() as u32 } else { TOLD },
        };
        self.next_born += 1;
        self.live += 1;
        let index = match self.free.pop() {
            Some(index) => {
                let generation = self.objects[index as usize].generation + 1;
                self.objects[index as usize] = Object { generation, ..object };
                index
            }
            None => {
                self.objects.push(object);
                self.objects.len() as u32 - 1
            }
        };
        if self.listening {
            self.events.push(Some(Event::Insert { id: self.id(index), key, class, weight_bytes }));
        }
        index
    }

    /// Notes that an object left.
    pub(super) fn remove(&mut self, index: u32, reason: Removal) {
        let id = self.id(index);
        let object = &mut self.objects[index as usize];
        debug_assert!(object.live);
        object.live = false;
        object.hits = 0;
        if self.listening {
            if object.told_at == TOLD {
                self.events.push(Some(Event::Remove { id, reason }));
            } else {
                self.events[object.told_at as usize] = None;
                self.taken_back += 1;
            }
        }
        self.live -= 1;
        // A slot whose generation would wrap is retired: an id never comes back.
        if object.generation < u32::MAX {
            self.free.push(index);
        }
        if self.taken_back > 64 && self.taken_back * 2 > self.events.len() {
            self.compact();
        }
    }

    /// Counts a hit. `true` where the driver should be woken because much waits to be told.
    pub(super) fn touch(&mut self, index: u32) -> bool {
        let object = &mut self.objects[index as usize];
        object.recent = true;
        object.touched = true;
        object.hits = object.hits.saturating_add(1);
        if object.hits > 1 || !self.listening {
            return false;
        }
        if self.touched.len() >= TOUCHED_PER_SHARD_MAX {
            object.hits = 0;
            self.hits_dropped += 1;
            return false;
        }
        self.touched.push(index);
        self.touched.len() == crate::limits::EVENTS_WAKE
    }

    /// Events and touched objects that wait to be told.
    pub(super) fn pending(&self) -> usize {
        self.events.len() - self.taken_back + self.touched.len()
    }

    /// Moves what waits to be told into `out`: inserts, removals and sparings in their order, then
    /// hits, folded.
    pub(super) fn drain(&mut self, out: &mut Vec<Event>) {
        for event in self.events.drain(..).flatten() {
            if let Event::Insert { id, .. } = event {
                self.objects[(id.slot() >> SHARD_BITS) as usize].told_at = TOLD;
            }
            out.push(event);
        }
        self.taken_back = 0;
        for index in std::mem::take(&mut self.touched) {
            let id = self.id(index);
            let object = &mut self.objects[index as usize];
            if object.live && object.hits > 0 {
                out.push(Event::Hit { id, count: object.hits });
            }
            object.hits = 0;
        }
    }

    /// Forgets what waits to be told and tells every resident object with its age; from now on
    /// somebody listens.
    pub(super) fn restart(&mut self, out: &mut Vec<(u64, Event)>) {
        self.listening = true;
        self.events.clear();
        self.taken_back = 0;
        self.touched.clear();
        for index in 0..self.objects.len() as u32 {
            let id = self.id(index);
            let object = &mut self.objects[index as usize];
            object.proposed = false;
            object.told_at = TOLD;
            if object.live {
                let Object { key, class, weight_bytes, born, hits, .. } = *object;
                out.push((born, Event::Insert { id, key, class, weight_bytes }));
                if hits > 0 {
                    out.push((born, Event::Hit { id, count: hits }));
                }
            }
            object.hits = 0;
        }
    }

    /// Takes a proposed victim, or says why not.
    pub(super) fn propose(&mut self, id: ObjectId) -> Verdict {
        let Some(object) = self.objects.get_mut((id.slot() >> SHARD_BITS) as usize) else {
            return Verdict::Foreign;
        };
        if id.generation() == 0 || id.generation() > object.generation {
            return Verdict::Foreign;
        }
        if id.generation() < object.generation || !object.live {
            return Verdict::Stale;
        }
        if object.proposed {
            return Verdict::Repeated;
        }
        object.proposed = true;
        object.touched = false;
        Verdict::Accepted
    }

    /// What to do with a victim from the reserve: its site if it is to leave, `None` if it left
    /// already or was touched since; then it is spared, and the policy will be told.
    pub(super) fn judge(&mut self, id: ObjectId) -> Option<(u32, Site)> {
        let index = id.slot() >> SHARD_BITS;
        let object = self.objects.get_mut(index as usize)?;
        if object.generation != id.generation() || !object.live || !object.proposed {
            return None;
        }
        object.proposed = false;
        if !object.touched {
            return Some((index, object.site));
        }
        if self.listening {
            self.events.push(Some(Event::Spare { id }));
        }
        None
    }

    /// The host's own choice where the reserve is empty: CLOCK over the access words. Looks at
    /// `steps` objects at most.
    pub(super) fn sweep(&mut self, steps: usize) -> Option<(u32, Site)> {
        for _ in 0..steps.min(self.objects.len()) {
            self.hand = (self.hand + 1) % self.objects.len();
            let object = &mut self.objects[self.hand];
            if object.live && !std::mem::take(&mut object.recent) {
                object.proposed = false;
                return Some((self.hand as u32, object.site));
            }
        }
        None
    }

    /// Objects resident.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Hits that could not be remembered.
    pub(super) fn hits_dropped(&self) -> u64 {
        self.hits_dropped
    }

    fn id(&self, index: u32) -> ObjectId {
        let object = &self.objects[index as usize];
        ObjectId::new(index << SHARD_BITS | self.shard, object.generation)
    }

    fn compact(&mut self) {
        self.events.retain(Option::is_some);
        self.taken_back = 0;
        for (at, event) in self.events.iter().enumerate() {
            if let Some(Event::Insert { id, .. }) = event {
                self.objects[(id.slot() >> SHARD_BITS) as usize].told_at = at as u32;
            }
        }
    }
}
