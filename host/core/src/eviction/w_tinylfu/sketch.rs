//! How often keys were seen lately: a count-min sketch of 4-bit counters with ageing.
//!
//! The counters of a key lie in one block of 64 bytes, so that a look costs one line of the
//! processor's cache: two words for each of four rows, and in the two a counter of 32. A key's
//! frequency is the least of its four counters. When as many were counted as the sample holds (ten
//! for each resident there can be), every counter is halved, so that what was seen long ago fades.
//!
//! The sketch grows with the residents: twice the blocks, each block copied to the two that its keys
//! may now be in, which keeps every count.
//!
//! What must hold: there are at least as many words of counters as residents; counts never exceed 15.

/// Words of a block.
const BLOCK_WORDS: usize = 8;
/// Blocks at first, a power of two.
const BLOCKS_MIN: usize = 8;
/// Rows: counters of one key.
const ROWS: u32 = 4;
/// Counts stop here.
const COUNT_MAX: u8 = 15;
/// Requests in the sample for each resident.
const SAMPLE_PER_RESIDENT: u64 = 10;
/// The lowest bit of each counter of a word.
const ONES: u64 = 0x1111_1111_1111_1111;

/// The sketch.
pub(super) struct Sketch {
    blocks: Vec<[u64; BLOCK_WORDS]>,
    seed: u64,
    /// The most residents there were.
    residents: usize,
    /// Requests counted since the last halving, and what was left by it.
    counted: u64,
}

impl Sketch {
    /// A sketch that has seen nothing.
    pub(super) fn new(seed: u64) -> Self {
        Self { blocks: vec![[0; BLOCK_WORDS]; BLOCKS_MIN], seed, residents: 0, counted: 0 }
    }

    /// Grows for so many residents.
    pub(super) fn make_room(&mut self, residents: usize) {
        self.residents = self.residents.max(residents);
        if self.residents > self.blocks.len() * BLOCK_WORDS {
            self.blocks.extend_from_within(..);
        }
    }

    /// Requests in the sample.
    pub(super) fn sample(&self) -> u64 {
        SAMPLE_PER_RESIDENT * (self.residents as u64).max(1)
    }

    /// Counts a key, `times` over.
    pub(super) fn count(&mut self, fingerprint: u32, times: u32) {
        let hash = self.hash(fingerprint);
        let at = self.block(hash);
        let block = &mut self.blocks[at];
        let mut added = 0;
        for row in 0..ROWS {
            let (word, shift) = counter(hash, row);
            let room = u32::from(COUNT_MAX - count_at(block[word], shift));
            let more = times.min(room);
            block[word] += u64::from(more) << shift;
            added = added.max(more);
        }
        self.counted += u64::from(added);
        if self.counted >= self.sample() {
            self.halve();
        }
    }

    /// How often a key was seen lately, 15 at most; never too few, sometimes too many.
    pub(super) fn frequency(&self, fingerprint: u32) -> u8 {
        let hash = self.hash(fingerprint);
        let block = &self.blocks[self.block(hash)];
        let counts = (0..ROWS).map(|row| {
            let (word, shift) = counter(hash, row);
            count_at(block[word], shift)
        });
        counts.min().unwrap_or(0)
    }

    fn halve(&mut self) {
        let mut odd = 0;
        for word in self.blocks.iter_mut().flatten() {
            odd += u64::from((*word & ONES).count_ones());
            *word = (*word >> 1) & (ONES * 7);
        }
        self.counted = self.counted.saturating_sub(odd / u64::from(ROWS)) / 2;
    }

    fn hash(&self, fingerprint: u32) -> u64 {
        let mixed = (u64::from(fingerprint) ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    /// The block of a hash: from its upper half, the counters come from the lower one.
    fn block(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.blocks.len() - 1)
    }
}

/// Where in its block the counter of a row is: which word, and at which bit.
fn counter(hash: u64, row: u32) -> (usize, u32) {
    let chosen = (hash >> (5 * row)) as u32 & 31;
    ((2 * row + chosen / 16) as usize, chosen % 16 * 4)
}

fn count_at(word: u64, shift: u32) -> u8 {
    (word >> shift) as u8 & COUNT_MAX
}

/// What the sketch knows a key by.
pub(super) fn fingerprint(key: u64) -> u32 {
    ((key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(residents: usize) -> Sketch {
        let mut sketch = Sketch::new(7);
        for residents in 1..=residents {
            sketch.make_room(residents);
        }
        sketch
    }

    #[test]
    fn counts_are_kept_up_to_fifteen() {
        let mut sketch = sketch(1_000);
        let (often, once, never) = (fingerprint(1), fingerprint(2), fingerprint(3));
        for times in [3, 1, 2] {
            sketch.count(often, times);
        }
        sketch.count(once, 1);
        assert_eq!([often, once, never].map(|key| sketch.frequency(key)), [6, 1, 0]);
        sketch.count(often, 100);
        assert_eq!(sketch.frequency(often), 15);
        assert_eq!(sketch.counted, 3 + 1 + 2 + 1 + 9);
    }

    /// The sample of two residents is twenty: the twentieth request halves all.
    #[test]
    fn a_full_sample_halves_every_count() {
        let mut sketch = sketch(2);
        sketch.count(fingerprint(1), 14);
        sketch.count(fingerprint(2), 5);
        assert_eq!(sketch.frequency(fingerprint(1)), 14);
        sketch.count(fingerprint(3), 1);
        let left = [1, 2, 3].map(|key| sketch.frequency(fingerprint(key)));
        assert_eq!(left, [7, 2, 0]);
        // Twenty, less what rounding down lost: a half for each of two odd counts.
        assert_eq!(sketch.counted, 9);
    }

    #[test]
    fn growth_keeps_every_count() {
        let mut sketch = sketch(64);
        let keys: Vec<u32> = (0..40).map(fingerprint).collect();
        for (times, &key) in keys.iter().enumerate() {
            sketch.count(key, times as u32 % 8);
        }
        let before: Vec<u8> = keys.iter().map(|&key| sketch.frequency(key)).collect();
        for residents in 65..=5_000 {
            sketch.make_room(residents);
        }
        assert_eq!(sketch.blocks.len() * BLOCK_WORDS, 8_192);
        let after: Vec<u8> = keys.iter().map(|&key| sketch.frequency(key)).collect();
        assert_eq!(after, before);
    }

    /// Few of 10,000 keys seen once or twice appear to be seen much more often.
    #[test]
    fn keys_are_told_apart() {
        let mut sketch = sketch(10_000);
        for key in 0..10_000 {
            sketch.count(fingerprint(key), 1 + key as u32 % 2);
        }
        let wrong = (0..10_000)
            .filter(|&key| u64::from(sketch.frequency(fingerprint(key))) != 1 + key % 2)
            .count();
        assert!(wrong < 500, "{wrong} of 10,000");
    }
}
