//! What the cache counts.
//!
//! Hits are counted by threads that share a shard, so each counts on a cache line of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use super::lock::{STRIPES, stripe};
use crate::limits::CACHE_SHARDS;

/// Counters of a cache since it was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Bytes allowed.
    pub capacity_bytes: u64,
    /// Bytes held.
    pub used_bytes: u64,
    /// Entries held, negative ones included.
    pub entries: u64,
    /// Directories of which something is held.
    pub directories: u64,
    /// Objects that policies see.
    pub objects: u64,
    /// Lookups answered by an entry.
    pub lookup_hits: u64,
    /// Lookups answered "no such name".
    pub negative_hits: u64,
    /// Lookups that were not answered.
    pub lookup_misses: u64,
    /// Attribute requests answered.
    pub getattr_hits: u64,
    /// Attribute requests that were not.
    pub getattr_misses: u64,
    /// Link targets answered.
    pub readlink_hits: u64,
    /// Link targets that were not.
    pub readlink_misses: u64,
    /// Whole listings answered.
    pub list_hits: u64,
    /// Listings that were not.
    pub list_misses: u64,
    /// Requests that joined a fill on its way.
    pub fills_joined: u64,
    /// Bytes of what was filled in, as they came from the brick.
    pub filled_bytes: u64,
    /// What that weighs.
    pub filled_weight_bytes: u64,
    /// Fills dropped because they were older than an invalidation.
    pub fills_late: u64,
    /// Objects evicted on a policy's proposal.
    pub evicted_proposed: u64,
    /// Objects evicted by the cache itself because the reserve was empty.
    pub evicted_shortfall: u64,
    /// Objects that left because they were no longer true, or were replaced.
    pub invalidated: u64,
    /// Hits not told to the policy.
    pub hits_dropped: u64,
}

impl CacheCounters {
    /// Adds the counters of a shard of the same cache.
    pub(super) fn add(&mut self, other: &CacheCounters) {
        self.entries += other.entries;
        self.directories += other.directories;
        self.objects += other.objects;
        self.lookup_misses += other.lookup_misses;
        self.getattr_misses += other.getattr_misses;
        self.readlink_misses += other.readlink_misses;
        self.list_misses += other.list_misses;
        self.fills_joined += other.fills_joined;
        self.filled_bytes += other.filled_bytes;
        self.filled_weight_bytes += other.filled_weight_bytes;
        self.fills_late += other.fills_late;
        self.evicted_proposed += other.evicted_proposed;
        self.evicted_shortfall += other.evicted_shortfall;
        self.invalidated += other.invalidated;
    }
}

/// What the hits of some threads were, each as in [`CacheCounters`].
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct HitCounters {
    pub(super) lookup: AtomicU64,
    pub(super) negative: AtomicU64,
    pub(super) getattr: AtomicU64,
    pub(super) readlink: AtomicU64,
    pub(super) list: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// Requests answered from each shard, while anybody wants to know.
    pub(super) of_shards: [AtomicU64; CACHE_SHARDS],
}

impl Default for HitCounters {
    fn default() -> Self {
        Self {
            lookup: AtomicU64::new(0),
            negative: AtomicU64::new(0),
            getattr: AtomicU64::new(0),
            readlink: AtomicU64::new(0),
            list: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            of_shards: [const { AtomicU64::new(0) }; CACHE_SHARDS],
        }
    }
}

/// The hits of all threads.
#[derive(Debug, Default)]
pub(super) struct Hits {
    stripes: [HitCounters; STRIPES],
}

impl Hits {
    /// The counters of the calling thread.
    #[inline]
    pub(super) fn mine(&self) -> &HitCounters {
        &self.stripes[stripe()]
    }

    /// Adds them all.
    pub(super) fn add_to(&self, sum: &mut CacheCounters) {
        for hits in &self.stripes {
            sum.lookup_hits += hits.lookup.load(Ordering::Relaxed);
            sum.negative_hits += hits.negative.load(Ordering::Relaxed);
            sum.getattr_hits += hits.getattr.load(Ordering::Relaxed);
            sum.readlink_hits += hits.readlink.load(Ordering::Relaxed);
            sum.list_hits += hits.list.load(Ordering::Relaxed);
            sum.hits_dropped += hits.dropped.load(Ordering::Relaxed);
        }
    }
}

impl Hits {
    /// Requests answered from a shard while anybody wanted to know.
    pub(super) fn of_shard(&self, shard: usize) -> u64 {
        self.stripes.iter().map(|hits| hits.of_shards[shard].load(Ordering::Relaxed)).sum()
    }
}

/// Counts one more.
#[inline]
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
