//! What is kept against a model of the kernel's cache of one directory (fs/fuse/readdir.c), under
//! random openings, readings and changes, cut where they can meet.

use std::collections::HashSet;

use super::*;

const NODEID: u64 = 7;
/// Entries of the directory. They keep their numbers whatever changes, which is the worst case.
const ENTRIES: u64 = 6;
const ENTRIES_IN_PAGE: u64 = 2;

/// The kernel's cache: for each entry the generation of the listing that it came from.
#[derive(Default)]
struct Cache {
    entries: Vec<u64>,
    pages: HashSet<u64>,
    cached: bool,
    /// Counts its beginnings.
    version: u64,
    /// Counts what the kernel changed itself, now and when the cache began to fill.
    iversion: u64,
    filled_at: u64,
}

impl Cache {
    fn reset(&mut self) {
        self.entries.clear();
        self.cached = false;
        self.version += 1;
    }

    fn add(&mut self, position: u64, generation: u64) {
        let is_next = position == self.entries.len() as u64;
        let page = position / ENTRIES_IN_PAGE;
        let begins_page = position.is_multiple_of(ENTRIES_IN_PAGE);
        if self.cached || !is_next || !begins_page && !self.pages.contains(&page) {
            return;
        }
        self.pages.insert(page);
        self.entries.push(generation);
    }

    /// The generation of the entry that a reader comes to, `None` at the end; `Err` where it is to
    /// be asked. A reader that was not in this cache before goes through it from its start.
    fn read(&mut self, reader: &mut Reader) -> Result<Option<u64>, ()> {
        let position = reader.position;
        if self.cached && position == 0 && self.filled_at != self.iversion {
            self.reset();
        }
        let here = position / ENTRIES_IN_PAGE;
        let goes_on = reader.stream == Some((self.version, position));
        let first = if goes_on { here } else { 0 };
        let is_there = |page| page * ENTRIES_IN_PAGE == ENTRIES || self.pages.contains(&page);
        if self.cached && !(first..=here).all(is_there) {
            self.reset();
        }
        if !self.cached {
            if position == 0 && self.entries.is_empty() {
                self.filled_at = self.iversion;
            }
            return Err(());
        }
        reader.stream = Some((self.version, position + 1));
        Ok(self.entries.get(position as usize).copied())
    }
}

/// Something that the kernel has still to do.
#[derive(Clone, Copy)]
enum Pending {
    Nothing,
    Drop,
    Enter { generation: u64 },
    End,
}

struct Reader {
    position: u64,
    /// Where it is in the kernel's cache, and in which version of it.
    stream: Option<(u64, u64)>,
    pass: Pass,
    /// Of the listing that it is given when the kernel asks.
    generation: u64,
    /// What was acknowledged when it began.
    acknowledged: u64,
    pending: Pending,
}

struct Model {
    kept: Kept,
    cache: Cache,
    readers: Vec<Reader>,
    generation: u64,
    acknowledged: u64,
    /// A change of another client, which waits for the kernel to drop its pages.
    recalled: Option<u64>,
    from_cache: usize,
}

impl Model {
    fn open(&mut self, is_fresh: bool) {
        let now = Instant::now();
        let names_epoch = u64::from(!is_fresh);
        let now = Now { now, ttl: Duration::from_secs(4), names_epoch, session: 1 };
        let Opening { pass, keep, .. } = self.kept.opened(NODEID, Some(&now));
        let pending = if keep { Pending::Nothing } else { Pending::Drop };
        let (generation, acknowledged) = (self.generation, self.acknowledged);
        self.readers.push(Reader {
            position: 0,
            stream: None,
            pass,
            generation,
            acknowledged,
            pending,
        });
    }

    fn read(&mut self, at: usize) {
        let reader = &mut self.readers[at];
        if reader.position == 0 {
            reader.acknowledged = self.acknowledged;
        }
        match self.cache.read(reader) {
            Ok(Some(generation)) => {
                assert!(generation >= reader.acknowledged, "{generation}");
                self.from_cache += 1;
                reader.position += 1;
            }
            Ok(None) => {}
            Err(()) => {
                self.kept.asked(NODEID, &mut reader.pass, reader.position == 0);
                if reader.position == 0 {
                    reader.generation = self.generation;
                    let until = Instant::now() + Duration::from_secs(4);
                    reader.pass.valid = Some(Validity { until, names_epoch: 0, session: 1 });
                }
                if reader.position < ENTRIES {
                    self.kept.told(NODEID, &reader.pass);
                    reader.pending = Pending::Enter { generation: reader.generation };
                } else {
                    if !self.kept.ended(NODEID, &reader.pass) {
                        self.cache.pages.clear();
                    }
                    reader.pending = Pending::End;
                }
            }
        }
    }

    fn finish(&mut self, at: usize) {
        let reader = &mut self.readers[at];
        match std::mem::replace(&mut reader.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Drop => self.cache.pages.clear(),
            Pending::Enter { generation } => {
                self.cache.add(reader.position, generation);
                reader.position += 1;
            }
            Pending::End => {
                self.cache.cached |= self.cache.entries.len() as u64 == reader.position;
            }
        }
    }

    /// Another client changes the directory.
    fn change(&mut self) {
        self.generation += 1;
        if self.kept.changed(NODEID).unwrap_or(true) {
            self.recalled = Some(self.generation);
        } else {
            self.acknowledged = self.generation;
        }
    }

    fn drop_pages(&mut self) {
        if let Some(generation) = self.recalled.take() {
            self.cache.pages.clear();
            self.acknowledged = generation;
        }
    }

    /// The kernel changes it, which it does not while it is read.
    fn change_by_kernel(&mut self) {
        let is_read =
            |reader: &Reader| matches!(reader.pending, Pending::Enter { .. } | Pending::End);
        if self.recalled.is_none() && !self.readers.iter().any(is_read) {
            self.generation += 1;
            if self.kept.changed(NODEID).unwrap_or(true) {
                self.cache.pages.clear();
            }
            self.cache.iversion += 1;
            self.acknowledged = self.generation;
        }
    }

    fn step(&mut self, random: &mut impl FnMut(u64) -> u64) {
        let at = random(self.readers.len().max(1) as u64) as usize;
        match random(64) {
            0..4 if self.readers.len() < 4 => self.open(random(4) > 0),
            4..6 if !self.readers.is_empty() => {
                self.finish(at);
                let reader = self.readers.swap_remove(at);
                self.kept.closed(NODEID, &reader.pass);
            }
            6 if self.recalled.is_none() => self.change(),
            7 => self.change_by_kernel(),
            8..12 => self.drop_pages(),
            12..14 if !self.readers.is_empty() => {
                self.finish(at);
                self.readers[at].position = 0;
            }
            _ if !self.readers.is_empty() => match self.readers[at].pending {
                Pending::Nothing => self.read(at),
                _ => self.finish(at),
            },
            _ => {}
        }
    }
}

/// S-LIST-5
#[test]
fn no_reader_is_given_names_from_before_an_acknowledged_change() {
    let mut from_cache = 0;
    for seed in 1..=2000u64 {
        // Printed where it fails.
        println!("seed {seed}");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let mut model = Model {
            kept: Kept::default(),
            cache: Cache::default(),
            readers: Vec::new(),
            generation: 0,
            acknowledged: 0,
            recalled: None,
            from_cache: 0,
        };
        (0..500).for_each(|_| model.step(&mut random));
        from_cache += model.from_cache;
    }
    // The model is worth something only where the cache is used.
    assert!(from_cache > 10_000, "{from_cache}");
}

fn now(names_epoch: u64, session: u64) -> Now {
    Now { now: Instant::now(), ttl: Duration::from_secs(4), names_epoch, session }
}

fn read_whole(kept: &Kept, nodeid: u64, valid_ms: u64) {
    let mut pass = kept.opened(nodeid, None).pass;
    kept.asked(nodeid, &mut pass, true);
    kept.told(nodeid, &pass);
    let until = Instant::now() + Duration::from_millis(valid_ms);
    pass.valid = Some(Validity { until, names_epoch: 1, session: 1 });
    kept.asked(nodeid, &mut pass, false);
    kept.ended(nodeid, &pass);
    kept.closed(nodeid, &pass);
}

#[test]
fn a_listing_is_kept_while_its_names_are_to_be_believed_and_it_is_true() {
    let kept = Kept::default();
    let open = |now: Option<&Now>| {
        let opening = kept.opened(NODEID, now);
        kept.closed(NODEID, &opening.pass);
        opening.keep
    };
    let read_again = |valid_ms| read_whole(&kept, NODEID, valid_ms);
    assert!(!open(Some(&now(1, 1))), "nothing is known of it");
    read_again(60_000);
    assert!(open(Some(&now(1, 1))) && open(Some(&now(1, 1))));
    for (other, why) in [(now(2, 1), "looked up again"), (now(1, 2), "another connection")] {
        assert!(!open(Some(&other)), "{why}");
        read_again(60_000);
    }
    assert!(!open(None), "nothing is recalled");
    read_again(1_000);
    assert!(!open(Some(&now(1, 1))), "the names are about to run out");
    read_again(60_000);
    assert_eq!(kept.changed(NODEID), Some(true));
    assert_eq!(kept.changed(NODEID), Some(false), "it is dropped already");
    assert_eq!(kept.changed(NODEID + 1), None);
}

#[test]
fn of_closed_directories_a_bounded_number_is_remembered() {
    let kept = Kept::default();
    let count = MOUNT_KEPT_DIRS_MAX as u64 + 10;
    for nodeid in 0..count {
        let opening = kept.opened(nodeid, None);
        kept.closed(nodeid, &opening.pass);
    }
    kept.opened(count - 1, None);
    let dirs = kept.0.lock();
    assert_eq!(
        (dirs.by_nodeid.len(), dirs.closed.len()),
        (MOUNT_KEPT_DIRS_MAX, MOUNT_KEPT_DIRS_MAX - 1)
    );
    assert!(!dirs.by_nodeid.contains_key(&0) && dirs.by_nodeid.contains_key(&(count - 1)));
}
