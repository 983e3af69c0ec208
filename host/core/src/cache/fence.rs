//! The fence against late fills: a reply asked for before an invalidation must not fill the cache.
//!
//! Every request to a brick notes the generation at which it was asked ([`Fence::ask`]); every
//! invalidation raises the generation of what it concerns. Order is decided by generation, never
//! by a clock. Replies may overtake invalidations on the network in either direction: what counts
//! is that anything asked after the fence was raised is answered from the changed state.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::handle::Handle;
use crate::limits::FENCE_MARKS_MAX;

/// When something was asked, counted in invalidations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asked(u64);

/// Generations of invalidations, one mark a handle; bounded.
#[derive(Debug, Default)]
pub(super) struct Fence {
    generation: AtomicU64,
    /// Everything asked before this is late, whatever it concerns.
    floor: AtomicU64,
    marks: Mutex<HashMap<Handle, u64>>,
    /// Length of `marks`, so that the usual case, none, costs no lock.
    marked: AtomicUsize,
}

impl Fence {
    /// Notes when a request is asked. Call it before the request is sent.
    pub(super) fn ask(&self) -> Asked {
        Asked(self.generation.load(Ordering::SeqCst))
    }

    /// Whether nothing at all was invalidated since `asked`: only then may somebody who asks now
    /// share the answer to a question from then, which may turn out to concern any file.
    pub(super) fn is_current(&self, asked: Asked) -> bool {
        asked == self.ask()
    }

    /// Makes everything asked so far about `handle` late. Call it before removing what is cached:
    /// a fill checks under the lock of its shard, so it either sees the mark or is removed.
    pub(super) fn raise(&self, handle: &Handle) {
        let mut marks = self.marks.lock();
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        if marks.len() >= FENCE_MARKS_MAX && !marks.contains_key(handle) {
            marks.clear();
            self.floor.store(generation, Ordering::SeqCst);
        } else {
            marks.insert(*handle, generation);
        }
        self.marked.store(marks.len(), Ordering::SeqCst);
    }

    /// Makes everything asked so far late.
    pub(super) fn raise_all(&self) {
        let mut marks = self.marks.lock();
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        self.floor.store(generation, Ordering::SeqCst);
        marks.clear();
        self.marked.store(0, Ordering::SeqCst);
    }

    /// Whether what was `asked` about `handle` is older than its last invalidation.
    pub(super) fn is_late(&self, asked: Asked, handle: &Handle) -> bool {
        if asked.0 < self.floor.load(Ordering::SeqCst) {
            return true;
        }
        if self.marked.load(Ordering::SeqCst) == 0 {
            // `raise_all` sets the floor before it clears the marks, so look again.
            return asked.0 < self.floor.load(Ordering::SeqCst);
        }
        self.marks.lock().get(handle).is_some_and(|&raised| asked.0 < raised)
            || asked.0 < self.floor.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::handle;

    #[test]
    fn only_what_was_asked_before_is_late() {
        let fence = Fence::default();
        let before = fence.ask();
        fence.raise(&handle(1));
        let after = fence.ask();
        assert!(fence.is_late(before, &handle(1)));
        assert!(!fence.is_late(before, &handle(2)));
        assert!(!fence.is_late(after, &handle(1)));
        fence.raise_all();
        assert!(fence.is_late(after, &handle(2)));
        assert!(!fence.is_late(fence.ask(), &handle(1)));
    }

    #[test]
    fn marks_stay_bounded_and_overflow_errs_towards_late() {
        let fence = Fence::default();
        let early = fence.ask();
        fence.raise(&handle(0));
        for number in 1..=3 * FENCE_MARKS_MAX as u64 {
            fence.raise(&handle(number));
            assert!(fence.marks.lock().len() <= FENCE_MARKS_MAX);
        }
        assert!(fence.is_late(early, &handle(0)), "forgotten one by one, kept by the floor");
        assert!(!fence.is_late(fence.ask(), &handle(7)));
    }
}
