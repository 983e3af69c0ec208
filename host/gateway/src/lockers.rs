//! Which open files locks are held through: an owner may hold locks on one file through several.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use portcullis_core::Handle;
use portcullis_wire::message::{Lock, LockOwner, LockSort};
use tokio::sync::Semaphore;

use crate::open_file::OpenFile;

/// Requests of all clients that wait for a lock; each takes a stream to the brick.
const LOCK_WAITS_MAX: usize = 512;

/// Open files through which a lock was ever asked for, by what they are of.
pub(crate) struct Lockers {
    files: Mutex<HashMap<Handle, Vec<Weak<OpenFile>>>>,
    /// Places of those who wait for a lock.
    pub(crate) waits: Semaphore,
}

/// What is known of an owner's locks on a file, over all connections.
pub(crate) struct Known {
    /// Locks that overlap the one in question.
    pub(crate) held: Vec<Lock>,
    /// The owner waits for a lock somewhere.
    pub(crate) waits: bool,
}

impl Default for Lockers {
    fn default() -> Self {
        Self { files: Mutex::default(), waits: Semaphore::new(LOCK_WAITS_MAX) }
    }
}

impl Lockers {
    /// A lock is about to be asked for through this file.
    pub(crate) fn enter(&self, open: &Arc<OpenFile>) {
        let mut files = self.files.lock();
        let known = files.entry(open.handle).or_default();
        if !known.iter().any(|other| other.as_ptr() == Arc::as_ptr(open)) {
            known.push(Arc::downgrade(open));
        }
    }

    /// This file is closed.
    pub(crate) fn leave(&self, open: &Arc<OpenFile>) {
        let mut files = self.files.lock();
        if let Some(known) = files.get_mut(&open.handle) {
            known.retain(|other| other.as_ptr() != Arc::as_ptr(open));
            if known.is_empty() {
                files.remove(&open.handle);
            }
        }
    }

    /// What an owner holds of a file in the range of `lock`.
    pub(crate) fn known(&self, handle: &Handle, lock: &Lock) -> Known {
        let mut known = Known { held: Vec::new(), waits: false };
        for open in self.of(handle) {
            known.held.extend(open.held.lock().overlapping(lock));
            known.waits |= open.waiting.lock().contains(&lock.owner);
        }
        known
    }

    /// Whether an owner holds any lock of a sort on a file, but for what it holds through `but`.
    pub(crate) fn holds(
        &self,
        handle: &Handle,
        sort: LockSort,
        owner: LockOwner,
        but: Option<&Arc<OpenFile>>,
    ) -> bool {
        let files = self.of(handle);
        let mut others = files.iter().filter(|open| !but.is_some_and(|but| Arc::ptr_eq(but, open)));
        others.any(|open| open.held.lock().owners().contains(&(sort, owner)))
    }

    /// An owner has released its record locks on a file, through whichever it took them.
    pub(crate) fn released(&self, handle: &Handle, owner: LockOwner) {
        for open in self.of(handle) {
            open.held.lock().release(LockSort::Posix, owner);
        }
    }

    fn of(&self, handle: &Handle) -> Vec<Arc<OpenFile>> {
        let files = self.files.lock();
        files.get(handle).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }
}
