//! What a listener is told, and what it costs when there is none.

use std::collections::HashSet;
use std::sync::Arc;

use super::tests::{cache, fill_listing, lead, names};
use super::*;
use crate::testing::{entry, handle};
use crate::trace::{Name, Record};

const HASHED: TapConfig =
    TapConfig { names: TapNames::Hashed, hash_key: (1, 2), sample: 1, queue_len_bytes: 1 << 20 };

/// What was told so far, names aside: what, operation, whether a request begins, the object's key.
fn told(listener: &Listener<u32>) -> Vec<(What, Operation, bool, u64)> {
    let mut bytes = Vec::new();
    listener.take(&mut bytes);
    records(&bytes, |record| (record.what, record.operation, record.begins, record.key))
}

fn records<T>(bytes: &[u8], each: impl Fn(&Record<'_>) -> T) -> Vec<T> {
    let (mut at, mut found) = (0, Vec::new());
    while let Some((record, len)) = Record::take(&bytes[at..]).expect("whole records") {
        found.push(each(&record));
        at += len;
    }
    assert_eq!(at, bytes.len(), "nothing is cut off");
    found
}

#[test]
fn a_miss_its_object_and_its_hits_are_told_in_order() {
    let cache = Arc::new(cache(1 << 20));
    let dir = handle(1);
    let listener = cache.listen(0, HASHED).expect("nobody listens yet");
    let ticket = lead(cache.lookup(5, &dir, b"a", || 1));
    assert!(matches!(cache.lookup(6, &dir, b"a", || 2), Answer::Joined));
    cache.fill(7, ticket, &Filled::Entry(entry(5)));
    assert!(matches!(cache.lookup(8, &dir, b"a", || 3), Answer::Hit(_)));
    assert!(matches!(cache.getattr(9, &handle(5), || 4), Answer::Hit(_)));
    cache.invalidate_name(&dir, b"a");
    let told = told(&listener);
    let key = told[2].3;
    assert_ne!(key, 0);
    assert_eq!(
        told,
        [
            (What::Missed, Operation::Lookup, true, 0),
            (What::Joined, Operation::Lookup, true, 0),
            (What::Came, Operation::Lookup, false, key),
            (What::Hit, Operation::Lookup, true, key),
            (What::Hit, Operation::Getattr, true, key),
            (What::Left, Operation::Lookup, false, key),
        ]
    );
}

/// A run with attributes of their own is two objects, as eviction sees it; a name that a whole listing
/// does not have is answered by none of them. One request, however many objects it touches.
#[test]
fn a_listing_is_told_object_by_object() {
    let cache = Arc::new(cache(1 << 20));
    let dir = handle(1);
    let listener = cache.listen(0, HASHED).expect("nobody listens yet");
    fill_listing(&cache, 0, &dir, &names(0..100));
    let came = told(&listener);
    assert_eq!(came.len(), 2, "{came:?}");
    assert!(came.iter().all(|&(what, operation, begins, _)| {
        (what, operation, begins) == (What::Came, Operation::List, false)
    }));
    let keys = |told: &[(What, Operation, bool, u64)]| -> HashSet<u64> {
        told.iter().map(|&(.., key)| key).collect()
    };
    assert!(cache.list(1, &dir, &[]).is_some());
    let hits = told(&listener);
    assert_eq!(keys(&hits), keys(&came));
    assert_eq!(hits.iter().map(|&(_, _, begins, _)| begins).collect::<Vec<_>>(), [true, false]);
    assert!(matches!(cache.lookup(2, &dir, b"name-7", || 1), Answer::Hit(_)));
    assert!(matches!(cache.lookup(2, &dir, b"other", || 1), Answer::Negative));
    let lookups = told(&listener);
    assert_eq!(keys(&lookups[..2]), keys(&came));
    assert_eq!(lookups[2], (What::Absent, Operation::Lookup, true, 0));
    assert_eq!(cache.list(9_999, &dir, &[]), None, "it is too old");
    assert_eq!(told(&listener), [(What::Missed, Operation::List, true, 0)]);
}

#[test]
fn names_are_told_as_they_were_asked_for() {
    let cache = Arc::new(cache(1 << 20));
    let listen = |names| cache.listen(0, TapConfig { names, ..HASHED }).expect("room for one more");
    let listeners = [TapNames::Left, TapNames::Plain, TapNames::Hashed].map(listen);
    for name in [b"a", b"b", b"a"] {
        let _ = cache.lookup(0, &handle(1), name, || 1);
    }
    let of = |listener: &Listener<u32>| {
        let mut bytes = Vec::new();
        listener.take(&mut bytes);
        records(&bytes, |record| match record.name {
            Name::None => None,
            Name::Hashed(hash) => Some(hash.to_le_bytes().to_vec()),
            Name::Plain(name) => Some(name.to_vec()),
        })
    };
    assert_eq!(of(&listeners[0]), [None, None, None]);
    let [a, b] = [b"a", b"b"].map(|name| Some(name.to_vec()));
    assert_eq!(of(&listeners[1]), [a.clone(), b, a]);
    let hashes = of(&listeners[2]);
    assert!(hashes[0] == hashes[2] && hashes[0] != hashes[1], "{hashes:?}");
}

#[test]
fn what_does_not_fit_is_counted() {
    let cache = Arc::new(cache(1 << 20));
    let listener =
        cache.listen(0, TapConfig { queue_len_bytes: 100, ..HASHED }).expect("nobody listens yet");
    let ask = |count: u64| {
        for number in 0..count {
            let _ = cache.lookup(0, &handle(number), b"a", || 1);
        }
    };
    ask(50);
    let first = told(&listener);
    let lost = |told: &[(What, Operation, bool, u64)]| -> u64 {
        told.iter().filter(|(what, ..)| *what == What::Lost).map(|(.., key)| key).sum()
    };
    let kept = first.iter().filter(|(what, ..)| *what != What::Lost).count() as u64;
    assert!(kept < 5, "{first:?}");
    assert_eq!(kept + lost(&first), 50);
    ask(1);
    assert_eq!(lost(&told(&listener)), 0, "what was told to be lost is not told again");
}

/// Whoever listens to one directory in four is told of about a quarter, of each all or nothing.
#[test]
fn a_sample_is_of_whole_directories() {
    let cache = Arc::new(cache(1 << 20));
    let listener = cache.listen(0, TapConfig { sample: 4, ..HASHED }).expect("nobody listens yet");
    for number in 0..400 {
        for name in [b"a", b"b"] {
            let _ = cache.lookup(0, &handle(number), name, || 1);
        }
    }
    let mut bytes = Vec::new();
    listener.take(&mut bytes);
    let dirs = records(&bytes, |record| record.dir);
    let distinct: HashSet<u64> = dirs.iter().copied().collect();
    assert!((60..140).contains(&distinct.len()), "{}", distinct.len());
    assert_eq!(dirs.len(), 2 * distinct.len());
}

#[test]
fn residents_are_told_oldest_first_and_listeners_leave() {
    let cache = Arc::new(cache(1 << 20));
    for number in 0..50 {
        let ticket = lead(cache.lookup(0, &handle(1), format!("n{number}").as_bytes(), || 1));
        cache.fill(0, ticket, &Filled::Entry(entry(100 + number)));
    }
    let listener = cache.listen(0, HASHED).expect("nobody listens yet");
    let mut bytes = Vec::new();
    assert!(listener.residents(100, &mut bytes));
    let residents = records(&bytes, |record| (record.what, record.key));
    assert_eq!(residents.len(), 50);
    for (number, &(what, key)) in residents.iter().enumerate() {
        assert_eq!(what, What::Resident);
        assert!(matches!(
            cache.lookup(0, &handle(1), format!("n{number}").as_bytes(), || 1),
            Answer::Hit(_)
        ));
        assert_eq!(told(&listener), [(What::Hit, Operation::Lookup, true, key)], "{number}");
    }
    assert!(!listener.residents(10, &mut Vec::new()), "there are more");
    let others: Vec<_> = (0..).map_while(|_| cache.listen(0, HASHED)).collect();
    assert_eq!(others.len() + 1, crate::limits::TAP_LISTENERS_MAX);
    assert!(cache.common.is_observed());
    drop((listener, others));
    assert!(!cache.common.is_observed(), "nobody is left, and it costs nothing again");
}
