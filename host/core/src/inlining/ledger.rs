//! What a gateway counts for an inlining policy, and the rules that the policy made of it.
//!
//! Who delivers files asks for the rule of their class, and tells which files went out and which of them
//! were then read. Whoever drives the policy takes the counts and brings rules.
//!
//! What must hold: memory is bounded, whatever clients do; what is counted of classes for which there is no
//! more room counts for all of them together; where no policy works nothing is counted.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

use super::{ClassId, Counts, Rule, Stat};
use crate::Handle;
use crate::limits::{INLINE_BYTES_MAX, INLINE_CLASSES_MAX, INLINE_DELIVERIES_MAX};

/// See the module.
pub struct Ledger {
    is_on: AtomicBool,
    hasher: FixedState,
    tally: Mutex<Tally>,
    rules: RwLock<Rules>,
    totals: Totals,
}

#[derive(Default)]
struct Tally {
    classes: HashMap<ClassId, Counts, FixedState>,
    /// Files that were delivered and may be read, by the hash of file and client.
    delivered: HashMap<u64, ClassId, FixedState>,
    /// In the order of delivery, with what was read since.
    order: VecDeque<u64>,
}

#[derive(Default)]
struct Rules {
    any: Option<u64>,
    classes: HashMap<ClassId, u64, FixedState>,
    /// In the order of their coming.
    order: VecDeque<ClassId>,
}

/// Sums of all classes.
#[derive(Debug, Default)]
struct Totals {
    delivered: AtomicU64,
    read: AtomicU64,
    inlined: AtomicU64,
    inlined_read: AtomicU64,
    inlined_bytes: AtomicU64,
}

/// What is known of the line to a client; 0 for what is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// What it carries, in bytes a second.
    pub bandwidth_bytes_per_s: u64,
    /// What a read is spared whose content is in place, in microseconds.
    pub latency_us: u64,
}

impl Ledger {
    /// A ledger in which nothing is counted yet. Without `seed` nobody can tell which directories share a
    /// class.
    pub fn new(seed: u64) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            hasher: FixedState::with_seed(seed),
            tally: Mutex::default(),
            rules: RwLock::default(),
            totals: Totals::default(),
        }
    }

    /// Another policy works from now on, or none: rules and counts begin anew.
    pub fn restart(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::SeqCst);
        *self.tally.lock() = Tally::default();
        *self.rules.write() = Rules::default();
    }

    /// Whether a policy works.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The class of a directory's files for a client.
    pub fn class(&self, dir: &Handle, client: u128) -> ClassId {
        // The greatest number stands for all.
        ClassId(self.hasher.hash_one((dir, client)) >> 1)
    }

    /// Up to which size the content of files of a class travels along; `None` where none does.
    pub fn size_bytes_max(&self, class: ClassId) -> Option<u32> {
        if !self.is_on() {
            return None;
        }
        let rules = self.rules.read();
        let size = rules.classes.get(&class).copied().or(rules.any)?;
        Some(size.min(INLINE_BYTES_MAX) as u32)
    }

    /// Files of a class went out to a client, each with the length of its content where that went along.
    /// Those that are empty or too large to travel along are left out of the counts.
    pub fn delivered<'a>(
        &self,
        class: ClassId,
        client: u128,
        line: Line,
        files: impl Iterator<Item = (&'a Handle, u64, bool)>,
    ) {
        if !self.is_on() {
            return;
        }
        let mut tally = self.tally.lock();
        let mut sum = Counts::default();
        for (handle, size_bytes, is_inlined) in files {
            if size_bytes == 0 || size_bytes > INLINE_BYTES_MAX {
                continue;
            }
            sum.delivered += 1;
            sum.inlined += u64::from(is_inlined);
            sum.inlined_bytes += if is_inlined { size_bytes } else { 0 };
            tally.remember(self.hasher.hash_one((handle, client)), class);
        }
        let counts = tally.of(class);
        counts.delivered += sum.delivered;
        counts.inlined += sum.inlined;
        counts.inlined_bytes += sum.inlined_bytes;
        counts.bandwidth_bytes_per_s = line.bandwidth_bytes_per_s;
        counts.latency_us = line.latency_us;
        drop(tally);
        let totals = &self.totals;
        totals.delivered.fetch_add(sum.delivered, Ordering::Relaxed);
        totals.inlined.fetch_add(sum.inlined, Ordering::Relaxed);
        totals.inlined_bytes.fetch_add(sum.inlined_bytes, Ordering::Relaxed);
    }

    /// A client opened a file to read it: counts once for each time that it was delivered.
    pub fn opened(&self, client: u128, handle: &Handle) {
        if !self.is_on() {
            return;
        }
        let mut tally = self.tally.lock();
        let Some(class) = tally.delivered.remove(&self.hasher.hash_one((handle, client))) else {
            return;
        };
        tally.of(class).read += 1;
        self.totals.read.fetch_add(1, Ordering::Relaxed);
    }

    /// A client says how many contents of a class it has read that had travelled along.
    pub fn read_in_place(&self, class: ClassId, files: u64) {
        if !self.is_on() {
            return;
        }
        let mut tally = self.tally.lock();
        let counts = tally.of(class);
        counts.read = counts.read.saturating_add(files);
        counts.inlined_read = counts.inlined_read.saturating_add(files);
        self.totals.read.fetch_add(files, Ordering::Relaxed);
        self.totals.inlined_read.fetch_add(files, Ordering::Relaxed);
    }

    /// Adds what came of each class since the last time, for at most `rows_max` of them; the others wait.
    pub fn take(&self, rows_max: usize, stats: &mut Vec<Stat>) {
        let mut tally = self.tally.lock();
        if tally.classes.len() <= rows_max {
            stats.extend(tally.classes.drain().map(|(class, counts)| Stat { class, counts }));
        } else {
            let some: Vec<ClassId> = tally.classes.keys().take(rows_max).copied().collect();
            for class in some {
                stats.extend(tally.classes.remove(&class).map(|counts| Stat { class, counts }));
            }
        }
        // The same counts are told in the same order.
        stats.sort_unstable_by_key(|stat| stat.class);
    }

    /// Takes rules; those of the longest known classes leave where there are too many.
    pub fn apply(&self, new: &[Rule]) {
        let mut rules = self.rules.write();
        for &Rule { class, size_bytes_max } in new {
            if class == ClassId::ANY {
                rules.any = Some(size_bytes_max);
            } else if rules.classes.insert(class, size_bytes_max).is_none() {
                rules.order.push_back(class);
                if rules.order.len() > INLINE_CLASSES_MAX
                    && let Some(oldest) = rules.order.pop_front()
                {
                    rules.classes.remove(&oldest);
                }
            }
        }
    }

    /// Rules that hold.
    pub fn rules(&self) -> u64 {
        let rules = self.rules.read();
        rules.classes.len() as u64 + u64::from(rules.any.is_some())
    }

    /// Sums of all classes since the gateway started.
    pub fn totals(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            delivered: load(&self.totals.delivered),
            read: load(&self.totals.read),
            inlined: load(&self.totals.inlined),
            inlined_read: load(&self.totals.inlined_read),
            inlined_bytes: load(&self.totals.inlined_bytes),
            ..Counts::default()
        }
    }
}

impl Tally {
    fn of(&mut self, class: ClassId) -> &mut Counts {
        let has_room = self.classes.len() < INLINE_CLASSES_MAX || self.classes.contains_key(&class);
        self.classes.entry(if has_room { class } else { ClassId::ANY }).or_default()
    }

    fn remember(&mut self, key: u64, class: ClassId) {
        if self.delivered.insert(key, class).is_some() {
            return;
        }
        self.order.push_back(key);
        while self.order.len() > INLINE_DELIVERIES_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.delivered.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line { bandwidth_bytes_per_s: 7, latency_us: 8 };

    fn handle(number: u64) -> Handle {
        Handle::new(&number.to_le_bytes()).expect("8 bytes")
    }

    fn ledger() -> Ledger {
        let ledger = Ledger::new(1);
        ledger.restart(true);
        ledger
    }

    fn deliver(ledger: &Ledger, class: ClassId, client: u128, files: &[(u64, u64, bool)]) {
        let handles: Vec<Handle> = files.iter().map(|(number, ..)| handle(*number)).collect();
        let files =
            handles.iter().zip(files).map(|(handle, &(_, size, along))| (handle, size, along));
        ledger.delivered(class, client, LINE, files);
    }

    fn take(ledger: &Ledger) -> Vec<Stat> {
        let mut stats = Vec::new();
        ledger.take(usize::MAX, &mut stats);
        stats
    }

    #[test]
    fn a_file_counts_as_read_once_a_delivery_for_the_client_that_had_it() {
        let ledger = ledger();
        let dir = handle(9);
        let (one, other) = (ledger.class(&dir, 1), ledger.class(&dir, 2));
        assert_ne!(one, other);
        deliver(&ledger, one, 1, &[(1, 10, false), (2, 20, true), (3, 0, true)]);
        deliver(&ledger, other, 2, &[(1, 10, false)]);
        ledger.opened(1, &handle(1));
        ledger.opened(1, &handle(1));
        ledger.opened(3, &handle(1));
        ledger.read_in_place(one, 1);
        let stats = take(&ledger);
        let of = |class| stats.iter().find(|stat| stat.class == class).expect("a row").counts;
        let expected = Counts {
            delivered: 2,
            read: 2,
            inlined: 1,
            inlined_read: 1,
            inlined_bytes: 20,
            bandwidth_bytes_per_s: 7,
            latency_us: 8,
        };
        assert_eq!(of(one), expected);
        assert_eq!((of(other).delivered, of(other).read), (1, 0));
        assert!(take(&ledger).is_empty(), "told once");
        assert_eq!((ledger.totals().delivered, ledger.totals().read), (3, 2));
    }

    #[test]
    fn rules_hold_for_their_class_and_otherwise_for_all() {
        let ledger = ledger();
        let class = ledger.class(&handle(1), 1);
        assert_eq!(ledger.size_bytes_max(class), None);
        ledger.apply(&[Rule { class: ClassId::ANY, size_bytes_max: 5 }]);
        assert_eq!(ledger.size_bytes_max(class), Some(5));
        ledger.apply(&[Rule { class, size_bytes_max: u64::MAX }]);
        assert_eq!(ledger.size_bytes_max(class), Some(INLINE_BYTES_MAX as u32));
        ledger.restart(false);
        assert_eq!(ledger.size_bytes_max(class), None);
        deliver(&ledger, class, 1, &[(1, 10, false)]);
        assert!(take(&ledger).is_empty(), "nothing is counted");
    }

    #[test]
    fn memory_is_bounded_and_what_finds_no_room_counts_for_all() {
        let ledger = ledger();
        for number in 0..2 * INLINE_CLASSES_MAX as u64 {
            let class = ClassId(number);
            deliver(&ledger, class, 1, &[(number, 10, false)]);
            ledger.apply(&[Rule { class, size_bytes_max: 1 }]);
        }
        assert_eq!(ledger.rules(), INLINE_CLASSES_MAX as u64);
        assert_eq!(ledger.size_bytes_max(ClassId(0)), None);
        let stats = take(&ledger);
        assert_eq!(stats.len(), INLINE_CLASSES_MAX + 1);
        let delivered: u64 = stats.iter().map(|stat| stat.counts.delivered).sum();
        assert_eq!(delivered, 2 * INLINE_CLASSES_MAX as u64);
        for number in 0..3 * INLINE_DELIVERIES_MAX as u64 {
            deliver(&ledger, ClassId(1), 1, &[(number, 10, false)]);
        }
        let tally = ledger.tally.lock();
        assert!(tally.delivered.len() <= INLINE_DELIVERIES_MAX);
        assert!(tally.order.len() <= INLINE_DELIVERIES_MAX);
    }
}
