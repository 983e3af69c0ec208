//! The objects of one shard, as policies know them: ids, hits, and what to tell.
//!
//! The host owns the access words: a hit is counted here, by threads that hold the shard shared, and
//! reaches a policy only in a later batch. An object that comes and goes between two batches is
//! never told, so what waits to be told is bounded by what was resident; no insert or removal is
//! lost. What an object is and weighs is known where its content is: a [`Told`] brings it here.

use parking_lot::Mutex;

use super::access::AccessWord;
use super::common::Common;
use super::counters::count;
use crate::eviction::{Class, Event, ObjectId, Removal};
use crate::limits::{CACHE_SHARDS, EVENTS_WAKE, TOUCHED_PER_SHARD_MAX};

const SHARD_BITS: u32 = CACHE_SHARDS.trailing_zeros();
/// `told_at` of an object whose insert has been drained.
const TOLD: u32 = u32::MAX;

/// What of a slot an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it, or all but the attributes where these are an object of their own.
    Body,
    /// The attributes of a run.
    Attrs,
}

/// Where an object lies in its shard: which directory, which of its slots, and what of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) dir: u32,
    pub(super) slot: u32,
    pub(super) part: Part,
}

/// What is told of a new object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// Hash of what it stands for.
    pub(super) key: u64,
    pub(super) class: Class,
    pub(super) weight_bytes: u32,
}

/// Where an object stands between the cache and a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It left.
    Gone,
    Resident,
    /// Resident, and in the reserve of victims.
    Proposed,
}

#[derive(Clone, Copy, Debug)]
struct Object {
    generation: u32,
    dir: u32,
    slot: u16,
    part: Part,
    state: State,
    /// Order of insertion in this shard, the lower half of that number.
    born: u32,
    /// Index of the pending insert event, or [`TOLD`].
    told_at: u32,
}

const _: () = assert!(size_of::<Object>() == 20);

impl Object {
    fn site(&self) -> Site {
        Site { dir: self.dir, slot: u32::from(self.slot), part: self.part }
    }

    fn is_live(&self) -> bool {
        self.state != State::Gone
    }
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
    /// The access word of each object; apart, so that many lie in one cache line.
    words: Vec<AccessWord>,
    free: Vec<u32>,
    /// Events to tell, `None` where an insert was taken back.
    events: Vec<Option<Event>>,
    taken_back: usize,
    /// Indices of objects with hits to tell. While somebody listens, an object is here when its
    /// hits are not 0, which only changes under this lock or with the shard held exclusively.
    touched: Mutex<Vec<u32>>,
    /// Whether anybody listens; otherwise nothing is kept to tell.
    listening: bool,
    hand: usize,
    next_born: u32,
    live: u64,
}

impl Ledger {
    pub(super) fn new(shard: usize) -> Self {
        Self {
            shard: shard as u32,
            objects: Vec::new(),
            words: Vec::new(),
            free: Vec::new(),
            events: Vec::new(),
            taken_back: 0,
            touched: Mutex::new(Vec::new()),
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
    pub(super) fn insert(&mut self, site: Site, told: Told) -> u32 {
        let object = Object {
            generation: 1,
            dir: site.dir,
            slot: site.slot as u16,
            part: site.part,
            state: State::Resident,
            born: self.next_born,
            told_at: if self.listening { self.events.len() as u32 } else { TOLD },
        };
        self.next_born = self.next_born.wrapping_add(1);
        self.live += 1;
        let index = match self.free.pop() {
            Some(index) => {
                let generation = self.objects[index as usize].generation + 1;
                self.objects[index as usize] = Object { generation, ..object };
                self.words[index as usize] = AccessWord::default();
                index
            }
            None => {
                self.objects.push(object);
                self.words.push(AccessWord::default());
                self.objects.len() as u32 - 1
            }
        };
        if self.listening {
            self.events.push(Some(told.event(self.id(index))));
        }
        index
    }

    /// Notes that an object left.
    pub(super) fn remove(&mut self, index: u32, reason: Removal) {
        let id = self.id(index);
        let object = &mut self.objects[index as usize];
        debug_assert!(object.is_live());
        object.state = State::Gone;
        self.words[index as usize].take_hits();
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

    /// Counts a hit, and wakes the driver where much waits to be told.
    #[inline]
    pub(super) fn touch(&self, common: &Common, index: u32) {
        let word = &self.words[index as usize];
        let counted = if self.listening && !word.has_hits() {
            self.count_first(common, index)
        } else {
            word.count_hit()
        };
        if !counted && self.listening {
            count(&common.hits().dropped);
        }
    }

    /// Counts the hit of an object that may have none yet to tell. `false` where it is dropped.
    #[cold]
    fn count_first(&self, common: &Common, index: u32) -> bool {
        let word = &self.words[index as usize];
        let mut touched = self.touched.lock();
        if word.has_hits() {
            return word.count_hit();
        }
        if touched.len() >= TOUCHED_PER_SHARD_MAX {
            word.touch();
            return false;
        }
        touched.push(index);
        if touched.len() == EVENTS_WAKE {
            common.wake();
        }
        word.count_hit()
    }

    /// Events and touched objects that wait to be told.
    pub(super) fn pending(&self) -> usize {
        self.events.len() - self.taken_back + self.touched.lock().len()
    }

    /// Moves what waits to be told into `out`: inserts, removals and sparings in their order, then
    /// hits, folded. `body_of` gives the object of the names that belong to attributes: what hits
    /// these hits those.
    pub(super) fn drain(&mut self, out: &mut Vec<Event>, body_of: impl Fn(Site) -> Option<u32>) {
        for event in self.events.drain(..).flatten() {
            if let Event::Insert { id, .. } = event {
                self.objects[(id.slot() >> SHARD_BITS) as usize].told_at = TOLD;
            }
            out.push(event);
        }
        self.taken_back = 0;
        for index in std::mem::take(self.touched.get_mut()) {
            let id = self.id(index);
            let count = self.words[index as usize].take_hits();
            let object = self.objects[index as usize];
            if !object.is_live() || count == 0 {
                continue;
            }
            out.push(Event::Hit { id, count });
            if object.part == Part::Attrs
                && let Some(body) = body_of(object.site())
            {
                out.push(Event::Hit { id: self.id(body), count });
            }
        }
    }

    /// Forgets what waits to be told and tells every resident object with its age, in insertions
    /// since; from now on somebody listens. `describe` tells what an object is.
    pub(super) fn restart(
        &mut self,
        out: &mut Vec<(u32, Event)>,
        describe: impl Fn(Site) -> Option<Told>,
    ) {
        self.listening = true;
        self.events.clear();
        self.taken_back = 0;
        self.touched.get_mut().clear();
        for index in 0..self.objects.len() as u32 {
            let id = self.id(index);
            let count = self.words[index as usize].take_hits();
            let object = &mut self.objects[index as usize];
            object.told_at = TOLD;
            if !object.is_live() {
                continue;
            }
            object.state = State::Resident;
            let age = self.next_born.wrapping_sub(object.born);
            let told = describe(object.site());
            debug_assert!(told.is_some(), "every live object has its content");
            out.extend(told.map(|told| (age, told.event(id))));
            if count > 0 {
                out.push((age, Event::Hit { id, count }));
            }
        }
    }

    /// Tells every resident object with its age, where nothing waits to be told. `describe` tells
    /// what an object is.
    pub(super) fn residents(
        &self,
        out: &mut Vec<(u32, Event)>,
        describe: impl Fn(Site) -> Option<Told>,
    ) {
        debug_assert_eq!(self.events.len(), self.taken_back, "all of it was drained");
        for (index, object) in self.objects.iter().enumerate() {
            if object.is_live()
                && let Some(told) = describe(object.site())
            {
                let age = self.next_born.wrapping_sub(object.born);
                out.push((age, told.event(self.id(index as u32))));
            }
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
        if id.generation() < object.generation || !object.is_live() {
            return Verdict::Stale;
        }
        if object.state == State::Proposed {
            return Verdict::Repeated;
        }
        object.state = State::Proposed;
        self.words[(id.slot() >> SHARD_BITS) as usize].take_touched();
        Verdict::Accepted
    }

    /// What to do with a victim from the reserve: its site if it is to leave, `None` if it left
    /// already or was touched since; then it is spared, and the policy will be told.
    pub(super) fn judge(&mut self, id: ObjectId) -> Option<(u32, Site)> {
        let index = id.slot() >> SHARD_BITS;
        let object = self.objects.get_mut(index as usize)?;
        if object.generation != id.generation() || object.state != State::Proposed {
            return None;
        }
        object.state = State::Resident;
        if !self.words[index as usize].take_touched() {
            return Some((index, object.site()));
        }
        self.spare(index);
        None
    }

    /// Notes that an object was proposed and stays: the policy will be told.
    pub(super) fn spare(&mut self, index: u32) {
        if self.listening {
            let id = self.id(index);
            self.events.push(Some(Event::Spare { id }));
        }
    }

    /// Whether an object was touched since the sweep, or this, last came by.
    pub(super) fn take_recent(&mut self, index: u32) -> bool {
        self.words[index as usize].take_recent()
    }

    /// The host's own choice where the reserve is empty: CLOCK over the access words. Looks at
    /// `steps` objects at most.
    pub(super) fn sweep(&mut self, steps: usize) -> Option<(u32, Site)> {
        for _ in 0..steps.min(self.objects.len()) {
            self.hand = (self.hand + 1) % self.objects.len();
            let object = &self.objects[self.hand];
            if object.is_live() && !self.words[self.hand].take_recent() {
                return Some((self.hand as u32, object.site()));
            }
        }
        None
    }

    /// Objects resident.
    pub(super) fn live(&self) -> u64 {
        self.live
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

impl Told {
    fn event(self, id: ObjectId) -> Event {
        let Self { key, class, weight_bytes } = self;
        Event::Insert { id, key, class, weight_bytes }
    }
}
