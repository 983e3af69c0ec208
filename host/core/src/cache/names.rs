//! From a name to its entry, within one directory.
//!
//! A few names lie in the directory itself, so that what a lookup reads next is the name that it
//! looks for; more lie in an [`Index`]. Names themselves are in the chunks: whoever calls compares
//! them, and gives the hash of a position when the index grows.

use super::index::{Index, tag};
use super::nodes::Pos;

/// Names held without an index of their own.
const FEW_MAX: usize = 11;
/// A word without a name.
const FREE: u32 = 0;
/// Slots that the short form of a position can name.
const FEW_SLOTS: u32 = 1 << 8;

/// The index by name of one directory.
#[derive(Debug)]
pub(super) enum Names {
    Few(Few),
    /// Positions as numbers.
    Many(Index),
}

/// A position and the tag of a hash in a word each: `slot u8 | tag u8 | offset u16`, high to low;
/// a tag is never 0, a free word is.
#[derive(Debug, Default)]
pub(super) struct Few {
    words: [u32; FEW_MAX],
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Names>() == 48);

impl Default for Names {
    fn default() -> Self {
        Self::Few(Few::default())
    }
}

impl Names {
    /// The position of the name with this hash for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(Pos) -> bool) -> Option<Pos> {
        match self {
            Self::Few(few) => few.find(hash, is_it),
            Self::Many(index) => index.find(hash, |word| is_it(Pos::of(word))).map(Pos::of),
        }
    }

    /// Enters a name that is not there yet. `rehash` gives the hash of the name at a position.
    pub(super) fn insert(&mut self, hash: u64, pos: Pos, rehash: impl Fn(Pos) -> u64) {
        if let Self::Few(few) = self {
            if few.insert(hash, pos) {
                return;
            }
            let words = few.positions().map(Pos::word);
            *self = Self::Many(Index::with(words, FEW_MAX + 1, |word| rehash(Pos::of(word))));
        }
        if let Self::Many(index) = self {
            index.insert(hash, pos.word(), |word| rehash(Pos::of(word)));
        }
    }

    /// Takes out the name with this hash at this position. `false` where it is not there.
    pub(super) fn remove(&mut self, hash: u64, pos: Pos) -> bool {
        match self {
            Self::Few(few) => few.remove(hash, pos),
            Self::Many(index) => {
                let removed = index.remove(hash, pos.word());
                if index.len() == 0 {
                    *self = Self::default();
                }
                removed
            }
        }
    }

    /// The name with this hash lies elsewhere in its slot now.
    pub(super) fn move_to(&mut self, hash: u64, old: Pos, new: Pos) -> bool {
        debug_assert_eq!(old.slot(), new.slot());
        match self {
            Self::Few(few) => few.move_to(hash, old, new),
            Self::Many(index) => index.replace(hash, old.word(), new.word()),
        }
    }

    /// Shrinks to about what it holds.
    pub(super) fn settle(&mut self, rehash: impl Fn(Pos) -> u64) {
        let Self::Many(index) = self else { return };
        let mut few = Few::default();
        if index.numbers().map(Pos::of).all(|pos| few.insert(rehash(pos), pos)) {
            *self = Self::Few(few);
        } else {
            index.settle(|word| rehash(Pos::of(word)));
        }
    }
}

impl Few {
    #[inline]
    fn find(&self, hash: u64, is_it: impl Fn(Pos) -> bool) -> Option<Pos> {
        let tag = u32::from(tag(hash));
        let tagged = |word: &&u32| **word >> 16 & 0xff == tag;
        self.words.iter().filter(tagged).map(|&word| unpacked(word)).find(|&pos| is_it(pos))
    }

    /// `false` where it has no room for it.
    fn insert(&mut self, hash: u64, pos: Pos) -> bool {
        let free = self.words.iter_mut().find(|word| **word == FREE);
        let Some(word) = free.filter(|_| pos.slot() < FEW_SLOTS) else { return false };
        *word = packed(hash, pos);
        true
    }

    fn remove(&mut self, hash: u64, pos: Pos) -> bool {
        if pos.slot() >= FEW_SLOTS {
            return false;
        }
        let wanted = packed(hash, pos);
        let Some(word) = self.words.iter_mut().find(|word| **word == wanted) else { return false };
        *word = FREE;
        true
    }

    fn move_to(&mut self, hash: u64, old: Pos, new: Pos) -> bool {
        if old.slot() >= FEW_SLOTS {
            return false;
        }
        let wanted = packed(hash, old);
        let Some(word) = self.words.iter_mut().find(|word| **word == wanted) else { return false };
        *word = packed(hash, new);
        true
    }

    fn positions(&self) -> impl Iterator<Item = Pos> + '_ {
        self.words.iter().filter(|&&word| word != FREE).map(|&word| unpacked(word))
    }
}

fn packed(hash: u64, pos: Pos) -> u32 {
    pos.slot() << 24 | u32::from(tag(hash)) << 16 | pos.offset() as u32
}

#[inline]
fn unpacked(word: u32) -> Pos {
    Pos::new(word >> 24, (word & 0xffff) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::BuildHasher;

    use super::*;

    /// Names and their hashes are made up: a position is a name.
    #[test]
    fn random_insertions_and_removals_agree_with_a_map() {
        for seed in 0..60_u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let values = [3, 200, u64::MAX][seed as usize % 3];
            let most = [8, 40, 1_500][seed as usize / 3 % 3];
            let slots = [1, FEW_SLOTS * 2][seed as usize / 9 % 2];
            let mut model: HashMap<u32, u64> = HashMap::new();
            let hasher = foldhash::fast::FixedState::with_seed(seed);
            let hash_of = |pos: Pos| hasher.hash_one(hasher.hash_one(pos.word()) % values);
            let mut names = Names::default();
            for step in 0..4_000 {
                let at = random.u32(0..most);
                let pos = Pos::new(at % slots, 20 + at as usize * 3);
                let hash = hash_of(pos);
                let known = model.contains_key(&at);
                assert_eq!(
                    names.find(hash, |other| other == pos),
                    known.then_some(pos),
                    "seed {seed} step {step}"
                );
                // Grows for a while, shrinks for a while.
                if random.u8(0..4) < if step / 1_000 % 2 == 0 { 3 } else { 1 } {
                    if !known {
                        names.insert(hash, pos, hash_of);
                        model.insert(at, hash);
                    }
                } else {
                    assert_eq!(names.remove(hash, pos), known, "seed {seed} step {step}");
                    model.remove(&at);
                }
                if random.u16(..) < 300 {
                    names.settle(hash_of);
                }
            }
            for (&at, &hash) in &model {
                let pos = Pos::new(at % slots, 20 + at as usize * 3);
                assert_eq!(names.find(hash, |other| other == pos), Some(pos), "seed {seed}");
                assert!(names.remove(hash, pos), "seed {seed}");
            }
            assert!(matches!(names, Names::Few(few) if few.positions().next().is_none()));
        }
    }
}
