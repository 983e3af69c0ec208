//! Numbers for files of which their file system tells nothing that lasts.
//!
//! Where no birth time is kept, all that is told of a file is its inode number, and that goes to
//! another file as soon as it is free. So a file is given a number when it is first seen, and no
//! number is ever given again: each life of the brick begins anywhere in 64 bits. When this brick
//! removes a file's last name, the inode has no number any more, and whatever is seen with it next
//! gets another.
//!
//! What must hold: what was told of an inode before it was free numbers nothing afterwards.
//! Whoever asks for a number therefore says as of which [`Moment`] it knows of the inode, and is
//! sent back to look again where the inode became free since; while a removal is under way
//! ([`Leaving`]) it waits.
//!
//! Memory is bounded as that of places is ([`super::places`]). A file that is forgotten gets
//! another number when it is seen again: its old handle is stale, and nothing else happens.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use portcullis_core::FileKind;
use portcullis_core::limits::{PLACES_DIRS_MAX, PLACES_FILES_MAX};

use crate::attr::Stat;

/// The number of a file.
pub(crate) type FileNumber = NonZeroU64;

/// What an inode number stands for at one time: on which device, and whether a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Inode {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) is_dir: bool,
}

impl Inode {
    pub(super) fn of(stat: &Stat) -> Self {
        let is_dir = stat.kind() == FileKind::Directory;
        Self { dev: stat.dev(), ino: stat.ino(), is_dir }
    }

    /// The other sort of file that its number may stand for.
    fn other(self) -> Self {
        Self { is_dir: !self.is_dir, ..self }
    }
}

/// A point in the order in which inodes became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// The numbers of one export.
pub(super) struct Numbers {
    table: Mutex<Table>,
    /// That of the table.
    now: AtomicU64,
    /// Notified when an inode is no longer leaving.
    settled: Condvar,
}

struct Table {
    dirs: Halves,
    files: Halves,
    last_number: u64,
    now: Moment,
    /// Inodes that a removal just under way may make free.
    leaving: HashSet<Inode>,
}

/// What is known of an inode.
#[derive(Clone, Copy)]
struct Known {
    /// `None` since it became free.
    number: Option<FileNumber>,
    kind: FileKind,
    /// When it became free last.
    free_at: Moment,
}

impl Default for Numbers {
    fn default() -> Self {
        Self::with_limits(PLACES_DIRS_MAX, PLACES_FILES_MAX)
    }
}

impl Numbers {
    fn with_limits(dirs: usize, files: usize) -> Self {
        let table = Table {
            dirs: Halves::new(dirs),
            files: Halves::new(files),
            last_number: RandomState::new().hash_one(Instant::now()),
            now: Moment(0),
            leaving: HashSet::new(),
        };
        Self { table: Mutex::new(table), now: AtomicU64::new(0), settled: Condvar::new() }
    }

    /// Ask it before an inode is examined.
    pub(super) fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::Acquire))
    }

    /// The number of the file of `kind` that the inode stood for at some time after `since`; `None`
    /// where that need not be what it stands for now. May wait for a removal.
    pub(super) fn number(&self, inode: Inode, kind: FileKind, since: Moment) -> Option<FileNumber> {
        let mut table = self.when_settled(inode);
        let known = table.known_since(inode, kind, since)?;
        Some(known.number.unwrap_or_else(|| {
            let number = table.next_number();
            table.set_number(inode, Known { number: Some(number), ..known });
            number
        }))
    }

    /// The same for a file without a name. One that has no number gets one for this once: its inode
    /// becomes free without anybody's telling.
    pub(super) fn number_of_nameless(
        &self,
        inode: Inode,
        kind: FileKind,
        since: Moment,
    ) -> Option<FileNumber> {
        let mut table = self.when_settled(inode);
        let known = table.known_since(inode, kind, since)?;
        Some(known.number.unwrap_or_else(|| table.next_number()))
    }

    /// The inode stands for a file of `kind` that was given this number before.
    pub(super) fn adopt(&self, inode: Inode, kind: FileKind, number: FileNumber) {
        let mut table = self.when_settled(inode);
        let free_at = table.now;
        table.set_number(inode, Known { number: Some(number), kind, free_at });
    }

    /// The inode does not stand for the file of this number any more, if it did until now.
    pub(super) fn give_up(&self, inode: Inode, number: FileNumber) {
        let mut table = self.when_settled(inode);
        let now = table.now;
        let known = table.halves(inode).find(inode, now);
        if known.is_some_and(|known| known.number == Some(number)) {
            self.set_free(&mut table, inode);
        }
    }

    /// Names of the inode are removed until the answer is dropped. Waits for whoever does the same.
    pub(super) fn leave(&self, inode: Inode) -> Leaving<'_> {
        self.when_settled(inode).leaving.insert(inode);
        Leaving { numbers: self, inode }
    }

    fn set_free(&self, table: &mut Table, inode: Inode) {
        table.now.0 += 1;
        self.now.store(table.now.0, Ordering::Release);
        let (kind, free_at) = (FileKind::Unknown, table.now);
        // The other sort of file may have it already, and keeps its number.
        table.halves(inode).insert(inode, Known { number: None, kind, free_at }, free_at);
    }

    fn when_settled(&self, inode: Inode) -> MutexGuard<'_, Table> {
        let mut table = self.table.lock();
        self.settled.wait_while(&mut table, |table| table.leaving.contains(&inode));
        table
    }
}

/// An inode that may become free just now: nobody is told its number meanwhile.
pub(super) struct Leaving<'a> {
    numbers: &'a Numbers,
    inode: Inode,
}

impl Leaving<'_> {
    /// The file is gone.
    pub(super) fn gone(self) {
        self.numbers.set_free(&mut self.numbers.table.lock(), self.inode);
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.numbers.table.lock().leaving.remove(&self.inode);
        self.numbers.settled.notify_all();
    }
}

impl Table {
    fn halves(&mut self, inode: Inode) -> &mut Halves {
        if inode.is_dir { &mut self.dirs } else { &mut self.files }
    }

    /// What is known of the file of `kind` that the inode stands for, if it did so at `since` too.
    fn known_since(&mut self, inode: Inode, kind: FileKind, since: Moment) -> Option<Known> {
        let now = self.now;
        let halves = self.halves(inode);
        let known = halves.find(inode, now);
        let free_at = known.map_or(halves.dropped_at, |known| known.free_at);
        let number = known.filter(|known| known.kind == kind).and_then(|known| known.number);
        (free_at <= since).then_some(Known { number, kind, free_at })
    }

    fn set_number(&mut self, inode: Inode, known: Known) {
        let now = self.now;
        self.halves(inode.other()).remove(inode.other());
        self.halves(inode).insert(inode, known, now);
    }

    fn next_number(&mut self) -> FileNumber {
        loop {
            self.last_number = self.last_number.wrapping_add(1);
            if let Some(number) = FileNumber::new(self.last_number) {
                return number;
            }
        }
    }
}

/// Inodes of one sort: what is used moves to the young half, and when that is full the old one is
/// dropped.
struct Halves {
    young: HashMap<Inode, Known>,
    old: HashMap<Inode, Known>,
    young_max: usize,
    /// No inode that was forgotten became free later.
    dropped_at: Moment,
}

impl Halves {
    fn new(limit: usize) -> Self {
        let (young, old) = Default::default();
        Self { young, old, young_max: limit / 2, dropped_at: Moment(0) }
    }

    fn find(&mut self, inode: Inode, now: Moment) -> Option<Known> {
        if let Some(known) = self.young.get(&inode) {
            return Some(*known);
        }
        let known = self.old.remove(&inode)?;
        self.insert(inode, known, now);
        Some(known)
    }

    fn insert(&mut self, inode: Inode, known: Known, now: Moment) {
        self.old.remove(&inode);
        self.young.insert(inode, known);
        if self.young.len() >= self.young_max {
            self.old = mem::take(&mut self.young);
            self.dropped_at = now;
        }
    }

    fn remove(&mut self, inode: Inode) {
        self.young.remove(&inode);
        self.old.remove(&inode);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn inode(ino: u64) -> Inode {
        Inode { dev: 1, ino, is_dir: false }
    }

    fn number(numbers: &Numbers, ino: u64) -> FileNumber {
        let now = numbers.now();
        numbers.number(inode(ino), FileKind::Regular, now).expect("nothing became free since")
    }

    #[test]
    fn a_file_keeps_its_number_until_it_is_gone() {
        let numbers = Numbers::default();
        let first = number(&numbers, 1);
        assert_ne!(number(&numbers, 2), first);
        drop(numbers.leave(inode(1)));
        assert_eq!(number(&numbers, 1), first, "the removal failed, or another name is left");
        numbers.leave(inode(1)).gone();
        let second = number(&numbers, 1);
        assert_ne!(second, first);
        assert_eq!(number(&numbers, 1), second);
    }

    #[test]
    fn another_type_is_another_file() {
        let numbers = Numbers::default();
        let as_kind = |kind| {
            let inode = Inode { is_dir: kind == FileKind::Directory, ..inode(1) };
            numbers.number(inode, kind, numbers.now()).expect("nothing became free since")
        };
        let kinds = [FileKind::Regular, FileKind::Fifo, FileKind::Directory, FileKind::Regular];
        let told: HashSet<FileNumber> = kinds.map(as_kind).into();
        assert_eq!(told.len(), kinds.len());
        let leaving = numbers.leave(inode(1));
        let dir = as_kind(FileKind::Directory);
        leaving.gone();
        assert_eq!(as_kind(FileKind::Directory), dir, "it was there before that was noted");
    }

    #[test]
    fn a_file_without_a_name_has_no_number_that_stays() {
        let numbers = Numbers::default();
        let nameless = || numbers.number_of_nameless(inode(1), FileKind::Regular, numbers.now());
        let first = nameless().expect("nothing became free since");
        let second = nameless().expect("nothing became free since");
        assert_ne!(first, second);
        numbers.adopt(inode(1), FileKind::Regular, second);
        assert_eq!((nameless(), number(&numbers, 1)), (Some(second), second));
    }

    #[test]
    fn two_lives_give_no_number_twice() {
        let lives = [Numbers::default(), Numbers::default()];
        let told: HashSet<FileNumber> =
            lives.iter().flat_map(|life| (0..100).map(|ino| number(life, ino))).collect();
        assert_eq!(told.len(), 200);
    }

    #[test]
    fn what_was_examined_before_a_removal_is_examined_again() {
        let numbers = Numbers::default();
        let before = numbers.now();
        number(&numbers, 1);
        numbers.leave(inode(1)).gone();
        let late = || numbers.number(inode(1), FileKind::Regular, before);
        assert_eq!(late(), None);
        number(&numbers, 1);
        assert_eq!(late(), None, "nor once the next file was seen");
        assert!(numbers.number(inode(2), FileKind::Regular, before).is_some());
    }

    #[test]
    fn nobody_is_told_a_number_while_a_removal_is_under_way() {
        let numbers = Numbers::default();
        let first = number(&numbers, 1);
        let (asking, asked) = mpsc::sync_channel(1);
        std::thread::scope(|threads| {
            let leaving = numbers.leave(inode(1));
            let answer = threads.spawn(|| {
                let now = numbers.now();
                asking.send(()).expect("heard");
                numbers.number(inode(1), FileKind::Regular, now)
            });
            asked.recv_timeout(Duration::from_secs(30)).expect("it asks");
            leaving.gone();
            let answer = answer.join().expect("it ends");
            assert_ne!(answer, Some(first));
        });
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_gets_another_number() {
        let numbers = Numbers::with_limits(8, 64);
        let dir = Inode { is_dir: true, ..inode(1) };
        let of_dir = || numbers.number(dir, FileKind::Directory, numbers.now());
        let (first_dir, kept, first) = (of_dir(), number(&numbers, 2), number(&numbers, 3));
        let before = numbers.now();
        numbers.leave(inode(4)).gone();
        for ino in 100..10_000 {
            number(&numbers, ino);
            assert_eq!(number(&numbers, 2), kept, "used each time, after {ino}");
            let table = numbers.table.lock();
            assert!(table.files.young.len() + table.files.old.len() <= 64);
        }
        assert_eq!(of_dir(), first_dir, "files do not push out directories");
        assert_ne!(number(&numbers, 3), first);
        let late = numbers.number(inode(4), FileKind::Regular, before);
        assert_eq!(late, None, "it became free since, though that is forgotten");
    }
}
