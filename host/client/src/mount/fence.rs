//! What was forgotten of late: so that an answer that was on its way meanwhile is not cached.
//!
//! Whoever asks the gateway takes a stamp first. When the answer goes to the kernel and something
//! that it says was forgotten since, it is still a true answer to whoever waits for it, but the
//! kernel must ask again the next time. More is noted than can be remembered: then everything
//! counts as forgotten.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use portcullis_core::Handle;
use portcullis_core::watch::Change;

/// Changes remembered.
const RECENT_MAX: usize = 4096;
/// Stands for everything.
const ALL: u64 = u64::MAX;

/// See the module.
pub(super) struct Fence {
    hasher: RandomState,
    count: AtomicU64,
    recent: Mutex<VecDeque<Forgotten>>,
    /// Held for reading while an answer goes out, so that nothing is entered between the last look
    /// and the kernel's taking it.
    answering: RwLock<()>,
}

/// The moment at which something was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

/// Something that was forgotten, by its hash.
type Forgotten = u64;

/// What was forgotten since a moment: for many entries that were asked for together.
pub(super) struct Since<'a> {
    fence: &'a Fence,
    /// In order; `None` for more than is remembered.
    forgotten: Option<Box<[Forgotten]>>,
}

#[derive(Hash)]
enum Key<'a> {
    Attr(&'a Handle),
    Name(&'a Handle, &'a [u8]),
    Names(&'a Handle),
}

impl Since<'_> {
    /// Whether attributes asked for then still hold.
    pub(super) fn attr_holds(&self, handle: &Handle) -> bool {
        self.holds(|fence| [fence.key(&Key::Attr(handle))])
    }

    /// Whether what a name stands for, or that there is none, still holds.
    pub(super) fn name_holds(&self, dir: &Handle, name: &[u8]) -> bool {
        self.holds(|fence| [fence.key(&Key::Name(dir, name)), fence.key(&Key::Names(dir))])
    }

    fn holds<const N: usize>(&self, keys: impl FnOnce(&Fence) -> [Forgotten; N]) -> bool {
        match self.forgotten.as_deref() {
            Some([]) => true,
            Some(forgotten) if forgotten.last() != Some(&ALL) => {
                let keys = keys(self.fence);
                keys.iter().all(|key| forgotten.binary_search(key).is_err())
            }
            Some(_) | None => false,
        }
    }
}

impl Fence {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            count: AtomicU64::new(0),
            recent: Mutex::default(),
            answering: RwLock::new(()),
        }
    }

    /// Call it before something is asked.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp(self.count.load(Ordering::SeqCst))
    }

    /// Whether nothing at all was forgotten since; that stays so while the guard is held.
    pub(super) fn answering(&self, stamp: Stamp) -> (bool, RwLockReadGuard<'_, ()>) {
        let guard = self.answering.read();
        (self.stamp() == stamp, guard)
    }

    /// Something is no longer true.
    pub(super) fn enter(&self, changes: &[Change]) {
        let _answers_wait = self.answering.write();
        let mut recent = self.recent.lock();
        for change in changes {
            if recent.len() == RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back(match change {
                Change::Attr { handle } => self.key(&Key::Attr(handle)),
                Change::Name { dir, name } => self.key(&Key::Name(dir, name)),
                Change::Names { dir } => self.key(&Key::Names(dir)),
                Change::All => ALL,
            });
        }
        self.count.fetch_add(changes.len() as u64, Ordering::SeqCst);
    }

    /// What was forgotten since.
    pub(super) fn since(&self, stamp: Stamp) -> Since<'_> {
        if self.stamp() == stamp {
            return Since { fence: self, forgotten: Some(Box::default()) };
        }
        let recent = self.recent.lock();
        // Under the lock, so that it fits what is remembered.
        let since = (self.count.load(Ordering::SeqCst) - stamp.0) as usize;
        let forgotten = (since <= recent.len()).then(|| {
            let mut forgotten: Box<[_]> = recent.iter().rev().take(since).copied().collect();
            forgotten.sort_unstable();
            forgotten
        });
        Since { fence: self, forgotten }
    }

    /// Whether attributes asked for at `stamp` still hold.
    pub(super) fn attr_holds(&self, stamp: Stamp, handle: &Handle) -> bool {
        self.since(stamp).attr_holds(handle)
    }

    /// Whether what a name stands for, or that there is none, still holds.
    pub(super) fn name_holds(&self, stamp: Stamp, dir: &Handle, name: &[u8]) -> bool {
        self.since(stamp).name_holds(dir, name)
    }

    fn key(&self, key: &Key<'_>) -> u64 {
        // The greatest number stands for everything.
        self.hasher.hash_one(key) >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(n: u8) -> Handle {
        Handle::new(&[n]).expect("short")
    }

    fn name(n: u8, name: &str) -> Change {
        Change::Name { dir: handle(n), name: name.as_bytes().to_vec() }
    }

    #[test]
    fn what_was_forgotten_since_it_was_asked_does_not_hold() {
        let fence = Fence::new();
        fence.enter(&[Change::Attr { handle: handle(1) }]);
        let stamp = fence.stamp();
        assert!(fence.attr_holds(stamp, &handle(1)), "before it was asked");
        fence.enter(&[Change::Attr { handle: handle(2) }, name(1, "a")]);
        assert!(fence.attr_holds(stamp, &handle(1)) && !fence.attr_holds(stamp, &handle(2)));
        assert!(!fence.name_holds(stamp, &handle(1), b"a"));
        assert!(fence.name_holds(stamp, &handle(1), b"b"));
        assert!(fence.name_holds(stamp, &handle(2), b"a"));
        fence.enter(&[Change::Names { dir: handle(1) }]);
        assert!(!fence.name_holds(stamp, &handle(1), b"b"));
        assert!(fence.attr_holds(stamp, &handle(1)));
        fence.enter(&[Change::All]);
        assert!(!fence.attr_holds(stamp, &handle(1)));
        assert!(fence.attr_holds(fence.stamp(), &handle(1)));
    }

    #[test]
    fn where_too_much_was_forgotten_nothing_holds() {
        let fence = Fence::new();
        let stamp = fence.stamp();
        for _ in 0..RECENT_MAX {
            fence.enter(&[name(1, "a")]);
        }
        assert!(fence.attr_holds(stamp, &handle(2)));
        fence.enter(&[name(1, "a")]);
        assert!(!fence.attr_holds(stamp, &handle(2)));
        assert_eq!(fence.recent.lock().len(), RECENT_MAX);
    }
}
