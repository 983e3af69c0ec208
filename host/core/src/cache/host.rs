//! The cache as eviction sees it: room is made from the reserve, the reserve is filled by a
//! policy, and where it is empty the cache chooses by itself.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::DentryCache;
use super::counters::CacheCounters;
use super::ledger::{Ledger, Verdict};
use super::reserve::Reserve;
use crate::eviction::{Event, EvictionHost, ObjectId, Offered};
use crate::limits::{CACHE_SHARDS, RESERVE_MAX};

/// Objects of one shard that a sweep looks at before it tries the next shard.
const SWEEP_STEPS: usize = 32;
/// Shards a sweep tries: enough to clear every access word once and come by again.
const SWEEP_ROUNDS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Evictions {
    proposed: AtomicU64,
    shortfall: AtomicU64,
    /// The shard that the next sweep begins at.
    hand: AtomicUsize,
    /// The shard that the next drain begins at.
    drained: AtomicUsize,
}

impl<W> DentryCache<W> {
    /// Evicts until the capacity is kept. Called without any lock held.
    pub(super) fn make_room(&self) {
        while self.common.used_bytes() > self.common.config.capacity_bytes {
            let evicted = match self.reserve.pop() {
                Some(victim) => {
                    self.judge(victim);
                    true
                }
                None => self.sweep(),
            };
            if !evicted {
                break;
            }
        }
        if self.lacks_victims() > 0 {
            self.common.wake();
        }
    }

    /// Counters, and what is held now.
    pub fn counters(&self) -> CacheCounters {
        let mut sum = CacheCounters {
            capacity_bytes: self.common.config.capacity_bytes,
            used_bytes: self.common.used_bytes(),
            evicted_proposed: self.evictions.proposed.load(Ordering::Relaxed),
            evicted_shortfall: self.evictions.shortfall.load(Ordering::Relaxed),
            ..CacheCounters::default()
        };
        self.common.add_hits(&mut sum);
        for shard in &self.shards {
            let shard = shard.read();
            sum.add(&shard.counters);
            sum.objects += shard.ledger.live();
        }
        sum
    }

    pub(super) fn judge(&self, victim: ObjectId) {
        let mut shard = self.shards[Ledger::shard_of(victim)].write();
        let Some((index, site)) = shard.ledger.judge(victim) else { return };
        let site = match shard.leaf_of(site) {
            None => site,
            Some((attrs, leaf)) => {
                // Attributes leave before their names, which stay for now.
                shard.ledger.spare(index);
                if shard.ledger.take_recent(attrs) {
                    return;
                }
                leaf
            }
        };
        shard.evict(&self.common, site);
        self.evictions.proposed.fetch_add(1, Ordering::Relaxed);
    }

    fn sweep(&self) -> bool {
        for _ in 0..SWEEP_ROUNDS {
            let number = self.evictions.hand.fetch_add(1, Ordering::Relaxed) % CACHE_SHARDS;
            let mut shard = self.shards[number].write();
            if let Some((_, site)) = shard.ledger.sweep(SWEEP_STEPS) {
                let site = shard.leaf_of(site).map_or(site, |(_, leaf)| leaf);
                shard.evict(&self.common, site);
                self.evictions.shortfall.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    fn lacks_victims(&self) -> usize {
        if !self.common.is_tight() {
            return 0;
        }
        let target = Reserve::target(self.common.objects());
        let len = self.reserve.len();
        if len > target / 2 { 0 } else { target - len }
    }
}

impl<W: Send> EvictionHost for DentryCache<W> {
    fn drain(&self, max: usize, events: &mut Vec<Event>) -> bool {
        let start = self.evictions.drained.load(Ordering::Relaxed);
        let had = events.len();
        for step in 0..CACHE_SHARDS {
            if events.len() - had >= max {
                self.evictions.drained.store((start + step) % CACHE_SHARDS, Ordering::Relaxed);
                return true;
            }
            let shard = &self.shards[(start + step) % CACHE_SHARDS];
            if shard.read().ledger.pending() > 0 {
                shard.write().drain(events);
            }
        }
        false
    }

    fn shortage(&self) -> usize {
        self.lacks_victims().min(RESERVE_MAX)
    }

    fn offer(&self, victims: &[ObjectId]) -> Offered {
        let mut offered = Offered::default();
        for &victim in victims {
            let verdict = self.shards[Ledger::shard_of(victim)].write().ledger.propose(victim);
            match verdict {
                Verdict::Accepted => {
                    offered.accepted += 1;
                    self.reserve.push(victim);
                }
                Verdict::Stale => offered.stale += 1,
                Verdict::Repeated => offered.repeated += 1,
                Verdict::Foreign => offered.foreign += 1,
            }
        }
        offered
    }

    fn restart(&self, events: &mut Vec<Event>) {
        self.reserve.clear();
        let mut aged = Vec::new();
        for shard in &self.shards {
            shard.write().restart(&self.common, &mut aged);
        }
        // Ages count per shard, which is oldest first up to how evenly shards fill.
        aged.sort_by_key(|&(age, _)| Reverse(age));
        events.extend(aged.into_iter().map(|(_, event)| event));
    }

    fn residents(&self, pending: &mut Vec<Event>, residents: &mut Vec<Event>) {
        let mut aged = Vec::new();
        for shard in &self.shards {
            shard.write().residents(&self.common, pending, &mut aged);
        }
        aged.sort_by_key(|&(age, _)| Reverse(age));
        residents.extend(aged.into_iter().map(|(_, event)| event));
    }

    fn usage(&self) -> (u64, u64) {
        (self.common.used_bytes(), self.common.config.capacity_bytes)
    }

    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        self.common.set_waker(waker);
    }
}
