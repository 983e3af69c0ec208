//! How far one run of a directory's subdirectories is gone ahead of.
//!
//! The rule of Lustre's statahead (`lustre/llite/statahead.c`, told in words): the window begins with 8
//! and doubles with each hit; the run ends where after 32 hits less than four in five were right, or
//! after 32 misses one after the other. Lustre's window ends at 128, ours at
//! [`PREFETCH_WINDOW_DIRS_MAX`].

use crate::limits::{PREFETCH_WINDOW_DIRS_MAX, PREFETCH_WINDOW_DIRS_MIN};

/// Hits before their share is judged, and misses one after the other that end a run.
const JUDGED: u64 = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Controller {
    window_dirs: usize,
    hits: u64,
    misses: u64,
    misses_in_a_row: u64,
}

impl Controller {
    pub(super) fn new() -> Self {
        let window_dirs = PREFETCH_WINDOW_DIRS_MIN;
        Self { window_dirs, hits: 0, misses: 0, misses_in_a_row: 0 }
    }

    /// Directories that may be ahead.
    pub(super) fn window_dirs(&self) -> usize {
        self.window_dirs
    }

    /// What was listed ahead is used.
    pub(super) fn hit(&mut self) {
        self.hits += 1;
        self.misses_in_a_row = 0;
        self.window_dirs = (self.window_dirs * 2).min(PREFETCH_WINDOW_DIRS_MAX);
    }

    /// Something else was entered than was listed ahead, or that was in vain.
    pub(super) fn miss(&mut self) {
        self.misses += 1;
        self.misses_in_a_row += 1;
    }

    /// Whether the run ends.
    pub(super) fn is_wrong(&self) -> bool {
        let is_too_few = self.hits > JUDGED && self.hits < 4 * self.misses;
        is_too_few || self.misses_in_a_row > JUDGED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_from_eight() {
        let mut controller = Controller::new();
        let mut windows = vec![controller.window_dirs()];
        for _ in 0..6 {
            controller.hit();
            windows.push(controller.window_dirs());
        }
        assert_eq!(windows, [8, 16, 32, 64, 128, 256, 256]);
    }

    #[test]
    fn it_ends_below_four_in_five_once_there_were_enough() {
        for (hits, misses, is_wrong) in
            [(32, 9, false), (33, 8, false), (33, 9, true), (40, 10, false)]
        {
            let mut controller = Controller::new();
            (0..misses).for_each(|_| controller.miss());
            (0..hits).for_each(|_| controller.hit());
            assert_eq!(controller.is_wrong(), is_wrong, "{hits} hits, {misses} misses");
        }
    }

    #[test]
    fn it_ends_after_misses_in_a_row_whatever_was_before() {
        let mut controller = Controller::new();
        (0..10_000).for_each(|_| controller.hit());
        (0..JUDGED).for_each(|_| controller.miss());
        assert!(!controller.is_wrong());
        controller.miss();
        assert!(controller.is_wrong());
    }
}
