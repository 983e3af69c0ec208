//! The tree that a volume is for everybody who uses it: one file system, each operation done at
//! once.

use std::collections::BTreeMap;

use portcullis_core::volume::{DirId, Place};
use portcullis_core::{Handle, Status};

pub(crate) const NOREPLACE: u32 = 1;
pub(crate) const EXCHANGE: u32 = 2;

/// Handles as keys that have an order, so that a seed gives the same run each time.
pub(crate) type Key = Vec<u8>;

pub(crate) fn key(handle: &Handle) -> Key {
    handle.as_bytes().to_vec()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dir {
    pub(crate) names: BTreeMap<Vec<u8>, Handle>,
    /// `None` of the root.
    pub(crate) parent: Option<Handle>,
    pub(crate) mode: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) dirs: BTreeMap<Key, Dir>,
    /// How many names each file has.
    pub(crate) files: BTreeMap<Key, u32>,
}

type Done = Result<(), Status>;

impl Tree {
    pub(crate) fn new(root: &Handle) -> Self {
        let mut tree = Self::default();
        tree.dirs.insert(key(root), Dir { mode: 0o755, ..Dir::default() });
        tree
    }

    pub(crate) fn get(&self, place: &Place) -> Option<Handle> {
        self.dirs.get(&key(&place.dir))?.names.get(&place.name).copied()
    }

    pub(crate) fn is_dir(&self, handle: &Handle) -> bool {
        self.dirs.contains_key(&key(handle))
    }

    fn dir(&mut self, place: &Place) -> Result<&mut Dir, Status> {
        self.dirs.get_mut(&key(&place.dir)).ok_or(Status::NotFound)
    }

    fn vacant(&mut self, place: &Place) -> Done {
        let dir = self.dir(place)?;
        if dir.names.contains_key(&place.name) { Err(Status::Exists) } else { Ok(()) }
    }

    fn set(&mut self, place: &Place, handle: Handle) -> Done {
        self.dir(place)?.names.insert(place.name.clone(), handle);
        Ok(())
    }

    fn take(&mut self, place: &Place) -> Result<Handle, Status> {
        self.dir(place)?.names.remove(&place.name).ok_or(Status::NotFound)
    }

    pub(crate) fn create(&mut self, place: &Place, file: Handle) -> Done {
        self.vacant(place)?;
        self.files.insert(key(&file), 1);
        self.set(place, file)
    }

    pub(crate) fn mkdir(&mut self, place: &Place, id: DirId, mode: u32) -> Done {
        self.vacant(place)?;
        let dir = Dir { parent: Some(place.dir), mode, ..Dir::default() };
        self.dirs.insert(key(&id.handle()), dir);
        self.set(place, id.handle())
    }

    pub(crate) fn link(&mut self, file: &Handle, place: &Place) -> Done {
        self.vacant(place)?;
        // It may have lost its last name since the link began, which keeps the file.
        *self.files.entry(key(file)).or_insert(0) += 1;
        self.set(place, *file)
    }

    fn drop_name(&mut self, file: &Handle) {
        let key = key(file);
        if let Some(names) = self.files.get_mut(&key) {
            *names -= 1;
            if *names == 0 {
                self.files.remove(&key);
            }
        }
    }

    pub(crate) fn unlink(&mut self, place: &Place) -> Done {
        self.dir(place)?;
        let file = self.get(place).ok_or(Status::NotFound)?;
        if self.is_dir(&file) {
            return Err(Status::IsDirectory);
        }
        self.take(place)?;
        self.drop_name(&file);
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, place: &Place) -> Done {
        self.dir(place)?;
        let handle = self.get(place).ok_or(Status::NotFound)?;
        let dir = self.dirs.get(&key(&handle)).ok_or(Status::NotDirectory)?;
        if !dir.names.is_empty() {
            return Err(Status::NotEmpty);
        }
        self.take(place)?;
        self.dirs.remove(&key(&handle));
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &Place, to: &Place, flags: u32) -> Done {
        self.dir(from)?;
        self.dir(to)?;
        let moved = self.get(from).ok_or(Status::NotFound)?;
        let other = self.get(to);
        if other == Some(moved) && flags != NOREPLACE {
            return Ok(());
        }
        self.is_acyclic(&moved, &to.dir)?;
        match other {
            Some(_) if flags == NOREPLACE => return Err(Status::Exists),
            Some(other) if flags == EXCHANGE => {
                self.is_acyclic(&other, &from.dir)?;
                self.move_to(from, &other)?;
            }
            None if flags == EXCHANGE => return Err(Status::NotFound),
            Some(other) => {
                self.replace(&moved, &other)?;
                self.take(from)?;
            }
            None => {
                self.take(from)?;
            }
        }
        self.move_to(to, &moved)
    }

    fn move_to(&mut self, place: &Place, moved: &Handle) -> Done {
        self.set(place, *moved)?;
        if let Some(dir) = self.dirs.get_mut(&key(moved)) {
            dir.parent = Some(place.dir);
        }
        Ok(())
    }

    fn replace(&mut self, moved: &Handle, other: &Handle) -> Done {
        match (self.is_dir(moved), self.dirs.get(&key(other))) {
            (true, None) => Err(Status::NotDirectory),
            (false, Some(_)) => Err(Status::IsDirectory),
            (true, Some(dir)) if !dir.names.is_empty() => Err(Status::NotEmpty),
            (true, Some(_)) => {
                self.dirs.remove(&key(other));
                Ok(())
            }
            (false, None) => {
                self.drop_name(other);
                Ok(())
            }
        }
    }

    /// Whether `moved` is not above `parent`.
    fn is_acyclic(&self, moved: &Handle, parent: &Handle) -> Done {
        let mut above = Some(*parent);
        while let Some(dir) = above {
            if dir == *moved {
                return Err(Status::InvalidArgument);
            }
            above = self.dirs.get(&key(&dir)).and_then(|dir| dir.parent);
        }
        Ok(())
    }
}
