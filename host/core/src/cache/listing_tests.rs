//! Listings from memory against a directory that changes while they are read, and whose attributes
//! and pieces leave in any order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ledger::{Part, Site};
use super::tests::{cache, lead};
use super::*;
use crate::chunk::ChunkBuilder;
use crate::eviction::{Event, EvictionHost};
use crate::limits::{LEARNT_NAMES_MAX, RUN_SPLIT_ENTRIES_MIN};
use crate::position::{Delivered, advance, of_bricks};
use crate::testing::{attr, entry_ref, handle};
use crate::watch::Change;

const DIR: u64 = 1_000_000;
const NAMES: u64 = 70;

/// A directory as a brick has it, in the order of cookies that follow from the names.
struct Directory {
    /// Name and file by cookie.
    entries: BTreeMap<u64, (String, u64)>,
    /// What tells the present attributes of a file apart from earlier ones.
    versions: HashMap<u64, u64>,
    next_file: u64,
}

fn name_of(number: u64) -> String {
    format!("name-{number}")
}

fn cookie_of(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

impl Directory {
    fn put(&mut self, number: u64) -> u64 {
        self.next_file += 1;
        self.versions.insert(self.next_file, 0);
        self.entries.insert(cookie_of(number), (name_of(number), self.next_file));
        self.next_file
    }

    fn attr(&self, file: u64) -> Attr {
        Attr { size_bytes: self.versions[&file], ..attr(file) }
    }

    fn entry(&self, file: u64) -> Entry {
        Entry { attr: Some(self.attr(file)), ..crate::testing::entry(file) }
    }

    fn file_of(&self, number: u64) -> Option<u64> {
        self.entries.get(&cookie_of(number)).map(|(_, file)| *file)
    }

    fn names(&self) -> BTreeSet<String> {
        self.entries.values().map(|(name, _)| name.clone()).collect()
    }

    /// The entries after a cookie, in chunks of `size`.
    fn chunks(&self, after: u64, size: usize) -> Vec<Chunk> {
        let rest: Vec<_> = self.entries.iter().filter(|(cookie, _)| **cookie > after).collect();
        let packed = rest.chunks(size).map(|entries| {
            let mut builder = ChunkBuilder::default();
            for &(&cookie, (name, file)) in entries {
                let attr = Some(self.attr(*file));
                let entry = entry_ref(name.as_bytes(), *file);
                assert!(builder.push(&crate::entry::EntryRef { attr, cookie, ..entry }));
            }
            builder.finish(0).expect("entries")
        });
        packed.collect()
    }

    /// What is told from memory is what is true now; of a whole listing nothing is missing.
    fn check(&self, chunks: &[ListedChunk], context: &str) {
        for ListedChunk { chunk, missing } in chunks {
            for (at, entry) in chunk.entries().enumerate() {
                let name = String::from_utf8_lossy(entry.name);
                let mut known = self.entries.values().filter(|(known, _)| *known == name);
                let (_, file) = known.next().unwrap_or_else(|| panic!("{context}: {name}"));
                assert_eq!(entry.handle, handle(*file), "{context}: {name}");
                let expected = (missing >> at & 1 == 0).then(|| self.attr(*file));
                assert_eq!(entry.attr, expected, "{context}: {name}");
            }
            assert_eq!(missing.checked_shr(chunk.count() as u32).unwrap_or(0), 0, "{context}");
        }
    }
}

/// Somebody who lists, from wherever there is something to be had.
struct Reader {
    position: Vec<u64>,
    got: Vec<String>,
    /// Names that exist since it began.
    throughout: BTreeSet<String>,
}

impl Reader {
    fn take(&mut self, chunk: &Chunk) {
        self.got.extend(chunk.entries().map(|e| String::from_utf8_lossy(e.name).into_owned()));
        advance(&mut self.position, chunk, chunk.count() - 1);
    }

    fn check(&self, context: &str) {
        for name in &self.throughout {
            let times = self.got.iter().filter(|got| *got == name).count();
            assert_eq!(times, 1, "{context}: {name} of {:?}", self.got);
        }
    }
}

fn site(cache: &DentryCache<u32>, part: Part, nth: usize) -> Option<Site> {
    let dir = handle(DIR);
    let shard = cache.shard(&dir).read();
    let number = shard.dir_number(&cache.common, &dir)?;
    let runs = shard.dir(number)?.slots.iter().filter(|(_, slot)| match part {
        Part::Attrs => slot.attrs_object() != slot.object,
        Part::Body => true,
    });
    let slots: Vec<u32> = runs.map(|(slot, _)| slot).collect();
    let slot = *slots.get(nth % slots.len().max(1))?;
    Some(Site { dir: number, slot, part })
}

fn evict(cache: &DentryCache<u32>, site: Site) {
    cache.shard(&handle(DIR)).write().evict(&cache.common, site);
}

fn fill(cache: &DentryCache<u32>, directory: &Directory, size: usize) {
    let mut ticket = cache.begin_listing(&handle(DIR));
    for chunk in directory.chunks(0, size) {
        cache.fill_chunk(0, &mut ticket, &chunk);
    }
    cache.finish_listing(0, ticket, true);
}

/// One cache, one directory and those who list it, as a seed has it.
struct Play {
    random: fastrand::Rng,
    cache: DentryCache<u32>,
    directory: Directory,
    readers: Vec<Reader>,
    /// Readings from memory, those of them that went on there, and those that went on elsewhere
    /// after names that were learnt.
    tally: [u32; 3],
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut directory =
            Directory { entries: BTreeMap::new(), versions: HashMap::new(), next_file: 0 };
        for number in 0..NAMES / 2 {
            directory.put(number);
        }
        let (random, cache) = (fastrand::Rng::with_seed(seed), cache(1 << 22));
        Self { random, cache, directory, readers: Vec::new(), tally: [0; 3] }
    }

    fn step(&mut self, context: &str) {
        let number = self.random.u64(0..NAMES);
        match self.random.u8(0..20) {
            0..=2 => self.put(number),
            3..=4 => self.remove(number),
            5..=7 => self.change_attr(number),
            8 | 9 => self.evict(),
            10 | 11 => fill(&self.cache, &self.directory, self.random.usize(1..40)),
            12 => self.lookup(number, context),
            13 => self.getattr(number, context),
            14 if self.readers.len() < 4 => {
                let (position, got) = (Vec::new(), Vec::new());
                let throughout = self.directory.names();
                self.readers.push(Reader { position, got, throughout });
            }
            _ if !self.readers.is_empty() => self.read(context),
            _ => {}
        }
        self.check_whole(context);
    }

    /// A change of a name, by others where `learnt` is to be forgotten.
    fn change_name(&mut self, name: Vec<u8>, learnt: Learnt) {
        let of_name = Change::Name { dir: handle(DIR), name };
        if self.random.u8(0..12) == 0 {
            self.cache.forget(&[of_name]);
        } else {
            self.cache.learn(0, self.cache.begin_mutation(), &[of_name], &[learnt]);
        }
    }

    /// Made, or put in place of another file.
    fn put(&mut self, number: u64) {
        let file = self.directory.put(number);
        let (name, entry) = (name_of(number).into_bytes(), self.directory.entry(file));
        let learnt = Learnt::Entry { dir: handle(DIR), name: name.clone(), entry };
        self.change_name(name, learnt);
    }

    fn remove(&mut self, number: u64) {
        if self.directory.entries.remove(&cookie_of(number)).is_none() {
            return;
        }
        for reader in &mut self.readers {
            reader.throughout.remove(&name_of(number));
        }
        let name = name_of(number).into_bytes();
        self.change_name(name.clone(), Learnt::Absent { dir: handle(DIR), name });
    }

    fn change_attr(&mut self, number: u64) {
        let Some(file) = self.directory.file_of(number) else { return };
        *self.directory.versions.get_mut(&file).expect("a file") += 1;
        let changes = [Change::Attr { handle: handle(file) }];
        if self.random.u8(0..3) == 0 {
            let learnt = [Learnt::Attr { handle: handle(file), attr: self.directory.attr(file) }];
            self.cache.learn(0, self.cache.begin_mutation(), &changes, &learnt);
        } else {
            self.cache.forget(&changes);
        }
    }

    fn evict(&mut self) {
        let part = if self.random.u8(0..6) == 0 { Part::Body } else { Part::Attrs };
        if let Some(site) = site(&self.cache, part, self.random.usize(0..100)) {
            evict(&self.cache, site);
        }
    }

    fn lookup(&mut self, number: u64, context: &str) {
        let present = self.directory.file_of(number).map(|file| self.directory.entry(file));
        match self.cache.lookup(0, &handle(DIR), name_of(number).as_bytes(), || 0) {
            Answer::Hit(found) => assert_eq!(Some(found), present, "{context}"),
            Answer::Negative => assert_eq!(present, None, "{context}"),
            Answer::Lead(ticket) => {
                self.cache.fill(0, ticket, &present.map_or(Filled::Absent, Filled::Entry));
            }
            Answer::Joined | Answer::Busy => panic!("{context}"),
        }
    }

    fn getattr(&mut self, number: u64, context: &str) {
        let Some(file) = self.directory.file_of(number) else { return };
        let attr = self.directory.attr(file);
        match self.cache.getattr(0, &handle(file), || 0) {
            Answer::Hit(found) => assert_eq!(found, attr, "{context}"),
            other => _ = self.cache.fill(0, lead(other), &Filled::Attr(attr)),
        }
    }

    /// One reader goes on, from memory or at a brick.
    fn read(&mut self, context: &str) {
        let at = self.random.usize(0..self.readers.len());
        let many = self.random.usize(1..6);
        let from_memory = self.random.u8(0..3) > 0;
        let reader = &mut self.readers[at];
        let listed = self.cache.list(0, &handle(DIR), &reader.position).filter(|_| from_memory);
        let is_over = if let Some(chunks) = listed {
            self.directory.check(&chunks, context);
            self.tally[0] += 1;
            self.tally[1] += u32::from(!reader.position.is_empty());
            chunks.iter().take(many).for_each(|listed| reader.take(&listed.chunk));
            chunks.len() <= many
        } else {
            let delivered = Delivered::of(&reader.position);
            self.tally[2] += u32::from(!delivered.is_empty());
            let after = of_bricks(&reader.position).first().copied();
            let rest = self.directory.chunks(after.unwrap_or(0), self.random.usize(1..20));
            for chunk in rest.iter().take(many) {
                if let Some(left) = delivered.leave_out(chunk.clone()) {
                    reader.take(&left);
                }
                advance(&mut reader.position, chunk, chunk.count() - 1);
            }
            rest.len() <= many
        };
        if is_over {
            self.readers.swap_remove(at).check(context);
        }
    }

    /// What is listed from memory is what there is.
    fn check_whole(&self, context: &str) {
        let Some(chunks) = self.cache.list(0, &handle(DIR), &[]) else { return };
        self.directory.check(&chunks, context);
        let names = chunks.iter().flat_map(|listed| {
            listed.chunk.entries().map(|e| String::from_utf8_lossy(e.name).into_owned())
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        let all: Vec<_> = self.directory.names().into_iter().collect();
        assert_eq!(names, all, "{context}");
    }
}

/// S-LIST-1, whatever the reader is answered from: this tier's memory, which learns what the tier
/// changes, forgets what others change and loses what it has no room for; or a brick.
#[test]
fn what_exists_throughout_a_listing_is_delivered_exactly_once() {
    let mut tally = [0; 3];
    for seed in 0..400 {
        let mut play = Play::new(seed);
        for step in 0..600 {
            play.step(&format!("seed {seed} step {step}"));
        }
        play.cache.invalidate_all();
        let CacheCounters { used_bytes, entries, directories, objects, .. } = play.cache.counters();
        assert_eq!((used_bytes, entries, directories, objects), (0, 0, 0, 0), "seed {seed}");
        tally.iter_mut().zip(play.tally).for_each(|(all, one)| *all += one);
    }
    let [from_memory, resumed, learnt_first] = tally;
    assert!(from_memory > 5_000 && resumed > 1_000, "{from_memory} {resumed} from memory");
    assert!(learnt_first > 500, "{learnt_first} went on elsewhere after what was learnt");
}

fn listed_whole(files: u64) -> (DentryCache<u32>, Directory) {
    let cache = cache(1 << 24);
    let mut directory =
        Directory { entries: BTreeMap::new(), versions: HashMap::new(), next_file: 0 };
    for number in 0..files {
        directory.put(number);
    }
    fill(&cache, &directory, crate::limits::CHUNK_ENTRIES_MAX);
    (cache, directory)
}

#[test]
fn attributes_that_are_let_go_cost_the_listing_nothing_but_themselves() {
    let dir = handle(DIR);
    let (cache, directory) = listed_whole(1_000);
    let before = cache.counters();
    evict(&cache, site(&cache, Part::Attrs, 0).expect("attributes"));
    let after = cache.counters();
    let saved = before.used_bytes - after.used_bytes;
    assert!((8_192..8_500).contains(&saved), "128 times 64 bytes: {saved}");
    assert_eq!((after.objects, after.entries), (before.objects - 1, before.entries));
    assert!(matches!(cache.lookup(0, &dir, b"none", || 0), Answer::Negative));
    let files: Vec<u64> = directory.entries.values().map(|(_, file)| *file).collect();
    let mut asked = Vec::new();
    for &file in &files {
        match cache.getattr(0, &handle(file), || 0) {
            Answer::Hit(found) => assert_eq!(found, directory.attr(file)),
            other => asked.push((file, lead(other))),
        }
    }
    assert_eq!(asked.len(), 128, "those of one run");
    assert_eq!(cache.list(0, &dir, &[]), None, "so many are better listed again");
    let objects_before = cache.counters().objects;
    for (had, (file, ticket)) in asked.into_iter().enumerate() {
        cache.fill(0, ticket, &Filled::Attr(directory.attr(file)));
        assert!(matches!(cache.getattr(0, &handle(file), || 0), Answer::Hit(_)), "{file}");
        if had == 100 {
            let chunks = cache.list(0, &dir, &[]).expect("few are missing");
            assert_eq!(chunks.iter().map(|c| c.missing.count_ones()).sum::<u32>(), 27);
            directory.check(&chunks, "one by one");
        }
    }
    assert_eq!(cache.counters().objects, objects_before + 1, "in the run, not each by itself");
    assert_eq!(cache.counters().used_bytes, before.used_bytes);
    let chunks = cache.list(0, &dir, &[]).expect("all are there");
    assert!(chunks.iter().all(|listed| listed.missing == 0));
    directory.check(&chunks, "all back");
}

/// All of the attributes of a large directory leave, none of its names.
#[test]
fn names_alone_answer_that_there_is_no_such_name() {
    let dir = handle(DIR);
    let (cache, directory) = listed_whole(5_000);
    let full = cache.counters().used_bytes;
    while let Some(site) = site(&cache, Part::Attrs, 0) {
        evict(&cache, site);
    }
    assert!(cache.counters().used_bytes * 100 < full * 60, "{}", cache.counters().used_bytes);
    assert!(matches!(cache.lookup(0, &dir, b"none", || 0), Answer::Negative));
    assert_eq!(cache.list(0, &dir, &[]), None);
    let name = name_of(4_321);
    let ticket = lead(cache.lookup(0, &dir, name.as_bytes(), || 0));
    let file = directory.file_of(4_321).expect("it is there");
    cache.fill(0, ticket, &Filled::Entry(directory.entry(file)));
    let found = cache.lookup(0, &dir, name.as_bytes(), || 0);
    assert!(matches!(found, Answer::Hit(found) if found == directory.entry(file)));
    fill(&cache, &directory, crate::limits::CHUNK_ENTRIES_MAX);
    assert_eq!(cache.counters().used_bytes, full);
}

/// A policy that wants names gets the attributes first, the names at the next asking; attributes
/// that are in use protect their names.
#[test]
fn attributes_leave_before_their_names() {
    for in_use in [false, true] {
        let (cache, directory) = listed_whole(RUN_SPLIT_ENTRIES_MIN as u64);
        let mut events = Vec::new();
        cache.restart(&mut events);
        let ids: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Insert { id, weight_bytes, .. } => Some((*id, *weight_bytes)),
                _ => None,
            })
            .collect();
        let [(attrs, attrs_bytes), (names, _)] = ids[..] else { panic!("{ids:?}") };
        assert!(attrs_bytes >= 16 * 64, "attributes are told first");
        if in_use {
            let file = directory.file_of(3).expect("a file");
            assert!(matches!(cache.getattr(0, &handle(file), || 0), Answer::Hit(_)));
            events.clear();
            cache.drain(64, &mut events);
            let hit = |id| Event::Hit { id, count: 1 };
            assert_eq!(events, [hit(attrs), hit(names)], "who hits attributes hits their names");
        }
        for round in 0..3 {
            assert_eq!(cache.offer(&[names]).accepted, 1);
            let victim = cache.reserves[0].pop().expect("it was offered");
            cache.judge(victim);
            events.clear();
            cache.drain(64, &mut events);
            let removed = |id| Event::Remove { id, reason: crate::eviction::Removal::Evicted };
            let spared = Event::Spare { id: names };
            let expected = match round + u32::from(!in_use) {
                0 => vec![spared],
                1 => vec![spared, removed(attrs)],
                _ => vec![removed(names)],
            };
            assert_eq!(events, expected, "in use: {in_use}, round {round}");
            if expected == [removed(names)] {
                break;
            }
        }
        assert_eq!(cache.counters().used_bytes, 0);
    }
}

#[test]
fn as_many_new_names_as_have_a_number_are_listed_from_memory() {
    let dir = handle(DIR);
    let (cache, mut directory) = listed_whole(40);
    for number in 100..100 + LEARNT_NAMES_MAX as u64 + 1 {
        let file = directory.put(number);
        let name = name_of(number).into_bytes();
        let changes = [Change::Name { dir, name: name.clone() }];
        let learnt = [Learnt::Entry { dir, name, entry: directory.entry(file) }];
        cache.learn(0, cache.begin_mutation(), &changes, &learnt);
        let chunks = cache.list(0, &dir, &[]);
        match number - 100 < LEARNT_NAMES_MAX as u64 {
            true => directory.check(&chunks.expect("known"), "learnt"),
            false => assert_eq!(chunks, None, "one too many"),
        }
        assert!(matches!(cache.lookup(0, &dir, b"none", || 0), Answer::Negative), "{number}");
    }
    fill(&cache, &directory, 20);
    directory.check(&cache.list(0, &dir, &[]).expect("listed again"), "again");
}

/// More names known to be absent than a directory can have slots: the newest are known all the same.
#[test]
fn a_full_directory_lets_absent_names_go_for_new_ones() {
    let cache = cache(1 << 26);
    let dir = handle(DIR);
    for number in 0..70_000_u64 {
        let name = format!("absent-{number}");
        let ticket = lead(cache.lookup(0, &dir, name.as_bytes(), || 0));
        cache.fill(0, ticket, &Filled::Absent);
        let known = cache.lookup(0, &dir, name.as_bytes(), || 0);
        assert!(matches!(known, Answer::Negative), "{number}");
    }
    let (name, file) = ("there", 5);
    let ticket = lead(cache.lookup(0, &dir, name.as_bytes(), || 0));
    cache.fill(0, ticket, &Filled::Entry(crate::testing::entry(file)));
    assert!(matches!(cache.lookup(0, &dir, name.as_bytes(), || 0), Answer::Hit(_)));
    assert_eq!(cache.counters().objects, super::nodes::Pos::SLOTS_MAX as u64);
}
