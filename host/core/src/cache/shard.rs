//! One shard: the directories whose handles hash here, their objects and their flights, all
//! under one lock. Methods keep four things in step: the slot, the index by name, the index by
//! handle, and the ledger with its byte count.

use hashbrown::HashTable;

use super::common::{Common, DIR_WEIGHT_BYTES, ENTRY_WEIGHT_BYTES, SLOT_WEIGHT_BYTES};
use super::counters::CacheCounters;
use super::dir::{Content, Dir, Slot};
use super::flights::Flights;
use super::ledger::{Ledger, Site};
use super::nodes::{DIRS_PER_SHARD_MAX, Place, Pos};
use crate::attr::Attr;
use crate::chunk::{Chunk, ChunkBuilder};
use crate::entry::Entry;
use crate::eviction::{Class, Removal};
use crate::handle::Handle;
use crate::limits::EVENTS_WAKE;

pub(super) struct Shard<W> {
    number: u32,
    dirs: Vec<Option<Box<Dir>>>,
    free: Vec<u32>,
    by_handle: HashTable<u32>,
    pub(super) ledger: Ledger,
    pub(super) flights: Flights<W>,
    pub(super) counters: CacheCounters,
    next_listing: u64,
}

/// What a shard knows of a name.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack; a box would be an allocation a hit"
)]
pub(super) enum Found {
    Entry(Entry),
    Absent,
    Unknown,
}

impl<W> Shard<W> {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number: number as u32,
            dirs: Vec::new(),
            free: Vec::new(),
            by_handle: HashTable::new(),
            ledger: Ledger::new(number),
            flights: Flights::new(),
            counters: CacheCounters::default(),
            next_listing: 1,
        }
    }

    /// A number for a new listing of some directory of this shard; 0 stands for none.
    pub(super) fn number_listing(&mut self) -> u64 {
        self.next_listing += 1;
        self.next_listing
    }

    pub(super) fn dir_number(&self, common: &Common, handle: &Handle) -> Option<u32> {
        let hash = common.hash(handle.as_bytes());
        self.by_handle.find(hash, |&number| self.handle_of(number) == Some(handle)).copied()
    }

    /// One more than the highest number of a directory.
    pub(super) fn dir_numbers(&self) -> u32 {
        self.dirs.len() as u32
    }

    pub(super) fn dir(&self, number: u32) -> Option<&Dir> {
        self.dirs.get(number as usize)?.as_deref()
    }

    pub(super) fn dir_mut(&mut self, number: u32) -> Option<&mut Dir> {
        self.dirs.get_mut(number as usize)?.as_deref_mut()
    }

    /// What is known of `name` in `dir`; a hit touches its object.
    pub(super) fn find(
        &mut self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
        name: &[u8],
    ) -> Found {
        let Some(number) = self.dir_number(common, dir) else { return Found::Unknown };
        let Some(dir) = self.dirs[number as usize].as_deref() else { return Found::Unknown };
        let Some(pos) = dir.find(common.hash(name), name) else {
            let proven = dir.complete && common.is_fresh(now_ms, dir.completed_at_ms);
            return if proven { Found::Absent } else { Found::Unknown };
        };
        let Some(slot) = dir.slot(pos.slot()) else { return Found::Unknown };
        if !common.is_fresh(now_ms, slot.filled_at_ms) {
            return Found::Unknown;
        }
        let found = match &slot.content {
            Content::Negative(_) => Found::Absent,
            _ => match slot.entry(pos) {
                Some(entry) => Found::Entry(entry.to_entry()),
                None => return Found::Unknown,
            },
        };
        if self.ledger.touch(slot.object) {
            common.wake();
        }
        found
    }

    /// Attributes asked for by handle earlier.
    pub(super) fn find_own(
        &mut self,
        common: &Common,
        now_ms: u64,
        handle: &Handle,
    ) -> Option<Attr> {
        let dir = self.dir(self.dir_number(common, handle)?)?;
        let slot = dir.slot(dir.own?)?;
        let Content::Own(attr) = &slot.content else { return None };
        if !common.is_fresh(now_ms, slot.filled_at_ms) {
            return None;
        }
        let (attr, object) = (**attr, slot.object);
        self.ledger.touch(object);
        Some(attr)
    }

    /// The entry at a place that may be out of date, if it is of `handle`; a hit touches it.
    pub(super) fn find_place(
        &mut self,
        common: &Common,
        now_ms: u64,
        place: Place,
        handle: &Handle,
    ) -> Option<Entry> {
        let slot = self.dir(place.dir)?.slot(place.pos.slot())?;
        let entry = slot.entry_if_there(place.pos)?;
        if entry.handle != *handle || !common.is_fresh(now_ms, slot.filled_at_ms) {
            return None;
        }
        let (entry, object) = (entry.to_entry(), slot.object);
        self.ledger.touch(object);
        Some(entry)
    }

    /// The whole listing of a directory, if it is known and all of it still true.
    pub(super) fn listing(
        &mut self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
    ) -> Option<Vec<Chunk>> {
        let dir = self.dirs[self.dir_number(common, dir)? as usize].as_deref()?;
        if !dir.complete || !dir.ordered || !common.is_fresh(now_ms, dir.completed_at_ms) {
            return None;
        }
        let mut chunks = Vec::with_capacity(dir.runs.len());
        for &number in &dir.runs {
            let slot = dir.slot(number)?;
            if slot.stale | slot.gone != 0 || !common.is_fresh(now_ms, slot.filled_at_ms) {
                return None;
            }
            chunks.extend(slot.chunk().cloned());
        }
        for &number in &dir.runs {
            if let Some(slot) = dir.slot(number) {
                self.ledger.touch(slot.object);
            }
        }
        Some(chunks)
    }

    /// Caches an entry that was asked for by name.
    pub(super) fn insert_single(
        &mut self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
        name: &[u8],
        entry: &Entry,
    ) {
        let Some(number) = self.dir_or_new(common, dir) else { return };
        if !self.displace(common, now_ms, number, name, Some(&entry.handle)) {
            self.put_single(common, now_ms, number, name, entry);
        }
    }

    /// Puts an entry where nothing is cached of its name; answers its slot. Where it cannot be kept,
    /// its name must not count as absent.
    pub(super) fn put_single(
        &mut self,
        common: &Common,
        now_ms: u64,
        number: u32,
        name: &[u8],
        entry: &Entry,
    ) -> Option<u32> {
        let mut builder = ChunkBuilder::default();
        let pushed = builder.push(&entry.as_ref(name, 0));
        let chunk = if pushed { builder.finish(0) } else { None };
        let key = common.key(&self.dir(number)?.handle, name);
        let slot = chunk.and_then(|chunk| {
            self.insert_slot(common, now_ms, number, Content::Single(chunk), key, Class::Asked)
        });
        if slot.is_none()
            && let Some(dir) = self.dir_mut(number)
        {
            dir.complete = false;
            self.drop_if_vacant(common, number);
        }
        slot
    }

    /// Caches that a name is absent.
    pub(super) fn insert_negative(
        &mut self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
        name: &[u8],
    ) {
        let Some(number) = self.dir_or_new(common, dir) else { return };
        if self.displace(common, now_ms, number, name, None) {
            return;
        }
        let key = common.key(dir, name);
        self.insert_slot(common, now_ms, number, Content::Negative(name.into()), key, Class::Asked);
    }

    /// Caches attributes that were asked for by handle.
    pub(super) fn insert_own(
        &mut self,
        common: &Common,
        now_ms: u64,
        handle: &Handle,
        attr: &Attr,
    ) {
        let Some(number) = self.dir_or_new(common, handle) else { return };
        if let Some(own) = self.dir(number).and_then(|dir| dir.own) {
            self.remove_slot(common, number, own, Removal::Invalidated);
        }
        // Removing the last slot removes the directory.
        let Some(number) = self.dir_or_new(common, handle) else { return };
        let key = common.key(handle, b"");
        self.insert_slot(common, now_ms, number, Content::Own(Box::new(*attr)), key, Class::Asked);
    }

    /// Makes way for what was asked about `name`: a fill by name is newer than what it meets.
    /// `true` where the cache already says the same and nothing needs to be inserted.
    fn displace(
        &mut self,
        common: &Common,
        now_ms: u64,
        number: u32,
        name: &[u8],
        handle: Option<&Handle>,
    ) -> bool {
        let Some(dir) = self.dir_mut(number) else { return true };
        let Some(pos) = dir.find(common.hash(name), name) else {
            if handle.is_none() && dir.complete && common.is_fresh(now_ms, dir.completed_at_ms) {
                return true;
            }
            // A name that the listing does not have: the listing is no longer the whole truth.
            if handle.is_some() {
                dir.complete = false;
                dir.ordered = false;
            }
            return false;
        };
        let Some(slot) = dir.slot(pos.slot()) else { return true };
        if matches!(slot.content, Content::Run(_)) && common.is_fresh(now_ms, slot.filled_at_ms) {
            let listed = slot.entry(pos).map(|entry| entry.handle);
            if handle.is_some() && listed.as_ref() == handle {
                return true;
            }
        }
        self.clear_name(common, number, name);
        false
    }

    /// Takes away what is cached of a name, so that something newer can take its place. What is
    /// known of other names stays; the order of the listing does not.
    pub(super) fn clear_name(&mut self, common: &Common, number: u32, name: &[u8]) {
        let hash = common.hash(name);
        let Some(dir) = self.dir_mut(number) else { return };
        dir.ordered = false;
        let Some(pos) = dir.find(hash, name) else { return };
        let Some(slot) = dir.slot_mut(pos.slot()) else { return };
        if matches!(slot.content, Content::Run(_)) {
            slot.gone |= slot.bit(pos);
            dir.unindex(hash, pos);
            // A listing that is still filling cannot become complete: it lacks this name now.
            dir.runs_lost = true;
            return;
        }
        // Keep the directory while its slot is exchanged.
        let complete = dir.complete;
        dir.filling |= KEEP;
        self.remove_slot(common, number, pos.slot(), Removal::Invalidated);
        if let Some(dir) = self.dir_mut(number) {
            dir.filling &= !KEEP;
            dir.complete = complete;
        }
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
        chunk: Chunk,
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
                if dir.slot(pos.slot()).is_some_and(|slot| matches!(slot.content, Content::Run(_)))
                {
                    dir.unindex(hash, pos);
                } else {
                    self.remove_slot(common, number, pos.slot(), Removal::Invalidated);
                }
            }
        }
        let run = self.dir(number).map_or(0, |dir| dir.runs.len()) as u64;
        let key = common.key(dir, &run.to_le_bytes());
        let Some(slot) =
            self.insert_slot(common, now_ms, number, Content::Run(chunk), key, Class::Listed)
        else {
            return false;
        };
        let Some(dir) = self.dir_mut(number) else { return false };
        dir.runs.push(slot);
        if let Some(slot) = dir.slot_mut(slot) {
            slot.stale = stale;
        }
        true
    }

    pub(super) fn begin_runs(&mut self, common: &Common, number: u32, listing: u64) {
        let Some(dir) = self.dir_mut(number) else { return };
        dir.filling = listing;
        dir.complete = false;
        dir.ordered = false;
        dir.runs.clear();
        let old: Vec<u32> = (0..dir.slots.len() as u32)
            .filter(|&slot| {
                dir.slot(slot)
                    .is_some_and(|slot| matches!(slot.content, Content::Run(_) | Content::Empty))
            })
            .collect();
        for slot in old {
            self.remove_slot(common, number, slot, Removal::Invalidated);
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
            let key = common.key(dir, b"/");
            self.insert_slot(common, now_ms, number, Content::Empty, key, Class::Listed);
        }
        let Some(number) = self.dir_number(common, dir) else { return };
        let Some(dir) = self.dir_mut(number) else { return };
        if dir.filling != listing {
            return;
        }
        dir.filling = 0;
        // A single entry that is still here is of a name that the listing does not have, or has in
        // an older state: without that entry its name would wrongly count as absent.
        let single = |slot: &Option<Slot>| {
            slot.as_ref().is_some_and(|slot| matches!(slot.content, Content::Single(_)))
        };
        let whole = !dir.runs_lost && dir.runs.len() == runs && !dir.slots.iter().any(single);
        if complete && whole {
            dir.complete = true;
            dir.ordered = true;
            dir.completed_at_ms = now_ms;
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

    /// Evicts an object.
    pub(super) fn evict(&mut self, common: &Common, site: Site) {
        self.remove_slot(common, site.dir, site.slot, Removal::Evicted);
    }

    pub(super) fn dir_or_new(&mut self, common: &Common, handle: &Handle) -> Option<u32> {
        if let Some(number) = self.dir_number(common, handle) {
            return Some(number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.dirs.len() < DIRS_PER_SHARD_MAX => {
                self.dirs.push(None);
                self.dirs.len() as u32 - 1
            }
            None => return None,
        };
        self.dirs[number as usize] = Some(Box::new(Dir::new(*handle)));
        let hash = common.hash(handle.as_bytes());
        let dirs = &self.dirs;
        self.by_handle.insert_unique(hash, number, |&other| {
            dirs[other as usize].as_ref().map_or(0, |dir| common.hash(dir.handle.as_bytes()))
        });
        self.counters.directories += 1;
        common.charge(DIR_WEIGHT_BYTES);
        Some(number)
    }

    pub(super) fn drop_if_vacant(&mut self, common: &Common, number: u32) {
        let Some(dir) = self.dir(number) else { return };
        if !dir.is_vacant() {
            return;
        }
        let hash = common.hash(dir.handle.as_bytes());
        if let Ok(found) = self.by_handle.find_entry(hash, |&other| other == number) {
            found.remove();
        }
        self.dirs[number as usize] = None;
        self.free.push(number);
        self.counters.directories -= 1;
        common.refund(DIR_WEIGHT_BYTES);
    }

    pub(super) fn insert_slot(
        &mut self,
        common: &Common,
        now_ms: u64,
        number: u32,
        content: Content,
        key: u64,
        class: Class,
    ) -> Option<u32> {
        let dir = self.dirs.get_mut(number as usize)?.as_deref_mut()?;
        let slot_number = dir.reserve_slot()?;
        let (entries, content_bytes) = match &content {
            Content::Run(chunk) | Content::Single(chunk) => (chunk.count(), chunk.bytes().len()),
            Content::Negative(name) => (1, name.len()),
            Content::Own(_) => (0, size_of::<Attr>()),
            Content::Empty => (0, 0),
        };
        let weight_bytes =
            SLOT_WEIGHT_BYTES + content_bytes as u32 + entries as u32 * ENTRY_WEIGHT_BYTES;
        let site = Site { dir: number, slot: slot_number };
        let object = self.ledger.insert(site, key, class, weight_bytes);
        if matches!(content, Content::Own(_)) {
            dir.own = Some(slot_number);
        }
        let slot = Slot { content, object, weight_bytes, filled_at_ms: now_ms, stale: 0, gone: 0 };
        dir.slots[slot_number as usize] = Some(slot);
        for entry in 0..entries {
            let chunk = dir.slot(slot_number).and_then(Slot::chunk);
            let pos = Pos::new(slot_number, chunk.map_or(0, |chunk| chunk.offset(entry)));
            if let Some(chunk) = chunk {
                let place = Place { shard: self.number, dir: number, pos };
                common.nodes.insert(common.hash(chunk.handle_bytes(entry)), place);
            }
            if let Some(hash) = dir.name(pos).map(|name| common.hash(name)) {
                dir.index(hash, pos, |name| common.hash(name));
            }
        }
        self.counters.entries += entries as u64;
        common.charge(weight_bytes);
        common.count_object();
        if self.ledger.pending() >= EVENTS_WAKE {
            common.wake();
        }
        Some(slot_number)
    }

    pub(super) fn remove_slot(
        &mut self,
        common: &Common,
        number: u32,
        slot_number: u32,
        reason: Removal,
    ) {
        let Some(dir) = self.dirs.get_mut(number as usize).and_then(Option::as_deref_mut) else {
            return;
        };
        let Some(slot) = dir.vacate(slot_number) else { return };
        let mut entries = 0;
        match &slot.content {
            Content::Run(chunk) | Content::Single(chunk) => {
                entries = chunk.count();
                for entry in 0..entries {
                    let pos = Pos::new(slot_number, chunk.offset(entry));
                    dir.unindex(common.hash(chunk.name(entry)), pos);
                    let place = Place { shard: self.number, dir: number, pos };
                    common.nodes.remove(common.hash(chunk.handle_bytes(entry)), place);
                }
            }
            Content::Negative(name) => {
                entries = 1;
                dir.unindex(common.hash(name), Pos::new(slot_number, 0));
            }
            Content::Own(_) => dir.own = None,
            Content::Empty => {}
        }
        match slot.content {
            Content::Run(_) | Content::Empty => {
                dir.complete = false;
                dir.ordered = false;
                dir.runs_lost = true;
            }
            Content::Single(_) => dir.complete = false,
            Content::Negative(_) | Content::Own(_) => {}
        }
        self.ledger.remove(slot.object, reason);
        self.counters.entries -= entries as u64;
        if reason == Removal::Invalidated {
            self.counters.invalidated += 1;
        }
        common.refund(slot.weight_bytes);
        common.uncount_object();
        self.drop_if_vacant(common, number);
    }

    fn handle_of(&self, number: u32) -> Option<&Handle> {
        self.dir(number).map(|dir| &dir.handle)
    }
}

/// A bit in `Dir::filling` that no listing has: the directory is kept while it changes.
pub(super) const KEEP: u64 = 1 << 63;
