//! Where files were last seen: directory and name, for handles that the kernel cannot open.
//!
//! A place is a guess, checked whenever it is used: the file there must still have the handle. A
//! rename therefore makes a handle stale until its new name is looked up or listed.
//!
//! Memory is bounded. Each of the two tables (directories apart, so that the files of a huge
//! directory never push out the directories that lead to others) has two generations: what is
//! used moves to the young one, and when that is full the old one is dropped.

use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::Mutex;
use portcullis_core::Handle;
use portcullis_core::limits::{PLACES_DIRS_MAX, PLACES_FILES_MAX};

/// Longest chain of directories followed from a file to the root. Places that are no longer true
/// can form a ring.
const DEPTH_MAX: usize = 4096;

/// A directory, and a name in it.
type Seen = (Arc<[u8]>, Box<[u8]>);

/// The places of one export.
pub(crate) struct Places {
    dirs: Mutex<Generations>,
    files: Mutex<Generations>,
    hasher: RandomState,
}

impl Default for Places {
    fn default() -> Self {
        Self::with_limits(PLACES_DIRS_MAX, PLACES_FILES_MAX)
    }
}

impl Places {
    fn with_limits(dirs: usize, files: usize) -> Self {
        Self {
            dirs: Mutex::new(Generations::new(dirs)),
            files: Mutex::new(Generations::new(files)),
            hasher: RandomState::new(),
        }
    }

    /// Notes that `handle` was seen as `name` in `parent`.
    pub(crate) fn remember(&self, handle: &Handle, is_dir: bool, parent: &Arc<[u8]>, name: &[u8]) {
        let table = if is_dir { &self.dirs } else { &self.files };
        let hash = self.hash(handle.as_bytes());
        // Dropping a generation frees up to half a million allocations: not under the lock.
        let dropped = table.lock().insert(hash, Place::new(handle, parent, name), &self.hasher);
        drop(dropped);
    }

    /// Directory and name of a handle, `None` where it is not known (any more).
    pub(crate) fn find(&self, handle: &Handle) -> Option<(Handle, Box<[u8]>)> {
        let place = self.place(handle.as_bytes())?;
        Some((Handle::new(&place.0)?, place.1))
    }

    /// The names that lead from a directory which `is_anchor` to the file of `handle`, and the
    /// handle of that directory.
    pub(crate) fn path(
        &self,
        handle: &Handle,
        is_anchor: impl Fn(&[u8]) -> bool,
    ) -> Option<(Handle, Vec<Box<[u8]>>)> {
        let mut names = Vec::new();
        let mut at: Arc<[u8]> = handle.as_bytes().into();
        while !is_anchor(&at) {
            if names.len() == DEPTH_MAX {
                return None;
            }
            let (parent, name) = self.place(&at)?;
            names.push(name);
            at = parent;
        }
        names.reverse();
        Some((Handle::new(&at)?, names))
    }

    fn place(&self, handle: &[u8]) -> Option<Seen> {
        let hash = self.hash(handle);
        let find = |table: &Mutex<Generations>| {
            let (found, dropped) = table.lock().find(hash, handle, &self.hasher)?;
            drop(dropped);
            Some(found)
        };
        find(&self.dirs).or_else(|| find(&self.files))
    }

    fn hash(&self, handle: &[u8]) -> u64 {
        self.hasher.hash_one(handle)
    }
}

/// One table, in two halves.
struct Generations {
    young: HashTable<Place>,
    old: HashTable<Place>,
    young_max: usize,
}

impl Generations {
    fn new(limit: usize) -> Self {
        Self { young: HashTable::new(), old: HashTable::new(), young_max: limit / 2 }
    }

    /// Inserts or replaces a place; answers the generation that had to go.
    fn insert(
        &mut self,
        hash: u64,
        place: Place,
        hasher: &RandomState,
    ) -> Option<HashTable<Place>> {
        let same = |other: &Place| other.handle() == place.handle();
        let rehash = |place: &Place| hasher.hash_one(place.handle());
        match self.young.entry(hash, same, rehash) {
            Entry::Occupied(mut known) => {
                *known.get_mut() = place;
                return None;
            }
            Entry::Vacant(free) => free.insert(place),
        };
        (self.young.len() >= self.young_max)
            .then(|| mem::replace(&mut self.old, mem::take(&mut self.young)))
    }

    /// Directory and name of a handle, and the generation that had to go.
    fn find(
        &mut self,
        hash: u64,
        handle: &[u8],
        hasher: &RandomState,
    ) -> Option<(Seen, Option<HashTable<Place>>)> {
        if let Some(place) = self.young.find(hash, |place| place.handle() == handle) {
            return Some((place.seen(), None));
        }
        let found = self.old.find_entry(hash, |place| place.handle() == handle).ok()?;
        let (place, _) = found.remove();
        let seen = place.seen();
        Some((seen, self.insert(hash, place, hasher)))
    }
}

/// Where one file was seen.
struct Place {
    parent: Arc<[u8]>,
    /// Length of the handle, handle, name: one allocation for both.
    packed: Box<[u8]>,
}

impl Place {
    fn new(handle: &Handle, parent: &Arc<[u8]>, name: &[u8]) -> Self {
        let handle = handle.as_bytes();
        let packed = [&[handle.len() as u8], handle, name].concat().into_boxed_slice();
        Self { parent: parent.clone(), packed }
    }

    fn handle(&self) -> &[u8] {
        &self.packed[1..=usize::from(self.packed[0])]
    }

    fn seen(&self) -> Seen {
        let name = &self.packed[1 + usize::from(self.packed[0])..];
        (self.parent.clone(), name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u64) -> Handle {
        Handle::new(&number.to_le_bytes()).expect("short")
    }

    fn key(number: u64) -> Arc<[u8]> {
        number.to_le_bytes()[..].into()
    }

    fn is_root(handle: &[u8]) -> bool {
        handle == 0u64.to_le_bytes()
    }

    #[test]
    fn a_path_leads_from_the_anchor_and_follows_a_rename() {
        let places = Places::default();
        places.remember(&handle(1), true, &key(0), b"a");
        places.remember(&handle(2), true, &key(1), b"b");
        places.remember(&handle(3), false, &key(2), b"c");
        let (anchor, names) = places.path(&handle(3), is_root).expect("known");
        assert_eq!(anchor, handle(0));
        assert_eq!(names, [b"a"[..].into(), b"b"[..].into(), b"c"[..].into()]);
        places.remember(&handle(3), false, &key(1), b"d");
        let (_, names) = places.path(&handle(3), is_root).expect("known");
        assert_eq!(names, [Box::<[u8]>::from(&b"a"[..]), b"d"[..].into()]);
        assert_eq!(places.path(&handle(9), is_root), None);
    }

    #[test]
    fn a_ring_ends() {
        let places = Places::default();
        places.remember(&handle(1), true, &key(2), b"a");
        places.remember(&handle(2), true, &key(1), b"b");
        assert_eq!(places.path(&handle(1), is_root), None);
    }

    #[test]
    fn memory_is_bounded_what_is_used_stays_and_files_do_not_push_out_directories() {
        let places = Places::with_limits(8, 64);
        places.remember(&handle(1), true, &key(0), b"dir");
        for number in 100..10_000 {
            places.remember(&handle(number), false, &key(1), b"file");
            assert!(places.find(&handle(100)).is_some(), "used each time, after {number}");
            let files = places.files.lock();
            assert!(files.young.len() + files.old.len() <= 64);
        }
        assert!(places.find(&handle(1)).is_some());
        assert_eq!(places.find(&handle(101)), None);
        assert!(places.find(&handle(9_999)).is_some());
    }
}
