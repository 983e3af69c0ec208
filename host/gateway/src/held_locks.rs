//! The locks that clients hold through one open file, as far as the gateway knows: what it takes
//! again when the session with the brick was lost, and releases when a client is gone.

use portcullis_wire::message::{Lock, LockKind, LockOwner, LockSort};

/// Locks remembered of one open file; further ones are refused.
pub(crate) const LOCKS_PER_FILE_MAX: usize = 4096;
/// Last byte of a lock that reaches to the end (`OFFSET_MAX`, fcntl(2)).
const END: u64 = i64::MAX as u64;

/// Locks, none of one owner and sort overlapping another.
#[derive(Debug, Default)]
pub(crate) struct HeldLocks(Vec<Lock>);

impl HeldLocks {
    /// Takes in that a lock was taken, or released.
    pub(crate) fn set(&mut self, lock: &Lock) {
        let mut lock = whole(lock);
        let mut left = Vec::with_capacity(self.0.len() + 2);
        for held in self.0.drain(..) {
            if !is_same(&held, &lock) || !touches(&held, &lock) {
                left.push(held);
            } else if held.kind == lock.kind {
                lock.start_bytes = lock.start_bytes.min(held.start_bytes);
                lock.end_bytes = lock.end_bytes.max(held.end_bytes);
            } else {
                left.extend(without(&held, &lock));
            }
        }
        if lock.kind != LockKind::Unlock {
            left.push(lock);
        }
        self.0 = left;
    }

    /// Takes in that an owner has released all its locks of a sort.
    pub(crate) fn release(&mut self, sort: LockSort, owner: LockOwner) {
        self.0.retain(|held| held.sort != sort || held.owner != owner);
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Lock] {
        &self.0
    }

    /// Those of this lock's owner and sort that overlap it.
    pub(crate) fn overlapping(&self, lock: &Lock) -> Vec<Lock> {
        let lock = whole(lock);
        let overlaps = |held: &&Lock| is_same(held, &lock) && overlaps(held, &lock);
        self.0.iter().filter(overlaps).copied().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= LOCKS_PER_FILE_MAX
    }

    /// Each owner once, by sort.
    pub(crate) fn owners(&self) -> Vec<(LockSort, LockOwner)> {
        let mut owners: Vec<_> = self.0.iter().map(|held| (held.sort, held.owner)).collect();
        owners.sort_by_key(|(sort, owner)| (*sort as u8, owner.client, owner.owner));
        owners.dedup();
        owners
    }
}

/// The parts of a lock's range that no `kept` lock covers.
pub(crate) fn uncovered(lock: &Lock, kept: &[Lock]) -> Vec<Lock> {
    let mut parts = vec![whole(lock)];
    for held in kept {
        let cut = |part: Lock| match overlaps(&part, held) {
            true => without(&part, held),
            false => vec![part],
        };
        parts = parts.into_iter().flat_map(cut).collect();
    }
    parts
}

/// A flock(2) is always on the whole file.
fn whole(lock: &Lock) -> Lock {
    match lock.sort {
        LockSort::Flock => Lock { start_bytes: 0, end_bytes: END, ..*lock },
        LockSort::Posix => *lock,
    }
}

fn is_same(a: &Lock, b: &Lock) -> bool {
    a.sort == b.sort && a.owner == b.owner
}

fn overlaps(a: &Lock, b: &Lock) -> bool {
    a.start_bytes <= b.end_bytes && b.start_bytes <= a.end_bytes
}

/// Whether they overlap, or are of one kind and next to each other.
fn touches(a: &Lock, b: &Lock) -> bool {
    let near = a.kind == b.kind
        && (a.end_bytes.checked_add(1) == Some(b.start_bytes)
            || b.end_bytes.checked_add(1) == Some(a.start_bytes));
    near || overlaps(a, b)
}

/// What is left of `held` outside of the range of `lock`, which overlaps it.
fn without(held: &Lock, lock: &Lock) -> Vec<Lock> {
    let mut parts = Vec::with_capacity(2);
    if held.start_bytes < lock.start_bytes {
        parts.push(Lock { end_bytes: lock.start_bytes - 1, ..*held });
    }
    if held.end_bytes > lock.end_bytes {
        parts.push(Lock { start_bytes: lock.end_bytes + 1, ..*held });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: LockOwner = LockOwner { client: 1, owner: 1 };

    fn lock(kind: LockKind, start_bytes: u64, end_bytes: u64) -> Lock {
        Lock { sort: LockSort::Posix, kind, start_bytes, end_bytes, owner: OWNER, pid: 0 }
    }

    fn ranges(held: &HeldLocks) -> Vec<(LockKind, u64, u64)> {
        let mut ranges: Vec<_> =
            held.all().iter().map(|l| (l.kind, l.start_bytes, l.end_bytes)).collect();
        ranges.sort_by_key(|range| range.1);
        ranges
    }

    #[test]
    fn a_later_lock_replaces_what_it_covers_and_cuts_what_it_overlaps() {
        let mut held = HeldLocks::default();
        held.set(&lock(LockKind::Write, 0, 99));
        held.set(&lock(LockKind::Read, 10, 19));
        held.set(&lock(LockKind::Unlock, 50, 59));
        let expected = [
            (LockKind::Write, 0, 9),
            (LockKind::Read, 10, 19),
            (LockKind::Write, 20, 49),
            (LockKind::Write, 60, 99),
        ];
        assert_eq!(ranges(&held), expected);
        held.set(&lock(LockKind::Write, 0, END));
        assert_eq!(ranges(&held), [(LockKind::Write, 0, END)]);
        held.set(&lock(LockKind::Unlock, 0, END));
        assert!(held.is_empty());
    }

    #[test]
    fn locks_next_to_each_other_become_one() {
        let mut held = HeldLocks::default();
        for byte in 0..10_000 {
            held.set(&lock(LockKind::Write, byte, byte));
        }
        assert_eq!(ranges(&held), [(LockKind::Write, 0, 9_999)]);
        held.set(&lock(LockKind::Read, 10_000, 10_000));
        assert_eq!(held.all().len(), 2, "of another kind");
    }

    #[test]
    fn owners_and_sorts_know_nothing_of_each_other() {
        let mut held = HeldLocks::default();
        let other = LockOwner { client: 1, owner: 2 };
        held.set(&lock(LockKind::Write, 0, 9));
        held.set(&Lock { owner: other, ..lock(LockKind::Read, 20, 29) });
        held.set(&Lock { sort: LockSort::Flock, ..lock(LockKind::Read, 5, 5) });
        held.set(&Lock { owner: other, ..lock(LockKind::Unlock, 0, END) });
        assert_eq!(held.owners(), [(LockSort::Posix, OWNER), (LockSort::Flock, OWNER)]);
        held.release(LockSort::Posix, OWNER);
        assert_eq!(ranges(&held), [(LockKind::Read, 0, END)], "a flock is on the whole file");
    }

    #[test]
    fn what_no_kept_lock_covers_is_what_may_be_released() {
        let kept = [lock(LockKind::Read, 10, 19), lock(LockKind::Read, 30, 200)];
        let parts = uncovered(&lock(LockKind::Write, 5, 100), &kept);
        let parts: Vec<_> = parts.iter().map(|part| (part.start_bytes, part.end_bytes)).collect();
        assert_eq!(parts, [(5, 9), (20, 29)]);
    }
}
