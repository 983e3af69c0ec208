//! The tap: what is asked of the cache, and what becomes of its objects, told to whoever listens.
//!
//! While nobody does, a request pays one load for it. A listener has a queue of bounded length, in the
//! order in which things happened; what does not fit is counted and told as lost. It may listen to a
//! sample of the directories only. Nothing waits for a listener.
//!
//! What must hold: records of one object come in the order in which it was touched, came and left;
//! what was lost is known.

use std::cmp::Reverse;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use siphasher::sip::SipHasher13;

use super::DentryCache;
use super::common::Common;
use super::counters::count;
use super::dir::Dir;
use super::ledger::{Part, Told};
use super::shard::Shard;
use super::slot::Slot;
use super::weigh::told;
use crate::eviction::Class;
use crate::handle::Handle;
use crate::limits::TAP_LISTENERS_MAX;
use crate::trace::{Name, Operation, Record, What};

/// What a listener is told of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapNames {
    /// Nothing.
    Left,
    /// A hash of each, by the listener's key.
    Hashed,
    /// The names.
    Plain,
}

/// What a listener wants.
#[derive(Clone, Copy, Debug)]
pub struct TapConfig {
    /// Of names.
    pub names: TapNames,
    /// Key of all hashes it is told; random, so that nobody can find names by trying.
    pub hash_key: (u64, u64),
    /// One directory in so many.
    pub sample: u64,
    /// Bytes that may wait to be taken.
    pub queue_len_bytes: usize,
}

/// Those who listen.
#[derive(Debug, Default)]
pub(super) struct Tap {
    queues: RwLock<Vec<Arc<Queue>>>,
    now_ms: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    config: TapConfig,
    began_ms: u64,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Records that did not fit since the last one that did.
    lost: u64,
}

/// A listener. Dropping it ends that.
pub struct Listener<W> {
    cache: Arc<DentryCache<W>>,
    queue: Arc<Queue>,
}

/// What happened, before it is known who listens.
pub(super) struct Seen<'a> {
    pub(super) what: What,
    pub(super) operation: Operation,
    pub(super) begins: bool,
    pub(super) dir: &'a [u8],
    pub(super) name: Option<&'a [u8]>,
    pub(super) told: Option<Told>,
}

impl Tap {
    /// The time of what is told from now on.
    pub(super) fn set_now(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    #[cold]
    pub(super) fn tell(&self, seen: &Seen<'_>) {
        let now_ms = self.now_ms.load(Ordering::Relaxed);
        for queue in &*self.queues.read() {
            queue.push(now_ms, seen);
        }
    }
}

impl Queue {
    /// What the listener is told of it, if that is of its sample.
    fn record<'a>(&self, now_ms: u64, seen: &Seen<'a>) -> Option<Record<'a>> {
        let dir = self.hash(seen.dir);
        if !dir.is_multiple_of(self.config.sample.max(1)) {
            return None;
        }
        let name = match (self.config.names, seen.name) {
            (TapNames::Hashed, Some(name)) => Name::Hashed(self.hash(name)),
            (TapNames::Plain, Some(name)) => Name::Plain(name),
            (TapNames::Left, _) | (_, None) => Name::None,
        };
        let (key, class, weight_bytes) = match seen.told {
            // 0 stands for none.
            Some(Told { key, class, weight_bytes }) => {
                (self.hash(&key.to_le_bytes()).max(1), class, weight_bytes)
            }
            None => (0, Class::Asked, 0),
        };
        Some(Record {
            what: seen.what,
            operation: seen.operation,
            class,
            begins: seen.begins,
            now_ms: u32::try_from(now_ms.saturating_sub(self.began_ms)).unwrap_or(u32::MAX),
            weight_bytes,
            key,
            dir,
            name,
        })
    }

    fn push(&self, now_ms: u64, seen: &Seen<'_>) {
        let Some(record) = self.record(now_ms, seen) else { return };
        let mut waiting = self.waiting.lock();
        if waiting.bytes.len() >= self.config.queue_len_bytes {
            waiting.lost += 1;
            return;
        }
        if waiting.lost > 0 {
            let lost = std::mem::take(&mut waiting.lost);
            Record::lost(record.now_ms, lost).push(&mut waiting.bytes);
        }
        record.push(&mut waiting.bytes);
    }

    fn hash(&self, bytes: &[u8]) -> u64 {
        let (first, second) = self.config.hash_key;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        hasher.write(bytes);
        hasher.finish()
    }
}

impl<W> DentryCache<W> {
    /// Listens from now on; `None` where [`TAP_LISTENERS_MAX`] do already.
    pub fn listen(self: &Arc<Self>, now_ms: u64, config: TapConfig) -> Option<Listener<W>> {
        let queue = Arc::new(Queue { config, began_ms: now_ms, waiting: Mutex::default() });
        let tap = &self.common.tap;
        let mut queues = tap.queues.write();
        if queues.len() >= TAP_LISTENERS_MAX {
            return None;
        }
        tap.set_now(now_ms);
        queues.push(queue.clone());
        self.common.observe(super::common::TAPPED, true);
        Some(Listener { cache: self.clone(), queue })
    }
}

impl<W> Listener<W> {
    /// Moves what waits into `out`: whole records.
    pub fn take(&self, out: &mut Vec<u8>) {
        let mut waiting = self.queue.waiting.lock();
        if out.is_empty() {
            std::mem::swap(&mut waiting.bytes, out);
        } else {
            out.append(&mut waiting.bytes);
        }
        let lost = std::mem::take(&mut waiting.lost);
        drop(waiting);
        if lost > 0 {
            Record::lost(0, lost).push(out);
        }
    }

    /// Appends a record of every object that is resident now, oldest first, as far as `max` of them;
    /// `false` where there are more. What comes and goes meanwhile may be told twice.
    pub fn residents(&self, max: usize, out: &mut Vec<u8>) -> bool {
        let mut aged = Vec::new();
        for shard in &self.cache.shards {
            shard.read().each_resident(&self.cache.common, |age, dir, told| {
                let seen = Seen {
                    what: What::Resident,
                    operation: Operation::Lookup,
                    begins: false,
                    dir,
                    name: None,
                    told: Some(told),
                };
                let record = self.queue.record(0, &seen);
                aged.extend(record.map(|record| (age, Record { name: Name::None, ..record })));
            });
            if aged.len() > max {
                return false;
            }
        }
        // Ages count per shard, which is oldest first up to how evenly shards fill.
        aged.sort_by_key(|&(age, _)| Reverse(age));
        aged.iter().for_each(|(_, record)| record.push(out));
        true
    }
}

impl<W> Drop for Listener<W> {
    fn drop(&mut self) {
        let common = &self.cache.common;
        let mut queues = common.tap.queues.write();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        if queues.is_empty() {
            common.observe(super::common::TAPPED, false);
        }
    }
}

impl Common {
    /// A request found an object, in a shard with this number. Called where something is observed.
    #[cold]
    pub(super) fn saw_hit(
        &self,
        shard: u32,
        operation: Operation,
        begins: bool,
        dir: &Dir,
        slot: &Slot,
        name: Option<&[u8]>,
    ) {
        if begins {
            count(&self.hits().of_shards[shard as usize]);
        }
        if !self.is_tapped() {
            return;
        }
        let parts = [Part::Attrs, Part::Body].into_iter();
        let hits = parts.filter_map(|part| told(self, dir, &slot.content, part));
        for (at, told) in hits.enumerate() {
            let (begins, told) = (begins && at == 0, Some(told));
            let dir = dir.handle_bytes();
            self.tap.tell(&Seen { what: What::Hit, operation, begins, dir, name, told });
        }
    }

    /// A request was answered, or not, without an object. Called where something is observed.
    #[cold]
    pub(super) fn saw(
        &self,
        shard: u32,
        what: What,
        operation: Operation,
        dir: &Handle,
        name: Option<&[u8]>,
    ) {
        if what == What::Absent {
            count(&self.hits().of_shards[shard as usize]);
        }
        if self.is_tapped() {
            let dir = dir.as_bytes();
            self.tap.tell(&Seen { what, operation, begins: true, dir, name, told: None });
        }
    }
}

impl<W> Shard<W> {
    /// The object that is a part of a slot came, or is about to leave since it is not true any more.
    /// Called where the tap is open.
    #[cold]
    pub(super) fn tell_change(
        &self,
        common: &Common,
        what: What,
        dir: &Dir,
        slot: &Slot,
        part: Part,
    ) {
        let Some(told) = told(common, dir, &slot.content, part) else { return };
        let name = slot.is_single().then(|| slot.chunk().map(|chunk| chunk.name(0))).flatten();
        common.tap.tell(&Seen {
            what,
            operation: self.filled_for,
            begins: false,
            dir: dir.handle_bytes(),
            name,
            told: Some(told),
        });
    }
}
