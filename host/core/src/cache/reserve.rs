//! Victims at hand, so that a fill that needs room never waits for a policy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::eviction::ObjectId;
use crate::limits::RESERVE_MAX;

/// Proposed victims, best first. Each is judged again when it is taken.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    victims: Mutex<VecDeque<ObjectId>>,
    len: AtomicUsize,
}

impl Reserve {
    /// The number of victims worth keeping for so many objects: one in 64, so that victims are not chosen
    /// long before they leave; in a small cache one in 16, up to 64, since with fewer the reserve runs
    /// empty between two turns of the policy (1,000 entries, a turn in 64 requests, a reserve of 15:
    /// S3-FIFO hits 7 points less often).
    pub(super) fn target(objects: u64) -> usize {
        ((objects / 64).max((objects / 16).min(64)) as usize).clamp(1, RESERVE_MAX)
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn push(&self, victim: ObjectId) {
        let mut victims = self.victims.lock();
        victims.push_back(victim);
        self.len.store(victims.len(), Ordering::Relaxed);
    }

    pub(super) fn pop(&self) -> Option<ObjectId> {
        let mut victims = self.victims.lock();
        let victim = victims.pop_front();
        self.len.store(victims.len(), Ordering::Relaxed);
        victim
    }

    pub(super) fn clear(&self) {
        let mut victims = self.victims.lock();
        victims.clear();
        self.len.store(0, Ordering::Relaxed);
    }
}
