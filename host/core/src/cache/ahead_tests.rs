//! Tests of listings that were asked for before anybody wanted them.

use super::*;
use crate::chunk::ChunkBuilder;
use crate::eviction::{Class, Event, EvictionHost};
use crate::testing::{entry_ref, handle};
use crate::watch::Change;

const FILES: u64 = 100;

fn cache(capacity_bytes: u64) -> DentryCache<u32> {
    DentryCache::new(CacheConfig { capacity_bytes, max_age_ms: 1_000, seed: 5 })
}

fn fill(cache: &DentryCache<u32>, dir: u64, mut ticket: ListingTicket) {
    let mut builder = ChunkBuilder::default();
    for file in 0..FILES {
        let name = format!("file-{file}");
        assert!(builder.push(&entry_ref(name.as_bytes(), dir * 1_000 + file + 1)));
    }
    let chunk = builder.finish(0).expect("entries");
    cache.fill_chunk(0, &mut ticket, &chunk);
    cache.finish_listing(0, ticket, true);
}

#[test]
fn eviction_is_told_why_a_listing_came() {
    let cache = cache(1 << 20);
    cache.restart(&mut Vec::new());
    fill(&cache, 1, cache.begin_listing(&handle(1)));
    fill(&cache, 2, cache.begin_listing_ahead(&handle(2)));
    let mut events = Vec::new();
    cache.drain(100, &mut events);
    let mut classes: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Insert { class, .. } => Some(*class as u8),
            _ => None,
        })
        .collect();
    classes.sort_unstable();
    // A run of each, whose names and attributes are objects of their own.
    let (listed, prefetched) = (Class::Listed as u8, Class::Prefetched as u8);
    assert_eq!(classes, [listed, listed, prefetched, prefetched]);
}

#[test]
fn what_is_in_use_is_not_displaced_by_what_is_fetched_ahead() {
    let cache = cache(CACHE_BYTES_MIN);
    let used = 1..20;
    used.clone().for_each(|dir| fill(&cache, dir, cache.begin_listing(&handle(dir))));
    let in_use = |cache: &DentryCache<u32>| {
        used.clone().filter(|&dir| cache.list(0, &handle(dir), &[]).is_some()).count()
    };
    assert_eq!(in_use(&cache), 19);
    // Many times what there is room for, none of it used.
    for dir in 100..1_000 {
        fill(&cache, dir, cache.begin_listing_ahead(&handle(dir)));
        if dir % 10 == 0 {
            assert_eq!(in_use(&cache), 19, "after {dir}");
        }
    }
}

#[test]
fn whether_a_listing_is_known_can_be_asked_without_using_it() {
    let cache = cache(1 << 20);
    let dir = handle(1);
    assert!(!cache.has_listing(0, &dir));
    let ticket = cache.begin_listing_ahead(&dir);
    let stamp = ticket.stamp();
    assert!(!cache.has_listing(0, &dir), "only begun");
    fill(&cache, 1, ticket);
    assert!(cache.has_listing(0, &dir) && !cache.has_listing(2_000, &dir), "fresh, and too old");
    assert_eq!((cache.counters().list_hits, cache.counters().list_misses), (0, 0));
    cache.forget(&[Change::Attr { handle: handle(1_001) }]);
    assert!(cache.names_hold(stamp, &dir), "its names are the same");
    cache.forget(&[Change::Name { dir: handle(2), name: b"x".to_vec() }]);
    assert!(cache.names_hold(stamp, &dir), "another directory");
    cache.forget(&[Change::Name { dir, name: b"new".to_vec() }]);
    assert!(!cache.names_hold(stamp, &dir));
    assert!(!cache.has_listing(0, &dir));
}
