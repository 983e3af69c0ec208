//! Operations on the names of one directory take turns.
//!
//! The kernel lets them take turns anyway. Ours begin earlier: what a name stands for is looked up
//! before it is removed or replaced, and must still be so when that happens, or the wrong file is
//! kept for its holders and the wrong one told as changed.

use std::hash::{BuildHasher, RandomState};

use parking_lot::{Mutex, MutexGuard};
use portcullis_core::Handle;

/// Directories that share a turn by chance wait for each other: few do.
const STRIPES: usize = 256;

/// The turns of all directories.
pub(super) struct Turns {
    stripes: Box<[Mutex<()>]>,
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }
}

/// A turn in one or two directories.
#[must_use = "the turn ends when it is dropped"]
pub(super) struct Turn<'a> {
    _first: MutexGuard<'a, ()>,
    _second: Option<MutexGuard<'a, ()>>,
}

impl Turns {
    /// Waits for the turn in `dir`.
    pub(super) fn of(&self, dir: &Handle) -> Turn<'_> {
        Turn { _first: self.stripes[self.stripe(dir)].lock(), _second: None }
    }

    /// Waits for the turn in both directories, which may be one.
    pub(super) fn of_both(&self, a: &Handle, b: &Handle) -> Turn<'_> {
        let (a, b) = (self.stripe(a), self.stripe(b));
        // Always in the same order: two renames the opposite ways do not wait for each other.
        let first = self.stripes[a.min(b)].lock();
        let second = (a != b).then(|| self.stripes[a.max(b)].lock());
        Turn { _first: first, _second: second }
    }

    fn stripe(&self, dir: &Handle) -> usize {
        self.hasher.hash_one(dir) as usize % STRIPES
    }
}
