//! What the shards of one cache share: configuration, fence, index of handles, byte budget.

use std::hash::BuildHasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;

use super::counters::{HitCounters, Hits};
use super::fence::{Fence, Mark};
use super::nodes::Nodes;
use super::{CacheConfig, CacheCounters};
use crate::handle::Handle;
use crate::limits::CACHE_SHARDS;
use crate::watch::Change;

/// What a directory takes beside its slots: itself, its place in the shard's tables.
pub(super) const DIR_WEIGHT_BYTES: u32 = 208;
/// What a slot takes beside its content: itself, its object, the event that tells of it.
pub(super) const SLOT_WEIGHT_BYTES: u32 = 160;
/// What the attributes of a run take beside themselves: their object, the event that tells of it.
pub(super) const ATTRS_WEIGHT_BYTES: u32 = 96;
/// What an entry takes in the indexes by name and by handle.
pub(super) const ENTRY_WEIGHT_BYTES: u32 = 32;

pub(super) struct Common {
    pub(super) config: CacheConfig,
    pub(super) fence: Fence,
    pub(super) nodes: Nodes,
    hits: Hits,
    hasher: FixedState,
    used_bytes: AtomicU64,
    objects: AtomicU64,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Common {
    pub(super) fn new(config: CacheConfig) -> Self {
        Self {
            config,
            fence: Fence::default(),
            nodes: Nodes::new(),
            hits: Hits::default(),
            hasher: FixedState::with_seed(config.seed),
            used_bytes: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            waker: OnceLock::new(),
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

    /// Adds the hits of all threads.
    pub(super) fn add_hits(&self, sum: &mut CacheCounters) {
        self.hits.add_to(sum);
    }

    /// Whether what was filled at `filled_at_ms` may still be answered.
    #[inline]
    pub(super) fn is_fresh(&self, now_ms: u64, filled_at_ms: u64) -> bool {
        now_ms.saturating_sub(filled_at_ms) <= self.config.max_age_ms
    }

    pub(super) fn charge(&self, bytes: u32) {
        self.used_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    pub(super) fn refund(&self, bytes: u32) {
        self.used_bytes.fetch_sub(u64::from(bytes), Ordering::Relaxed);
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether memory is short enough that victims should be at hand.
    pub(super) fn is_tight(&self) -> bool {
        self.used_bytes() >= self.config.capacity_bytes / 16 * 15
    }

    pub(super) fn count_object(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn uncount_object(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    pub(super) fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        // A second driver would break the contract of `EvictionHost`; the first stays.
        let _ = self.waker.set(waker);
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }
}
