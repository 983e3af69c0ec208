//! The slots of one directory: what is cached of it, piece by piece, each an object that comes
//! and goes as a whole.
//!
//! Most directories are small and have one slot, which lies in the directory itself.

use super::ledger::Part;
use super::nodes::Pos;
use crate::attr::Attr;
use crate::chunk::Chunk;
use crate::entry::EntryRef;
use crate::eviction::Class;
use crate::limits::CHUNK_ENTRIES_MAX;

/// One object: something cached that comes and goes as a whole.
#[derive(Debug)]
pub(super) enum Content {
    /// A run of the listing, the `rank`-th from its start; why it came.
    Run {
        chunk: Chunk,
        rank: u16,
        class: Class,
        /// Index in the shard's ledger of the object that its attributes are, or [`NO_OBJECT`].
        attrs: u32,
    },
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
    pub(super) filled_at_ms: u64,
    /// Kept apart, since there is mostly none.
    doubt: Option<Box<Doubt>>,
}

/// Where there is no object.
pub(super) const NO_OBJECT: u32 = u32::MAX;

/// What of a slot is no longer known, a bit an entry.
#[derive(Debug, Default)]
struct Doubt {
    /// Entries whose attributes are no longer true, or were let go.
    stale: u128,
    /// Entries whose name is no longer true.
    gone: u128,
}

const _: () = assert!(CHUNK_ENTRIES_MAX <= u128::BITS as usize);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Slots>() == 64);

impl Content {
    /// The number of names it holds, an absent one too.
    pub(super) fn names(&self) -> usize {
        match self {
            Self::Run { chunk, .. } | Self::Single(chunk) => chunk.count(),
            Self::Negative(_) => 1,
            Self::Own(_) | Self::Empty => 0,
        }
    }

    /// Bytes it takes beside its slot.
    pub(super) fn len_bytes(&self) -> usize {
        match self {
            Self::Run { chunk, .. } | Self::Single(chunk) => chunk.bytes().len(),
            Self::Negative(name) => name.len(),
            Self::Own(_) => size_of::<Attr>(),
            Self::Empty => 0,
        }
    }
}

impl Slot {
    pub(super) fn new(content: Content, filled_at_ms: u64) -> Self {
        Self { content, object: 0, filled_at_ms, doubt: None }
    }

    /// The chunk with the entry at a position from the directory's own index, if its name is still
    /// true and its attributes are known.
    #[inline]
    pub(super) fn chunk_with(&self, pos: Pos) -> Option<&Chunk> {
        let chunk = self.chunk()?;
        let doubted =
            self.doubt.is_some() && self.doubted() >> chunk.index_at(pos.offset()) & 1 != 0;
        (!doubted).then_some(chunk)
    }

    /// The entry with a number that may be of another chunk, if its name is still true and its
    /// attributes are known.
    pub(super) fn entry(&self, number: usize) -> Option<EntryRef<'_>> {
        let chunk = self.chunk()?;
        let known = number < chunk.count() && self.doubted() >> number & 1 == 0;
        known.then(|| chunk.entry(number))
    }

    /// The entries that are not wholly known any more, a bit each.
    fn doubted(&self) -> u128 {
        self.doubt.as_ref().map_or(0, |doubt| doubt.stale | doubt.gone)
    }

    /// The entries whose attributes are to be asked for, a bit each.
    pub(super) fn stale(&self) -> u128 {
        self.doubt.as_ref().map_or(0, |doubt| doubt.stale & !doubt.gone)
    }

    /// The entries whose name is no longer true, a bit each.
    pub(super) fn gone(&self) -> u128 {
        self.doubt.as_ref().map_or(0, |doubt| doubt.gone)
    }

    /// The names that are still true, an absent one too.
    pub(super) fn names(&self) -> usize {
        self.content.names() - self.gone().count_ones() as usize
    }

    /// The attributes of these entries, a bit each, are no longer true, or are let go.
    pub(super) fn mark_stale(&mut self, entries: u128) {
        if entries != 0 {
            self.doubt.get_or_insert_default().stale |= entries;
        }
    }

    /// The attributes of an entry are known again.
    pub(super) fn mark_known(&mut self, entry: usize) {
        if let Some(doubt) = &mut self.doubt {
            doubt.stale &= !(1 << entry);
            if doubt.stale | doubt.gone == 0 {
                self.doubt = None;
            }
        }
    }

    /// The name at a position of its chunk is no longer true.
    pub(super) fn mark_gone(&mut self, pos: Pos) {
        if let Some(number) = self.chunk().map(|chunk| chunk.index_at(pos.offset())) {
            self.doubt.get_or_insert_default().gone |= 1 << number;
        }
    }

    /// The object that the attributes here belong to: their own, or that of all of the slot.
    #[inline]
    pub(super) fn attrs_object(&self) -> u32 {
        match self.content {
            Content::Run { attrs, .. } if attrs != NO_OBJECT => attrs,
            _ => self.object,
        }
    }

    /// Notes what object a part is.
    pub(super) fn set_object(&mut self, part: Part, object: u32) {
        match (part, &mut self.content) {
            (Part::Attrs, Content::Run { attrs, .. }) => *attrs = object,
            (Part::Attrs, _) => {}
            (Part::Body, _) => self.object = object,
        }
    }

    pub(super) fn is_run(&self) -> bool {
        matches!(self.content, Content::Run { .. })
    }

    /// Whether it came with a listing and leaves with it.
    pub(super) fn is_of_listing(&self) -> bool {
        matches!(self.content, Content::Run { .. } | Content::Empty)
    }

    pub(super) fn is_single(&self) -> bool {
        matches!(self.content, Content::Single(_))
    }

    /// The chunk of a run or of a single entry, to change it.
    pub(super) fn chunk_mut(&mut self) -> Option<&mut Chunk> {
        match &mut self.content {
            Content::Run { chunk, .. } | Content::Single(chunk) => Some(chunk),
            Content::Negative(_) | Content::Own(_) | Content::Empty => None,
        }
    }

    /// The entries of this slot; none for the other contents.
    #[inline]
    pub(super) fn chunk(&self) -> Option<&Chunk> {
        match &self.content {
            Content::Run { chunk, .. } | Content::Single(chunk) => Some(chunk),
            Content::Negative(_) | Content::Own(_) | Content::Empty => None,
        }
    }

    /// The name at a position of this slot, an absent one too.
    #[inline]
    pub(super) fn name(&self, pos: Pos) -> Option<&[u8]> {
        match &self.content {
            Content::Run { chunk, .. } | Content::Single(chunk) => {
                Some(chunk.name_at(pos.offset()))
            }
            Content::Negative(name) => Some(name),
            Content::Own(_) | Content::Empty => None,
        }
    }
}

/// The slots of one directory by their numbers. A number is used again after its slot was taken.
#[derive(Debug, Default)]
pub(super) enum Slots {
    #[default]
    None,
    /// Number 0.
    One(Slot),
    Many(Many),
}

#[derive(Debug)]
pub(super) struct Many {
    cells: Vec<Cell>,
    /// The first of the free cells, each of which names the next.
    free: Option<u16>,
    used: u32,
    /// Where the next search for a slot that may leave begins.
    hand: u32,
}

#[derive(Debug)]
enum Cell {
    Free { next: Option<u16> },
    Used(Slot),
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Cell>() == 64);

impl Slots {
    /// Keeps a slot and gives its number; `None` where there are as many as there can be.
    pub(super) fn insert(&mut self, slot: Slot) -> Option<u32> {
        match std::mem::take(self) {
            Self::None => {
                *self = Self::One(slot);
                Some(0)
            }
            Self::One(first) => {
                let cells = vec![Cell::Used(first), Cell::Used(slot)];
                *self = Self::Many(Many { cells, free: None, used: 2, hand: 0 });
                Some(1)
            }
            Self::Many(mut many) => {
                let number = many.insert(slot);
                *self = Self::Many(many);
                number
            }
        }
    }

    /// Takes a slot out.
    pub(super) fn take(&mut self, number: u32) -> Option<Slot> {
        if let Self::Many(many) = self {
            let slot = many.take(number);
            if many.used == 0 {
                *self = Self::None;
            }
            return slot;
        }
        match std::mem::take(self) {
            Self::One(slot) if number == 0 => Some(slot),
            kept => {
                *self = kept;
                None
            }
        }
    }

    /// The slot of a number that may be out of date.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Slot> {
        match self {
            Self::One(slot) if number == 0 => Some(slot),
            Self::Many(many) => match many.cells.get(number as usize)? {
                Cell::Used(slot) => Some(slot),
                Cell::Free { .. } => None,
            },
            Self::None | Self::One(_) => None,
        }
    }

    /// As [`Slots::get`], to change it.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Slot> {
        match self {
            Self::One(slot) if number == 0 => Some(slot),
            Self::Many(many) => match many.cells.get_mut(number as usize)? {
                Cell::Used(slot) => Some(slot),
                Cell::Free { .. } => None,
            },
            Self::None | Self::One(_) => None,
        }
    }

    /// One more than the highest number there may be.
    pub(super) fn numbers(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(many) => many.cells.len() as u32,
        }
    }

    /// The slots with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slot)> {
        (0..self.numbers()).filter_map(|number| Some((number, self.get(number)?)))
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether there are as many as there can be.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Many(many) if many.used as usize >= Pos::SLOTS_MAX)
    }

    /// The next slot in turn for which `may_leave` holds, of `steps` at most.
    pub(super) fn next(
        &mut self,
        steps: u32,
        mut may_leave: impl FnMut(&Slot) -> bool,
    ) -> Option<u32> {
        let Self::Many(many) = self else { return None };
        let len = many.cells.len() as u32;
        for _ in 0..steps.min(len) {
            let number = many.hand % len;
            many.hand = (number + 1) % len;
            if matches!(&many.cells[number as usize], Cell::Used(slot) if may_leave(slot)) {
                return Some(number);
            }
        }
        None
    }

    /// Gives back memory that is held for more slots.
    pub(super) fn settle(&mut self) {
        if let Self::Many(many) = self {
            many.cells.shrink_to_fit();
        }
    }
}

impl Many {
    fn insert(&mut self, slot: Slot) -> Option<u32> {
        let number = match self.free {
            Some(number) => {
                let cell = self.cells.get_mut(number as usize)?;
                if let Cell::Free { next } = *cell {
                    self.free = next;
                }
                *cell = Cell::Used(slot);
                u32::from(number)
            }
            None if self.cells.len() < Pos::SLOTS_MAX => {
                self.cells.push(Cell::Used(slot));
                self.cells.len() as u32 - 1
            }
            None => return None,
        };
        self.used += 1;
        Some(number)
    }

    fn take(&mut self, number: u32) -> Option<Slot> {
        let cell = self.cells.get_mut(number as usize)?;
        match std::mem::replace(cell, Cell::Free { next: self.free }) {
            Cell::Used(slot) => {
                self.free = Some(number as u16);
                self.used -= 1;
                Some(slot)
            }
            free @ Cell::Free { .. } => {
                *cell = free;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(mark: u64) -> Slot {
        Slot::new(Content::Empty, mark)
    }

    #[test]
    fn a_number_keeps_its_slot_until_that_is_taken() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut slots = Slots::default();
            let mut model = std::collections::BTreeMap::new();
            for step in 0..2_000_u64 {
                if random.u8(0..10) < if step / 200 % 2 == 0 { 6 } else { 3 } {
                    let number = slots.insert(marked(step)).expect("there is room");
                    assert_eq!(model.insert(number, step), None, "seed {seed} step {step}");
                } else {
                    let number = random.u32(0..slots.numbers() + 2);
                    let taken = slots.take(number).map(|slot| slot.filled_at_ms);
                    assert_eq!(taken, model.remove(&number), "seed {seed} step {step}");
                }
                let now = slots.iter().map(|(number, slot)| (number, slot.filled_at_ms));
                assert!(now.eq(model.iter().map(|(&n, &m)| (n, m))), "seed {seed} step {step}");
                assert_eq!(slots.is_empty(), model.is_empty(), "seed {seed} step {step}");
            }
        }
    }

    #[test]
    fn numbers_end_where_positions_do() {
        let mut slots = Slots::default();
        for _ in 0..Pos::SLOTS_MAX {
            assert!(slots.insert(marked(0)).is_some());
        }
        assert!(slots.insert(marked(0)).is_none());
        assert!(slots.take(9).is_some());
        assert_eq!(slots.insert(marked(1)), Some(9));
    }
}
