//! What threads that hold one shard at the same time, in one directory, must not do to each other.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::tests::{cache, fill_listing, lead, listed, names};
use super::*;
use crate::eviction::{Event, EvictionHost, ObjectId};
use crate::testing::{entry, handle};

const THREADS: u64 = 4;

/// Every hit is told once or counted as dropped, also while the driver takes them away.
#[test]
fn hits_of_many_threads_are_all_accounted_for() {
    const ROUNDS: u64 = 20_000;
    let cache = cache(1 << 24);
    let dir = handle(1_000_000);
    fill_listing(&cache, 0, &dir, &names(0..400));
    let mut events = Vec::new();
    cache.restart(&mut events);
    let start = Barrier::new(THREADS as usize + 1);
    let running = AtomicU64::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, start, running) = (&cache, &start, &running);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                start.wait();
                for _ in 0..ROUNDS {
                    let name = format!("name-{}", random.u64(0..400));
                    let found = cache.lookup(0, &dir, name.as_bytes(), || 0);
                    assert!(matches!(found, Answer::Hit(_)), "{name}: {found:?}");
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        start.wait();
        while running.load(Ordering::SeqCst) > 0 {
            cache.drain(64, &mut events);
        }
    });
    while cache.drain(64, &mut events) {}
    let mut told: HashMap<ObjectId, u64> = HashMap::new();
    for event in &events {
        if let Event::Hit { id, count } = *event {
            assert!(count > 0);
            *told.entry(id).or_default() += u64::from(count);
        }
    }
    assert_eq!(told.len() as u64, cache.counters().objects, "each was hit");
    let CacheCounters { lookup_hits, hits_dropped, .. } = cache.counters();
    assert_eq!(lookup_hits, THREADS * ROUNDS);
    // Attributes and the names that they belong to are two objects.
    assert_eq!(told.values().sum::<u64>(), 2 * (lookup_hits - hits_dropped));
}

#[test]
fn what_is_hit_all_the_time_is_told_as_much_and_the_rest_counted() {
    let cache = cache(1 << 20);
    let mut events = Vec::new();
    cache.restart(&mut events);
    fill_listing(&cache, 0, &handle(1), &names(0..3));
    while cache.drain(64, &mut events) {}
    for drained in 1..3 {
        events.clear();
        for _ in 0..1_000 {
            assert!(matches!(cache.lookup(0, &handle(1), b"name-1", || 0), Answer::Hit(_)));
        }
        while cache.drain(64, &mut events) {}
        assert!(matches!(events[..], [Event::Hit { count: 255, .. }]), "{events:?}");
        assert_eq!(cache.counters().hits_dropped, drained * (1_000 - 255));
    }
}

/// One directory, of a few names or of many, is listed, changed and forgotten by one thread while
/// others look up and list. Names and files change together: name `n` is always file `n`, and only
/// even names ever go.
#[test]
fn readers_of_one_directory_see_no_change_by_half() {
    for (seed, files) in [(1, 8), (2, 40), (3, 600)] {
        let cache = cache(CACHE_BYTES_MIN);
        let dir = handle(1_000_000);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (cache, over) = (&cache, &over);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed * 100 + thread);
                    while !over.load(Ordering::Relaxed) {
                        let file = random.u64(0..files);
                        let name = format!("name-{file}");
                        match cache.lookup(0, &dir, name.as_bytes(), || 0) {
                            Answer::Hit(found) => assert_eq!(found, entry(file), "seed {seed}"),
                            Answer::Negative => {
                                assert!(file.is_multiple_of(2), "seed {seed}: {name}")
                            }
                            Answer::Lead(ticket) => drop(cache.fill(0, ticket, &Filled::Failed)),
                            Answer::Joined | Answer::Busy => {}
                        }
                        if let Some(listed) = listed(cache, 0, &dir) {
                            let odd = listed.iter().filter(|name| is_odd(name)).count() as u64;
                            assert_eq!(odd, files / 2, "seed {seed}: {listed:?}");
                        }
                    }
                });
            }
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..600 {
                let file = random.u64(0..files / 2) * 2;
                let name = format!("name-{file}").into_bytes();
                match random.u8(0..6) {
                    0 => cache.invalidate(&dir),
                    1 => cache.invalidate(&handle(file)),
                    2 => {
                        let learnt = [Learnt::Absent { dir, name: name.clone() }];
                        let changes = [crate::watch::Change::Name { dir, name }];
                        cache.learn(0, cache.begin_mutation(), &changes, &learnt);
                    }
                    3 => {
                        if let Answer::Lead(ticket) = cache.lookup(0, &dir, &name, || 0) {
                            cache.fill(0, ticket, &Filled::Entry(entry(file)));
                        }
                    }
                    _ => {
                        let gone = random.bool().then_some(file);
                        let there: Vec<_> =
                            names(0..files).into_iter().filter(|(_, f)| Some(*f) != gone).collect();
                        fill_listing(&cache, 0, &dir, &there);
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        cache.invalidate_all();
        let CacheCounters { used_bytes, entries, directories, objects, .. } = cache.counters();
        assert_eq!((used_bytes, entries, directories, objects), (0, 0, 0, 0), "seed {seed}");
        let _ = lead(cache.lookup(0, &dir, b"name-1", || 0));
    }
}

fn is_odd(name: &str) -> bool {
    name.bytes().last().is_some_and(|digit| digit % 2 == 1)
}
