//! What a change makes untrue, in terms of what others may have cached.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};

use crate::handle::Handle;

/// Something that is no longer as it was told. Changes may be told more than once, in any order
/// and together with others: each means "forget this".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Change {
    /// The attributes or the content of a file. Of a directory: its own attributes, not its names.
    Attr {
        /// The file.
        handle: Handle,
    },
    /// What one name of a directory stands for, or whether there is such a name.
    Name {
        /// The directory.
        dir: Handle,
        /// The name.
        #[serde(with = "serde_bytes")]
        name: Vec<u8>,
    },
    /// Any name of a directory.
    Names {
        /// The directory.
        dir: Handle,
    },
    /// Everything that was ever told.
    All,
}

/// What is watched, as a hash: two things that share one are told of each other's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub(super) u64);

/// The two sorts of watch that a handle can have.
#[derive(Hash)]
enum Sort {
    Attr,
    Names,
}

/// Hashes handles to keys, by a seed that peers do not know.
#[derive(Clone, Debug)]
pub(super) struct Keys(FixedState);

impl Keys {
    pub(super) fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// The attributes and content of a file.
    pub(super) fn attr(&self, handle: &Handle) -> Key {
        Key(self.0.hash_one((Sort::Attr, handle)))
    }

    /// The names of a directory.
    pub(super) fn names(&self, dir: &Handle) -> Key {
        Key(self.0.hash_one((Sort::Names, dir)))
    }

    /// What a change concerns; `None` for all there is.
    pub(super) fn of(&self, change: &Change) -> Option<Key> {
        match change {
            Change::Attr { handle } => Some(self.attr(handle)),
            Change::Name { dir, .. } | Change::Names { dir } => Some(self.names(dir)),
            Change::All => None,
        }
    }
}
