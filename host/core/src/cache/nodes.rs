//! From a handle to the places where its attributes are cached, for attribute requests and
//! invalidations by handle. A file with several links has several places.
//!
//! The index keeps 24 bits of the handle's hash and the place, not the handle (10 bytes an entry):
//! whoever looks up checks the place under its shard's lock. Lock order: shard, then index.

use hashbrown::HashTable;
use parking_lot::Mutex;

use crate::limits::CHUNK_ENTRIES_MAX;

/// Parts of the index. They are of different sizes, spread evenly over a factor of two, so that
/// they do not double all at once: at any number of entries the index is as full as on average.
const PARTS: usize = 61;
const SHARD_BITS: u32 = crate::limits::CACHE_SHARDS.trailing_zeros();

/// Where an entry lies: shard, directory of that shard, slot of that directory, entry of that
/// slot's chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) dir: u32,
    pub(super) slot: u32,
    pub(super) entry: usize,
}

/// An entry of a directory: its slot, and its offset in that slot's chunk, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pos(u32);

impl Pos {
    /// Slots that one directory can have.
    pub(super) const SLOTS_MAX: usize = 1 << 16;

    #[inline]
    pub(super) fn new(slot: u32, offset: usize) -> Self {
        debug_assert!((slot as usize) < Self::SLOTS_MAX && offset < 1 << 16);
        Self(slot << 16 | offset as u32)
    }

    /// The position that [`Pos::word`] gave.
    #[inline]
    pub(super) fn of(word: u32) -> Self {
        Self(word)
    }

    /// As a number, for an index.
    #[inline]
    pub(super) fn word(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.0 >> 16
    }

    #[inline]
    pub(super) fn offset(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// Directories that one shard can have.
pub(super) const DIRS_PER_SHARD_MAX: usize = 1 << (32 - SHARD_BITS);

/// A place and the hash of its handle: directory and shard, slot, entry, hash in 4, 2, 1, 3 bytes.
/// Bytes, since numbers would be padded to 12.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Node([u8; 10]);

const _: () = assert!(Pos::SLOTS_MAX <= 1 << 16 && CHUNK_ENTRIES_MAX <= 1 << 8);

impl Node {
    #[inline]
    fn new(hash: u64, place: Place) -> Self {
        let [d0, d1, d2, d3] = (place.dir << SHARD_BITS | place.shard).to_le_bytes();
        let [s0, s1] = (place.slot as u16).to_le_bytes();
        let [h0, h1, h2, _] = fold(hash).to_le_bytes();
        Self([d0, d1, d2, d3, s0, s1, place.entry as u8, h0, h1, h2])
    }

    fn hash(self) -> u32 {
        let [.., h0, h1, h2] = self.0;
        u32::from_le_bytes([h0, h1, h2, 0])
    }

    fn place(self) -> Place {
        let [d0, d1, d2, d3, s0, s1, entry, ..] = self.0;
        let dir = u32::from_le_bytes([d0, d1, d2, d3]);
        Place {
            shard: dir & ((1 << SHARD_BITS) - 1),
            dir: dir >> SHARD_BITS,
            slot: u32::from(u16::from_le_bytes([s0, s1])),
            entry: entry as usize,
        }
    }
}

/// The index.
pub(super) struct Nodes {
    parts: Box<[Part]>,
}

struct Part {
    /// The upper half of the hashes from here on, to where the next part begins.
    start: u32,
    nodes: Mutex<HashTable<Node>>,
}

impl Nodes {
    #[inline]
    pub(super) fn new() -> Self {
        let start = |part: usize| (part as f64 / PARTS as f64).exp2() - 1.0;
        let part = |number: usize| Part {
            start: (start(number) * (1_u64 << 32) as f64) as u32,
            nodes: Mutex::new(HashTable::new()),
        };
        Self { parts: (0..PARTS).map(part).collect() }
    }

    /// Adds a place of the handle with this hash.
    pub(super) fn insert(&self, hash: u64, place: Place) {
        let node = Node::new(hash, place);
        self.part(hash).lock().insert_unique(spread(node.hash()), node, |node| spread(node.hash()));
    }

    /// Removes a place.
    pub(super) fn remove(&self, hash: u64, place: Place) {
        let node = Node::new(hash, place);
        let mut part = self.part(hash).lock();
        if let Ok(found) = part.find_entry(spread(node.hash()), |other| *other == node) {
            found.remove();
        }
        if part.capacity() > 64 && part.len() * 4 < part.capacity() {
            part.shrink_to_fit(|node| spread(node.hash()));
        }
    }

    /// Places that may be of the handle with this hash; the caller checks each.
    pub(super) fn candidates(&self, hash: u64) -> Vec<Place> {
        let wanted = fold(hash);
        self.part(hash)
            .lock()
            .iter_hash(spread(wanted))
            .filter(|node| node.hash() == wanted)
            .map(|node| node.place())
            .collect()
    }

    fn part(&self, hash: u64) -> &Mutex<HashTable<Node>> {
        let upper = (hash >> 32) as u32;
        &self.parts[self.parts.partition_point(|part| part.start <= upper) - 1].nodes
    }
}

fn fold(hash: u64) -> u32 {
    hash as u32 & 0xff_ffff
}

/// hashbrown takes its control byte from the top bits and the bucket from the low ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Extreme places and hashes, and two places of one handle.
    #[test]
    fn every_place_is_found_by_its_hash_until_it_is_removed() {
        let mut random = fastrand::Rng::with_seed(5);
        let nodes = Nodes::new();
        let mut model: HashMap<u64, Vec<Place>> = HashMap::new();
        for number in 0..20_000_u32 {
            let hash = match number {
                0 => 0,
                1 => u64::MAX,
                _ => random.u64(..) & !u64::from(number % 2 * 0xff),
            };
            let most = number % 3 == 0;
            let place = Place {
                shard: if most { (1 << SHARD_BITS) - 1 } else { number % (1 << SHARD_BITS) },
                dir: if most { DIRS_PER_SHARD_MAX as u32 - 1 } else { random.u32(0..1_000) },
                slot: if most { Pos::SLOTS_MAX as u32 - 1 } else { random.u32(0..100) },
                entry: number as usize % CHUNK_ENTRIES_MAX,
            };
            let places = model.entry(hash).or_default();
            if !places.contains(&place) {
                nodes.insert(hash, place);
                places.push(place);
            }
        }
        for (&hash, places) in &model {
            let found = nodes.candidates(hash);
            assert!(places.iter().all(|place| found.contains(place)), "{hash:x}");
        }
        for (hash, places) in model {
            for place in places {
                nodes.remove(hash, place);
                assert!(!nodes.candidates(hash).contains(&place), "{hash:x}");
            }
        }
        assert!(nodes.parts.iter().all(|part| part.nodes.lock().is_empty()));
    }

    /// At no number of entries is the index much emptier than at others.
    #[test]
    fn it_grows_evenly() {
        for steps in 0..8 {
            let entries = (40_000.0 * (f64::from(steps) / 8.0).exp2()) as u64;
            let nodes = Nodes::new();
            for number in 0..entries {
                let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                nodes.insert(hash, Place { shard: 1, dir: 1, slot: 1, entry: 1 });
            }
            let taken: usize = nodes.parts.iter().map(|p| p.nodes.lock().allocation_size()).sum();
            let each_bytes = taken as f64 / entries as f64;
            assert!((15.0..20.0).contains(&each_bytes), "{entries} entries: {each_bytes} bytes");
        }
    }
}
