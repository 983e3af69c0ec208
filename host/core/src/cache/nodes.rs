//! From a handle to the places where its attributes are cached, for attribute requests and
//! invalidations by handle. A file with several links has several places.
//!
//! The index keeps 32 bits of the handle's hash and the place, not the handle (12 bytes an entry):
//! whoever looks up checks the place under its shard's lock. Lock order: shard, then index.

use hashbrown::HashTable;
use parking_lot::Mutex;

/// Parts of the index. Not a power of two, so that they do not all grow at the same moment.
const PARTS: usize = 61;
const SHARD_BITS: u32 = crate::limits::CACHE_SHARDS.trailing_zeros();

/// Where an entry lies: shard, directory of that shard, entry of that directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) dir: u32,
    pub(super) pos: Pos,
}

/// An entry of a directory: its slot, and its offset in that slot's chunk, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pos(u32);

impl Pos {
    /// Slots that one directory can have.
    pub(super) const SLOTS_MAX: usize = 1 << 16;

    pub(super) fn new(slot: u32, offset: usize) -> Self {
        debug_assert!((slot as usize) < Self::SLOTS_MAX && offset < 1 << 16);
        Self(slot << 16 | offset as u32)
    }

    pub(super) fn slot(self) -> u32 {
        self.0 >> 16
    }

    pub(super) fn offset(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// Directories that one shard can have.
pub(super) const DIRS_PER_SHARD_MAX: usize = 1 << (32 - SHARD_BITS);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Node {
    hash: u32,
    dir: u32,
    pos: Pos,
}

impl Node {
    fn new(hash: u64, place: Place) -> Self {
        Self { hash: fold(hash), dir: place.dir << SHARD_BITS | place.shard, pos: place.pos }
    }

    fn place(self) -> Place {
        let shard = self.dir & ((1 << SHARD_BITS) - 1);
        Place { shard, dir: self.dir >> SHARD_BITS, pos: self.pos }
    }
}

/// The index.
pub(super) struct Nodes {
    parts: Box<[Mutex<HashTable<Node>>]>,
}

impl Nodes {
    pub(super) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::new(HashTable::new())).collect() }
    }

    /// Adds a place of the handle with this hash.
    pub(super) fn insert(&self, hash: u64, place: Place) {
        let node = Node::new(hash, place);
        self.part(hash).lock().insert_unique(spread(node.hash), node, |node| spread(node.hash));
    }

    /// Removes a place.
    pub(super) fn remove(&self, hash: u64, place: Place) {
        let node = Node::new(hash, place);
        let mut part = self.part(hash).lock();
        if let Ok(found) = part.find_entry(spread(node.hash), |other| *other == node) {
            found.remove();
        }
        if part.capacity() > 64 && part.len() * 4 < part.capacity() {
            part.shrink_to_fit(|node| spread(node.hash));
        }
    }

    /// Places that may be of the handle with this hash; the caller checks each.
    pub(super) fn candidates(&self, hash: u64) -> Vec<Place> {
        let wanted = fold(hash);
        self.part(hash)
            .lock()
            .iter_hash(spread(wanted))
            .filter(|node| node.hash == wanted)
            .map(|node| node.place())
            .collect()
    }

    fn part(&self, hash: u64) -> &Mutex<HashTable<Node>> {
        &self.parts[((hash >> 32) as usize) % PARTS]
    }
}

fn fold(hash: u64) -> u32 {
    hash as u32
}

/// hashbrown takes its control byte from the top bits and the bucket from the low ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
