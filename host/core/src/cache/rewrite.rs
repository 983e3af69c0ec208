//! Runs and single entries that change where they lie: attributes that are let go, come back or
//! change, a name that stands for another file, a name that leaves a listing.
//!
//! What must hold: a name keeps its place in the listing for as long as it exists, so that a
//! listing that goes on after any entry loses and repeats nothing; positions in the index by name
//! follow the bytes they point at.

use super::common::Common;
use super::ledger::{Part, Site};
use super::nodes::{Place, Pos};
use super::shard::{KEEP, Shard};
use super::slot::{Content, NO_OBJECT};
use super::weigh::{Weights, told};
use crate::attr::{Attr, FileKind};
use crate::chunk::Chunk;
use crate::entry::Entry;
use crate::eviction::Removal;
use crate::handle::Handle;
use crate::trace::What;

impl<W> Shard<W> {
    /// Lets the attributes of a run go; its names stay.
    pub(super) fn drop_attrs(&mut self, common: &Common, number: u32, slot_number: u32) {
        let Some(slot) = self.dir_mut(number).and_then(|dir| dir.slot_mut(slot_number)) else {
            return;
        };
        let Content::Run { chunk, .. } = &slot.content else { return };
        let had = (0..chunk.count())
            .fold(0_u128, |had, entry| had | u128::from(chunk.has_attr(entry)) << entry);
        let Some(bare) = chunk.without(0, u128::MAX) else { return };
        slot.mark_stale(had);
        self.exchange_chunk(common, number, slot_number, bare, Removal::Evicted);
    }

    /// Takes in attributes of the entry at a place that may be out of date, if it is of `handle` and
    /// its slot may still be answered. `true` where they are known there now.
    pub(super) fn refresh_place(
        &mut self,
        common: &Common,
        now_ms: u64,
        place: Place,
        handle: &Handle,
        attr: &Attr,
    ) -> bool {
        let Some(slot) = self.dir(place.dir).and_then(|dir| dir.slot(place.slot)) else {
            return false;
        };
        let is_of_handle = slot.chunk().is_some_and(|chunk| {
            place.entry < chunk.count() && chunk.handle_bytes(place.entry) == handle.as_bytes()
        });
        is_of_handle
            && slot.gone() >> place.entry & 1 == 0
            && common.is_fresh(now_ms, slot.filled_at_ms)
            && self.refresh(common, place.dir, place.slot, place.entry, attr)
    }

    /// Takes in attributes of an entry. `false` where there is no room for them in its chunk.
    fn refresh(
        &mut self,
        common: &Common,
        number: u32,
        slot_number: u32,
        entry: usize,
        attr: &Attr,
    ) -> bool {
        let Some(slot) = self.dir_mut(number).and_then(|dir| dir.slot_mut(slot_number)) else {
            return false;
        };
        let Some(chunk) = slot.chunk_mut() else { return false };
        let kind = chunk.kind(entry);
        if kind != attr.kind() && kind != FileKind::Unknown {
            return false;
        }
        if !chunk.set_attr(entry, attr) {
            let Some(larger) = chunk.with_attr(entry, attr) else { return false };
            self.exchange_chunk(common, number, slot_number, larger, Removal::Invalidated);
        }
        if let Some(slot) = self.dir_mut(number).and_then(|dir| dir.slot_mut(slot_number)) {
            slot.mark_known(entry);
        }
        true
    }

    /// Takes in what the name at a position of a run stands for now, where it lies. `false` where
    /// there is no room for it.
    pub(super) fn take_in_place(
        &mut self,
        common: &Common,
        number: u32,
        pos: Pos,
        entry: &Entry,
    ) -> bool {
        let Some(slot) = self.dir(number).and_then(|dir| dir.slot(pos.slot())) else {
            return false;
        };
        let Some(chunk) = slot.chunk() else { return false };
        let at = chunk.index_at(pos.offset());
        if chunk.handle_bytes(at) == entry.handle.as_bytes() {
            // Without attributes there is nothing to take in, and what is there stays.
            let refresh = |attr| self.refresh(common, number, pos.slot(), at, &attr);
            return entry.attr.is_none_or(refresh);
        }
        let Some(changed) = chunk.with_file(at, entry) else { return false };
        let place = Place { shard: self.number, dir: number, slot: pos.slot(), entry: at };
        common.nodes.remove(common.hash(chunk.handle_bytes(at)), place);
        common.nodes.insert(common.hash(entry.handle.as_bytes()), place);
        self.exchange_chunk(common, number, pos.slot(), changed, Removal::Invalidated);
        if let Some(slot) = self.dir_mut(number).and_then(|dir| dir.slot_mut(pos.slot())) {
            slot.mark_known(at);
        }
        true
    }

    /// The name with this hash at a position of a run is there no more, or is elsewhere.
    pub(super) fn unlist(&mut self, common: &Common, number: u32, hash: u64, pos: Pos) {
        let Some(dir) = self.dir_mut(number) else { return };
        dir.unindex(hash, pos);
        let Some(slot) = dir.slot_mut(pos.slot()) else { return };
        slot.mark_gone(pos);
        let is_empty = slot.names() == 0;
        self.counters.entries -= 1;
        if is_empty && self.dir(number).is_some_and(super::dir::Dir::is_listed) {
            self.remove_empty_run(common, number, pos.slot());
        }
    }

    /// Removes a run of which no name is left, from a listing that stays known.
    fn remove_empty_run(&mut self, common: &Common, number: u32, slot_number: u32) {
        let Some(dir) = self.dir_mut(number) else { return };
        let completed_at_ms = dir.completed_at_ms;
        dir.filling |= KEEP;
        self.remove_slot(common, number, slot_number, Removal::Invalidated);
        let Some(dir) = self.dir(number) else { return };
        let stands = dir.slots.iter().any(|(_, slot)| slot.is_of_listing())
            || self.insert_slot(common, completed_at_ms, number, Content::Empty).is_some();
        let Some(dir) = self.dir_mut(number) else { return };
        dir.filling &= !KEEP;
        dir.complete = stands;
        dir.ordered = stands;
    }

    /// Another chunk with the same names takes the place of that of a slot. `reason` is why
    /// attributes leave, where they do.
    fn exchange_chunk(
        &mut self,
        common: &Common,
        number: u32,
        slot_number: u32,
        new: Chunk,
        reason: Removal,
    ) {
        let Some(dir) = self.dir_mut(number) else { return };
        let Some(slot) = dir.slot_mut(slot_number) else { return };
        let (before, gone) = (common.weigh(&slot.content), slot.gone());
        let Some(chunk) = slot.chunk_mut() else { return };
        let old = std::mem::replace(chunk, new.clone());
        debug_assert!(new.count() == old.count());
        // In the order in which no name comes to where another still is.
        let grows = new.bytes().len() > old.bytes().len();
        for step in 0..old.count() {
            let entry = if grows { old.count() - 1 - step } else { step };
            let (from, to) = (old.offset(entry), new.offset(entry));
            if from != to && gone >> entry & 1 == 0 {
                let hash = common.hash(old.name(entry));
                dir.move_name(hash, Pos::new(slot_number, from), Pos::new(slot_number, to));
            }
        }
        self.weigh_again(common, number, slot_number, before, reason);
    }

    /// Accounts for a content that has changed where it lies.
    fn weigh_again(
        &mut self,
        common: &Common,
        number: u32,
        slot_number: u32,
        before: Weights,
        reason: Removal,
    ) {
        let Some(dir) = self.dir(number) else { return };
        let Some(slot) = dir.slot(slot_number) else { return };
        let Content::Run { attrs: object, .. } = slot.content else {
            common.charge(self.number, common.weigh(&slot.content).sum());
            common.refund(self.number, before.sum());
            return;
        };
        let after = common.weigh(&slot.content);
        common.charge(self.number, after.sum());
        common.refund(self.number, before.sum());
        if after.attrs == before.attrs {
            return;
        }
        let told = told(common, dir, &slot.content, Part::Attrs);
        if object != NO_OBJECT {
            self.ledger.remove(object, reason);
            common.uncount_object(self.number);
        }
        let site = Site { dir: number, slot: slot_number, part: Part::Attrs };
        let new = told.map_or(NO_OBJECT, |told| {
            common.count_object(self.number);
            self.ledger.insert(site, told)
        });
        let slot = self.dir_mut(number).and_then(|dir| dir.slot_mut(slot_number));
        if let Some(Content::Run { attrs, .. }) = slot.map(|slot| &mut slot.content) {
            *attrs = new;
        }
        if common.is_tapped()
            && new != NO_OBJECT
            && let Some(dir) = self.dir(number)
            && let Some(slot) = dir.slot(slot_number)
        {
            self.tell_change(common, What::Came, dir, slot, Part::Attrs);
        }
    }
}
