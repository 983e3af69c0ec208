//! What the shards of one cache share: configuration, fence, index of handles, byte budget.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use foldhash::fast::FixedState;
use parking_lot::RwLock;

use super::counters::{HitCounters, Hits};
use super::fence::{Fence, Mark};
use super::host::Extent;
use super::nodes::Nodes;
use super::slot::Content;
use super::tap::Tap;
use super::weigh::{Weights, weigh};
use super::{CacheConfig, CacheCounters};
use crate::handle::Handle;
use crate::limits::CACHE_SHARDS;
use crate::watch::Change;

/// What a directory takes beside its slots: itself, its place in the shard's tables.
const DIR_WEIGHT_BYTES: u32 = 208;
/// What a slot takes beside its content: itself, its object, the event that tells of it.
pub(super) const SLOT_WEIGHT_BYTES: u32 = 160;
/// What the attributes of a run take beside themselves: their object, the event that tells of it.
pub(super) const ATTRS_WEIGHT_BYTES: u32 = 96;
/// What an entry takes in the indexes by name and by handle.
pub(super) const ENTRY_WEIGHT_BYTES: u32 = 32;

/// What each object weighs in a cache whose capacity counts entries.
pub(super) const COUNTED_WEIGHT_BYTES: u32 = 256;

/// Somebody listens to the tap.
pub(super) const TAPPED: u8 = 1;
/// The halves of the cache are accounted for apart.
pub(super) const SPLIT: u8 = 2;

/// What is called where there is work for a driver.
pub(super) type Waker = Arc<dyn Fn() + Send + Sync>;

pub(super) struct Common {
    pub(super) config: CacheConfig,
    pub(super) fence: Fence,
    pub(super) nodes: Nodes,
    pub(super) tap: Tap,
    /// [`TAPPED`], [`SPLIT`].
    observed: AtomicU8,
    /// Whether all objects weigh the same.
    counts_entries: bool,
    hits: Hits,
    hasher: FixedState,
    /// By half of the cache, as all that follows.
    used_bytes: [AtomicU64; 2],
    objects: [AtomicU64; 2],
    wakers: RwLock<Wakers>,
}

/// Of the driver of the whole, and of those of the halves.
#[derive(Default)]
struct Wakers {
    whole: Option<Waker>,
    halves: [Option<Waker>; 2],
}

/// The half of the cache that a shard is in.
#[inline]
pub(super) fn half_of(shard: u32) -> usize {
    shard as usize % 2
}

impl Common {
    pub(super) fn new(config: CacheConfig, counts_entries: bool) -> Self {
        Self {
            config,
            fence: Fence::default(),
            nodes: Nodes::new(),
            tap: Tap::default(),
            observed: AtomicU8::new(0),
            counts_entries,
            hits: Hits::default(),
            hasher: FixedState::with_seed(config.seed),
            used_bytes: Default::default(),
            objects: Default::default(),
            wakers: RwLock::default(),
        }
    }

    #[inline]
    pub(super) fn hash(&self, bytes: &[u8]) -> u64 {
        self.hasher.hash_one(bytes)
    }

    /// The key of an object: what it stands for, whatever its id. `handle` is a handle's bytes.
    pub(super) fn key(&self, handle: &[u8], part: &[u8]) -> u64 {
        self.hasher.hash_one((handle, part))
    }

    /// What a change concerns, in the fence.
    pub(super) fn marks(&self, change: &Change) -> Vec<Mark> {
        match change {
            Change::Attr { handle } => vec![self.attr_mark(handle)],
            Change::Name { dir, name } => vec![self.name_mark(dir, name), self.listing_mark(dir)],
            Change::Names { dir } => vec![self.names_mark(dir), self.listing_mark(dir)],
            Change::All => Vec::new(),
        }
    }

    /// What the answer to a question about a name depends on, its attributes apart.
    pub(super) fn name_marks(&self, dir: &Handle, name: &[u8]) -> [Mark; 2] {
        [self.name_mark(dir, name), self.names_mark(dir)]
    }

    /// The attributes of a file.
    pub(super) fn attr_mark(&self, handle: &Handle) -> Mark {
        Mark(self.hasher.hash_one((b'a', handle)))
    }

    /// Whatever changes any name of a directory.
    pub(super) fn listing_mark(&self, dir: &Handle) -> Mark {
        Mark(self.hasher.hash_one((b'l', dir)))
    }

    fn name_mark(&self, dir: &Handle, name: &[u8]) -> Mark {
        Mark(self.hasher.hash_one((b'n', dir, name)))
    }

    /// Whatever changes all names of a directory at once.
    fn names_mark(&self, dir: &Handle) -> Mark {
        Mark(self.hasher.hash_one((b'd', dir)))
    }

    /// The shard of the file with this hash.
    #[inline]
    pub(super) fn shard_of(hash: u64) -> usize {
        (hash >> 40) as usize % CACHE_SHARDS
    }

    /// The counters of the calling thread.
    #[inline]
    pub(super) fn hits(&self) -> &HitCounters {
        self.hits.mine()
    }

    /// Requests answered from a shard while anybody wanted to know.
    pub(super) fn hits_of_shard(&self, shard: usize) -> u64 {
        self.hits.of_shard(shard)
    }

    /// Adds the hits of all threads.
    pub(super) fn add_hits(&self, sum: &mut CacheCounters) {
        self.hits.add_to(sum);
    }

    /// Whether what was filled at `filled_at_ms` may still be answered.
    #[inline]
    pub(super) fn is_fresh(&self, now_ms: u64, filled_at_ms: u64) -> bool {
        now_ms.saturating_sub(filled_at_ms) <= self.config.max_age_ms
    }

    /// Whether anybody wants to know of hits, beyond their sums.
    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        self.observed.load(Ordering::Relaxed) != 0
    }

    pub(super) fn is_tapped(&self) -> bool {
        self.observed.load(Ordering::Relaxed) & TAPPED != 0
    }

    pub(super) fn is_split(&self) -> bool {
        self.observed.load(Ordering::Relaxed) & SPLIT != 0
    }

    /// Begins or ends what is observed.
    pub(super) fn observe(&self, what: u8, begins: bool) {
        match begins {
            true => self.observed.fetch_or(what, Ordering::Relaxed),
            false => self.observed.fetch_and(!what, Ordering::Relaxed),
        };
    }

    /// What a content weighs here.
    pub(super) fn weigh(&self, content: &Content) -> Weights {
        let weights = weigh(content);
        if !self.counts_entries {
            return weights;
        }
        let (body, attrs) = (COUNTED_WEIGHT_BYTES, weights.attrs.map(|_| COUNTED_WEIGHT_BYTES));
        Weights { body, attrs }
    }

    /// What a directory weighs beside its contents.
    pub(super) fn dir_weight_bytes(&self) -> u32 {
        if self.counts_entries { 0 } else { DIR_WEIGHT_BYTES }
    }

    /// More is held in this shard.
    pub(super) fn charge(&self, shard: u32, bytes: u32) {
        self.used_bytes[half_of(shard)].fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    /// Less is held in this shard.
    pub(super) fn refund(&self, shard: u32, bytes: u32) {
        self.used_bytes[half_of(shard)].fetch_sub(u64::from(bytes), Ordering::Relaxed);
    }

    pub(super) fn used_bytes(&self, extent: Extent) -> u64 {
        sum(&self.used_bytes, extent)
    }

    /// Bytes that a part of the cache may hold.
    pub(super) fn capacity_bytes(&self, extent: Extent) -> u64 {
        match extent {
            Extent::Whole => self.config.capacity_bytes,
            Extent::Half(_) => self.config.capacity_bytes / 2,
        }
    }

    /// What the capacity of this shard is part of.
    pub(super) fn extent_of(&self, shard: u32) -> Extent {
        if self.is_split() { Extent::Half(half_of(shard)) } else { Extent::Whole }
    }

    /// Whether memory is short enough that victims should be at hand.
    pub(super) fn is_tight(&self, extent: Extent) -> bool {
        self.used_bytes(extent) >= self.capacity_bytes(extent) / 16 * 15
    }

    pub(super) fn count_object(&self, shard: u32) {
        self.objects[half_of(shard)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn uncount_object(&self, shard: u32) {
        self.objects[half_of(shard)].fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn objects(&self, extent: Extent) -> u64 {
        sum(&self.objects, extent)
    }

    /// Sets what to call for a part of the cache; the last one that was set for it counts.
    pub(super) fn set_waker(&self, extent: Extent, waker: Waker) {
        let mut wakers = self.wakers.write();
        match extent {
            Extent::Whole => wakers.whole = Some(waker),
            Extent::Half(half) => wakers.halves[half] = Some(waker),
        }
    }

    /// There is work for the driver of this shard.
    pub(super) fn wake(&self, shard: u32) {
        let wakers = self.wakers.read();
        let waker = match self.extent_of(shard) {
            Extent::Whole => &wakers.whole,
            Extent::Half(half) => &wakers.halves[half],
        };
        if let Some(waker) = waker {
            waker();
        }
    }
}

fn sum(halves: &[AtomicU64; 2], extent: Extent) -> u64 {
    let load = |half: usize| halves[half].load(Ordering::Relaxed);
    match extent {
        Extent::Whole => load(0) + load(1),
        Extent::Half(half) => load(half),
    }
}
