//! A made-up host that answers at once: each directory that is to be listed ahead is there before the
//! next step.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const ROOT: DirId = DirId(1);

/// Directories have their numbers for ids.
struct Host {
    policy: Statahead,
    subdirs: BTreeMap<u64, Vec<u64>>,
    ahead: BTreeSet<u64>,
    told: BTreeSet<u64>,
    forgotten: BTreeSet<u64>,
    now_ms: u64,
    used: usize,
    missed: usize,
    begun: usize,
    cancelled: usize,
}

impl Host {
    fn new(subdirs: BTreeMap<u64, Vec<u64>>) -> Self {
        Self {
            policy: Statahead::default(),
            subdirs,
            ahead: BTreeSet::new(),
            told: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            now_ms: 0,
            used: 0,
            missed: 0,
            begun: 0,
            cancelled: 0,
        }
    }

    /// A root with `count` subdirectories, 2 and on.
    fn flat(count: u64) -> Self {
        Self::new(BTreeMap::from([(1, (2..count + 2).collect())]))
    }

    fn tell(&mut self, dir: u64, events: &mut Vec<Event>) {
        if self.told.insert(dir) {
            for &subdir in self.subdirs.get(&dir).into_iter().flatten() {
                events.push(Event::Subdir { dir: DirId(dir), subdir: DirId(subdir) });
            }
            events.push(Event::Listed { dir: DirId(dir) });
        }
    }

    fn enter(&mut self, dir: u64) {
        let was_ahead = self.ahead.remove(&dir);
        let entry = if was_ahead { Entry::Used } else { Entry::Missed };
        self.used += usize::from(was_ahead);
        self.missed += usize::from(!was_ahead);
        let mut events = vec![Event::Entered { dir: DirId(dir), entry }];
        self.tell(dir, &mut events);
        self.step(&events);
    }

    fn step(&mut self, events: &[Event]) {
        self.policy.on_events(self.now_ms, events);
        let mut answers = Vec::new();
        self.policy.propose(self.now_ms, 64, &mut answers);
        let lists = answers.iter().filter(|answer| matches!(answer, Answer::List(_)));
        assert!(lists.count() <= 64);
        let mut events = Vec::new();
        for answer in answers {
            match answer {
                Answer::List(DirId(dir)) => {
                    assert!(!self.forgotten.contains(&dir), "{dir} was forgotten");
                    assert!(self.ahead.insert(dir), "{dir} is ahead already");
                    self.begun += 1;
                    self.tell(dir, &mut events);
                }
                Answer::Cancel(DirId(dir)) => {
                    self.cancelled += usize::from(self.ahead.remove(&dir));
                }
                Answer::Forget(DirId(dir)) => {
                    assert!(self.forgotten.insert(dir), "{dir} is forgotten twice");
                    self.cancelled += usize::from(self.ahead.remove(&dir));
                }
            }
        }
        if !events.is_empty() {
            self.policy.on_events(self.now_ms, &events);
        }
    }
}

/// Known answer: the root and its first subdirectory are asked for, all others were ahead.
#[test]
fn a_directory_that_is_gone_through_is_ahead() {
    let mut host = Host::flat(1_000);
    (1..=1_001).for_each(|dir| host.enter(dir));
    assert_eq!((host.missed, host.used, host.cancelled), (2, 999, 0));
    host.step(&[]);
    assert_eq!(host.policy.known(), 0, "all is forgotten");
    assert_eq!(host.forgotten.len(), 1_001);
}

#[test]
fn the_window_doubles_from_eight() {
    let mut host = Host::flat(1_000);
    host.enter(1);
    host.enter(2);
    assert_eq!(host.ahead.len(), 8);
    host.enter(3);
    assert_eq!(host.ahead.len(), 16);
    host.enter(4);
    assert_eq!(host.ahead.len(), 32);
}

#[test]
fn it_begins_with_the_first_only() {
    let mut host = Host::flat(1_000);
    [1, 3, 4, 5, 6].into_iter().for_each(|dir| host.enter(dir));
    assert_eq!(host.begun, 0);
}

#[test]
fn what_is_passed_by_is_cancelled_and_too_much_of_it_ends_the_run() {
    let mut host = Host::flat(1_000);
    host.enter(1);
    host.enter(2);
    host.enter(7);
    assert_eq!((host.used, host.cancelled), (1, 4), "3 to 6 were passed by");
    // Every tenth: nine in vain for each that is right.
    (17..1_000).step_by(10).for_each(|dir| host.enter(dir));
    assert!(host.policy.active.is_empty());
    // Judged after 32 hits, each with nine in vain, and a window that is full.
    assert!(host.begun < 600, "{} were listed ahead", host.begun);
    assert!(host.ahead.is_empty());
}

#[test]
fn entries_at_random_end_it_after_32_misses() {
    let mut host = Host::flat(10_000);
    host.enter(1);
    host.enter(2);
    for number in 0..40_u64 {
        host.enter(5_000 + number * 4_999 % 5_000);
    }
    assert!(host.policy.active.is_empty());
    assert!(host.ahead.is_empty(), "{:?}", host.ahead);
}

#[test]
fn a_run_that_rests_is_given_up() {
    let mut host = Host::flat(100);
    (1..=4).for_each(|dir| host.enter(dir));
    assert!(!host.ahead.is_empty());
    host.now_ms += IDLE_MS_MAX + 1;
    host.step(&[]);
    assert!(host.ahead.is_empty());
}

/// In depth: each directory of ten is gone through while those above it wait.
#[test]
fn a_tree_is_walked_directory_by_directory() {
    let mut subdirs = BTreeMap::new();
    let (mut next, mut order) = (2, Vec::new());
    fn grow(
        dir: u64,
        levels: u32,
        next: &mut u64,
        subdirs: &mut BTreeMap<u64, Vec<u64>>,
        order: &mut Vec<u64>,
    ) {
        order.push(dir);
        if levels > 0 {
            let below: Vec<u64> = (*next..*next + 10).collect();
            *next += 10;
            subdirs.insert(dir, below.clone());
            below.into_iter().for_each(|dir| grow(dir, levels - 1, next, subdirs, order));
        }
    }
    grow(1, 3, &mut next, &mut subdirs, &mut order);
    let mut host = Host::new(subdirs);
    order.iter().for_each(|&dir| host.enter(dir));
    // Asked for: the root and the first subdirectory of each of 111 directories.
    assert_eq!((host.missed, host.used, host.cancelled), (112, 999, 0));
    host.step(&[]);
    assert_eq!(host.policy.known(), 0, "all is forgotten");
}

#[test]
fn memory_is_bounded() {
    let wide = (0..100)
        .map(|dir| (1 + dir * 1_000, (1..1_000).map(|sub| 1 + dir * 1_000 + sub).collect()));
    let mut host = Host::new(wide.collect());
    for dir in 0..100 {
        host.enter(1 + dir * 1_000);
        assert!(host.policy.known() <= PREFETCH_DIRS_MAX + 1);
    }
    let mut huge = Host::flat(PREFETCH_DIRS_MAX as u64 * 3);
    huge.enter(1);
    assert!(huge.policy.known() <= PREFETCH_DIRS_MAX + 1);
}

#[test]
fn events_of_what_is_unknown_do_no_harm() {
    let mut policy = Statahead::default();
    let (dir, subdir) = (ROOT, DirId(2));
    let losses = [Loss::Known, Loss::Failed, Loss::Invalidated, Loss::Dropped];
    let mut events = vec![Event::Listed { dir }, Event::Subdir { dir, subdir: dir }];
    events.extend(losses.map(|loss| Event::Lost { dir, loss }));
    events.extend([Event::Subdir { dir, subdir }; 2]);
    events.extend([Event::Entered { dir: subdir, entry: Entry::Used }; 3]);
    events.extend(losses.map(|loss| Event::Lost { dir: subdir, loss }));
    policy.on_events(0, &events);
    let mut answers = Vec::new();
    policy.propose(0, 0, &mut answers);
    assert!(!answers.iter().any(|answer| matches!(answer, Answer::List(_))));
}
