//! Listings in a shard: their runs come one by one and stand for the whole listing once its end
//! was said and nothing was lost.

use super::common::Common;
use super::shard::Shard;
use super::slot::{Content, NO_OBJECT, Slot};
use crate::chunk::Chunk;
use crate::eviction::{Class, Removal};
use crate::handle::Handle;

impl<W> Shard<W> {
    /// Whether [`Shard::listing`] would answer, but for single runs that are too old.
    pub(super) fn has_listing(&self, common: &Common, now_ms: u64, dir: &Handle) -> bool {
        let dir = self.dir_number(common, dir).and_then(|number| self.dir(number));
        dir.is_some_and(|dir| {
            let is_fresh = common.is_fresh(now_ms, dir.completed_at_ms);
            dir.is_listed() && is_fresh
        })
    }

    /// Caches a run of a listing as it passes. `first` clears what an earlier listing left.
    /// Returns whether the listing is still being kept.
    #[expect(clippy::too_many_arguments, reason = "parts of its one caller, which is generic")]
    pub(super) fn insert_run(
        &mut self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
        listing: u64,
        first: bool,
        (chunk, class): (Chunk, Class),
        stale: u128,
    ) -> bool {
        let Some(number) = self.dir_or_new(common, dir) else { return false };
        if first {
            self.begin_runs(common, number, listing);
        }
        let Some(dir_ref) = self.dir_mut(number) else { return false };
        if dir_ref.filling != listing {
            return false;
        }
        for name in (0..chunk.count()).map(|entry| chunk.name(entry)) {
            let hash = common.hash(name);
            let Some(dir) = self.dir_mut(number) else { return false };
            if let Some(pos) = dir.find(hash, name) {
                if dir.slot(pos.slot()).is_some_and(Slot::is_run) {
                    // It comes again, having been removed and made again: the later one counts.
                    self.unlist(common, number, hash, pos);
                } else {
                    self.remove_slot(common, number, pos.slot(), Removal::Invalidated);
                }
            }
        }
        let inserted =
            self.dir(number).and_then(|dir| u16::try_from(dir.runs).ok()).and_then(|rank| {
                self.insert_slot(
                    common,
                    now_ms,
                    number,
                    Content::Run { chunk, rank, class, attrs: NO_OBJECT },
                )
            });
        let Some(slot) = inserted else {
            self.abandon_runs(common, dir, listing, false);
            return false;
        };
        let Some(dir) = self.dir_mut(number) else { return false };
        dir.runs += 1;
        if let Some(slot) = dir.slot_mut(slot) {
            slot.mark_stale(stale);
        }
        true
    }

    /// Clears what an earlier listing left, for one that begins.
    fn begin_runs(&mut self, common: &Common, number: u32, listing: u64) {
        let Some(dir) = self.dir_mut(number) else { return };
        dir.filling = listing;
        dir.complete = false;
        dir.ordered = false;
        dir.runs = 0;
        for slot in 0..dir.slots.numbers() {
            if self.dir(number).and_then(|dir| dir.slot(slot)).is_some_and(Slot::is_of_listing) {
                self.remove_slot(common, number, slot, Removal::Invalidated);
            }
        }
        if let Some(dir) = self.dir_mut(number) {
            dir.runs_lost = false;
        }
    }

    /// Ends a listing that said its end, after `runs` runs. `complete` as the brick said.
    pub(super) fn finish_runs(
        &mut self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
        listing: u64,
        runs: usize,
        complete: bool,
    ) {
        if runs == 0 && complete {
            let Some(number) = self.dir_or_new(common, dir) else { return };
            self.begin_runs(common, number, listing);
            self.insert_slot(common, now_ms, number, Content::Empty);
        }
        let Some(number) = self.dir_number(common, dir) else { return };
        let Some(dir) = self.dir_mut(number) else { return };
        if dir.filling != listing {
            return;
        }
        dir.filling = 0;
        // A single entry that is still here is of a name that the listing does not have, or has in
        // an older state: without that entry its name would wrongly count as absent.
        let has_single = || dir.slots.iter().any(|(_, slot)| slot.is_single());
        let whole = !dir.runs_lost && dir.runs as usize == runs && !has_single();
        if complete && whole {
            dir.complete = true;
            dir.ordered = true;
            dir.completed_at_ms = now_ms;
            dir.enter_learnt();
            dir.settle(|name| common.hash(name));
        }
        self.drop_if_vacant(common, number);
    }

    /// Gives up keeping a listing: what came of it leaves, unless it is wanted as single entries.
    pub(super) fn abandon_runs(&mut self, common: &Common, dir: &Handle, listing: u64, drop: bool) {
        let Some(number) = self.dir_number(common, dir) else { return };
        let Some(dir) = self.dir_mut(number) else { return };
        if dir.filling != listing {
            return;
        }
        if drop {
            self.begin_runs(common, number, listing);
        }
        if let Some(dir) = self.dir_mut(number) {
            dir.filling = 0;
        }
        self.drop_if_vacant(common, number);
    }
}
