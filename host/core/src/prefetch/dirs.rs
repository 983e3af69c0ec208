//! The directories that a policy knows, by id and by handle.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

use super::DirId;
use crate::handle::Handle;

/// How a directory stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is only known.
    Known,
    /// It is being listed ahead.
    UnderWay(Held),
    /// It was listed ahead and is not used yet.
    Ready(Held),
    /// Its client has begun to list it.
    Entered,
}

/// What a listing ahead has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

#[derive(Debug)]
pub(super) struct Dir {
    pub(super) handle: Handle,
    pub(super) standing: Standing,
    /// Its subdirectories were told, or are told by the listing ahead of it.
    pub(super) is_told: bool,
    /// The number of the last listing ahead of it.
    pub(super) listing: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Dirs {
    by_id: HashMap<DirId, Dir, FixedState>,
    by_handle: HashTable<DirId>,
    hasher: FixedState,
    given: u64,
}

impl Dirs {
    pub(super) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let (by_id, by_handle) = (HashMap::with_hasher(hasher.clone()), HashTable::new());
        Self { by_id, by_handle, hasher, given: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn find(&self, handle: &Handle) -> Option<DirId> {
        let hash = self.hasher.hash_one(handle);
        let is_it = |id: &DirId| self.by_id.get(id).is_some_and(|dir| dir.handle == *handle);
        self.by_handle.find(hash, is_it).copied()
    }

    pub(super) fn add(&mut self, handle: &Handle) -> DirId {
        self.given += 1;
        let id = DirId(self.given);
        let dir = Dir { handle: *handle, standing: Standing::Known, is_told: false, listing: 0 };
        self.by_id.insert(id, dir);
        let Self { by_id, by_handle, hasher, .. } = self;
        let hash_of = |id: &DirId| by_id.get(id).map_or(0, |dir| hasher.hash_one(dir.handle));
        by_handle.insert_unique(hasher.hash_one(handle), id, hash_of);
        id
    }

    /// Whether the id stands for a directory, or did.
    pub(super) fn was_given(&self, id: DirId) -> bool {
        (1..=self.given).contains(&id.0)
    }

    #[cfg(test)]
    pub(super) fn last_given(&self) -> u64 {
        self.given
    }

    pub(super) fn get(&self, id: DirId) -> Option<&Dir> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: DirId) -> Option<&mut Dir> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: DirId) -> Option<Dir> {
        let dir = self.by_id.remove(&id)?;
        let hash = self.hasher.hash_one(dir.handle);
        if let Ok(entry) = self.by_handle.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        Some(dir)
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.by_handle.clear();
    }

    /// Those that stand so, in the order of their ids.
    pub(super) fn of_standing(&self, is_it: impl Fn(Standing) -> bool) -> Vec<DirId> {
        let found = self.by_id.iter().filter(|(_, dir)| is_it(dir.standing));
        let mut found: Vec<_> = found.map(|(&id, _)| id).collect();
        found.sort_unstable();
        found
    }
}
