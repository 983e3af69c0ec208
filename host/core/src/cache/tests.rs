//! The cache against a model of what it may answer, its accounts, and its contract with eviction.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::*;
use crate::chunk::ChunkBuilder;
use crate::eviction::{Event, EvictionHost, ObjectId};
use crate::testing::{attr, entry, entry_ref, handle};
use crate::watch::Change;

pub(super) fn cache(capacity_bytes: u64) -> DentryCache<u32> {
    DentryCache::new(CacheConfig { capacity_bytes, max_age_ms: 1_000, seed: 7 })
}

/// Lists `dir` into the cache with these names, each for a file of its own number.
pub(super) fn fill_listing(
    cache: &DentryCache<u32>,
    now_ms: u64,
    dir: &Handle,
    names: &[(String, u64)],
) {
    let mut ticket = cache.begin_listing(dir);
    let mut builder = ChunkBuilder::default();
    for (name, number) in names {
        let entry = entry_ref(name.as_bytes(), *number);
        if !builder.push(&entry) {
            let chunk = builder.finish(0).expect("a full chunk");
            cache.fill_chunk(now_ms, &mut ticket, &chunk);
            assert!(builder.push(&entry));
        }
    }
    if let Some(chunk) = builder.finish(0) {
        cache.fill_chunk(now_ms, &mut ticket, &chunk);
    }
    cache.finish_listing(now_ms, ticket, true);
}

pub(super) fn names(range: std::ops::Range<u64>) -> Vec<(String, u64)> {
    range.map(|number| (format!("name-{number}"), number)).collect()
}

pub(super) fn lead<T: std::fmt::Debug>(answer: Answer<T>) -> Ticket {
    match answer {
        Answer::Lead(ticket) => ticket,
        other => panic!("a miss that leads was expected, not {other:?}"),
    }
}

pub(super) fn listed(cache: &DentryCache<u32>, now_ms: u64, dir: &Handle) -> Option<Vec<String>> {
    let chunks = cache.list(now_ms, dir, &[])?;
    let names = chunks.iter().flat_map(|listed| {
        listed.chunk.entries().map(|entry| String::from_utf8_lossy(entry.name).into_owned())
    });
    Some(names.collect())
}

#[test]
fn a_name_that_came_twice_in_a_listing_does_not_outlive_its_invalidation() {
    let cache = cache(1 << 20);
    let dir = handle(1);
    let doubled = [("x".to_owned(), 5), ("y".to_owned(), 6), ("x".to_owned(), 7)];
    fill_listing(&cache, 0, &dir, &doubled);
    match cache.lookup(0, &dir, b"x", || 1) {
        Answer::Hit(found) => assert_eq!(found.handle, handle(7), "the later one"),
        other => panic!("{other:?}"),
    }
    cache.invalidate_name(&dir, b"x");
    drop(lead(cache.lookup(0, &dir, b"x", || 1)));
    assert_eq!(listed(&cache, 0, &dir), None);
}

#[test]
fn one_asks_and_all_who_wait_are_answered() {
    let cache = cache(1 << 20);
    let dir = handle(1);
    let ticket = lead(cache.lookup(0, &dir, b"a", || 10));
    for waiter in 11..14 {
        assert!(matches!(cache.lookup(0, &dir, b"a", || waiter), Answer::Joined));
    }
    let other = lead(cache.lookup(0, &dir, b"b", || 20));
    assert_eq!(cache.fill(0, ticket, &Filled::Entry(entry(5))), [10, 11, 12, 13]);
    assert_eq!(cache.fill(0, other, &Filled::Absent), [20]);
    assert!(matches!(cache.lookup(0, &dir, b"a", || 0), Answer::Hit(found) if found == entry(5)));
    assert!(matches!(cache.lookup(0, &dir, b"b", || 0), Answer::Negative));
    assert!(matches!(cache.getattr(0, &handle(5), || 0), Answer::Hit(found) if found == attr(5)));
    assert_eq!(cache.counters().fills_joined, 3);
}

#[test]
fn who_asks_after_an_invalidation_does_not_share_an_older_question() {
    let cache = cache(1 << 20);
    let dir = handle(1);
    let before = lead(cache.lookup(0, &dir, b"a", || 1));
    let listing = cache.begin_listing(&dir);
    // Only the file changed; that this name is its name, nobody knows yet.
    cache.invalidate(&handle(5));
    assert!(!cache.may_join(listing.stamp()));
    let after = lead(cache.lookup(0, &dir, b"a", || 2));
    assert_eq!(cache.fill(0, before, &Filled::Entry(entry(5))), [1]);
    assert!(matches!(cache.lookup(0, &dir, b"a", || 3), Answer::Joined), "the old one stays out");
    assert_eq!(cache.fill(0, after, &Filled::Entry(entry(5))), [2, 3]);
    assert!(matches!(cache.lookup(0, &dir, b"a", || 4), Answer::Hit(_)));
    cache.abandon_listing(listing);
}

#[test]
fn a_failed_fill_answers_its_waiters_and_leaves_nothing() {
    let cache = cache(1 << 20);
    let ticket = lead(cache.lookup(0, &handle(1), b"a", || 1));
    assert_eq!(cache.fill(0, ticket, &Filled::Failed), [1]);
    let again = lead(cache.lookup(0, &handle(1), b"a", || 2));
    cache.fill(0, again, &Filled::Failed);
    assert_eq!(cache.counters().used_bytes, 0);
}

#[test]
fn a_complete_listing_answers_names_absence_and_itself() {
    let cache = cache(1 << 20);
    let dir = handle(1);
    fill_listing(&cache, 0, &dir, &names(0..500));
    let expected: Vec<String> = names(0..500).into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed(&cache, 0, &dir), Some(expected));
    assert!(matches!(cache.lookup(0, &dir, b"name-499", || 0), Answer::Hit(_)));
    assert!(matches!(cache.lookup(0, &dir, b"name-500", || 0), Answer::Negative));
    assert!(matches!(cache.getattr(0, &handle(321), || 0), Answer::Hit(_)));
    fill_listing(&cache, 0, &handle(2), &[]);
    assert_eq!(listed(&cache, 0, &handle(2)), Some(Vec::new()), "an empty directory is known");
    assert!(matches!(cache.lookup(0, &handle(2), b"x", || 0), Answer::Negative));
}

#[test]
fn an_incomplete_listing_proves_nothing_absent() {
    let cache = cache(1 << 20);
    let dir = handle(1);
    let mut ticket = cache.begin_listing(&dir);
    let mut builder = ChunkBuilder::default();
    assert!(builder.push(&entry_ref(b"a", 1)));
    cache.fill_chunk(0, &mut ticket, &builder.finish(0).expect("one entry"));
    assert!(matches!(cache.lookup(0, &dir, b"a", || 0), Answer::Hit(_)), "as it passes through");
    let absent = lead(cache.lookup(0, &dir, b"b", || 0));
    cache.finish_listing(0, ticket, false);
    assert_eq!(listed(&cache, 0, &dir), None);
    cache.fill(0, absent, &Filled::Failed);
    let _ = lead(cache.lookup(0, &dir, b"b", || 0));
}

/// Ways in which a single entry can stand beside a listing under way: a name newer than the
/// listing, and one whose attributes changed while it was listed. Neither may become "absent" when
/// that entry leaves, before the listing ends or after.
#[test]
fn a_name_known_better_than_from_the_listing_is_never_taken_for_absent() {
    for (name, early) in [("name-1", false), ("newer", false), ("name-1", true)] {
        let cache = cache(1 << 20);
        let dir = handle(100);
        let mut ticket = cache.begin_listing(&dir);
        let mut builder = ChunkBuilder::default();
        assert!(builder.push(&entry_ref(b"name-1", 1)));
        cache.fill_chunk(0, &mut ticket, &builder.finish(0).expect("one entry"));
        cache.invalidate(&handle(1));
        let lookup = lead(cache.lookup(0, &dir, name.as_bytes(), || 0));
        cache.fill(0, lookup, &Filled::Entry(entry(1)));
        if early {
            cache.invalidate(&handle(1));
        }
        cache.finish_listing(0, ticket, true);
        cache.invalidate(&handle(1));
        let _ = lead(cache.lookup(0, &dir, name.as_bytes(), || 0));
    }
}

#[test]
fn what_is_too_old_is_asked_again() {
    let cache = cache(1 << 20);
    let dir = handle(1);
    fill_listing(&cache, 0, &dir, &names(0..3));
    assert!(listed(&cache, 1_000, &dir).is_some());
    assert_eq!(listed(&cache, 1_001, &dir), None);
    let absent = lead(cache.lookup(1_001, &dir, b"none", || 0));
    cache.fill(1_001, absent, &Filled::Absent);
    let ticket = lead(cache.lookup(1_001, &dir, b"name-1", || 0));
    cache.fill(1_001, ticket, &Filled::Entry(entry(77)));
    assert!(
        matches!(cache.lookup(1_001, &dir, b"name-1", || 0), Answer::Hit(found) if found == entry(77)),
        "the newer fill counts, not the old listing"
    );
    fill_listing(&cache, 1_002, &dir, &names(0..3));
    assert_eq!(listed(&cache, 1_002, &dir).map(|names| names.len()), Some(3));
}

#[test]
fn invalidations_reach_every_place_and_only_them() {
    let cache = cache(1 << 20);
    // File 5 has three links: two listed, one asked for.
    fill_listing(&cache, 0, &handle(100), &[("a".into(), 5), ("b".into(), 6)]);
    fill_listing(&cache, 0, &handle(200), &[("c".into(), 5)]);
    let ticket = lead(cache.lookup(0, &handle(300), b"d", || 0));
    cache.fill(0, ticket, &Filled::Entry(entry(5)));
    cache.invalidate(&handle(5));
    for (dir, name) in [(100, "a"), (200, "c"), (300, "d")] {
        let ticket = lead(cache.lookup(0, &handle(dir), name.as_bytes(), || 0));
        cache.fill(0, ticket, &Filled::Failed);
    }
    assert!(matches!(cache.lookup(0, &handle(100), b"b", || 0), Answer::Hit(_)));
    assert!(
        matches!(cache.lookup(0, &handle(100), b"none", || 0), Answer::Negative),
        "attributes that changed do not make names doubtful"
    );
    let chunks = cache.list(0, &handle(100), &[]).expect("its names are known");
    assert_eq!(chunks.iter().map(|listed| listed.missing).collect::<Vec<_>>(), [1]);
    assert_eq!(chunks[0].chunk.entry(0).attr, None, "never those that are no longer true");
    cache.invalidate_name(&handle(100), b"b");
    let ticket = lead(cache.lookup(0, &handle(100), b"none", || 0));
    cache.fill(0, ticket, &Filled::Failed);
    cache.invalidate(&handle(200));
    let _ = lead(cache.lookup(0, &handle(200), b"c", || 0));
}

#[test]
fn a_listing_larger_than_the_cache_passes_through_and_displaces_nothing() {
    let cache = cache(CACHE_BYTES_MIN);
    fill_listing(&cache, 0, &handle(1), &names(0..100));
    fill_listing(&cache, 0, &handle(2), &names(1_000..60_000));
    assert_eq!(listed(&cache, 0, &handle(2)), None);
    assert!(cache.counters().used_bytes <= CACHE_BYTES_MIN);
    assert!(cache.common.nodes.candidates(cache.common.hash(handle(59_000).as_bytes())).is_empty());
}

/// Random operations; the model knows every name's file. Small capacity, so that eviction is at
/// work all the time.
#[test]
fn random_operations_never_contradict_the_model() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cache = cache(CACHE_BYTES_MIN);
        let mut model: HashMap<u64, BTreeMap<String, u64>> = HashMap::new();
        for step in 0..3_000_u64 {
            let dir_number = 1_000_000 + random.u64(0..60);
            let dir = handle(dir_number);
            let files = model.entry(dir_number).or_default();
            let name = format!("name-{}", random.u64(0..300));
            match random.u8(0..10) {
                0 | 1 => {
                    if files.is_empty() {
                        let number = |name: u64| (format!("name-{name}"), step * 1_000 + name);
                        files.extend((0..200).map(number));
                        cache.invalidate(&dir);
                    }
                    let names: Vec<_> = files.iter().map(|(n, &f)| (n.clone(), f)).collect();
                    fill_listing(&cache, step / 10, &dir, &names);
                }
                2 => {
                    if random.bool() {
                        files.insert(name.clone(), step);
                    } else {
                        files.remove(&name);
                    }
                    let changes = [Change::Name { dir, name: name.clone().into_bytes() }];
                    if random.bool() {
                        cache.forget(&changes);
                    } else {
                        let stamp = cache.begin_mutation();
                        let learnt = learnt(&dir, &name, files.get(&name).copied());
                        cache.learn(step / 10, stamp, &changes, &[learnt]);
                    }
                }
                3 => {
                    let mut listed = listed(&cache, step / 10, &dir);
                    listed.iter_mut().for_each(|names| names.sort());
                    let all: Vec<_> = files.keys().cloned().collect();
                    assert!(listed.is_none_or(|names| names == all), "seed {seed} step {step}");
                }
                _ => match cache.lookup(step / 10, &dir, name.as_bytes(), || 0) {
                    Answer::Hit(found) => assert_eq!(
                        Some(&found),
                        files.get(&name).map(|&file| entry(file)).as_ref(),
                        "seed {seed} step {step}"
                    ),
                    Answer::Negative => {
                        assert!(!files.contains_key(&name), "seed {seed} step {step}");
                    }
                    Answer::Lead(ticket) => {
                        let filled = files
                            .get(&name)
                            .map_or(Filled::Absent, |&file| Filled::Entry(entry(file)));
                        cache.fill(step / 10, ticket, &filled);
                    }
                    Answer::Joined | Answer::Busy => panic!("nobody else asks"),
                },
            }
            assert!(cache.counters().used_bytes <= CACHE_BYTES_MIN, "seed {seed} step {step}");
        }
        assert!(cache.counters().evicted_shortfall > 0, "seed {seed}: nothing was ever evicted");
        cache.invalidate_all();
        let CacheCounters { used_bytes, entries, directories, objects, .. } = cache.counters();
        assert_eq!((used_bytes, entries, directories, objects), (0, 0, 0, 0), "seed {seed}");
    }
}

fn learnt(dir: &Handle, name: &str, file: Option<u64>) -> Learnt {
    let (dir, name) = (*dir, name.as_bytes().to_vec());
    match file {
        Some(file) => Learnt::Entry { dir, name, entry: entry(file) },
        None => Learnt::Absent { dir, name },
    }
}

/// A question or a mutation that the brick has answered and whose answer is on its way.
enum UnderWay {
    Lookup(Ticket, Filled),
    Listing(ListingTicket, Vec<(String, u64)>),
    Mutation { stamp: MutationStamp, changes: Vec<Change>, learnt: Learnt, state: usize },
    Told { changes: Vec<Change>, state: usize },
}

/// Questions, mutations of this tier and changes of others in any order, answered late and out of
/// order. The model is every state that a name ever had; what counts is that no answer is older than
/// the last change of that name that was acknowledged: a mutation answered, a change told.
/// S-STALE-2.
#[test]
fn answers_that_come_late_and_in_any_order_bring_nothing_back() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let cache = cache(if seed % 2 == 0 { 1 << 26 } else { CACHE_BYTES_MIN });
        let dir = handle(1_000_000);
        let mut history: BTreeMap<String, Vec<Option<u64>>> =
            (0..12).map(|name| (format!("name-{name}"), vec![None])).collect();
        let mut floor: HashMap<String, usize> = HashMap::new();
        let mut under_way: Vec<UnderWay> = Vec::new();
        let (mut hits, mut proven) = (0, 0);
        cache.learn(0, cache.begin_mutation(), &[], &[Learnt::EmptyDir { dir }]);
        for step in 0..4_000_u64 {
            let name = format!("name-{}", random.u64(0..12));
            let least = floor.get(&name).copied().unwrap_or(0);
            match random.u8(0..12) {
                // Applied at the brick; the answer, or the telling, is on its way.
                kind @ 0..=2 => {
                    let stamp = cache.begin_mutation();
                    let states = history.get_mut(&name).expect("a name");
                    let file = random.bool().then_some(step);
                    states.push(file);
                    let state = states.len() - 1;
                    let changes = vec![Change::Name { dir, name: name.clone().into_bytes() }];
                    under_way.push(if kind == 0 {
                        UnderWay::Told { changes, state }
                    } else {
                        let learnt = learnt(&dir, &name, file);
                        UnderWay::Mutation { stamp, changes, learnt, state }
                    });
                }
                3 if under_way.len() < 8 => {
                    let now = |(name, states): (&String, &Vec<Option<u64>>)| {
                        states.last().copied().flatten().map(|file| (name.clone(), file))
                    };
                    let names = history.iter().filter_map(now).collect();
                    under_way.push(UnderWay::Listing(cache.begin_listing(&dir), names));
                }
                4..=7 if !under_way.is_empty() => {
                    let at = random.usize(0..under_way.len());
                    let acknowledged = arrive(&cache, under_way.swap_remove(at));
                    if let Some((changes, state)) = acknowledged
                        && let [Change::Name { name, .. }] = &changes[..]
                    {
                        let name = String::from_utf8_lossy(name).into_owned();
                        let least = floor.entry(name).or_default();
                        *least = state.max(*least);
                    }
                }
                _ => {
                    let states = &history[&name];
                    let allowed = |told: Option<u64>| states[least..].contains(&told);
                    match cache.lookup(0, &dir, name.as_bytes(), || 0) {
                        Answer::Hit(found) => {
                            hits += 1;
                            assert!(
                                allowed(Some(found.attr.expect("attributes").ino)),
                                "{seed} {step}"
                            );
                        }
                        Answer::Negative => {
                            proven += 1;
                            assert!(allowed(None), "seed {seed} step {step}: {name} is not absent");
                        }
                        Answer::Lead(ticket) => {
                            let now = states.last().copied().flatten();
                            let filled =
                                now.map_or(Filled::Absent, |file| Filled::Entry(entry(file)));
                            under_way.push(UnderWay::Lookup(ticket, filled));
                        }
                        Answer::Joined | Answer::Busy => {}
                    }
                }
            }
        }
        assert!(hits > 50 && proven > 50, "seed {seed}: the cache hardly answers: {hits} {proven}");
    }
}

/// What was under way arrives; answers the changes that are acknowledged with it.
fn arrive(cache: &DentryCache<u32>, under_way: UnderWay) -> Option<(Vec<Change>, usize)> {
    match under_way {
        UnderWay::Lookup(ticket, filled) => {
            cache.fill(0, ticket, &filled);
            None
        }
        UnderWay::Listing(ticket, names) => {
            fill_asked(cache, ticket, &names);
            None
        }
        UnderWay::Told { changes, state } => {
            cache.forget(&changes);
            Some((changes, state))
        }
        UnderWay::Mutation { stamp, changes, learnt, state } => {
            cache.learn(0, stamp, &changes, &[learnt]);
            Some((changes, state))
        }
    }
}

/// Ends a listing that was asked for earlier and brings these names.
fn fill_asked(cache: &DentryCache<u32>, mut ticket: ListingTicket, names: &[(String, u64)]) {
    let mut builder = ChunkBuilder::default();
    for (name, number) in names {
        assert!(builder.push(&entry_ref(name.as_bytes(), *number)));
    }
    if let Some(chunk) = builder.finish(0) {
        cache.fill_chunk(0, &mut ticket, &chunk);
    }
    cache.finish_listing(0, ticket, true);
}

/// Follows the events as a policy would and checks that they make sense.
#[derive(Default)]
struct Follower {
    resident: HashSet<ObjectId>,
    departed: HashSet<ObjectId>,
}

impl Follower {
    fn follow(&mut self, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, weight_bytes, .. } => {
                    assert!(weight_bytes > 0);
                    assert!(!self.departed.contains(&id), "{id:?} came back");
                    assert!(self.resident.insert(id), "{id:?} inserted twice");
                }
                Event::Hit { id, count } => {
                    assert!(count > 0 && self.resident.contains(&id), "{id:?} hit while away");
                }
                Event::Remove { id, .. } => {
                    assert!(self.resident.remove(&id), "{id:?} removed while away");
                    self.departed.insert(id);
                }
                Event::Spare { id } => assert!(self.resident.contains(&id), "{id:?} spared"),
            }
        }
    }
}

#[test]
fn policies_are_told_every_coming_and_going_and_their_victims_leave() {
    let cache = cache(CACHE_BYTES_MIN);
    let mut follower = Follower::default();
    let mut events = Vec::new();
    fill_listing(&cache, 0, &handle(1), &names(0..200));
    cache.restart(&mut events);
    follower.follow(&events);
    assert_eq!(follower.resident.len() as u64, cache.counters().objects);
    let mut random = fastrand::Rng::with_seed(3);
    let mut newcomer: Option<Follower> = None;
    for round in 0..200 {
        for _ in 0..20 {
            let dir = random.u64(2..400);
            if cache.list(0, &handle(dir), &[]).is_none() {
                fill_listing(&cache, 0, &handle(dir), &names(dir * 1_000..dir * 1_000 + 100));
            }
        }
        events.clear();
        while cache.drain(64, &mut events) {}
        follower.follow(&events);
        assert_eq!(follower.resident.len() as u64, cache.counters().objects, "round {round}");
        // One that comes later knows the same, and loses nothing of what the first one is told.
        newcomer.iter_mut().for_each(|newcomer| newcomer.follow(&events));
        if round % 50 == 10 {
            fill_listing(&cache, 0, &handle(round + 1_000), &names(0..100));
            let (mut pending, mut residents) = (Vec::new(), Vec::new());
            cache.residents(&mut pending, &mut residents);
            follower.follow(&pending);
            newcomer.insert(Follower::default()).follow(&residents);
        }
        if let Some(newcomer) = &newcomer {
            assert_eq!(newcomer.resident, follower.resident, "round {round}");
        }
        let mut victims: Vec<_> = follower.resident.iter().copied().collect();
        victims.sort();
        victims.truncate(cache.shortage());
        let offered = cache.offer(&victims);
        assert_eq!(offered.accepted, victims.len() as u64, "round {round}");
        assert_eq!(cache.offer(&victims).repeated, victims.len() as u64);
    }
    let counters = cache.counters();
    assert!(counters.evicted_proposed > 100, "proposals are not taken: {counters:?}");
    let gone = *follower.departed.iter().next().expect("something left");
    assert_eq!(cache.offer(&[gone]).stale, 1);
    assert_eq!(cache.offer(&[ObjectId::new(u32::MAX, 1), ObjectId::new(0, u32::MAX)]).foreign, 2);
}

#[test]
fn a_victim_touched_since_it_was_proposed_is_spared_and_the_policy_told() {
    let cache = cache(CACHE_BYTES_MIN);
    let mut events = Vec::new();
    cache.restart(&mut events);
    let mut dir = 0;
    while cache.shortage() == 0 {
        dir += 1;
        fill_listing(&cache, 0, &handle(dir), &names(dir * 1_000..dir * 1_000 + 50));
    }
    while cache.drain(64, &mut events) {}
    let first = events.iter().find_map(|event| match event {
        Event::Insert { id, .. } => Some(*id),
        _ => None,
    });
    let victim = first.expect("something was inserted");
    assert_eq!(cache.offer(&[victim]).accepted, 1);
    for dir in 1..=dir {
        assert!(cache.list(0, &handle(dir), &[]).is_some(), "touches every object");
    }
    events.clear();
    let before = cache.counters().evicted_proposed;
    for dir in 10_000..10_040 {
        fill_listing(&cache, 0, &handle(dir), &names(dir * 1_000..dir * 1_000 + 50));
    }
    while cache.drain(64, &mut events) {}
    assert!(events.contains(&Event::Spare { id: victim }), "the policy was not told");
    assert_eq!(cache.counters().evicted_proposed, before);
}

#[test]
fn objects_that_come_and_go_between_batches_cost_nothing() {
    let cache = cache(CACHE_BYTES_MIN);
    let mut events = Vec::new();
    cache.restart(&mut events);
    for round in 0..20_000_u64 {
        fill_listing(&cache, 0, &handle(1), &names(round..round + 1));
    }
    while cache.drain(64, &mut events) {}
    assert!(events.len() < 200, "{} events for one resident object", events.len());
    let mut follower = Follower::default();
    follower.follow(&events);
    assert_eq!(follower.resident.len(), 1);
}

#[test]
fn many_threads_agree_with_the_truth() {
    let cache = cache(CACHE_BYTES_MIN);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for _ in 0..5_000 {
                    let dir = random.u64(1..300);
                    let file = dir * 1_000 + random.u64(0..40);
                    let name = format!("name-{file}");
                    match random.u8(0..20) {
                        0 => cache.invalidate(&handle(file)),
                        1 => cache.invalidate(&handle(dir)),
                        2 => fill_listing(
                            cache,
                            0,
                            &handle(dir),
                            &names(dir * 1_000..dir * 1_000 + 40),
                        ),
                        3 if random.u8(..) == 0 => cache.invalidate_all(),
                        4 => drop(cache.getattr(0, &handle(file), || 0)),
                        _ => match cache.lookup(0, &handle(dir), name.as_bytes(), || 0) {
                            Answer::Hit(found) => assert_eq!(found, entry(file)),
                            Answer::Lead(ticket) => {
                                cache.fill(0, ticket, &Filled::Entry(entry(file)));
                            }
                            Answer::Negative => panic!("{name} exists"),
                            Answer::Joined | Answer::Busy => {}
                        },
                    }
                }
            });
        }
    });
    cache.invalidate_all();
    let CacheCounters { used_bytes, entries, directories, objects, .. } = cache.counters();
    assert_eq!((used_bytes, entries, directories, objects), (0, 0, 0, 0));
}
