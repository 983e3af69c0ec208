//! What is cached of one directory: runs of its listing, single entries, names known to be
//! absent, its own attributes.
//!
//! Two bits say what the runs are good for: *complete* (a name that is not here does not exist)
//! and *ordered* (the runs, in order, are the listing). They are separate because a name added or
//! removed breaks the order of a listing without making its other names doubtful.

use hashbrown::HashTable;

use super::nodes::Pos;
use crate::attr::Attr;
use crate::chunk::Chunk;
use crate::entry::EntryRef;
use crate::handle::Handle;

/// One object: something cached that comes and goes as a whole.
#[derive(Debug)]
pub(super) enum Content {
    /// A run of the listing.
    Run(Chunk),
    /// One entry, asked for by name.
    Single(Chunk),
    /// A name known to be absent.
    Negative(Box<[u8]>),
    /// The file's own attributes, asked for by handle.
    Own(Box<Attr>),
    /// Stands for the listing of an empty directory.
    Empty,
}

/// A content with what is known of it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) content: Content,
    /// Index in the shard's ledger.
    pub(super) object: u32,
    pub(super) weight_bytes: u32,
    pub(super) filled_at_ms: u64,
    /// Entries whose attributes are no longer true, a bit each.
    pub(super) stale: u128,
    /// Entries whose name is no longer true.
    pub(super) gone: u128,
}

const _: () = assert!(crate::limits::CHUNK_ENTRIES_MAX <= u128::BITS as usize);

/// A directory, or another file of which only attributes are cached.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) handle: Handle,
    pub(super) slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    names: HashTable<Pos>,
    /// Slots of the runs in listing order.
    pub(super) runs: Vec<u32>,
    pub(super) own: Option<u32>,
    pub(super) complete: bool,
    pub(super) ordered: bool,
    pub(super) completed_at_ms: u64,
    /// The listing that fills this directory now, 0 for none.
    pub(super) filling: u64,
    /// A run of the current listing has left.
    pub(super) runs_lost: bool,
}

impl Dir {
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            handle,
            slots: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            runs: Vec::new(),
            own: None,
            complete: false,
            ordered: false,
            completed_at_ms: 0,
            filling: 0,
            runs_lost: false,
        }
    }

    /// Whether nothing is cached here any more.
    pub(super) fn is_vacant(&self) -> bool {
        self.free.len() == self.slots.len() && self.filling == 0
    }

    /// Where `name` with this hash is, absent names included.
    pub(super) fn find(&self, hash: u64, name: &[u8]) -> Option<Pos> {
        self.names.find(hash, |&pos| self.name(pos) == Some(name)).copied()
    }

    /// Enters a name. `rehash` gives the hash of any name.
    pub(super) fn index(&mut self, hash: u64, pos: Pos, rehash: impl Fn(&[u8]) -> u64) {
        let slots = &self.slots;
        self.names.insert_unique(hash, pos, |&pos| name_in(slots, pos).map_or(0, &rehash));
    }

    /// Takes a name out of the index. `false` where it is there no more, or stands elsewhere.
    pub(super) fn unindex(&mut self, hash: u64, pos: Pos) -> bool {
        match self.names.find_entry(hash, |&other| other == pos) {
            Ok(found) => {
                found.remove();
                true
            }
            Err(_) => false,
        }
    }

    /// Lets the index shrink to what it holds.
    pub(super) fn settle(&mut self, rehash: impl Fn(&[u8]) -> u64) {
        let slots = &self.slots;
        self.names.shrink_to_fit(|&pos| name_in(slots, pos).map_or(0, &rehash));
        self.runs.shrink_to_fit();
        self.slots.shrink_to_fit();
    }

    /// A free slot number, `None` where the directory has as many as it can.
    pub(super) fn reserve_slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() >= Pos::SLOTS_MAX {
            return None;
        }
        self.slots.push(None);
        Some(self.slots.len() as u32 - 1)
    }

    /// Takes the content out of a slot, which becomes free.
    pub(super) fn vacate(&mut self, slot: u32) -> Option<Slot> {
        let content = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(content)
    }

    /// The slot of a number that may be out of date.
    pub(super) fn slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// As [`Dir::slot`], to change it.
    pub(super) fn slot_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// The name at a position.
    pub(super) fn name(&self, pos: Pos) -> Option<&[u8]> {
        name_in(&self.slots, pos)
    }
}

impl Slot {
    /// The entry at a position from the directory's own index, if its name and attributes are
    /// still true.
    pub(super) fn entry(&self, pos: Pos) -> Option<EntryRef<'_>> {
        let chunk = self.chunk()?;
        let doubtful = self.stale | self.gone;
        (doubtful == 0 || doubtful & self.bit(pos) == 0).then(|| chunk.entry_at(pos.offset()))
    }

    /// As [`Slot::entry`], at a position that may be out of date.
    pub(super) fn entry_if_there(&self, pos: Pos) -> Option<EntryRef<'_>> {
        if self.chunk()?.is_entry(pos.offset()) { self.entry(pos) } else { None }
    }

    /// The bit of an entry in `stale` and `gone`.
    pub(super) fn bit(&self, pos: Pos) -> u128 {
        self.chunk().map_or(0, |chunk| 1 << chunk.index_at(pos.offset()))
    }

    /// The entries of this slot; none for the other contents.
    pub(super) fn chunk(&self) -> Option<&Chunk> {
        match &self.content {
            Content::Run(chunk) | Content::Single(chunk) => Some(chunk),
            Content::Negative(_) | Content::Own(_) | Content::Empty => None,
        }
    }
}

fn name_in(slots: &[Option<Slot>], pos: Pos) -> Option<&[u8]> {
    match &slots.get(pos.slot() as usize)?.as_ref()?.content {
        Content::Run(chunk) | Content::Single(chunk) => Some(chunk.name_at(pos.offset())),
        Content::Negative(name) => Some(name),
        Content::Own(_) | Content::Empty => None,
    }
}
