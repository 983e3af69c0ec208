//! What is learnt from a mutation, in every order in which it can meet fills and others' changes.

use super::super::ledger::{Part, Site};
use super::super::tests::{cache, fill_listing, lead, listed, names};
use super::super::{Answer, Filled, Ticket};
use super::*;
use crate::testing::{attr, entry, handle};

const DIR: u64 = 100;

fn name(name: &str) -> Change {
    Change::Name { dir: handle(DIR), name: name.as_bytes().to_vec() }
}

fn is(name: &str, file: u64) -> Learnt {
    Learnt::Entry { dir: handle(DIR), name: name.as_bytes().to_vec(), entry: entry(file) }
}

fn is_absent(name: &str) -> Learnt {
    Learnt::Absent { dir: handle(DIR), name: name.as_bytes().to_vec() }
}

fn lookup(cache: &DentryCache<u32>, name: &str) -> Answer<Entry> {
    cache.lookup(0, &handle(DIR), name.as_bytes(), || 0)
}

fn is_hit(cache: &DentryCache<u32>, name: &str, file: u64) -> bool {
    matches!(lookup(cache, name), Answer::Hit(found) if found == entry(file))
}

fn is_negative(cache: &DentryCache<u32>, name: &str) -> bool {
    matches!(lookup(cache, name), Answer::Negative)
}

/// Nothing is known of the name; gives the right to fill it back.
fn ask(cache: &DentryCache<u32>, name: &str) -> Ticket {
    lead(lookup(cache, name))
}

/// A directory that was just made is known to be empty, and stays known while it is filled: what
/// was not made there is absent, without a question.
#[test]
fn a_directory_that_this_tier_fills_stays_known() {
    let cache = cache(1 << 24);
    let dir = handle(DIR);
    let stamp = cache.begin_mutation();
    cache.learn(0, stamp, &[], &[Learnt::EmptyDir { dir }]);
    assert_eq!(listed(&cache, 0, &dir), Some(Vec::new()));
    for file in 0..5_000 {
        let new = format!("f{file}");
        assert!(is_negative(&cache, &new));
        cache.learn(0, cache.begin_mutation(), &[name(&new)], &[is(&new, file)]);
        assert!(is_hit(&cache, &new, file));
    }
    assert!(is_hit(&cache, "f0", 0) && is_negative(&cache, "none"));
    assert_eq!(listed(&cache, 0, &dir), None, "too many for the order of the brick");
    cache.learn(0, cache.begin_mutation(), &[name("f7")], &[is_absent("f7")]);
    assert!(is_negative(&cache, "f7") && is_hit(&cache, "f8", 8) && is_negative(&cache, "none"));
}

/// A new name comes first, one that stands for another file keeps its place, one that was removed
/// is left out.
#[test]
fn a_listing_that_is_known_follows_what_this_tier_changes() {
    let cache = cache(1 << 24);
    let dir = handle(DIR);
    fill_listing(&cache, 0, &dir, &names(0..200));
    cache.learn(0, cache.begin_mutation(), &[name("name-7")], &[is_absent("name-7")]);
    cache.learn(0, cache.begin_mutation(), &[name("name-8")], &[is("name-8", 1_008)]);
    cache.learn(0, cache.begin_mutation(), &[name("new")], &[is("new", 1_000)]);
    assert!(is_negative(&cache, "name-7") && is_negative(&cache, "none"));
    assert!(is_hit(&cache, "name-8", 1_008) && is_hit(&cache, "name-9", 9));
    assert!(is_hit(&cache, "new", 1_000));
    let getattr = |file| cache.getattr(0, &handle(file), || 0);
    assert!(matches!(getattr(1_008), Answer::Hit(found) if found == attr(1_008)));
    let mut expected: Vec<_> = (0..200).map(|file| format!("name-{file}")).collect();
    expected.remove(7);
    expected.insert(0, "new".into());
    assert_eq!(listed(&cache, 0, &dir).as_ref(), Some(&expected));
    let gone = lead(cache.getattr(0, &handle(8), || 0));
    cache.fill(0, gone, &Filled::Failed);
    cache.learn(0, cache.begin_mutation(), &[name("new")], &[is_absent("new")]);
    expected.remove(0);
    assert_eq!(listed(&cache, 0, &dir), Some(expected));
}

/// However all names of a listing leave, it is then known to be empty.
#[test]
fn a_directory_that_this_tier_empties_is_known_to_be_empty() {
    for files in [1, 15, 16, 300] {
        let cache = cache(1 << 24);
        let dir = handle(DIR);
        fill_listing(&cache, 0, &dir, &names(0..files));
        for file in 0..files {
            let gone = format!("name-{file}");
            cache.learn(0, cache.begin_mutation(), &[name(&gone)], &[is_absent(&gone)]);
            let left = (files - file - 1) as usize;
            assert_eq!(listed(&cache, 0, &dir).map(|names| names.len()), Some(left));
        }
        assert!(is_negative(&cache, "name-0") && is_negative(&cache, "none"));
        assert_eq!(cache.counters().entries, 0, "{files}");
        cache.learn(0, cache.begin_mutation(), &[name("a")], &[is("a", 5)]);
        assert_eq!(listed(&cache, 0, &dir), Some(vec!["a".into()]));
    }
}

/// What is learnt of attributes enters the listing, and takes no room of its own.
#[test]
fn learnt_attributes_are_told_by_the_listing() {
    let cache = cache(1 << 24);
    let dir = handle(DIR);
    fill_listing(&cache, 0, &dir, &names(0..50));
    let objects = cache.counters().objects;
    let changes = [Change::Attr { handle: handle(7) }];
    let new = attr(70);
    let learnt = [Learnt::Attr { handle: handle(7), attr: new }];
    cache.learn(0, cache.begin_mutation(), &changes, &learnt);
    assert!(matches!(lookup(&cache, "name-7"), Answer::Hit(found) if found.attr == Some(new)));
    assert!(matches!(cache.getattr(0, &handle(7), || 0), Answer::Hit(found) if found == new));
    let chunks = cache.list(0, &dir, &[]).expect("it is known");
    assert_eq!((chunks[0].missing, chunks[0].chunk.entry(7).attr), (0, Some(new)));
    assert_eq!(cache.counters().objects, objects);
}

/// The attributes of a learnt file change: its name must not become absent with them, neither when
/// they are forgotten nor when they are evicted or asked for anew.
#[test]
fn a_learnt_name_whose_attributes_change_is_not_taken_for_absent() {
    let cache = cache(1 << 24);
    cache.learn(0, cache.begin_mutation(), &[], &[Learnt::EmptyDir { dir: handle(DIR) }]);
    cache.learn(0, cache.begin_mutation(), &[name("a")], &[is("a", 5)]);
    cache.forget(&[Change::Attr { handle: handle(5) }]);
    let ticket = ask(&cache, "a");
    assert!(is_negative(&cache, "none"), "the names are as they were");
    cache.fill(0, ticket, &Filled::Entry(entry(5)));
    assert!(is_hit(&cache, "a", 5) && is_negative(&cache, "none"));
}

#[test]
fn attributes_of_a_directory_are_not_its_names() {
    let cache = cache(1 << 24);
    let dir = handle(DIR);
    fill_listing(&cache, 0, &handle(1), &[("dir".into(), DIR)]);
    fill_listing(&cache, 0, &dir, &names(0..3));
    let ticket = lead(cache.getattr(0, &handle(77), || 0));
    cache.fill(0, ticket, &Filled::Attr(attr(77)));
    let own = Learnt::Attr { handle: dir, attr: attr(DIR) };
    cache.learn(0, cache.begin_mutation(), &[], std::slice::from_ref(&own));
    cache.forget(&[Change::Attr { handle: dir }]);
    assert!(listed(&cache, 0, &dir).is_some(), "its listing stays");
    let _ = lead(cache.getattr(0, &dir, || 0));
    let _ = lead(cache.lookup(0, &handle(1), b"dir", || 0));
    cache.learn(0, cache.begin_mutation(), &[Change::Attr { handle: dir }], &[own]);
    cache.forget(&[Change::Names { dir }]);
    assert!(listed(&cache, 0, &dir).is_none());
    assert!(matches!(cache.getattr(0, &dir, || 0), Answer::Hit(_)), "its attributes stay");
    cache.forget(&[Change::All]);
    let _ = lead(cache.getattr(0, &handle(77), || 0));
}

/// A fill that was asked before the mutation was sent: it may have been read before or after the
/// mutation was applied, and come before or after its answer. Only what came before the answer is
/// cached, and leaves with the answer.
#[test]
fn a_fill_asked_before_the_mutation_brings_nothing_back() {
    for (read, early) in [(Filled::Absent, true), (Filled::Absent, false)] {
        let cache = cache(1 << 24);
        let ticket = ask(&cache, "a");
        let stamp = cache.begin_mutation();
        if early {
            cache.fill(0, ticket, &read);
            assert!(is_negative(&cache, "a"), "not acknowledged yet");
            cache.learn(0, stamp, &[name("a")], &[is("a", 5)]);
        } else {
            cache.learn(0, stamp, &[name("a")], &[is("a", 5)]);
            cache.fill(0, ticket, &read);
        }
        assert!(is_hit(&cache, "a", 5), "{read:?} early {early}");
    }
}

/// A fill asked while the mutation was under way: the same.
#[test]
fn a_fill_asked_while_the_mutation_is_under_way_brings_nothing_back() {
    for early in [true, false] {
        let cache = cache(1 << 24);
        fill_listing(&cache, 0, &handle(DIR), &[]);
        cache.invalidate_name(&handle(DIR), b"a");
        let stamp = cache.begin_mutation();
        let ticket = ask(&cache, "a");
        let mut listing = Some(cache.begin_listing(&handle(DIR)));
        if early {
            cache.fill(0, ticket, &Filled::Absent);
            cache.finish_listing(0, listing.take().expect("one"), true);
            cache.learn(0, stamp, &[name("a")], &[is("a", 5)]);
        } else {
            cache.learn(0, stamp, &[name("a")], &[is("a", 5)]);
            cache.fill(0, ticket, &Filled::Absent);
            cache.finish_listing(0, listing.take().expect("one"), true);
        }
        assert!(is_hit(&cache, "a", 5), "early {early}");
    }
}

/// A fill asked after the answer is newer than what was learnt.
#[test]
fn a_fill_asked_after_the_answer_counts() {
    let cache = cache(1 << 24);
    cache.learn(0, cache.begin_mutation(), &[name("a")], &[is("a", 5)]);
    cache.forget(&[name("a")]);
    let ticket = ask(&cache, "a");
    cache.fill(0, ticket, &Filled::Entry(entry(6)));
    assert!(is_hit(&cache, "a", 6));
}

/// What others changed between the sending and the answer wins, whichever was applied last.
#[test]
fn what_others_changed_meanwhile_is_not_learnt() {
    let told = [
        name("a"),
        Change::Names { dir: handle(DIR) },
        Change::Attr { handle: handle(5) },
        Change::All,
    ];
    for told in told {
        let cache = cache(1 << 24);
        fill_listing(&cache, 0, &handle(DIR), &names(0..3));
        let stamp = cache.begin_mutation();
        cache.forget(std::slice::from_ref(&told));
        let changes = [name("a"), Change::Attr { handle: handle(5) }];
        cache.learn(0, stamp, &changes, &[is("a", 5)]);
        let _ = ask(&cache, "a");
    }
    let cache = cache(1 << 24);
    fill_listing(&cache, 0, &handle(DIR), &names(0..3));
    let stamp = cache.begin_mutation();
    cache.forget(&[name("b")]);
    cache.learn(0, stamp, &[name("a")], &[is("a", 5)]);
    assert!(is_hit(&cache, "a", 5), "another name");
    let _ = ask(&cache, "b");
}

/// Of two mutations under way at once nobody knows here which was applied last.
#[test]
fn of_two_mutations_of_one_name_neither_is_believed() {
    let cache = cache(1 << 24);
    fill_listing(&cache, 0, &handle(DIR), &names(0..3));
    let [make, remove, other] = [0; 3].map(|_| cache.begin_mutation());
    cache.learn(0, remove, &[name("a")], &[is_absent("a")]);
    assert!(is_negative(&cache, "a"), "the other is not acknowledged yet");
    cache.learn(0, make, &[name("a")], &[is("a", 5)]);
    let _ = ask(&cache, "a");
    cache.learn(0, other, &[name("b")], &[is("b", 6)]);
    assert!(is_hit(&cache, "b", 6), "another name is learnt all the same");
}

#[test]
fn attributes_that_two_mutations_changed_at_once_are_asked_for() {
    let cache = cache(1 << 24);
    let changes = [Change::Attr { handle: handle(5) }];
    let learnt = |version| [Learnt::Attr { handle: handle(5), attr: attr(version) }];
    let [first, second] = [0; 2].map(|_| cache.begin_mutation());
    cache.learn(0, second, &changes, &learnt(2));
    assert!(matches!(cache.getattr(0, &handle(5), || 0), Answer::Hit(found) if found == attr(2)));
    cache.learn(0, first, &changes, &learnt(1));
    let _ = lead(cache.getattr(0, &handle(5), || 0));
}

/// A new name of a file with several: its other places are told by its attributes.
#[test]
fn a_link_is_learnt_while_the_attributes_elsewhere_leave() {
    let cache = cache(1 << 24);
    fill_listing(&cache, 0, &handle(DIR), &[("a".into(), 5)]);
    let changes = [name("b"), Change::Attr { handle: handle(5) }];
    cache.learn(0, cache.begin_mutation(), &changes, &[is("b", 5)]);
    assert!(is_hit(&cache, "b", 5));
    let _ = ask(&cache, "a");
}

/// More learnt names than one directory can have, and a cache that is too small for them: what
/// leaves is asked for, and never taken for absent.
#[test]
fn a_learnt_name_that_leaves_is_not_taken_for_absent() {
    let cache = cache(1 << 20);
    cache.learn(0, cache.begin_mutation(), &[], &[Learnt::EmptyDir { dir: handle(DIR) }]);
    for file in 0..70_000_u64 {
        let new = format!("f{file}");
        cache.learn(0, cache.begin_mutation(), &[name(&new)], &[is(&new, file)]);
        for earlier in [file, file / 2, 0] {
            assert!(!is_negative(&cache, &format!("f{earlier}")), "{file} {earlier}");
        }
    }
    assert!(cache.counters().used_bytes <= 1 << 20);
}

#[test]
fn a_learnt_name_that_is_evicted_alone_is_asked_for() {
    let cache = cache(1 << 20);
    let dir = handle(DIR);
    cache.learn(0, cache.begin_mutation(), &[], &[Learnt::EmptyDir { dir }]);
    cache.learn(0, cache.begin_mutation(), &[name("a")], &[is("a", 5)]);
    {
        let mut shard = cache.shard(&dir).write();
        let number = shard.dir_number(&cache.common, &dir).expect("it is cached");
        let slots = &shard.dir(number).expect("it is cached").slots;
        let (slot, _) = slots.iter().find(|(_, slot)| slot.is_single()).expect("one entry");
        shard.evict(&cache.common, Site { dir: number, slot, part: Part::Body });
    }
    let _ = ask(&cache, "a");
}
