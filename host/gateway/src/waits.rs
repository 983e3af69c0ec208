//! How long requests waited for bricks, by shard of the cache.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portcullis_core::limits::CACHE_SHARDS;

/// Sums, in microseconds.
#[derive(Debug)]
pub(crate) struct Waits {
    shards: [AtomicU64; CACHE_SHARDS],
}

impl Default for Waits {
    fn default() -> Self {
        Self { shards: [const { AtomicU64::new(0) }; CACHE_SHARDS] }
    }
}

impl Waits {
    /// So many requests to a shard waited so long.
    pub(crate) fn note(&self, shard: usize, waited: Duration, requests: usize) {
        let waited_us = waited.as_micros() as u64 * requests as u64;
        self.shards[shard % CACHE_SHARDS].fetch_add(waited_us, Ordering::Relaxed);
    }

    /// The sums so far.
    pub(crate) fn all_us(&self) -> [u64; CACHE_SHARDS] {
        std::array::from_fn(|shard| self.shards[shard].load(Ordering::Relaxed))
    }
}
