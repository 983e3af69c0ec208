//! How far a walk is gone ahead of: a number of directories that doubles each time one of them is
//! used, and comes down where they are not.
//!
//! After Lustre's statahead. What must hold: it is never over its limit; where too much is in vain
//! nothing is fetched ahead until the walk has shown again, for longer than at first, that its way
//! can be told.

use crate::limits::{PREFETCH_WINDOW_DIRS_MAX, PREFETCH_WINDOW_DIRS_MIN};

/// So many in vain one after the other, and nothing is fetched ahead any more.
const WRONG_IN_A_ROW_MAX: u32 = 32;
/// So many outcomes are judged together.
const JUDGED: u32 = 32;
/// Directories that have to be entered in order until anything is fetched ahead: at first,
const PROOF_FIRST: u32 = 1;
/// and once it was wrong.
const PROOF_AGAIN: u32 = 8;
/// What another order than that of the listing counts for: three entries are proof at first.
const WEAK_PROOF: u32 = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Directories; 0 while nothing is fetched ahead.
    len_dirs: usize,
    right: u32,
    wrong: u32,
    wrong_in_a_row: u32,
    /// What speaks for a walk, in entries.
    proof: u32,
    weak_proof: u32,
    was_wrong: bool,
    /// What was judged last was too little: it does not grow until it is judged again.
    stays: bool,
}

impl Window {
    /// How many directories may be ahead.
    pub(super) fn len_dirs(&self) -> usize {
        self.len_dirs
    }

    pub(super) fn is_open(&self) -> bool {
        self.len_dirs > 0
    }

    /// A directory was entered that could have been ahead: the very next one, or, where not
    /// `in_order`, some other of those that can be told. For a closed window.
    pub(super) fn prove(&mut self, in_order: bool) {
        if in_order {
            self.proof += 1;
        } else if self.was_wrong {
            self.proof = 0;
        } else {
            self.weak_proof += 1;
        }
        let enough = if self.was_wrong {
            self.proof >= PROOF_AGAIN
        } else {
            self.proof >= PROOF_FIRST || self.weak_proof >= WEAK_PROOF
        };
        if enough {
            *self = Self { was_wrong: self.was_wrong, ..Self::default() };
            self.len_dirs = PREFETCH_WINDOW_DIRS_MIN;
        }
    }

    /// Something that was fetched ahead is used; `after_all` where it had been told to be wrong.
    pub(super) fn right(&mut self, after_all: bool) {
        self.right += 1;
        self.wrong -= u32::from(after_all).min(self.wrong);
        self.wrong_in_a_row = 0;
        self.grow();
        self.judge();
    }

    /// It was right, or would have been if it were larger. `false` where it cannot grow.
    pub(super) fn grow(&mut self) -> bool {
        if self.stays || self.len_dirs >= PREFETCH_WINDOW_DIRS_MAX {
            return false;
        }
        self.len_dirs = (self.len_dirs * 2).min(PREFETCH_WINDOW_DIRS_MAX);
        true
    }

    /// So much was fetched ahead in vain, or not that which was entered.
    pub(super) fn wrong(&mut self, count: u32) {
        self.wrong += count;
        self.wrong_in_a_row += 1;
        if self.wrong_in_a_row >= WRONG_IN_A_ROW_MAX {
            self.stop();
        }
        self.judge();
    }

    /// The walk does not go on: it has to be shown again, as at first.
    pub(super) fn close(&mut self) {
        *self = Self { was_wrong: self.was_wrong, ..Self::default() };
    }

    fn stop(&mut self) {
        *self = Self { was_wrong: true, ..Self::default() };
    }

    fn judge(&mut self) {
        let all = self.right + self.wrong;
        if all < JUDGED {
            return;
        }
        self.stays = self.right * 5 < all * 4;
        if self.stays {
            self.len_dirs /= 2;
            if self.len_dirs < PREFETCH_WINDOW_DIRS_MIN {
                self.stop();
            }
        }
        // Half of what there was is remembered.
        self.right /= 2;
        self.wrong /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Window {
        let mut window = Window::default();
        window.prove(true);
        window
    }

    #[test]
    fn it_doubles_from_eight_to_its_limit() {
        let mut window = open();
        let mut lens = vec![window.len_dirs()];
        while window.len_dirs() < PREFETCH_WINDOW_DIRS_MAX {
            window.right(false);
            lens.push(window.len_dirs());
        }
        assert_eq!(lens, [8, 16, 32, 64, 128, 256]);
        window.right(false);
        assert_eq!(window.len_dirs(), PREFETCH_WINDOW_DIRS_MAX);
    }

    #[test]
    fn three_quarters_are_too_few_and_nine_tenths_are_not() {
        for (right_of, stays) in [(4, false), (10, true)] {
            let mut window = open();
            for outcome in 0..1_000 {
                if outcome % right_of == 0 { window.wrong(1) } else { window.right(false) }
            }
            assert_eq!(window.len_dirs() == PREFETCH_WINDOW_DIRS_MAX, stays, "{right_of}");
        }
    }

    #[test]
    fn all_in_vain_ends_it_and_then_more_is_asked_to_begin_again() {
        let mut window = open();
        (0..9).for_each(|_| window.right(false));
        (0..WRONG_IN_A_ROW_MAX).for_each(|_| window.wrong(1));
        assert!(!window.is_open());
        (0..20).for_each(|_| window.prove(false));
        (1..PROOF_AGAIN).for_each(|_| window.prove(true));
        assert!(!window.is_open(), "not yet");
        window.prove(true);
        assert_eq!(window.len_dirs(), PREFETCH_WINDOW_DIRS_MIN);
    }
}
