//! The cache as eviction sees it: room is made from the reserve, the reserve is filled by a
//! policy, and where it is empty the cache chooses by itself.
//!
//! The cache may be split, so that two policies are compared: shards with even numbers are one half,
//! those with odd numbers the other, each with half of the capacity, a reserve, a host
//! ([`CacheHalf`]) and a driver of its own. Which directories are in which half is drawn with the
//! seed of the cache's hashes. While it is split, the host of the whole is detached: it tells nothing,
//! lacks nothing and takes nothing, so its driver may go on without any effect. What must hold: no event
//! of a half reaches the driver of the whole, nor the other way round.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use super::DentryCache;
use super::common::SPLIT;
use super::counters::CacheCounters;
use super::ledger::{Ledger, Verdict};
use super::reserve::Reserve;
use crate::ab::ShardTally;
use crate::eviction::{Event, EvictionHost, ObjectId, Offered};
use crate::limits::{CACHE_SHARDS, RESERVE_MAX};

/// Objects of one shard that a sweep looks at before it tries the next shard.
const SWEEP_STEPS: usize = 32;
/// Shards a sweep tries: enough to clear every access word once and come by again.
const SWEEP_ROUNDS: usize = 4096;

/// What part of the cache a policy works for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// 0 or 1.
    Half(usize),
}

impl Extent {
    /// Its shards, from the `start`-th of them on, each once.
    fn shards(self, start: usize) -> impl Iterator<Item = usize> {
        let count = self.count();
        (0..count).map(move |step| self.shard((start + step) % count))
    }

    /// How many shards it has.
    fn count(self) -> usize {
        match self {
            Extent::Whole => CACHE_SHARDS,
            Extent::Half(_) => CACHE_SHARDS / 2,
        }
    }

    /// The number of one of its shards, however often it was counted round.
    fn shard(self, at: usize) -> usize {
        match self {
            Extent::Whole => at % CACHE_SHARDS,
            Extent::Half(half) => at * 2 % CACHE_SHARDS + half,
        }
    }

    fn reserve(self) -> usize {
        match self {
            Extent::Whole => 0,
            Extent::Half(half) => half,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Evictions {
    proposed: AtomicU64,
    shortfall: AtomicU64,
    /// The shard that the next sweep begins at.
    hand: AtomicUsize,
    /// The shard that the next drain of each half, or of the whole, begins at.
    drained: [AtomicUsize; 2],
    /// Held shared by the driver of the whole while it works, so that none is in the midst of it when
    /// the cache is split.
    whole: RwLock<()>,
}

impl<W> DentryCache<W> {
    /// Evicts until the capacity is kept. Called without any lock held.
    pub(super) fn make_room(&self) {
        if self.common.is_split() {
            self.make_room_in(Extent::Half(0));
            self.make_room_in(Extent::Half(1));
        } else {
            self.make_room_in(Extent::Whole);
        }
    }

    fn make_room_in(&self, extent: Extent) {
        while self.common.used_bytes(extent) > self.common.capacity_bytes(extent) {
            let evicted = match self.reserves[extent.reserve()].pop() {
                Some(victim) => {
                    self.judge(victim);
                    true
                }
                None => self.sweep(extent),
            };
            if !evicted {
                break;
            }
        }
        if self.lacks_victims(extent) > 0 {
            self.common.wake(extent.reserve() as u32);
        }
    }

    /// Splits the cache, or makes it whole again, when the drivers of the halves have been stopped. Who
    /// works for what there is then has to be told of what is resident; until victims are proposed,
    /// the cache chooses by itself.
    pub fn set_split(&self, split: bool) {
        let _whole = self.evictions.whole.write();
        self.common.observe(SPLIT, split);
        self.reserves.iter().for_each(Reserve::clear);
        for shard in &self.shards {
            shard.write().ledger.take_back_proposed();
        }
    }

    /// What the requests to each shard came to since the cache was made; those answered from it are
    /// counted only while the cache is split, or listened to.
    pub fn tallies(&self) -> [ShardTally; CACHE_SHARDS] {
        std::array::from_fn(|number| {
            let counters = self.shards[number].read().counters;
            let unknown = counters.lookup_misses
                + counters.getattr_misses
                + counters.readlink_misses
                + counters.list_misses;
            ShardTally {
                requests: self.common.hits_of_shard(number) + unknown,
                missed: unknown.saturating_sub(counters.fills_joined),
                filled_bytes: counters.filled_bytes,
                filled_weight_bytes: counters.filled_weight_bytes,
                waited_us: 0,
            }
        })
    }

    /// Bytes that a half holds.
    pub fn half_used_bytes(&self, half: usize) -> u64 {
        self.common.used_bytes(Extent::Half(half % 2))
    }

    /// Counters, and what is held now.
    pub fn counters(&self) -> CacheCounters {
        let mut sum = CacheCounters {
            capacity_bytes: self.common.config.capacity_bytes,
            used_bytes: self.common.used_bytes(Extent::Whole),
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

    fn sweep(&self, extent: Extent) -> bool {
        for _ in 0..SWEEP_ROUNDS {
            let number = extent.shard(self.evictions.hand.fetch_add(1, Ordering::Relaxed));
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

    fn lacks_victims(&self, extent: Extent) -> usize {
        if !self.common.is_tight(extent) {
            return 0;
        }
        let target = Reserve::target(self.common.objects(extent));
        let len = self.reserves[extent.reserve()].len();
        if len > target / 2 { 0 } else { target - len }
    }

    fn drain_of(&self, extent: Extent, max: usize, events: &mut Vec<Event>) -> bool {
        let drained = &self.evictions.drained[extent.reserve()];
        let start = drained.load(Ordering::Relaxed);
        let had = events.len();
        for (step, number) in extent.shards(start).enumerate() {
            if events.len() - had >= max {
                drained.store((start + step) % extent.count(), Ordering::Relaxed);
                return true;
            }
            let shard = &self.shards[number];
            if shard.read().ledger.pending() > 0 {
                shard.write().drain(events);
            }
        }
        false
    }

    fn offer_of(&self, extent: Extent, victims: &[ObjectId]) -> Offered {
        let mut offered = Offered::default();
        for &victim in victims {
            let number = Ledger::shard_of(victim);
            let is_ours = match extent {
                Extent::Whole => true,
                Extent::Half(half) => number % 2 == half,
            };
            let verdict = if is_ours {
                self.shards[number].write().ledger.propose(victim)
            } else {
                Verdict::Foreign
            };
            match verdict {
                Verdict::Accepted => {
                    offered.accepted += 1;
                    self.reserves[extent.reserve()].push(victim);
                }
                Verdict::Stale => offered.stale += 1,
                Verdict::Repeated => offered.repeated += 1,
                Verdict::Foreign => offered.foreign += 1,
            }
        }
        offered
    }

    fn restart_of(&self, extent: Extent, events: &mut Vec<Event>) {
        self.reserves[extent.reserve()].clear();
        let mut aged = Vec::new();
        for number in extent.shards(0) {
            self.shards[number].write().restart(&self.common, &mut aged);
        }
        // Ages count per shard, which is oldest first up to how evenly shards fill.
        aged.sort_by_key(|&(age, _)| Reverse(age));
        events.extend(aged.into_iter().map(|(_, event)| event));
    }

    fn residents_of(&self, extent: Extent, pending: &mut Vec<Event>, residents: &mut Vec<Event>) {
        let mut aged = Vec::new();
        for number in extent.shards(0) {
            self.shards[number].write().residents(&self.common, pending, &mut aged);
        }
        aged.sort_by_key(|&(age, _)| Reverse(age));
        residents.extend(aged.into_iter().map(|(_, event)| event));
    }

    /// Does something for the driver of the whole, unless the cache is split.
    fn while_whole<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let _whole = self.evictions.whole.read();
        (!self.common.is_split()).then(work)
    }

    fn usage_of(&self, extent: Extent) -> (u64, u64) {
        (self.common.used_bytes(extent), self.common.capacity_bytes(extent))
    }
}

impl<W: Send> EvictionHost for DentryCache<W> {
    fn drain(&self, max: usize, events: &mut Vec<Event>) -> bool {
        self.while_whole(|| self.drain_of(Extent::Whole, max, events)).unwrap_or(false)
    }

    fn shortage(&self) -> usize {
        let lacks = self.while_whole(|| self.lacks_victims(Extent::Whole));
        lacks.unwrap_or(0).min(RESERVE_MAX)
    }

    fn offer(&self, victims: &[ObjectId]) -> Offered {
        let offered = self.while_whole(|| self.offer_of(Extent::Whole, victims));
        offered.unwrap_or(Offered { stale: victims.len() as u64, ..Offered::default() })
    }

    fn restart(&self, events: &mut Vec<Event>) {
        let _ = self.while_whole(|| self.restart_of(Extent::Whole, events));
    }

    fn residents(&self, pending: &mut Vec<Event>, residents: &mut Vec<Event>) {
        let _ = self.while_whole(|| self.residents_of(Extent::Whole, pending, residents));
    }

    fn usage(&self) -> (u64, u64) {
        self.usage_of(Extent::Whole)
    }

    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        self.common.set_waker(Extent::Whole, waker.into());
    }
}

/// One half of a cache that is split, as eviction sees it.
pub struct CacheHalf<W> {
    cache: Arc<DentryCache<W>>,
    extent: Extent,
}

impl<W> CacheHalf<W> {
    /// The half 0 or 1.
    pub fn new(cache: Arc<DentryCache<W>>, half: usize) -> Self {
        Self { cache, extent: Extent::Half(half % 2) }
    }
}

impl<W: Send> EvictionHost for CacheHalf<W> {
    fn drain(&self, max: usize, events: &mut Vec<Event>) -> bool {
        self.cache.drain_of(self.extent, max, events)
    }

    fn shortage(&self) -> usize {
        self.cache.lacks_victims(self.extent).min(RESERVE_MAX)
    }

    fn offer(&self, victims: &[ObjectId]) -> Offered {
        self.cache.offer_of(self.extent, victims)
    }

    fn restart(&self, events: &mut Vec<Event>) {
        self.cache.restart_of(self.extent, events);
    }

    fn residents(&self, pending: &mut Vec<Event>, residents: &mut Vec<Event>) {
        self.cache.residents_of(self.extent, pending, residents);
    }

    fn usage(&self) -> (u64, u64) {
        self.cache.usage_of(self.extent)
    }

    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        self.cache.common.set_waker(self.extent, waker.into());
    }
}
