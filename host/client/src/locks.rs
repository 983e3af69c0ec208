//! The locks that this client holds, so that they can be taken again when a connection was lost,
//! and be given back when a file is closed.
//!
//! A lock belongs to its owner and its file, whatever open file it was taken through; that one
//! takes it again. Bytes that are locked again, or unlocked, replace what was held of them before.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use portcullis_core::Handle;
use portcullis_wire::message::{Lock, LockKind, LockOwner, LockSort};

use crate::open_file::Opening;

/// Ranges one file may have locked by this client.
pub(crate) const LOCKS_PER_FILE_MAX: usize = 4096;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    files: Mutex<HashMap<Handle, OfFile>>,
}

#[derive(Debug, Default)]
struct OfFile {
    held: Vec<Held>,
    /// Owners of POSIX locks that may hold some: they asked, and have not closed the file since.
    owners: HashSet<LockOwner>,
}

#[derive(Clone, Debug)]
struct Held {
    through: Weak<Opening>,
    lock: Lock,
}

impl Locks {
    /// Somebody is about to ask for a lock; `false` where too many are held.
    pub(crate) fn asking(&self, file: &Handle, lock: &Lock) -> bool {
        let mut files = self.files.lock();
        let of_file = files.entry(*file).or_default();
        if of_file.held.len() >= LOCKS_PER_FILE_MAX && lock.kind != LockKind::Unlock {
            return false;
        }
        if lock.sort == LockSort::Posix {
            of_file.owners.insert(lock.owner);
        }
        true
    }

    /// A lock was taken through `through`, or given back.
    pub(crate) fn granted(&self, through: &Arc<Opening>, lock: Lock) {
        let mut files = self.files.lock();
        let of_file = files.entry(*through.handle()).or_default();
        of_file.carve(&lock);
        if lock.kind != LockKind::Unlock {
            of_file.held.push(Held { through: Arc::downgrade(through), lock });
        }
    }

    /// Whether an owner may hold POSIX locks on a file.
    pub(crate) fn may_hold(&self, file: &Handle, owner: &LockOwner) -> bool {
        self.files.lock().get(file).is_some_and(|of_file| of_file.owners.contains(owner))
    }

    /// An owner closed a descriptor of a file: its POSIX locks are gone.
    pub(crate) fn flushed(&self, file: &Handle, owner: &LockOwner) {
        let mut files = self.files.lock();
        let Some(of_file) = files.get_mut(file) else { return };
        of_file.owners.remove(owner);
        of_file.held.retain(|held| held.lock.sort != LockSort::Posix || held.lock.owner != *owner);
        if of_file.held.is_empty() && of_file.owners.is_empty() {
            files.remove(file);
        }
    }

    /// The locks taken through one open file.
    pub(crate) fn through(&self, file: &Handle, opening: *const Opening) -> Vec<Lock> {
        let files = self.files.lock();
        let of_file = files.get(file).into_iter().flat_map(|of_file| &of_file.held);
        of_file.filter(|held| held.through.as_ptr() == opening).map(|held| held.lock).collect()
    }

    /// Forgets the locks taken through one open file, and answers them.
    pub(crate) fn closed(&self, file: &Handle, opening: *const Opening) -> Vec<Lock> {
        let mut files = self.files.lock();
        let Some(of_file) = files.get_mut(file) else { return Vec::new() };
        let mut closed = Vec::new();
        of_file.held.retain(|held| {
            let is_its = held.through.as_ptr() == opening;
            closed.extend(is_its.then_some(held.lock));
            !is_its
        });
        if of_file.held.is_empty() && of_file.owners.is_empty() {
            files.remove(file);
        }
        closed
    }

    /// What to ask for so that the bytes of `wanted` are locked as they are known to be: after a
    /// request for `wanted` was given up, and nobody knows what came of it.
    pub(crate) fn as_held(&self, file: &Handle, wanted: &Lock) -> Vec<Lock> {
        let files = self.files.lock();
        let held = files.get(file).into_iter().flat_map(|of_file| &of_file.held);
        let mut within: Vec<Lock> = held
            .map(|held| held.lock)
            .filter(|held| is_of(held, wanted) && overlap(held, wanted))
            .map(|held| Lock {
                start_bytes: held.start_bytes.max(wanted.start_bytes),
                end_bytes: held.end_bytes.min(wanted.end_bytes),
                ..held
            })
            .collect();
        within.sort_unstable_by_key(|held| held.start_bytes);
        let mut next = Some(wanted.start_bytes);
        let mut asked = Vec::new();
        let unlocked = |start_bytes, end_bytes| Lock {
            kind: LockKind::Unlock,
            start_bytes,
            end_bytes,
            ..*wanted
        };
        for held in within {
            if let Some(start) = next.filter(|&start| start < held.start_bytes) {
                asked.push(unlocked(start, held.start_bytes - 1));
            }
            next = held.end_bytes.checked_add(1);
            asked.push(held);
        }
        if let Some(start) = next.filter(|&start| start <= wanted.end_bytes) {
            asked.push(unlocked(start, wanted.end_bytes));
        }
        asked
    }

    /// Whether there are any.
    pub(crate) fn are_held(&self) -> bool {
        self.files.lock().values().any(|of_file| !of_file.held.is_empty())
    }

    /// The open files that locks were taken through.
    pub(crate) fn openings(&self) -> Vec<Arc<Opening>> {
        let mut openings: Vec<_> = {
            let files = self.files.lock();
            let held = files.values().flat_map(|of_file| &of_file.held);
            held.filter_map(|held| held.through.upgrade()).collect()
        };
        // Without the lock, for the last one that is dropped takes it.
        openings.sort_unstable_by_key(Arc::as_ptr);
        openings.dedup_by_key(|opening| Arc::as_ptr(opening));
        openings
    }
}

impl OfFile {
    /// Takes the bytes of `lock` out of what its owner holds.
    fn carve(&mut self, lock: &Lock) {
        let mut rests = Vec::new();
        self.held.retain(|held| {
            if !is_of(&held.lock, lock) || !overlap(&held.lock, lock) {
                return true;
            }
            if let Some(end_bytes) = lock.start_bytes.checked_sub(1)
                && held.lock.start_bytes <= end_bytes
            {
                let lock = Lock { end_bytes, ..held.lock };
                rests.push(Held { lock, through: held.through.clone() });
            }
            if let Some(start_bytes) = lock.end_bytes.checked_add(1)
                && start_bytes <= held.lock.end_bytes
            {
                let lock = Lock { start_bytes, ..held.lock };
                rests.push(Held { lock, through: held.through.clone() });
            }
            false
        });
        self.held.append(&mut rests);
    }
}

fn is_of(held: &Lock, lock: &Lock) -> bool {
    held.sort == lock.sort && held.owner == lock.owner
}

fn overlap(one: &Lock, other: &Lock) -> bool {
    one.start_bytes <= other.end_bytes && other.start_bytes <= one.end_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: LockOwner = LockOwner { client: 1, owner: 2 };

    fn lock(kind: LockKind, start_bytes: u64, end_bytes: u64) -> Lock {
        Lock { sort: LockSort::Posix, kind, start_bytes, end_bytes, owner: OWNER, pid: 9 }
    }

    fn file() -> Handle {
        Handle::new(b"file").expect("short")
    }

    /// What is held, without an open file behind it.
    fn held(locks: &[Lock]) -> Locks {
        let table = Locks::default();
        for &lock in locks {
            assert!(table.asking(&file(), &lock));
            let mut files = table.files.lock();
            let of_file = files.get_mut(&file()).expect("just asked");
            of_file.carve(&lock);
            if lock.kind != LockKind::Unlock {
                of_file.held.push(Held { through: Weak::new(), lock });
            }
        }
        table
    }

    fn ranges(table: &Locks) -> Vec<(LockKind, u64, u64)> {
        let mut ranges: Vec<_> = table
            .through(&file(), Weak::<Opening>::new().as_ptr())
            .iter()
            .map(|held| (held.kind, held.start_bytes, held.end_bytes))
            .collect();
        ranges.sort_unstable_by_key(|range| range.1);
        ranges
    }

    #[test]
    fn what_is_locked_anew_replaces_what_was_held_of_its_bytes() {
        use LockKind::{Read, Unlock, Write};
        let table = held(&[lock(Read, 0, 99), lock(Write, 10, 19), lock(Unlock, 50, 59)]);
        let expected = [(Read, 0, 9), (Write, 10, 19), (Read, 20, 49), (Read, 60, 99)];
        assert_eq!(ranges(&table), expected);
        let to_end = held(&[lock(Write, 0, u64::MAX), lock(Unlock, 5, u64::MAX)]);
        assert_eq!(ranges(&to_end), [(Write, 0, 4)]);
    }

    #[test]
    fn owners_and_sorts_are_kept_apart() {
        let other = Lock { owner: LockOwner { owner: 3, ..OWNER }, ..lock(LockKind::Read, 0, 9) };
        let flock = Lock { sort: LockSort::Flock, ..lock(LockKind::Write, 0, u64::MAX) };
        let table = held(&[lock(LockKind::Read, 0, 9), other, flock, lock(LockKind::Unlock, 0, 9)]);
        assert_eq!(ranges(&table).len(), 2);
        assert!(table.may_hold(&file(), &OWNER));
        table.flushed(&file(), &OWNER);
        assert!(!table.may_hold(&file(), &OWNER));
        assert_eq!(ranges(&table).len(), 2, "neither flock nor the other's end with a close");
    }

    #[test]
    fn a_request_that_was_given_up_is_undone_to_what_was_held() {
        use LockKind::{Read, Unlock, Write};
        let table = held(&[lock(Read, 10, 19), lock(Read, 30, 39)]);
        let undone = table.as_held(&file(), &lock(Write, 5, 34));
        let undone: Vec<_> =
            undone.iter().map(|lock| (lock.kind, lock.start_bytes, lock.end_bytes)).collect();
        let expected = [(Unlock, 5, 9), (Read, 10, 19), (Unlock, 20, 29), (Read, 30, 34)];
        assert_eq!(undone, expected);
        assert_eq!(held(&[]).as_held(&file(), &lock(Write, 0, u64::MAX)).len(), 1);
    }
}
