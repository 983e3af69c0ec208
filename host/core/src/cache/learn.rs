//! What a mutation of this tier's own teaches: what it made untrue leaves, what came of it enters.
//!
//! Between the moment at which a mutation was sent and its answer others may have changed the same
//! things, and nobody knows which change was applied last. So whatever was invalidated after the
//! [`MutationStamp`] is not learnt: neither what others are told to have changed, nor what another
//! mutation of this tier changed that was answered meanwhile. Fills that were asked before the
//! mutation was answered are late, whether the brick read before or after it applied it.
//!
//! A listing that is known stays known, for what changed is one name that is known from now on
//! (`listing` says where it comes). So in a directory that this tier fills itself, a name that it did
//! not make is known to be absent.

use super::DentryCache;
use super::common::Common;
use super::fence::{Asked, Mark};
use super::shard::Shard;
use super::slot::Content;
use crate::attr::Attr;
use crate::entry::Entry;
use crate::handle::Handle;
use crate::trace::Operation;
use crate::watch::Change;

/// The moment at which a mutation was about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct MutationStamp {
    asked: Asked,
}

/// What is true since a mutation. The tier that answered it watches these for this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// What a name stands for.
    Entry {
        /// The directory.
        dir: Handle,
        /// The name.
        name: Vec<u8>,
        /// The file.
        entry: Entry,
    },
    /// There is no such name.
    Absent {
        /// The directory.
        dir: Handle,
        /// The name.
        name: Vec<u8>,
    },
    /// Attributes.
    Attr {
        /// The file.
        handle: Handle,
        /// Its attributes.
        attr: Attr,
    },
    /// A directory that was made, and has no names.
    EmptyDir {
        /// The directory.
        dir: Handle,
    },
}

impl<W> DentryCache<W> {
    /// Notes that a mutation is about to be sent.
    pub fn begin_mutation(&self) -> MutationStamp {
        MutationStamp { asked: self.common.fence.ask() }
    }

    /// A mutation was answered: forgets `changes`, then takes in what was `learnt`, except for what
    /// was invalidated since `stamp`.
    pub fn learn(&self, now_ms: u64, stamp: MutationStamp, changes: &[Change], learnt: &[Learnt]) {
        if changes.contains(&Change::All) {
            return self.invalidate_all();
        }
        let common = &self.common;
        let marks: Vec<Mark> = changes.iter().flat_map(|change| common.marks(change)).collect();
        let depends: Vec<Vec<Mark>> = learnt.iter().map(|learnt| learnt.marks(common)).collect();
        let questions = depends.iter().map(Vec::as_slice);
        let (late, raised) = common.fence.raise_for(stamp.asked, &marks, questions);
        let known: Vec<_> = learnt.iter().zip(&depends).zip(late).collect();
        for change in changes {
            let renamed = |learnt: &Learnt| learnt.name().is_some_and(|name| name.is_of(change));
            if !known.iter().any(|((learnt, _), late)| !late && renamed(learnt)) {
                self.remove(change);
            }
        }
        for ((learnt, depends), _) in known.into_iter().filter(|(_, late)| !late) {
            let refreshed = match learnt {
                Learnt::Attr { handle, attr } => self.refresh(now_ms, raised, handle, attr),
                _ => false,
            };
            let changed = learnt.name().is_some_and(|name| changes.iter().any(|c| name.is_of(c)));
            let mut shard = self.shard(learnt.place()).write();
            shard.filled_for = Operation::Change;
            if !common.fence.is_late(raised, depends) {
                shard.take_in(common, now_ms, learnt, changed, refreshed);
            } else if let Some(Name { dir, name }) = learnt.name() {
                shard.forget_name(common, dir, name);
            }
        }
        self.make_room();
    }
}

/// One name of a directory.
struct Name<'a> {
    dir: &'a Handle,
    name: &'a [u8],
}

impl Name<'_> {
    fn is_of(&self, change: &Change) -> bool {
        matches!(change, Change::Name { dir, name } if dir == self.dir && name == self.name)
    }
}

impl Learnt {
    /// The name that it is about.
    fn name(&self) -> Option<Name<'_>> {
        match self {
            Learnt::Entry { dir, name, .. } | Learnt::Absent { dir, name } => {
                Some(Name { dir, name })
            }
            Learnt::Attr { .. } | Learnt::EmptyDir { .. } => None,
        }
    }

    /// The file in whose shard it is cached.
    fn place(&self) -> &Handle {
        match self {
            Learnt::Entry { dir, .. } | Learnt::Absent { dir, .. } | Learnt::EmptyDir { dir } => {
                dir
            }
            Learnt::Attr { handle, .. } => handle,
        }
    }

    /// What makes it untrue.
    fn marks(&self, common: &Common) -> Vec<Mark> {
        match self {
            Learnt::Entry { dir, name, entry } => {
                let [name, names] = common.name_marks(dir, name);
                vec![name, names, common.attr_mark(&entry.handle)]
            }
            Learnt::Absent { dir, name } => common.name_marks(dir, name).to_vec(),
            Learnt::Attr { handle, .. } => vec![common.attr_mark(handle)],
            Learnt::EmptyDir { dir } => vec![common.listing_mark(dir)],
        }
    }
}

impl<W> Shard<W> {
    /// Caches what was learnt. `changed`: this tier changed the name that it is about. `refreshed`:
    /// attributes are known where the file is listed.
    fn take_in(
        &mut self,
        common: &Common,
        now_ms: u64,
        learnt: &Learnt,
        changed: bool,
        refreshed: bool,
    ) {
        match learnt {
            Learnt::Entry { dir, name, entry } if changed => {
                self.exchange(common, now_ms, dir, name, Some(entry));
            }
            Learnt::Absent { dir, name } if changed => {
                self.exchange(common, now_ms, dir, name, None);
            }
            Learnt::Entry { dir, name, entry } => {
                self.insert_single(common, now_ms, dir, name, entry);
            }
            Learnt::Absent { dir, name } => self.insert_negative(common, now_ms, dir, name),
            Learnt::Attr { handle, attr } => {
                self.take_own(common, now_ms, handle, attr, refreshed);
            }
            Learnt::EmptyDir { dir } => {
                let listing = self.number_listing();
                self.finish_runs(common, now_ms, dir, listing, 0, true);
            }
        }
    }

    /// Puts what a name stands for now, or that there is none, in place of what it stood for. Which
    /// other names there are is as well known as before, and in which order they are listed: a name
    /// that stands for another file keeps its place.
    fn exchange(
        &mut self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
        name: &[u8],
        entry: Option<&Entry>,
    ) {
        let Some(number) = self.dir_or_new(common, dir) else { return };
        if let Some(entry) = entry
            && let Some(dir) = self.dir(number)
            && let Some(pos) = dir.find(common.hash(name), name)
            && let Some(slot) = dir.slot(pos.slot())
            && slot.is_run()
            && common.is_fresh(now_ms, slot.filled_at_ms)
            && self.take_in_place(common, number, pos, entry)
        {
            return;
        }
        self.clear_name(common, number, name);
        let Some(complete) = self.dir(number).map(|dir| dir.complete) else { return };
        if let Some(entry) = entry {
            self.put_single(common, now_ms, number, name, entry);
        } else if !complete {
            self.insert_slot(common, now_ms, number, Content::Negative(name.into()));
        }
        self.drop_if_vacant(common, number);
    }
}

#[cfg(test)]
#[path = "learn_tests.rs"]
mod tests;
