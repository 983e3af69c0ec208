//! Who has locked what, and who waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_fuse::reply::Done;
use portcullis_fuse::request::{Lock, LockKind, LockRange};
use portcullis_fuse::{Errno, Reply};

use super::MemoryTree;

/// A lock, and the file and open file it was taken on.
#[derive(Clone, Copy)]
struct Held {
    index: usize,
    file: u64,
    lock: Lock,
}

struct Waiting {
    held: Held,
    interrupted: Arc<AtomicBool>,
    reply: Reply<Done>,
}

/// All locks of a tree.
#[derive(Default)]
pub(super) struct Locks {
    held: Vec<Held>,
    waiting: Vec<Waiting>,
}

impl Locks {
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.held.len(), self.waiting.len())
    }

    /// The lock in the way of this one.
    pub(super) fn conflict(&self, index: usize, lock: &Lock) -> Option<LockRange> {
        let exclusive = |kind| kind == LockKind::Write;
        self.held
            .iter()
            .filter(|held| held.index == index && held.lock.flock == lock.flock)
            .filter(|held| held.lock.owner != lock.owner && overlap(&held.lock, lock))
            .find(|held| exclusive(held.lock.range.kind) || exclusive(lock.range.kind))
            .filter(|_| lock.range.kind != LockKind::Unlock)
            .map(|held| held.lock.range)
    }

    /// Locks or unlocks; whether it could.
    pub(super) fn set(&mut self, index: usize, file: u64, lock: Lock) -> bool {
        if self.conflict(index, &lock).is_some() {
            return false;
        }
        for held in std::mem::take(&mut self.held) {
            let own = held.index == index
                && (held.lock.owner, held.lock.flock) == (lock.owner, lock.flock);
            if own && overlap(&held.lock, &lock) {
                self.keep_around(held, lock.range);
            } else {
                self.held.push(held);
            }
        }
        if lock.range.kind != LockKind::Unlock {
            self.held.push(Held { index, file, lock });
        }
        true
    }

    /// Keeps of a lock what lies before and after a range.
    fn keep_around(&mut self, held: Held, range: LockRange) {
        let mut keep = |start: u64, end: u64| {
            let range = LockRange { start, end, ..held.lock.range };
            self.held.push(Held { lock: Lock { range, ..held.lock }, ..held });
        };
        if held.lock.range.start < range.start {
            keep(held.lock.range.start, range.start - 1);
        }
        if held.lock.range.end > range.end {
            keep(range.end + 1, held.lock.range.end);
        }
    }

    /// Drops the locks of a file that `gone` picks, by open file and lock.
    pub(super) fn drop_where(&mut self, index: usize, gone: impl Fn(u64, &Lock) -> bool) {
        self.held.retain(|held| held.index != index || !gone(held.file, &held.lock));
    }

    /// Answers those who waited and need not any more.
    pub(super) fn answer_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            let Held { index, file, lock } = waiting.held;
            if waiting.interrupted.load(Ordering::SeqCst) {
                waiting.reply.error(Errno::INTR);
            } else if self.set(index, file, lock) {
                waiting.reply.done();
            } else {
                self.waiting.push(waiting);
            }
        }
    }
}

fn overlap(a: &Lock, b: &Lock) -> bool {
    a.range.start <= b.range.end && b.range.start <= a.range.end
}

/// Locks, or waits until it can or the caller is interrupted.
pub(super) fn wait(tree: &MemoryTree, index: usize, file: u64, lock: Lock, mut reply: Reply<Done>) {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (told, tree_told) = (interrupted.clone(), tree.clone());
    reply.on_interrupt(move || {
        told.store(true, Ordering::SeqCst);
        tree_told.lock().locks.answer_waiting();
    });
    let mut state = tree.lock();
    let held = Held { index, file, lock };
    state.locks.waiting.push(Waiting { held, interrupted, reply });
    state.locks.answer_waiting();
}
