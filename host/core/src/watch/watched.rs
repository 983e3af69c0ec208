//! What one session watches: hashes of handles, so a million entries cost some 10 MB.
//!
//! A watch on attributes is used up by being told: the session then knows nothing of that file
//! until it asks again, which registers anew. A watch on names stays, since a session that is told
//! of one name keeps the others; after [`NAMES_TOLD_MAX`] names it is told to forget them all.
//! Beyond the limit of all sessions together a session watches everything: it is told more than it
//! needs to hear, and nothing is lost, until it is told once to forget all it knows.
//!
//! A watch may be used up while the answer that registered it is still on its way. That loses
//! nothing: what used it up is told after the answer was asked for, so the answer is late where it
//! arrives ([`DentryCache::fill`](crate::cache::DentryCache::fill)).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::change::{Change, Key, Keys};
use crate::handle::Handle;
use crate::limits::{NAMES_TOLD_MAX, WATCHES_MAX};

/// Parts with a lock of their own, so that answers to one session rarely wait for each other.
const PARTS: usize = 8;

/// What one session watches. Registering costs a hash and one uncontended lock.
#[derive(Debug)]
pub struct Watched {
    keys: Keys,
    parts: [Mutex<Part>; PARTS],
    everything: AtomicBool,
    /// Held while `everything` changes and the watches are emptied, which belong together.
    emptying: Mutex<()>,
    /// Watches of all sessions of the tier.
    all: Arc<AtomicUsize>,
}

/// How often each key was told since it was registered.
type Part = HashMap<u64, u8, BuildHasherDefault<AsItIs>>;

/// Keys are hashes already.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "{bytes:?}: only whole words are hashed here");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

impl Watched {
    pub(super) fn new(keys: Keys, all: Arc<AtomicUsize>) -> Self {
        Self {
            keys,
            parts: Default::default(),
            everything: AtomicBool::default(),
            emptying: Mutex::default(),
            all,
        }
    }

    /// From now on this session is told when attributes or content of `handle` change.
    pub fn watch_attr(&self, handle: &Handle) {
        self.insert(self.keys.attr(handle));
    }

    /// From now on this session is told when a name of `dir` changes.
    pub fn watch_names(&self, dir: &Handle) {
        self.insert(self.keys.names(dir));
    }

    fn insert(&self, key: Key) {
        if self.everything.load(Ordering::SeqCst) {
            return;
        }
        let mut part = self.part(key).lock();
        // Counted under the lock, or a removal could be counted first.
        let new = part.insert(key.0, 0).is_none();
        let full = new && self.all.fetch_add(1, Ordering::Relaxed) >= WATCHES_MAX;
        drop(part);
        if full {
            let _emptying = self.emptying.lock();
            self.everything.store(true, Ordering::SeqCst);
            self.empty();
        }
    }

    /// What this session is to be told of a change that concerns `key`.
    pub(super) fn tell(&self, key: Option<Key>, change: &Change) -> Option<Change> {
        let Some(key) = key else { return Some(change.clone()) };
        let mut part = self.part(key).lock();
        let Some(told) = part.get_mut(&key.0) else {
            // Looked at after the watches, which may just have been given up for it.
            return self.everything.load(Ordering::SeqCst).then(|| change.clone());
        };
        *told += 1;
        let (told, used_up) = match change {
            Change::Name { dir, .. } if *told >= NAMES_TOLD_MAX => {
                (Change::Names { dir: *dir }, true)
            }
            Change::Name { .. } => (change.clone(), false),
            Change::Attr { .. } | Change::Names { .. } | Change::All => (change.clone(), true),
        };
        if used_up {
            part.remove(&key.0);
            self.all.fetch_sub(1, Ordering::Relaxed);
        }
        Some(told)
    }

    /// How many keys it watches; `None` where it watches everything.
    pub fn count(&self) -> Option<usize> {
        let count = || self.parts.iter().map(|part| part.lock().len()).sum();
        (!self.everything.load(Ordering::SeqCst)).then(count)
    }

    /// Forgets all watches: the session is being told that everything changed.
    pub(super) fn clear(&self) {
        let _emptying = self.emptying.lock();
        self.everything.store(false, Ordering::SeqCst);
        self.empty();
    }

    fn empty(&self) {
        for part in &self.parts {
            let gone = std::mem::take(&mut *part.lock()).len();
            self.all.fetch_sub(gone, Ordering::Relaxed);
        }
    }

    fn part(&self, key: Key) -> &Mutex<Part> {
        &self.parts[(key.0 >> 32) as usize % PARTS]
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::handle;

    fn watched() -> Watched {
        Watched::new(Keys::new(7), Arc::default())
    }

    fn tell(watched: &Watched, change: Change) -> Option<Change> {
        watched.tell(watched.keys.of(&change), &change)
    }

    #[test]
    fn attributes_are_told_once_and_names_again_and_again() {
        let watched = watched();
        watched.watch_attr(&handle(1));
        watched.watch_names(&handle(1));
        let attr = Change::Attr { handle: handle(1) };
        assert_eq!(tell(&watched, attr.clone()), Some(attr.clone()));
        assert_eq!(tell(&watched, attr), None, "used up");
        assert_eq!(tell(&watched, Change::Attr { handle: handle(2) }), None);
        for _ in 1..NAMES_TOLD_MAX {
            let name = Change::Name { dir: handle(1), name: b"a".to_vec() };
            assert_eq!(tell(&watched, name.clone()), Some(name));
        }
        let name = Change::Name { dir: handle(1), name: b"a".to_vec() };
        assert_eq!(tell(&watched, name.clone()), Some(Change::Names { dir: handle(1) }));
        assert_eq!(tell(&watched, name), None, "all names are forgotten");
        assert_eq!(watched.count(), Some(0));
    }

    #[test]
    fn beyond_the_limit_everything_is_watched_and_the_count_of_all_stays_right() {
        let all = Arc::new(AtomicUsize::new(WATCHES_MAX - 1));
        let watched = Watched::new(Keys::new(7), all.clone());
        watched.watch_attr(&handle(1));
        watched.watch_attr(&handle(1));
        assert_eq!((watched.count(), all.load(Ordering::Relaxed)), (Some(1), WATCHES_MAX));
        watched.watch_attr(&handle(2));
        assert_eq!((watched.count(), all.load(Ordering::Relaxed)), (None, WATCHES_MAX - 1));
        let other = Change::Attr { handle: handle(3) };
        assert_eq!(tell(&watched, other.clone()), Some(other.clone()));
        assert_eq!(tell(&watched, other.clone()), Some(other.clone()), "nothing is used up");
        watched.clear();
        assert_eq!(tell(&watched, other.clone()), None, "it forgot everything, and watches anew");
        watched.watch_attr(&handle(3));
        assert_eq!(tell(&watched, other.clone()), Some(other));
        drop(watched);
        assert_eq!(all.load(Ordering::Relaxed), WATCHES_MAX - 1);
    }

    /// A change that comes while the watches are given up for "everything" is told all the same, and
    /// the count of all never goes below what is there, which would look like too many.
    #[test]
    fn no_change_is_missed_while_the_mode_changes() {
        const ROUNDS: usize = 2_000;
        for _ in 0..ROUNDS {
            let all = Arc::new(AtomicUsize::new(WATCHES_MAX - 1));
            let watched = Watched::new(Keys::new(7), all.clone());
            watched.watch_attr(&handle(1));
            std::thread::scope(|scope| {
                scope.spawn(|| watched.watch_attr(&handle(2)));
                assert!(tell(&watched, Change::Attr { handle: handle(1) }).is_some());
            });
            drop(watched);
            assert_eq!(all.load(Ordering::Relaxed), WATCHES_MAX - 1);
        }
        for _ in 0..ROUNDS {
            let watched = watched();
            std::thread::scope(|scope| {
                scope.spawn(|| watched.watch_attr(&handle(1)));
                tell(&watched, Change::Attr { handle: handle(1) });
            });
            assert!(watched.count().is_some(), "one watch is not too many");
        }
    }
}
