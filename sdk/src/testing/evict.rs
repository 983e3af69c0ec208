//! The drill of eviction policies: a cache of a megabyte with some 250 objects, asked for by a skewed
//! distribution with scans, changes and a reserve of victims as the host has one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use portcullis_core::eviction::{Class, Event, ObjectId, Removal};
use portcullis_core::limits::{POLICY_SHORTFALLS_MAX, POLICY_VICTIMS_MAX};

use super::chance::Chance;
use super::{Call, Events, Failed, LIMITS, Subject, Transcript};

const REQUESTS: u64 = 3_000;
const KEYS: u64 = 2_000;
/// Victims that are asked for at once, at most.
const WANT_MAX: u64 = 24;
/// Victims in reserve below which more are asked for.
const RESERVE_LOW: usize = 6;

/// See [`Kind::drill`](super::Kind::drill).
pub(super) fn drill<S: Subject>(
    seed: u64,
    events: Events,
    subject: &mut S,
) -> Result<Transcript, Failed> {
    let mut cache = Cache::new(seed, events, subject);
    for request in 0..REQUESTS {
        cache.now_ms += cache.chance.below(3);
        // A scan goes by now and then.
        let key = match request % 1_000 {
            at @ 800.. => KEYS + request / 1_000 * 200 + at % 200,
            _ => cache.chance.skewed(KEYS),
        };
        cache.request(key)?;
        if cache.chance.one_in(60) {
            cache.invalidate_one();
        }
    }
    cache.flush()?;
    Ok(cache.transcript)
}

struct Object {
    key: u64,
    weight_bytes: u32,
}

/// The host in small.
struct Cache<'a, S> {
    subject: &'a mut S,
    chance: Chance,
    events: Events,
    now_ms: u64,
    pending: Vec<Event>,
    residents: BTreeMap<ObjectId, Object>,
    by_key: BTreeMap<u64, ObjectId>,
    used_bytes: u64,
    slots: u32,
    free: Vec<ObjectId>,
    /// Proposed and not answered yet.
    reserve: VecDeque<ObjectId>,
    proposed: BTreeSet<ObjectId>,
    /// Hit since they were proposed.
    touched: BTreeSet<ObjectId>,
    shortfalls: u32,
    transcript: Transcript,
}

impl<'a, S: Subject> Cache<'a, S> {
    fn new(seed: u64, events: Events, subject: &'a mut S) -> Self {
        Self {
            subject,
            chance: Chance::new(seed),
            events,
            now_ms: 1_000,
            pending: Vec::new(),
            residents: BTreeMap::new(),
            by_key: BTreeMap::new(),
            used_bytes: 0,
            slots: 0,
            free: Vec::new(),
            reserve: VecDeque::new(),
            proposed: BTreeSet::new(),
            touched: BTreeSet::new(),
            shortfalls: 0,
            transcript: Transcript::default(),
        }
    }

    fn request(&mut self, key: u64) -> Result<(), Failed> {
        if let Some(&id) = self.by_key.get(&key) {
            self.pending.push(Event::Hit { id, count: 1 + self.chance.below(3) as u32 });
            if self.proposed.contains(&id) {
                self.touched.insert(id);
            }
            return Ok(());
        }
        let weight_bytes = 512 + (key % 61) as u32 * 128;
        while self.used_bytes + u64::from(weight_bytes) > LIMITS.capacity_bytes {
            self.evict()?;
        }
        let id = match self.free.pop() {
            Some(before) => ObjectId::new(before.slot(), before.generation() + 1),
            None => {
                self.slots += 1;
                ObjectId::new(self.slots, 1)
            }
        };
        let class = match self.chance.below(3) {
            0 => Class::Asked,
            1 => Class::Listed,
            _ => Class::Prefetched,
        };
        self.pending.push(Event::Insert { id, key, class, weight_bytes });
        self.residents.insert(id, Object { key, weight_bytes });
        self.by_key.insert(key, id);
        self.used_bytes += u64::from(weight_bytes);
        if self.pending.len() >= 200 { self.flush() } else { Ok(()) }
    }

    /// Takes a victim of the reserve, or the oldest resident where there is none.
    fn evict(&mut self) -> Result<(), Failed> {
        if self.reserve.len() < RESERVE_LOW {
            self.flush()?;
            self.refill()?;
        }
        while let Some(id) = self.reserve.pop_front() {
            self.proposed.remove(&id);
            if !self.residents.contains_key(&id) {
                continue;
            }
            if self.touched.remove(&id) {
                self.pending.push(Event::Spare { id });
                continue;
            }
            self.remove(id, Removal::Evicted);
            return Ok(());
        }
        if let Some((&id, _)) = self.residents.iter().find(|(id, _)| !self.proposed.contains(id)) {
            self.remove(id, Removal::Evicted);
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<(), Failed> {
        let want = 1 + self.chance.below(WANT_MAX) as u32;
        let call = Call::Propose { client: 0, want };
        let answer = self.subject.call(self.now_ms, call).map_err(|error| {
            Failed(format!("propose, at {} residents: {error}", self.residents.len()))
        })?;
        self.transcript.write(format_args!("propose {want}"), &answer);
        if answer.len() > (want as usize).min(POLICY_VICTIMS_MAX) {
            let proposed = answer.len();
            return Err(Failed(format!(
                "{proposed} victims were proposed where {want} were wanted"
            )));
        }
        let mut usable = 0;
        for id in answer.into_iter().map(ObjectId) {
            let shown = format!("{id:?} (slot.generation)");
            if !self.residents.contains_key(&id) {
                return Err(Failed(format!("{shown} was proposed, which is not resident")));
            }
            if !self.proposed.insert(id) {
                return Err(Failed(format!(
                    "{shown} was proposed twice, and not spared meanwhile"
                )));
            }
            usable += 1;
            self.reserve.push_back(id);
        }
        let is_short = usable == 0 && self.residents.len() > self.proposed.len();
        self.shortfalls = if is_short { self.shortfalls + 1 } else { 0 };
        if self.shortfalls >= POLICY_SHORTFALLS_MAX {
            let (times, residents) = (self.shortfalls, self.residents.len());
            let what =
                format!("nothing was proposed {times} times in a row, of {residents} residents");
            return Err(Failed(what));
        }
        Ok(())
    }

    fn invalidate_one(&mut self) {
        let Some((&first, _)) = self.by_key.first_key_value() else { return };
        let from = first + self.chance.below(KEYS);
        let found = self.by_key.range(from..).next().or(self.by_key.first_key_value());
        if let Some((_, &id)) = found {
            self.remove(id, Removal::Invalidated);
        }
    }

    fn remove(&mut self, id: ObjectId, reason: Removal) {
        let Some(object) = self.residents.remove(&id) else { return };
        self.by_key.remove(&object.key);
        self.used_bytes -= u64::from(object.weight_bytes);
        self.proposed.remove(&id);
        self.touched.remove(&id);
        self.free.push(id);
        self.pending.push(Event::Remove { id, reason });
    }

    fn flush(&mut self) -> Result<(), Failed> {
        let mut words: Vec<u64> = Vec::new();
        for event in self.pending.drain(..) {
            if self.events == Events::Odd && self.chance.one_in(6) {
                words.extend(odd(&mut self.chance));
            }
            words.extend(event.pack());
        }
        if self.events == Events::Odd {
            // Half an event.
            words.push(self.chance.word());
        }
        let call = Call::OnEvents { words: &words };
        let told = self.subject.call(self.now_ms, call);
        told.map_err(|error| Failed(format!("on-events, with {} words: {error}", words.len())))?;
        Ok(())
    }
}

/// Kinds that a later version may have, and events of objects that came in such a way.
fn odd(chance: &mut Chance) -> [u64; Event::WORDS] {
    let id = ObjectId::new(u32::MAX - chance.below(8) as u32, chance.word() as u32);
    match chance.below(3) {
        0 => [chance.word(), chance.word(), chance.word() << 8 | (4 + chance.below(252))],
        1 => Event::Hit { id, count: u32::MAX }.pack(),
        _ => [id.0, 0, (2 + chance.below(1_000)) << 8 | 2],
    }
}
