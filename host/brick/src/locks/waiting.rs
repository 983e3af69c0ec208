//! Waiting for a lock.
//!
//! A waiter holds no thread. It tries again when a lock on the file was released, in the order in
//! which waiters came, and every [`POLL_MS`] for the sake of locks that programs on this host hold.
//! A wait that would never end, because each of some owners waits for the next, is refused as
//! fcntl(2) refuses it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::{Handle, Status};
use portcullis_wire::message::{Failure, Lock, LockKind, LockOwner, LockSort};
use tokio::sync::Notify;

use super::{Locks, checked};
use crate::workers::Workers;

/// How long a lock of another program may be gone before a waiter notices.
const POLL_MS: u64 = 200;
/// Requests that wait for a lock.
const WAITERS_MAX: usize = 16 * 1024;
/// Owners looked at in search of a deadlock; a longer chain is taken for none.
const CHAIN_MAX: usize = 256;

/// Everybody who waits.
#[derive(Default)]
pub(super) struct Waiting {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<(Handle, LockSort), Vec<Arc<Waiter>>>,
    count: usize,
    last_number: u64,
}

/// One request that waits.
struct Waiter {
    /// Later ones have greater numbers.
    number: u64,
    file: Handle,
    lock: Lock,
    woken: Notify,
}

impl Waiting {
    /// A lock on a file was released: its waiters try again.
    pub(super) fn wake(&self, file: &Handle, sort: LockSort) {
        if let Some(waiters) = self.table.lock().files.get(&(*file, sort)) {
            waiters.iter().for_each(|waiter| waiter.woken.notify_one());
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.table.lock().count
    }

    fn enter(&self, file: &Handle, lock: &Lock) -> Result<Entered<'_>, Failure> {
        let mut table = self.table.lock();
        if table.count >= WAITERS_MAX {
            return Err(Failure::new(Status::NoLocks, "too many wait for locks here"));
        }
        table.count += 1;
        table.last_number += 1;
        let number = table.last_number;
        let waiter = Arc::new(Waiter { number, file: *file, lock: *lock, woken: Notify::new() });
        table.files.entry((*file, lock.sort)).or_default().push(waiter.clone());
        Ok(Entered { waiting: self, waiter })
    }

    /// The record locks that an owner began to wait for before a waiter with this number did.
    fn of(&self, owner: LockOwner, before: u64) -> Vec<(Handle, Lock)> {
        let table = self.table.lock();
        let waiters = table.files.values().flatten();
        let of_owner = waiters.filter(|waiter| {
            waiter.number < before
                && waiter.lock.owner == owner
                && waiter.lock.sort == LockSort::Posix
        });
        of_owner.map(|waiter| (waiter.file, waiter.lock)).collect()
    }
}

/// A waiter, until it is dropped.
struct Entered<'a> {
    waiting: &'a Waiting,
    waiter: Arc<Waiter>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let key = (self.waiter.file, self.waiter.lock.sort);
        let mut table = self.waiting.table.lock();
        table.count -= 1;
        if let Some(waiters) = table.files.get_mut(&key) {
            waiters.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
            if waiters.is_empty() {
                table.files.remove(&key);
            }
        }
    }
}

impl Locks {
    /// Takes a lock, and waits for it. `Interrupted` where `given_up` resolves before. It must be
    /// run to its end: if it is dropped, nobody knows whether the lock was taken.
    pub(crate) async fn set_waiting(
        self: &Arc<Self>,
        workers: &Workers,
        file: Handle,
        lock: Lock,
        given_up: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let lock = checked(&lock)?;
        let tried = self.try_once(workers, file, lock).await;
        if !is_busy(&tried) {
            return tried;
        }
        let entered = self.waiting.enter(&file, &lock)?;
        tokio::pin!(given_up);
        loop {
            // After entering, so that no release in between goes unnoticed.
            let tried = self.try_once(workers, file, lock).await;
            if !is_busy(&tried) {
                return tried;
            }
            if lock.sort == LockSort::Posix && self.is_deadlock(&entered.waiter) {
                return Err(Status::Deadlock.into());
            }
            tokio::select! {
                () = entered.waiter.woken.notified() => {}
                () = tokio::time::sleep(Duration::from_millis(POLL_MS)) => {}
                () = &mut given_up => return Err(Status::Interrupted.into()),
            }
        }
    }

    async fn try_once(
        self: &Arc<Self>,
        workers: &Workers,
        file: Handle,
        lock: Lock,
    ) -> Result<(), Failure> {
        let locks = self.clone();
        workers.run(move || locks.set(&file, &lock)).await
    }

    /// Whether those who stand in the way of a waiter wait, in the end, for its owner. Of those who
    /// wait for each other it is the last who is told.
    fn is_deadlock(&self, waiter: &Waiter) -> bool {
        let mut seen = HashSet::new();
        let mut wanted = vec![(waiter.file, waiter.lock)];
        while let Some((file, wanted_lock)) = wanted.pop() {
            let is_write = wanted_lock.kind == LockKind::Write;
            for holder in self.holders(&file, LockSort::Posix) {
                let (start, end) = (wanted_lock.start_bytes, wanted_lock.end_bytes);
                if holder.owner == wanted_lock.owner
                    || holder.held.lock().ranges.conflict(start, end, is_write).is_none()
                {
                    continue;
                }
                if holder.owner == waiter.lock.owner {
                    return true;
                }
                if seen.len() < CHAIN_MAX && seen.insert(holder.owner) {
                    wanted.extend(self.waiting.of(holder.owner, waiter.number));
                }
            }
        }
        false
    }
}

fn is_busy(tried: &Result<(), Failure>) -> bool {
    tried.as_ref().is_err_and(|failure| failure.status == Status::Busy)
}
