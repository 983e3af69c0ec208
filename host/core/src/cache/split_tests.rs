//! A cache in two halves, each with a host of its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::tests::lead;
use super::*;
use crate::eviction::{Event, EvictionHost, ObjectId, Offered};
use crate::testing::{entry, handle};

fn cache(entries: u64) -> Arc<DentryCache<u32>> {
    let config = CacheConfig { capacity_bytes: 0, max_age_ms: 1_000, seed: 7 };
    Arc::new(DentryCache::of_entries(entries, config))
}

fn halves(cache: &Arc<DentryCache<u32>>) -> [CacheHalf<u32>; 2] {
    [0, 1].map(|half| CacheHalf::new(cache.clone(), half))
}

/// Fills an entry into each of these directories.
fn fill(cache: &DentryCache<u32>, dirs: std::ops::Range<u64>) {
    for number in dirs {
        let ticket = lead(cache.lookup(0, &handle(number), b"a", || 1));
        cache.fill(0, ticket, &Filled::Entry(entry(1_000_000 + number)));
    }
}

fn restarted(host: &dyn EvictionHost) -> HashSet<ObjectId> {
    let mut events = Vec::new();
    host.restart(&mut events);
    events
        .iter()
        .filter_map(|event| match event {
            Event::Insert { id, .. } => Some(*id),
            _ => None,
        })
        .collect()
}

fn drained(host: &dyn EvictionHost) -> usize {
    let mut events = Vec::new();
    while host.drain(64, &mut events) {}
    events.len()
}

#[test]
fn each_half_is_told_of_its_own_and_the_whole_of_nothing() {
    let cache = cache(10_000);
    assert!(restarted(&*cache).is_empty());
    fill(&cache, 0..400);
    cache.set_split(true);
    let halves = halves(&cache);
    let [first, second] = [restarted(&halves[0]), restarted(&halves[1])];
    assert_eq!(first.len() + second.len(), 400);
    assert!(first.is_disjoint(&second) && first.len() > 100 && second.len() > 100);
    fill(&cache, 400..800);
    assert_eq!(drained(&*cache), 0, "it is detached");
    let told = [drained(&halves[0]), drained(&halves[1])];
    assert_eq!(told[0] + told[1], 400);
    let foreign = *second.iter().next().expect("some");
    assert_eq!(halves[0].offer(&[foreign]), Offered { foreign: 1, ..Offered::default() });
    assert_eq!(cache.offer(&[foreign]), Offered { stale: 1, ..Offered::default() });
    cache.set_split(false);
    assert_eq!(restarted(&*cache).len(), 800, "nothing was lost");
    fill(&cache, 800..900);
    assert_eq!(drained(&*cache), 100);
}

/// Victims of one half make room in that half alone, and each keeps to its own capacity.
#[test]
fn each_half_keeps_to_half_of_the_capacity() {
    let cache = cache(1_000);
    cache.set_split(true);
    let halves = halves(&cache);
    let _ = [restarted(&halves[0]), restarted(&halves[1])];
    fill(&cache, 0..5_000);
    for (half, host) in halves.iter().enumerate() {
        let (used, capacity) = host.usage();
        assert_eq!(capacity, cache.capacity_bytes() / 2);
        assert!(used <= capacity && used > capacity / 10 * 9, "half {half}: {used}");
        assert_eq!(cache.half_used_bytes(half), used);
        assert!(host.shortage() > 0, "half {half} wants victims");
    }
    let before = cache.half_used_bytes(1);
    let mine: Vec<ObjectId> = restarted(&halves[0]).into_iter().take(5).collect();
    assert_eq!(halves[0].offer(&mine).accepted, 5);
    let proposed = cache.counters().evicted_proposed;
    fill(&cache, 5_000..5_100);
    assert_eq!(cache.counters().evicted_proposed, proposed + 5);
    assert_eq!(cache.half_used_bytes(1), before, "the other half was and is full");
    let requests: u64 = cache.tallies().iter().map(|tally| tally.requests).sum();
    assert_eq!(requests, 5_100);
}

/// Who was told to wake the driver of the whole does so again when the cache is whole again.
#[test]
fn the_driver_of_what_there_is_is_woken() {
    let cache = cache(200);
    let woken: [Arc<AtomicUsize>; 3] = Default::default();
    let waker = |at: usize| -> Box<dyn Fn() + Send + Sync> {
        let woken = woken[at].clone();
        Box::new(move || {
            woken.fetch_add(1, Ordering::Relaxed);
        })
    };
    let halves = halves(&cache);
    cache.set_waker(waker(0));
    cache.set_split(true);
    halves[0].set_waker(waker(1));
    halves[1].set_waker(waker(2));
    fill(&cache, 0..1_000);
    let counts = || [0, 1, 2].map(|at| woken[at].load(Ordering::Relaxed));
    let split = counts();
    assert!(split[0] == 0 && split[1] > 0 && split[2] > 0, "{split:?}");
    cache.set_split(false);
    fill(&cache, 1_000..1_100);
    let whole = counts();
    assert!(whole[0] > 0 && whole[1..] == split[1..], "{whole:?}");
}
