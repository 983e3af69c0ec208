//! Advisory locks of clients, held at the file system below.
//!
//! Each owner has a descriptor of its own for each file and sort of lock ([`descriptor`]), from its
//! first lock on until it holds none any more ([`ranges`]). So the kernel decides who may have a
//! lock, also against programs on this host, and closing a descriptor releases all it held.
//! Whoever waits for a lock is in [`waiting`].
//!
//! What must hold: record locks and flock(2) know nothing of each other; no request waits for a
//! lock unless it asked to; descriptors are bounded ([`Descriptors`]).

mod descriptor;
mod ranges;
mod waiting;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use portcullis_core::{FileKind, Handle, Status};
use portcullis_wire::message::{Failure, Lock, LockKind, LockOwner, LockSort};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::descriptors::{Descriptors, Taken};
use crate::error::failure;
use crate::handles::Handles;
use ranges::{END, Ranges};

/// How long the locks of a lost session are kept. Others wait so long for what was held by a client
/// that is gone; a client that is there connects again, and reclaims them, within a second or two.
const LOCK_GRACE_MS: u64 = 15_000;

/// The locks of one export.
pub(crate) struct Locks {
    handles: Arc<Handles>,
    files: Mutex<HashMap<Key, Vec<Arc<Holder>>>>,
    descriptors: Arc<Descriptors>,
    waiting: waiting::Waiting,
}

/// A file, and a sort of lock on it.
type Key = (Handle, LockSort);

/// What one owner holds of one file.
struct Holder {
    owner: LockOwner,
    held: Mutex<Held>,
    _descriptor: Taken,
}

struct Held {
    fd: OwnedFd,
    ranges: Ranges,
    /// Who took the last lock.
    pid: u32,
    /// The session that took it,
    session: u64,
    /// and when that was lost.
    lost_at: Option<Instant>,
    /// It is no longer in the table: another one is to be used.
    is_gone: bool,
}

impl Locks {
    /// No locks yet; each owner of one takes one of `descriptors`.
    pub(crate) fn new(handles: Arc<Handles>, descriptors: Arc<Descriptors>) -> Self {
        Self { handles, files: Mutex::default(), descriptors, waiting: waiting::Waiting::default() }
    }

    /// The lock that stands in the way of `lock`, `None` where none does. Blocks.
    pub(crate) fn test(&self, file: &Handle, lock: &Lock) -> Result<Option<Lock>, Failure> {
        let lock = &checked(lock)?;
        if lock.kind == LockKind::Unlock {
            return Err(Status::InvalidArgument.into());
        }
        if let Some(found) = self.known_conflict(file, lock) {
            return Ok(Some(found));
        }
        if lock.sort == LockSort::Flock {
            // flock(2) tells of no holder.
            return Ok(None);
        }
        let known = self.find(file, lock);
        let found = match &known {
            Some(holder) => {
                let held = holder.held.lock();
                descriptor::test_range(&held.fd, lock.start_bytes, lock.end_bytes, lock.kind)
            }
            None => {
                let fd = self.open(file)?;
                descriptor::test_range(&fd, lock.start_bytes, lock.end_bytes, lock.kind)
            }
        };
        // Of a program on this host.
        let found = found.map_err(failed)?;
        let owner = LockOwner { client: 0, owner: 0 };
        Ok(found.map(|(range, pid)| as_lock(lock.sort, range, owner, pid)))
    }

    /// Takes or releases a lock without waiting; `Busy` where it is held by somebody else. Blocks
    /// for as long as system calls take.
    pub(crate) fn set(&self, file: &Handle, lock: &Lock) -> Result<(), Failure> {
        let lock = &checked(lock)?;
        let holder = match (self.find(file, lock), lock.kind) {
            (Some(holder), _) => holder,
            (None, LockKind::Unlock) => return Ok(()),
            (None, _) => self.insert(file, lock)?,
        };
        let mut held = holder.held.lock();
        if held.is_gone {
            drop(held);
            return self.set(file, lock);
        }
        let set = self.apply(&mut held, lock);
        let is_over = held.ranges.is_empty();
        if is_over {
            self.remove(file, lock.sort, &holder, &mut held);
        }
        drop(held);
        // Making a write lock a read lock lets others in too, and a flock that is changed is
        // released first, whatever comes of it.
        if lock.kind != LockKind::Write || lock.sort == LockSort::Flock {
            self.waiting.wake(file, lock.sort);
        }
        set
    }

    /// Releases all that `owner` holds of a file in one sort. Blocks.
    pub(crate) fn drop_owner(&self, file: &Handle, sort: LockSort, owner: LockOwner) {
        let lock =
            Lock { sort, kind: LockKind::Unlock, start_bytes: 0, end_bytes: END, owner, pid: 0 };
        // Releasing cannot fail but for want of memory; closing the descriptor releases, then.
        if self.set(file, &lock).is_err()
            && let Some(holder) = self.find(file, &lock)
        {
            let mut held = holder.held.lock();
            self.remove(file, sort, &holder, &mut held);
            drop(held);
            self.waiting.wake(file, sort);
        }
    }

    /// A lock was taken by a session, or reclaimed after an earlier one was lost.
    pub(crate) fn taken_by(&self, file: &Handle, lock: &Lock, session: u64) {
        if let Some(holder) = self.find(file, lock) {
            let mut held = holder.held.lock();
            held.session = session;
            held.lost_at = None;
        }
    }

    /// A session is lost. What it took is kept for [`LOCK_GRACE_MS`], for its owners to come back.
    pub(crate) fn lose(&self, session: u64) {
        let now = Instant::now();
        for (_, holder) in self.all() {
            let mut held = holder.held.lock();
            if held.session == session {
                held.lost_at.get_or_insert(now);
            }
        }
    }

    /// Releases what was kept for owners who did not come back, as of `now`. Blocks.
    pub(crate) fn sweep(&self, now: Instant) {
        let grace = Duration::from_millis(LOCK_GRACE_MS);
        for ((file, sort), holder) in self.all() {
            let is_over = |lost_at: Instant| lost_at + grace <= now;
            let lost_at = holder.held.lock().lost_at;
            if lost_at.is_some_and(is_over) {
                self.drop_owner(&file, sort, holder.owner);
            }
        }
    }

    fn all(&self) -> Vec<(Key, Arc<Holder>)> {
        let files = self.files.lock();
        let of = |(key, holders): (&Key, &Vec<Arc<Holder>>)| {
            holders.iter().map(|holder| (*key, holder.clone())).collect::<Vec<_>>()
        };
        files.iter().flat_map(of).collect()
    }

    fn apply(&self, held: &mut Held, lock: &Lock) -> Result<(), Failure> {
        let set = match lock.sort {
            LockSort::Posix => {
                if held.ranges.is_full() && lock.kind != LockKind::Unlock {
                    return Err(Status::NoLocks.into());
                }
                descriptor::set_range(&held.fd, lock.start_bytes, lock.end_bytes, lock.kind)
            }
            LockSort::Flock => descriptor::set_whole(&held.fd, lock.kind),
        };
        match (lock.sort, set) {
            (_, Ok(())) => {
                held.ranges.set(lock.start_bytes, lock.end_bytes, lock.kind);
                held.pid = lock.pid;
            }
            // A conversion that fails has released what was held before (flock(2)).
            (LockSort::Flock, Err(_)) => held.ranges.set(0, END, LockKind::Unlock),
            (LockSort::Posix, Err(_)) => {}
        }
        set.map_err(failed)
    }

    /// A lock in the way that a client holds.
    fn known_conflict(&self, file: &Handle, lock: &Lock) -> Option<Lock> {
        let others = self.holders(file, lock.sort);
        others.iter().filter(|holder| holder.owner != lock.owner).find_map(|holder| {
            let held = holder.held.lock();
            let is_write = lock.kind == LockKind::Write;
            let range = held.ranges.conflict(lock.start_bytes, lock.end_bytes, is_write)?;
            Some(as_lock(lock.sort, range, holder.owner, held.pid))
        })
    }

    fn holders(&self, file: &Handle, sort: LockSort) -> Vec<Arc<Holder>> {
        self.files.lock().get(&(*file, sort)).cloned().unwrap_or_default()
    }

    fn find(&self, file: &Handle, lock: &Lock) -> Option<Arc<Holder>> {
        let files = self.files.lock();
        let holders = files.get(&(*file, lock.sort))?;
        holders.iter().find(|holder| holder.owner == lock.owner).cloned()
    }

    fn insert(&self, file: &Handle, lock: &Lock) -> Result<Arc<Holder>, Failure> {
        let Some(descriptor) = self.descriptors.take() else {
            return Err(Failure::new(
                Status::NoLocks,
                "clients hold too many files and locks here",
            ));
        };
        let held = Held {
            fd: self.open(file)?,
            ranges: Ranges::default(),
            pid: lock.pid,
            session: 0,
            lost_at: None,
            is_gone: false,
        };
        let holder =
            Arc::new(Holder { owner: lock.owner, held: Mutex::new(held), _descriptor: descriptor });
        let mut files = self.files.lock();
        let holders = files.entry((*file, lock.sort)).or_default();
        // Another request of the same owner may have been faster.
        if let Some(known) = holders.iter().find(|known| known.owner == lock.owner) {
            return Ok(known.clone());
        }
        holders.push(holder.clone());
        Ok(holder)
    }

    /// Takes a holder out of the table; its descriptor is closed by the last one to use it.
    fn remove(&self, file: &Handle, sort: LockSort, holder: &Arc<Holder>, held: &mut Held) {
        if std::mem::replace(&mut held.is_gone, true) {
            return;
        }
        let mut files = self.files.lock();
        if let Some(holders) = files.get_mut(&(*file, sort)) {
            holders.retain(|known| !Arc::ptr_eq(known, holder));
            if holders.is_empty() {
                files.remove(&(*file, sort));
            }
        }
    }

    /// A descriptor that can hold locks of both kinds, or of the one that is possible.
    fn open(&self, file: &Handle) -> Result<OwnedFd, Failure> {
        let object = self.handles.object(file)?;
        if object.stat.kind() != FileKind::Regular {
            return Err(Status::InvalidArgument.into());
        }
        let export = self.handles.export();
        let open = |flags| export.open_file(object.fd.as_fd(), flags);
        open(OFlags::RDWR).or_else(|error| open(OFlags::RDONLY).map_err(|_| error)).map_err(failure)
    }
}

/// The lock as it is kept: flock(2) is always on the whole file.
fn checked(lock: &Lock) -> Result<Lock, Failure> {
    match lock.sort {
        LockSort::Flock => Ok(Lock { start_bytes: 0, end_bytes: END, ..*lock }),
        LockSort::Posix if lock.start_bytes <= lock.end_bytes && lock.end_bytes <= END => Ok(*lock),
        LockSort::Posix => Err(Failure::new(Status::InvalidArgument, "no such range")),
    }
}

fn failed(error: Errno) -> Failure {
    match error {
        // The file could be opened for reading only.
        Errno::BADF => Failure::new(Status::BadFile, "not writable for the brick"),
        _ => failure(error),
    }
}

fn as_lock(sort: LockSort, range: ranges::Range, owner: LockOwner, pid: u32) -> Lock {
    let kind = if range.is_write { LockKind::Write } else { LockKind::Read };
    Lock { sort, kind, start_bytes: range.start, end_bytes: range.end, owner, pid }
}

#[cfg(test)]
mod tests;
