//! Tests of contents that came along: packed, kept within their bytes, and dropped with what they were told with.

use super::*;
use crate::Timestamp;

fn handle(number: u64) -> Handle {
    Handle::new(&number.to_le_bytes()).expect("8 bytes")
}

fn attr(size_bytes: u64) -> Attr {
    let ctime = Timestamp { secs: 5, nanos: size_bytes as u32 };
    Attr { size_bytes, ctime, mode: 0o100_644, ..Attr::default() }
}

const DIR: u64 = u64::MAX;

fn fill(cache: &ContentCache, ticket: &ContentTicket, number: u64, bytes: &[u8]) -> bool {
    cache.fill(0, ticket, (&handle(number), &attr(bytes.len() as u64)), bytes)
}

fn attr_of(number: u64) -> Change {
    Change::Attr { handle: handle(number) }
}

/// S-INLINE-2.
#[test]
fn what_was_asked_for_before_an_invalidation_does_not_enter() {
    let cache = ContentCache::new(1 << 20, 1_000);
    let before = cache.ask(&handle(DIR), 100);
    cache.forget(&[attr_of(1)]);
    assert!(!fill(&cache, &before, 1, b"old"));
    assert!(fill(&cache, &before, 2, b"another"));
    assert!(fill(&cache, &cache.ask(&handle(DIR), 100), 1, b"new"));
    assert_eq!(cache.get(0, &handle(1)).expect("there").bytes, &b"new"[..]);
    cache.forget(&[Change::All]);
    assert!(cache.get(0, &handle(1)).is_none() && !fill(&cache, &before, 2, b"another"));
    assert_eq!(cache.counters().late, 2);
}

#[test]
fn whoever_has_one_that_leaves_is_told() {
    let cache = ContentCache::new(64 * 1024, 1_000);
    let ticket = cache.ask(&handle(DIR), 100);
    let fill_and_get = |number| {
        assert!(fill(&cache, &ticket, number, b"abc"));
        cache.get(0, &handle(number)).expect("there")
    };
    let (changed, kept) = (fill_and_get(1), fill_and_get(2));
    cache.forget(&[Change::Name { dir: handle(DIR), name: b"x".to_vec() }, attr_of(1)]);
    assert!(!changed.is_current() && kept.is_current());
    let replaced = kept.clone();
    let kept = fill_and_get(2);
    assert!(!replaced.is_current() && kept.is_current());
    cache.forget_all();
    assert!(!kept.is_current());
    let counters = cache.counters();
    assert_eq!((counters.contents, counters.used_bytes, counters.invalidated), (0, 0, 2));
}

#[test]
fn a_content_of_another_length_than_its_size_is_refused() {
    let cache = ContentCache::new(1 << 20, 1_000);
    let ticket = cache.ask(&handle(DIR), 100);
    assert!(!cache.fill(0, &ticket, (&handle(1), &attr(4)), b"abc"));
    assert!(cache.fill(0, &ticket, (&handle(1), &attr(0)), b""));
    let empty = cache.get(0, &handle(1)).expect("an empty content is one");
    assert!(empty.is_of(&attr(0)) && !empty.is_of(&attr(1)));
}

#[test]
fn the_quota_holds_and_one_directory_gets_a_share_of_it() {
    const CAPACITY_BYTES: u64 = 100_000;
    let cache = ContentCache::new(CAPACITY_BYTES, 1_000);
    let content = vec![1; 1_000];
    let ticket = cache.ask(&handle(DIR), 1_000);
    let taken = (0..1_000).filter(|&number| fill(&cache, &ticket, number, &content)).count();
    let share = CAPACITY_BYTES / INLINE_DIR_SHARE / (1_000 + CONTENT_OVERHEAD_BYTES);
    assert_eq!(taken as u64, share);
    for dir in 1..50 {
        let ticket = cache.ask(&handle(DIR - dir), 1_000);
        for number in 0..10 {
            assert!(fill(&cache, &ticket, dir * 1_000 + number, &content));
            // Used all the time, so it stays.
            assert!(cache.get(0, &handle(0)).is_some(), "{dir} {number}");
        }
        assert!(cache.counters().used_bytes <= CAPACITY_BYTES);
    }
    assert!(cache.get(0, &handle(1)).is_none());
    assert!(cache.state.lock().order.len() < 400, "what has left is passed over");
}

#[test]
fn what_left_by_invalidation_does_not_pile_up() {
    let cache = ContentCache::new(1 << 20, 1_000);
    for number in 0..10_000 {
        assert!(fill(&cache, &cache.ask(&handle(DIR), 10), number, b"x"));
        cache.forget(&[attr_of(number)]);
    }
    assert!(cache.state.lock().order.len() < 200);
}

#[test]
fn a_directory_is_asked_again_once_a_good_part_has_left_or_more_is_wanted() {
    let cache = ContentCache::new(1 << 20, 1_000);
    let dir = handle(DIR);
    assert!(!cache.covers(0, &dir, 1) && cache.covers(0, &dir, 0));
    let ticket = cache.ask(&dir, 100);
    cache.begin(0, &ticket);
    (0..8).for_each(|number| assert!(fill(&cache, &ticket, number, b"x")));
    assert!(cache.covers(999, &dir, 100) && cache.covers(0, &dir, 0));
    assert!(cache.covers(0, &dir, 199) && !cache.covers(0, &dir, 200));
    assert!(!cache.covers(1_000, &dir, 100));
    cache.forget(&[attr_of(0), attr_of(1)]);
    assert!(cache.covers(0, &dir, 100), "a quarter has left");
    cache.forget(&[attr_of(2)]);
    assert!(!cache.covers(0, &dir, 100));
    cache.begin(0, &ticket);
    cache.abandon(&ticket);
    assert!(!cache.covers(0, &dir, 100));
}

#[test]
fn what_is_old_is_not_used_and_without_a_quota_there_is_nothing() {
    let cache = ContentCache::new(1 << 20, 1_000);
    assert!(fill(&cache, &cache.ask(&handle(DIR), 100), 1, b"abc"));
    assert!(cache.get(999, &handle(1)).is_some() && cache.get(1_000, &handle(1)).is_none());
    let none = ContentCache::new(0, 1_000);
    assert!(!fill(&none, &none.ask(&handle(DIR), 100), 1, b"") && !none.is_used());
}
