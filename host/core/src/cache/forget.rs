//! What is no longer true leaves the cache, and what was asked before does not come in any more.
//!
//! Always in this order: the fence is raised, then what is cached is removed under the lock of its
//! shard. A fill on its way takes the same lock, and either finds the fence raised or is removed.

use super::DentryCache;
use super::common::Common;
use super::nodes::Place;
use super::shard::{KEEP, Shard};
use super::slot::Content;
use crate::eviction::Removal;
use crate::handle::Handle;
use crate::watch::Change;

impl<W> DentryCache<W> {
    /// Forgets what is no longer true.
    pub fn forget(&self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::All => self.invalidate_all(),
                _ => {
                    self.common.fence.raise(&self.common.marks(change));
                    self.remove(change);
                }
            }
        }
    }

    /// Forgets all that is known of a file: its attributes wherever they are listed, and its names
    /// if it is a directory.
    pub fn invalidate(&self, handle: &Handle) {
        self.forget(&[Change::Names { dir: *handle }, Change::Attr { handle: *handle }]);
    }

    /// Forgets what is known of one name of a directory.
    pub fn invalidate_name(&self, dir: &Handle, name: &[u8]) {
        self.forget(&[Change::Name { dir: *dir, name: name.to_vec() }]);
    }

    /// Forgets everything: the session through which it was learnt is lost.
    pub fn invalidate_all(&self) {
        self.common.fence.raise_all();
        for shard in &self.shards {
            shard.write().forget_all(&self.common);
        }
    }

    /// Removes what a change makes untrue; the fence is raised.
    pub(super) fn remove(&self, change: &Change) {
        match change {
            Change::Attr { handle } => {
                self.shard(handle).write().forget_own(&self.common, handle);
                let hash = self.common.hash(handle.as_bytes());
                for place in self.common.nodes.candidates(hash) {
                    let mut shard = self.shards[place.shard as usize].write();
                    shard.forget_place(&self.common, place, handle);
                }
            }
            Change::Name { dir, name } => {
                self.shard(dir).write().forget_name(&self.common, dir, name);
            }
            Change::Names { dir } => self.shard(dir).write().forget_names(&self.common, dir),
            Change::All => {}
        }
    }
}

impl<W> Shard<W> {
    /// Forgets everything.
    fn forget_all(&mut self, common: &Common) {
        for number in 0..self.dir_numbers() {
            self.forget_slots(common, number, |_| true);
        }
    }

    /// Forgets all names of a directory, and its listing.
    fn forget_names(&mut self, common: &Common, dir: &Handle) {
        if let Some(number) = self.dir_number(common, dir) {
            self.forget_slots(common, number, |content| !matches!(content, Content::Own(_)));
        }
    }

    /// Forgets attributes asked for by handle.
    fn forget_own(&mut self, common: &Common, handle: &Handle) {
        if let Some(number) = self.dir_number(common, handle)
            && let Some(own) = self.dir(number).and_then(|dir| dir.own)
        {
            self.remove_slot(common, number, u32::from(own), Removal::Invalidated);
        }
    }

    /// Forgets what of a directory `is_untrue`, its listing among it.
    fn forget_slots(&mut self, common: &Common, number: u32, is_untrue: impl Fn(&Content) -> bool) {
        let Some(dir) = self.dir_mut(number) else { return };
        dir.filling = KEEP;
        let slots = dir.slots.numbers();
        for slot in 0..slots {
            let content = self.dir(number).and_then(|dir| dir.slot(slot)).map(|slot| &slot.content);
            if content.is_some_and(&is_untrue) {
                self.remove_slot(common, number, slot, Removal::Invalidated);
            }
        }
        if let Some(dir) = self.dir_mut(number) {
            dir.filling = 0;
            dir.complete = false;
            dir.ordered = false;
        }
        self.drop_if_vacant(common, number);
    }

    /// Forgets what is known of one name; the listing is then neither complete nor ordered.
    pub(super) fn forget_name(&mut self, common: &Common, dir: &Handle, name: &[u8]) {
        let Some(number) = self.dir_number(common, dir) else { return };
        let hash = common.hash(name);
        let Some(dir) = self.dir_mut(number) else { return };
        dir.complete = false;
        dir.ordered = false;
        dir.filling = 0;
        if let Some(pos) = dir.find(hash, name)
            && let Some(slot) = dir.slot(pos.slot())
        {
            if slot.is_run() {
                self.unlist(common, number, hash, pos);
            } else {
                self.remove_slot(common, number, pos.slot(), Removal::Invalidated);
            }
        }
        self.drop_if_vacant(common, number);
    }

    /// Marks the attributes at a place as no longer true, if it is of `handle`.
    fn forget_place(&mut self, common: &Common, place: Place, handle: &Handle) {
        let Some(dir) = self.dir_mut(place.dir) else { return };
        let complete = dir.complete;
        let Some(slot) = dir.slot_mut(place.slot) else { return };
        if slot.entry(place.entry).is_none_or(|entry| entry.handle != *handle) {
            return;
        }
        // Of a complete listing the name stays, since names that are not there count as absent.
        if complete || slot.is_run() {
            slot.mark_stale(1 << place.entry);
        } else {
            self.remove_slot(common, place.dir, place.slot, Removal::Invalidated);
        }
    }
}
