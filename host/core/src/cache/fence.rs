//! The fence against late fills: a reply asked for before an invalidation must not fill the cache.
//!
//! Every request to a brick notes the generation at which it was asked ([`Fence::ask`]); every
//! invalidation raises the generation of what it concerns. Order is decided by generation, never
//! by a clock. Replies may overtake invalidations on the network in either direction: what counts
//! is that anything asked after the fence was raised is answered from the changed state.
//!
//! What something concerns are [`Mark`]s, hashes: two that collide make each other's fills late,
//! which costs a question and nothing else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use parking_lot::Mutex;

use crate::limits::FENCE_MARKS_MAX;

/// When something was asked, counted in invalidations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked(u64);

/// What an invalidation concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mark(pub(crate) u64);

/// Generations of invalidations, one a mark; bounded.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    generation: AtomicU64,
    /// Everything asked before this is late, whatever it concerns.
    floor: AtomicU64,
    raised: Mutex<Raised>,
}

/// The generation of each mark, in two halves: the older one is forgotten as a whole, so that what
/// was asked lately is judged by marks alone.
#[derive(Debug, Default)]
struct Raised {
    young: HashMap<Mark, u64, FixedState>,
    old: HashMap<Mark, u64, FixedState>,
    /// No mark of `old` is newer.
    old_until: u64,
}

impl Fence {
    /// Notes when a request is asked. Call it before the request is sent.
    pub(crate) fn ask(&self) -> Asked {
        Asked(self.generation.load(Ordering::SeqCst))
    }

    /// Whether nothing at all was invalidated since `asked`: only then may somebody who asks now
    /// share the answer to a question from then, which may turn out to concern any file.
    pub(crate) fn is_current(&self, asked: Asked) -> bool {
        asked == self.ask()
    }

    /// Makes everything asked so far about `marks` late. Call it before removing what is cached:
    /// a fill checks under the lock of its shard, so it either sees the marks or is removed.
    pub(crate) fn raise(&self, marks: &[Mark]) {
        self.enter(&mut self.raised.lock(), marks);
    }

    /// As [`Fence::raise`], for what came of a request `asked` then. Answers whether each of
    /// `questions` was late before; and the moment of the raise, later than everything else that
    /// was invalidated so far.
    pub(crate) fn raise_for<'a>(
        &self,
        asked: Asked,
        marks: &[Mark],
        questions: impl Iterator<Item = &'a [Mark]>,
    ) -> (Vec<bool>, Asked) {
        let mut raised = self.raised.lock();
        let floor = self.floor.load(Ordering::SeqCst);
        let late = questions
            .map(|marks| asked.0 < floor || marks.iter().any(|&mark| asked.0 < raised.of(mark)))
            .collect();
        (late, self.enter(&mut raised, marks))
    }

    fn enter(&self, raised: &mut Raised, marks: &[Mark]) -> Asked {
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        for &mark in marks {
            if raised.young.len() >= FENCE_MARKS_MAX / 2 && !raised.young.contains_key(&mark) {
                self.floor.store(raised.old_until, Ordering::SeqCst);
                raised.old = std::mem::take(&mut raised.young);
                raised.old_until = generation;
            }
            raised.young.insert(mark, generation);
        }
        Asked(generation)
    }

    /// Makes everything asked so far late.
    pub(crate) fn raise_all(&self) {
        let mut raised = self.raised.lock();
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        self.floor.store(generation, Ordering::SeqCst);
        *raised = Raised { old_until: generation, ..Raised::default() };
    }

    /// Whether what was `asked` is older than the last invalidation of any of `marks`.
    pub(crate) fn is_late(&self, asked: Asked, marks: &[Mark]) -> bool {
        if self.is_current(asked) {
            return false;
        }
        let raised = self.raised.lock();
        asked.0 < self.floor.load(Ordering::SeqCst)
            || marks.iter().any(|&mark| asked.0 < raised.of(mark))
    }
}

impl Raised {
    /// When `mark` was raised last, as far as it is remembered.
    fn of(&self, mark: Mark) -> u64 {
        let generation = self.young.get(&mark).or_else(|| self.old.get(&mark));
        generation.copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_before_is_late() {
        let fence = Fence::default();
        let before = fence.ask();
        fence.raise(&[Mark(1), Mark(3)]);
        let after = fence.ask();
        assert!(fence.is_late(before, &[Mark(1)]));
        assert!(fence.is_late(before, &[Mark(2), Mark(3)]), "any of them");
        assert!(!fence.is_late(before, &[Mark(2)]));
        assert!(!fence.is_late(after, &[Mark(1)]));
        fence.raise_all();
        assert!(fence.is_late(after, &[Mark(2)]));
        assert!(!fence.is_late(fence.ask(), &[Mark(1)]));
    }

    #[test]
    fn what_a_raise_finds_is_what_others_raised_before_it() {
        let fence = Fence::default();
        let asked = fence.ask();
        fence.raise(&[Mark(1)]);
        let questions = [[Mark(1)], [Mark(2)]];
        let questions = || questions.iter().map(|marks| &marks[..]);
        let (late, raised) = fence.raise_for(asked, &[Mark(1), Mark(2)], questions());
        assert_eq!(late, [true, false], "its own raise does not count");
        assert!(!fence.is_late(raised, &[Mark(1), Mark(2)]));
        assert!(fence.is_late(asked, &[Mark(2)]));
        fence.raise_all();
        assert_eq!(fence.raise_for(raised, &[], questions()).0, [true, true]);
    }

    #[test]
    fn marks_stay_bounded_and_overflow_errs_towards_late() {
        let fence = Fence::default();
        let early = fence.ask();
        fence.raise(&[Mark(0)]);
        for number in 1..=3 * FENCE_MARKS_MAX as u64 {
            let lately = fence.ask();
            fence.raise(&[Mark(number)]);
            assert!(!fence.is_late(lately, &[Mark(0)]), "{number}: asked lately");
            let raised = fence.raised.lock();
            assert!(raised.young.len() + raised.old.len() <= FENCE_MARKS_MAX);
        }
        assert!(fence.is_late(early, &[Mark(0)]), "forgotten one by one, kept by the floor");
        assert!(!fence.is_late(fence.ask(), &[Mark(7)]));
    }
}
