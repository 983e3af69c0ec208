//! What is cached of one directory: runs of its listing, single entries, names known to be
//! absent, its own attributes.
//!
//! Two bits say what the runs are good for: *complete* (a name that is not here does not exist)
//! and *ordered* (the single entries, then the runs in order, are the listing). They are separate
//! because a name that is added and finds no number of its own ([`crate::position`]) breaks the order
//! of a listing without making its other names doubtful.

use super::names::Names;
use super::nodes::Pos;
use super::slot::{Slot, Slots};
use crate::chunk::Chunk;
use crate::handle::Handle;
use crate::limits::LEARNT_NAMES_MAX;
use crate::position::LEARNT_BRICKS;

/// A directory, or another file of which only attributes are cached.
#[derive(Debug)]
pub(super) struct Dir {
    handle: KeptHandle,
    pub(super) slots: Slots,
    names: Names,
    pub(super) completed_at_ms: u64,
    /// The listing that fills this directory now, 0 for none.
    pub(super) filling: u64,
    /// Runs that came of the current listing.
    pub(super) runs: u32,
    /// The slot of its own attributes.
    pub(super) own: Option<u16>,
    /// Which of [`LEARNT_BRICKS`] are taken in its listing, a bit each.
    learnt: u32,
    pub(super) complete: bool,
    pub(super) ordered: bool,
    /// A run of the current listing has left.
    pub(super) runs_lost: bool,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Dir>() == 168);
const _: () = assert!(LEARNT_NAMES_MAX == u32::BITS as usize);

/// The bytes of a handle, held in little where they are few, as they are on the common file
/// systems.
#[derive(Debug)]
enum KeptHandle {
    Short { len: u8, bytes: [u8; SHORT_LEN_MAX] },
    Long(Box<[u8]>),
}

const SHORT_LEN_MAX: usize = 22;

impl KeptHandle {
    fn new(handle: &Handle) -> Self {
        let bytes = handle.as_bytes();
        let mut short = [0; SHORT_LEN_MAX];
        match short.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                Self::Short { len: bytes.len() as u8, bytes: short }
            }
            None => Self::Long(bytes.into()),
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..*len as usize],
            Self::Long(bytes) => bytes,
        }
    }
}

impl Dir {
    pub(super) fn new(handle: &Handle) -> Self {
        Self {
            handle: KeptHandle::new(handle),
            slots: Slots::None,
            names: Names::default(),
            completed_at_ms: 0,
            filling: 0,
            runs: 0,
            own: None,
            learnt: 0,
            complete: false,
            ordered: false,
            runs_lost: false,
        }
    }

    /// The bytes of its handle.
    #[inline]
    pub(super) fn handle_bytes(&self) -> &[u8] {
        self.handle.as_bytes()
    }

    /// Whether nothing is cached here any more.
    pub(super) fn is_vacant(&self) -> bool {
        self.slots.is_empty() && self.filling == 0
    }

    /// Where `name` with this hash is, absent names included.
    #[inline]
    pub(super) fn find(&self, hash: u64, name: &[u8]) -> Option<Pos> {
        self.names.find(hash, |pos| self.name(pos) == Some(name))
    }

    /// Enters a name. `rehash` gives the hash of any name.
    pub(super) fn index(&mut self, hash: u64, pos: Pos, rehash: impl Fn(&[u8]) -> u64) {
        let slots = &self.slots;
        self.names.insert(hash, pos, |pos| name_in(slots, pos).map_or(0, &rehash));
    }

    /// Takes a name out of the index. `false` where it is there no more, or stands elsewhere.
    pub(super) fn unindex(&mut self, hash: u64, pos: Pos) -> bool {
        self.names.remove(hash, pos)
    }

    /// The name with this hash lies elsewhere in its slot now.
    pub(super) fn move_name(&mut self, hash: u64, old: Pos, new: Pos) {
        self.names.move_to(hash, old, new);
    }

    /// Whether the listing is known: all of its names, in order.
    pub(super) fn is_listed(&self) -> bool {
        self.complete && self.ordered
    }

    /// A brick number for a name that is to be listed before the others, `None` where all are taken.
    pub(super) fn free_learnt_brick(&self) -> Option<u16> {
        let number = self.learnt.trailing_ones();
        LEARNT_BRICKS.clone().nth(number as usize)
    }

    /// Notes that a chunk with this brick number is in the listing, or no longer.
    pub(super) fn set_learnt(&mut self, brick: u16, taken: bool) {
        if LEARNT_BRICKS.contains(&brick) {
            let bit = 1 << (brick - LEARNT_BRICKS.start);
            self.learnt = if taken { self.learnt | bit } else { self.learnt & !bit };
        }
    }

    /// Notes which numbers are taken in a listing that is whole from now on.
    pub(super) fn enter_learnt(&mut self) {
        self.learnt = 0;
        for number in 0..self.slots.numbers() {
            if let Some(brick) = self.slot(number).and_then(Slot::chunk).map(Chunk::brick) {
                self.set_learnt(brick, true);
            }
        }
    }

    /// Lets it shrink to what it holds.
    pub(super) fn settle(&mut self, rehash: impl Fn(&[u8]) -> u64) {
        let slots = &self.slots;
        self.names.settle(|pos| name_in(slots, pos).map_or(0, &rehash));
        self.slots.settle();
    }

    /// The slot of a number that may be out of date.
    #[inline]
    pub(super) fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number)
    }

    /// As [`Dir::slot`], to change it.
    pub(super) fn slot_mut(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(number)
    }

    /// The name at a position.
    #[inline]
    pub(super) fn name(&self, pos: Pos) -> Option<&[u8]> {
        name_in(&self.slots, pos)
    }
}

#[inline]
fn name_in(slots: &Slots, pos: Pos) -> Option<&[u8]> {
    slots.get(pos.slot())?.name(pos)
}
