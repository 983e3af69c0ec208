//! One shard: the directories whose handles hash here, their objects and their flights, all
//! under one lock. What answers takes it shared, what changes anything takes it exclusively.
//! Methods keep four things in step: the slot, the index by name, the index by handle, and the
//! ledger with its byte count.

use parking_lot::Mutex;

use super::common::{Common, DIR_WEIGHT_BYTES};
use super::counters::CacheCounters;
use super::dir::Dir;
use super::dirs::Dirs;
use super::flights::Flights;
use super::ledger::{Ledger, Part, Site};
use super::nodes::{Place, Pos};
use super::slot::{Content, Slot};
use super::weigh::{told, weigh};
use crate::attr::Attr;
use crate::chunk::{Chunk, ChunkBuilder};
use crate::entry::Entry;
use crate::eviction::{Event, Removal};
use crate::handle::Handle;
use crate::limits::EVENTS_WAKE;
use crate::position::learnt_cookie;

/// Slots that a search for one that may leave looks at.
const LOOKED_AT_MAX: u32 = 1024;
/// Slots that it passes over because they were asked for lately.
const CHANCES_MAX: usize = 16;

pub(super) struct Shard<W> {
    pub(super) number: u32,
    dirs: Dirs,
    pub(super) ledger: Ledger,
    /// Only ever changed, never shared; the mutex says so to the compiler.
    flights: Mutex<Flights<W>>,
    pub(super) counters: CacheCounters,
    next_listing: u64,
}

/// What a shard knows of a name.
pub(super) enum Found<'a> {
    /// The entry at an offset of a chunk.
    Entry(&'a Chunk, usize),
    Absent,
    Unknown,
}

impl<W> Shard<W> {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number: number as u32,
            dirs: Dirs::default(),
            ledger: Ledger::new(number),
            flights: Mutex::new(Flights::new()),
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
        self.dirs.find(common.hash(handle.as_bytes()), handle.as_bytes())
    }

    pub(super) fn flights(&mut self) -> &mut Flights<W> {
        self.flights.get_mut()
    }

    /// One more than the highest number of a directory.
    pub(super) fn dir_numbers(&self) -> u32 {
        self.dirs.numbers()
    }

    #[inline]
    pub(super) fn dir(&self, number: u32) -> Option<&Dir> {
        self.dirs.get(number)
    }

    pub(super) fn dir_mut(&mut self, number: u32) -> Option<&mut Dir> {
        self.dirs.get_mut(number)
    }

    /// What is known of `name` in `dir`, whose hash is `dir_hash`; a hit touches its object.
    #[inline]
    pub(super) fn find(
        &self,
        common: &Common,
        now_ms: u64,
        dir_hash: u64,
        dir: &Handle,
        name: &[u8],
    ) -> Found<'_> {
        let number = self.dirs.find(dir_hash, dir.as_bytes());
        let Some(dir) = number.and_then(|number| self.dir(number)) else { return Found::Unknown };
        let Some(pos) = dir.find(common.hash(name), name) else {
            let proven = dir.complete && common.is_fresh(now_ms, dir.completed_at_ms);
            return if proven { Found::Absent } else { Found::Unknown };
        };
        let Some(slot) = dir.slot(pos.slot()) else { return Found::Unknown };
        if !common.is_fresh(now_ms, slot.filled_at_ms) {
            return Found::Unknown;
        }
        if matches!(slot.content, Content::Negative(_)) {
            self.ledger.touch(common, slot.object);
            return Found::Absent;
        }
        let Some(chunk) = slot.chunk_with(pos) else { return Found::Unknown };
        self.ledger.touch(common, slot.attrs_object());
        Found::Entry(chunk, pos.offset())
    }

    /// Attributes asked for by handle earlier.
    pub(super) fn find_own(&self, common: &Common, now_ms: u64, handle: &Handle) -> Option<Attr> {
        let dir = self.dir(self.dir_number(common, handle)?)?;
        let slot = dir.slot(u32::from(dir.own?))?;
        let Content::Own(attr) = &slot.content else { return None };
        if !common.is_fresh(now_ms, slot.filled_at_ms) {
            return None;
        }
        self.ledger.touch(common, slot.object);
        Some(**attr)
    }

    /// The entry at a place that may be out of date, if it is of `handle`; a hit touches it.
    pub(super) fn find_place(
        &self,
        common: &Common,
        now_ms: u64,
        place: Place,
        handle: &Handle,
    ) -> Option<Entry> {
        let slot = self.dir(place.dir)?.slot(place.slot)?;
        let entry = slot.entry(place.entry)?;
        if entry.handle != *handle || !common.is_fresh(now_ms, slot.filled_at_ms) {
            return None;
        }
        self.ledger.touch(common, slot.attrs_object());
        Some(entry.to_entry())
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
        if !self.displace(common, now_ms, number, name, Some(entry)) {
            self.put_single(common, now_ms, number, name, entry);
        }
    }

    /// Puts an entry where nothing is cached of its name; answers its slot. In a listing that is
    /// known it comes before the others. Where it cannot be kept, its name must not count as absent.
    pub(super) fn put_single(
        &mut self,
        common: &Common,
        now_ms: u64,
        number: u32,
        name: &[u8],
        entry: &Entry,
    ) -> Option<u32> {
        let mut brick = 0;
        if let Some(dir) = self.dir_mut(number)
            && dir.is_listed()
        {
            match dir.free_learnt_brick() {
                Some(free) => brick = free,
                None => dir.ordered = false,
            }
        }
        let cookie = if brick == 0 { 0 } else { learnt_cookie(name) };
        let mut builder = ChunkBuilder::default();
        let pushed = builder.push(&entry.as_ref(name, cookie));
        let chunk = if pushed { builder.finish(brick) } else { None };
        let slot = chunk
            .and_then(|chunk| self.insert_slot(common, now_ms, number, Content::Single(chunk)));
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
        self.insert_slot(common, now_ms, number, Content::Negative(name.into()));
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
            self.remove_slot(common, number, u32::from(own), Removal::Invalidated);
        }
        // Removing the last slot removes the directory.
        let Some(number) = self.dir_or_new(common, handle) else { return };
        self.insert_slot(common, now_ms, number, Content::Own(Box::new(*attr)));
    }

    /// As [`Shard::insert_own`], of attributes that may be `known` where the file is listed, too:
    /// then they need not be kept twice.
    pub(super) fn take_own(
        &mut self,
        common: &Common,
        now_ms: u64,
        handle: &Handle,
        attr: &Attr,
        known: bool,
    ) {
        let has_own = || {
            let dir = self.dir(self.dir_number(common, handle)?)?;
            dir.own
        };
        if !known || has_own().is_some() {
            self.insert_own(common, now_ms, handle, attr);
        }
    }

    /// Makes way for what was asked about `name`: a fill by name is newer than what it meets.
    /// `true` where nothing needs to be inserted any more.
    fn displace(
        &mut self,
        common: &Common,
        now_ms: u64,
        number: u32,
        name: &[u8],
        entry: Option<&Entry>,
    ) -> bool {
        let Some(dir) = self.dir_mut(number) else { return true };
        let proven = dir.complete && common.is_fresh(now_ms, dir.completed_at_ms);
        let Some(pos) = dir.find(common.hash(name), name) else {
            if entry.is_none() {
                return proven;
            }
            // A name that the listing does not have: the listing is no longer the whole truth.
            dir.complete = false;
            dir.ordered = false;
            return false;
        };
        let Some(slot) = dir.slot(pos.slot()) else { return true };
        if let Some(entry) = entry
            && slot.is_run()
            && common.is_fresh(now_ms, slot.filled_at_ms)
            && self.take_in_place(common, number, pos, entry)
        {
            return true;
        }
        self.clear_name(common, number, name);
        entry.is_none() && proven
    }

    /// Takes away what is cached of a name, so that something newer can take its place. What is
    /// known of other names stays, and so does a listing, without this name.
    pub(super) fn clear_name(&mut self, common: &Common, number: u32, name: &[u8]) {
        let hash = common.hash(name);
        let Some(dir) = self.dir_mut(number) else { return };
        let Some(pos) = dir.find(hash, name) else { return };
        let Some(slot) = dir.slot(pos.slot()) else { return };
        if slot.is_run() {
            // A listing that is still filling cannot become complete: it lacks this name now.
            dir.runs_lost = true;
            return self.unlist(common, number, hash, pos);
        }
        // Keep the directory while its slot is exchanged.
        let (complete, ordered) = (dir.complete, dir.ordered);
        dir.filling |= KEEP;
        self.remove_slot(common, number, pos.slot(), Removal::Invalidated);
        if let Some(dir) = self.dir_mut(number) {
            dir.filling &= !KEEP;
            dir.complete = complete;
            dir.ordered = ordered;
        }
    }

    /// Evicts an object.
    pub(super) fn evict(&mut self, common: &Common, site: Site) {
        match site.part {
            Part::Attrs => self.drop_attrs(common, site.dir, site.slot),
            Part::Body => self.remove_slot(common, site.dir, site.slot, Removal::Evicted),
        }
    }

    /// The attributes that leave before an object does: those of a run before its names.
    pub(super) fn leaf_of(&self, site: Site) -> Option<(u32, Site)> {
        let slot = self.dir(site.dir)?.slot(site.slot)?;
        let object = slot.attrs_object();
        let is_other = site.part == Part::Body && object != slot.object;
        is_other.then_some((object, Site { part: Part::Attrs, ..site }))
    }

    pub(super) fn dir_or_new(&mut self, common: &Common, handle: &Handle) -> Option<u32> {
        if let Some(number) = self.dir_number(common, handle) {
            return Some(number);
        }
        let number = self.dirs.insert(Dir::new(handle), |handle| common.hash(handle))?;
        self.counters.directories += 1;
        common.charge(DIR_WEIGHT_BYTES);
        Some(number)
    }

    pub(super) fn drop_if_vacant(&mut self, common: &Common, number: u32) {
        let Some(dir) = self.dir(number) else { return };
        if !dir.is_vacant() {
            return;
        }
        self.dirs.remove(number, |handle| common.hash(handle));
        self.counters.directories -= 1;
        common.refund(DIR_WEIGHT_BYTES);
    }

    /// Caches a content of a directory; answers its slot, `None` where there is no room for it.
    pub(super) fn insert_slot(
        &mut self,
        common: &Common,
        now_ms: u64,
        number: u32,
        content: Content,
    ) -> Option<u32> {
        self.let_one_go(common, number);
        let dir = self.dirs.get_mut(number)?;
        let weights = weigh(&content);
        let names = content.names();
        let is_own = matches!(content, Content::Own(_));
        let slot_number = dir.slots.insert(Slot::new(content, now_ms))?;
        if is_own {
            dir.own = Some(slot_number as u16);
        }
        for entry in 0..names {
            let chunk = dir.slot(slot_number).and_then(Slot::chunk);
            let pos = Pos::new(slot_number, chunk.map_or(0, |chunk| chunk.offset(entry)));
            if let Some(chunk) = chunk {
                let place = Place { shard: self.number, dir: number, slot: slot_number, entry };
                common.nodes.insert(common.hash(chunk.handle_bytes(entry)), place);
            }
            let Some(hash) = dir.name(pos).map(|name| common.hash(name)) else { continue };
            self.counters.entries += 1;
            // A name that was removed and made again while it was listed comes twice: only the later
            // one can be found, or else it would outlive its invalidation.
            if let Some(double) = dir.name(pos).and_then(|name| dir.find(hash, name)) {
                dir.unindex(hash, double);
                if let Some(slot) = dir.slot_mut(double.slot()) {
                    slot.mark_gone(double);
                    self.counters.entries -= 1;
                }
            }
            dir.index(hash, pos, |name| common.hash(name));
        }
        common.charge(weights.sum());
        self.enter_objects(common, number, slot_number);
        if self.ledger.pending() >= EVENTS_WAKE {
            common.wake();
        }
        Some(slot_number)
    }

    /// Enters the objects of a new slot, and what else follows from what it is.
    fn enter_objects(&mut self, common: &Common, number: u32, slot_number: u32) {
        let Some(dir) = self.dirs.get_mut(number) else { return };
        let Some(slot) = dir.slot(slot_number) else { return };
        if let Some(chunk) = slot.chunk() {
            let brick = chunk.brick();
            dir.set_learnt(brick, true);
        }
        // Attributes first: a policy that takes the oldest takes them before their names.
        for part in [Part::Attrs, Part::Body] {
            let Some(slot) = dir.slot(slot_number) else { return };
            let Some(told) = told(common, dir, &slot.content, part) else { continue };
            common.count_object();
            let object = self.ledger.insert(Site { dir: number, slot: slot_number, part }, told);
            if let Some(slot) = dir.slot_mut(slot_number) {
                slot.set_object(part, object);
            }
        }
    }

    /// Makes room in a directory that has as many slots as it can have: an absent name or a single
    /// entry leaves, if possible one that was not asked for lately.
    fn let_one_go(&mut self, common: &Common, number: u32) {
        let Some(dir) = self.dirs.get_mut(number) else { return };
        if !dir.slots.is_full() {
            return;
        }
        let ledger = &mut self.ledger;
        let mut chances = CHANCES_MAX;
        let leaves = dir.slots.next(LOOKED_AT_MAX, |slot| {
            let may_leave = slot.is_single() || matches!(slot.content, Content::Negative(_));
            if may_leave && chances > 0 && ledger.take_recent(slot.object) {
                chances -= 1;
                return false;
            }
            may_leave
        });
        if let Some(slot) = leaves {
            self.remove_slot(common, number, slot, Removal::Evicted);
        }
    }

    pub(super) fn remove_slot(
        &mut self,
        common: &Common,
        number: u32,
        slot_number: u32,
        reason: Removal,
    ) {
        let Some(dir) = self.dirs.get_mut(number) else { return };
        let Some(slot) = dir.slots.take(slot_number) else { return };
        match &slot.content {
            Content::Run { chunk, .. } | Content::Single(chunk) => {
                for entry in 0..chunk.count() {
                    let pos = Pos::new(slot_number, chunk.offset(entry));
                    dir.unindex(common.hash(chunk.name(entry)), pos);
                    let place = Place { shard: self.number, dir: number, slot: slot_number, entry };
                    common.nodes.remove(common.hash(chunk.handle_bytes(entry)), place);
                }
                dir.set_learnt(chunk.brick(), false);
            }
            Content::Negative(name) => {
                dir.unindex(common.hash(name), Pos::new(slot_number, 0));
            }
            Content::Own(_) => dir.own = None,
            Content::Empty => {}
        }
        match slot.content {
            Content::Run { .. } | Content::Empty => {
                dir.complete = false;
                dir.ordered = false;
                dir.runs_lost = true;
            }
            Content::Single(_) => dir.complete = false,
            Content::Negative(_) | Content::Own(_) => {}
        }
        self.counters.entries -= slot.names() as u64;
        if reason == Removal::Invalidated {
            self.counters.invalidated += 1;
        }
        common.refund(weigh(&slot.content).sum());
        self.ledger.remove(slot.object, reason);
        common.uncount_object();
        if slot.attrs_object() != slot.object {
            self.ledger.remove(slot.attrs_object(), reason);
            common.uncount_object();
        }
        self.drop_if_vacant(common, number);
    }

    /// Moves what waits to be told into `out`.
    pub(super) fn drain(&mut self, out: &mut Vec<Event>) {
        let Self { dirs, ledger, .. } = self;
        ledger.drain(out, |site| Some(dirs.get(site.dir)?.slot(site.slot)?.object));
    }

    /// Tells what is resident anew.
    pub(super) fn restart(&mut self, common: &Common, out: &mut Vec<(u32, Event)>) {
        let Self { dirs, ledger, .. } = self;
        ledger.restart(out, |site| {
            let dir = dirs.get(site.dir)?;
            told(common, dir, &dir.slot(site.slot)?.content, site.part)
        });
    }

    /// Moves what waits to be told into `pending`, and tells what is resident after that.
    pub(super) fn residents(
        &mut self,
        common: &Common,
        pending: &mut Vec<Event>,
        out: &mut Vec<(u32, Event)>,
    ) {
        self.drain(pending);
        let Self { dirs, ledger, .. } = self;
        ledger.residents(out, |site| {
            let dir = dirs.get(site.dir)?;
            told(common, dir, &dir.slot(site.slot)?.content, site.part)
        });
    }
}

/// A bit in `Dir::filling` that no listing has: the directory is kept while it changes.
pub(super) const KEEP: u64 = 1 << 63;
