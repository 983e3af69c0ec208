//! The ghost: fingerprints of keys that left, as long as they are worth remembering.
//!
//! A queue bounded by the weight of what is in it. Its entries lie in pages, in the order in which
//! they entered, numbered on; a hash table chains them by number. Both grow in small steps (the
//! table by linear hashing: the next bucket in line is split in two), so no single event pays for
//! growth. A key taken out leaves a dead entry in its place, which goes when its turn comes.
//!
//! What must hold: a live entry is in the chain of its fingerprint's bucket, a dead one in none;
//! along a chain numbers fall; `bytes` is the weight of the live entries, after a trim within the
//! window.

use std::collections::VecDeque;
use std::mem::size_of;

/// Entries of a page, a power of two.
const PAGE_ENTRIES: usize = 512;
/// Buckets of a page of the table, a power of two.
const PAGE_BUCKETS: usize = 1024;
/// Entries, dead ones too, for each resident; what the weights allow may be more.
const ENTRIES_PER_RESIDENT: usize = 2;
/// Entries allowed beyond that, so that a handful of residents can have a ghost.
const ENTRIES_SPARE: usize = 4096;
/// Buckets split, and surplus entries dropped, for one key entering.
const STEPS_MAX: usize = 2;
/// No entry: the end of a chain. No entry has this number.
const NIL: u32 = u32::MAX;
/// The fingerprint of a dead entry.
const DEAD: u32 = 0;

#[derive(Clone, Copy)]
struct Entry {
    fingerprint: u32,
    weight_bytes: u32,
    /// The next older entry of the bucket.
    chained: u32,
}

const NO_ENTRY: Entry = Entry { fingerprint: DEAD, weight_bytes: 0, chained: NIL };

/// The ghost queue.
pub(super) struct Ghost {
    window_bytes: u64,
    bytes: u64,
    /// The entries numbered from `oldest` to `newest`, `newest` excluded; numbers wrap. The first
    /// page is that of `oldest`.
    pages: VecDeque<Box<[Entry; PAGE_ENTRIES]>>,
    oldest: u32,
    newest: u32,
    /// The newest entry of each bucket.
    heads: Vec<Box<[u32; PAGE_BUCKETS]>>,
    buckets: usize,
}

impl Ghost {
    /// A ghost that remembers keys of objects of `window_bytes` together.
    pub(super) fn new(window_bytes: u64) -> Self {
        Self {
            window_bytes,
            bytes: 0,
            pages: VecDeque::new(),
            oldest: 0,
            newest: 0,
            heads: vec![Box::new([NIL; PAGE_BUCKETS])],
            buckets: PAGE_BUCKETS,
        }
    }

    /// Remembers a key; `residents` is how many objects there are in the cache. What then goes
    /// beyond the window is dropped by [`Ghost::trim`].
    pub(super) fn insert(&mut self, fingerprint: u32, weight_bytes: u32, residents: usize) {
        self.take(fingerprint);
        self.push(fingerprint, weight_bytes);
        let entries_max = ENTRIES_PER_RESIDENT * residents + ENTRIES_SPARE;
        for _ in 0..STEPS_MAX {
            if self.len() > entries_max {
                self.pop();
            }
            if self.len() > self.buckets {
                self.split();
            }
        }
    }

    /// Drops the oldest keys until the window is kept.
    pub(super) fn trim(&mut self) {
        while self.bytes > self.window_bytes {
            self.pop();
        }
    }

    /// Forgets a key, and says whether it was remembered.
    pub(super) fn take(&mut self, fingerprint: u32) -> bool {
        let mut number = *self.head(fingerprint);
        while number != NIL && self.entry(number).fingerprint != fingerprint {
            number = self.entry(number).chained;
        }
        if number == NIL {
            return false;
        }
        self.kill(number);
        true
    }

    /// Bytes the ghost takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.len() * size_of::<[Entry; PAGE_ENTRIES]>()
            + self.heads.len() * size_of::<[u32; PAGE_BUCKETS]>()
            + (self.pages.capacity() + self.heads.capacity()) * size_of::<usize>()
    }

    /// Entries, dead ones too.
    fn len(&self) -> usize {
        self.newest.wrapping_sub(self.oldest) as usize
    }

    fn push(&mut self, fingerprint: u32, weight_bytes: u32) {
        if self.newest == NIL {
            self.push_entry(NO_ENTRY);
        }
        let number = self.newest;
        let chained = std::mem::replace(self.head(fingerprint), number);
        self.push_entry(Entry { fingerprint, weight_bytes, chained });
        self.bytes += u64::from(weight_bytes);
    }

    fn push_entry(&mut self, entry: Entry) {
        let number = self.newest;
        if self.pages.is_empty() || (number as usize).is_multiple_of(PAGE_ENTRIES) {
            self.pages.push_back(Box::new([NO_ENTRY; PAGE_ENTRIES]));
        }
        self.newest = number.wrapping_add(1);
        *self.entry(number) = entry;
    }

    /// Drops the oldest live entry, and the dead ones up to the next.
    fn pop(&mut self) {
        if self.oldest != self.newest {
            let number = self.oldest;
            if self.entry(number).fingerprint != DEAD {
                self.kill(number);
            }
        }
        while self.oldest != self.newest {
            let number = self.oldest;
            if self.entry(number).fingerprint != DEAD {
                break;
            }
            self.oldest = number.wrapping_add(1);
            if (self.oldest as usize).is_multiple_of(PAGE_ENTRIES) {
                self.pages.pop_front();
            }
        }
    }

    /// Takes a live entry out of its chain.
    fn kill(&mut self, number: u32) {
        let Entry { fingerprint, weight_bytes, chained } =
            std::mem::replace(self.entry(number), NO_ENTRY);
        self.bytes -= u64::from(weight_bytes);
        let mut at = *self.head(fingerprint);
        if at == number {
            *self.head(fingerprint) = chained;
            return;
        }
        while self.entry(at).chained != number {
            at = self.entry(at).chained;
        }
        self.entry(at).chained = chained;
    }

    fn entry(&mut self, number: u32) -> &mut Entry {
        let first = self.oldest as usize % PAGE_ENTRIES;
        let at = first + number.wrapping_sub(self.oldest) as usize;
        &mut self.pages[at / PAGE_ENTRIES][at % PAGE_ENTRIES]
    }

    /// The bucket of a fingerprint is named by its low bits; by one bit fewer where the bucket so
    /// named was not split off yet.
    fn head(&mut self, fingerprint: u32) -> &mut u32 {
        let mask = self.buckets.next_power_of_two() - 1;
        let at = fingerprint as usize & mask;
        self.bucket(if at < self.buckets { at } else { at & mask >> 1 })
    }

    fn bucket(&mut self, at: usize) -> &mut u32 {
        &mut self.heads[at / PAGE_BUCKETS][at % PAGE_BUCKETS]
    }

    /// Adds a bucket and moves into it what now belongs there, keeping the order in both chains.
    fn split(&mut self) {
        let new = self.buckets;
        if new.is_multiple_of(PAGE_BUCKETS) {
            self.heads.push(Box::new([NIL; PAGE_BUCKETS]));
        }
        let half = (new + 1).next_power_of_two() / 2;
        let old = new - half;
        let mut number = *self.bucket(old);
        let (mut old_end, mut new_end) = (NIL, NIL);
        while number != NIL {
            let Entry { fingerprint, chained, .. } = *self.entry(number);
            let moves = fingerprint as usize & (2 * half - 1) == new;
            let (bucket, end) = if moves { (new, &mut new_end) } else { (old, &mut old_end) };
            let before = std::mem::replace(end, number);
            if before == NIL {
                *self.bucket(bucket) = number;
            } else {
                self.entry(before).chained = number;
            }
            number = chained;
        }
        for (bucket, end) in [(old, old_end), (new, new_end)] {
            if end == NIL {
                *self.bucket(bucket) = NIL;
            } else {
                self.entry(end).chained = NIL;
            }
        }
        self.buckets += 1;
    }
}

/// What a key is remembered by: never [`DEAD`]. Two keys share one by chance, one pair in 2^32;
/// the newcomer then enters main at once, which does no harm.
pub(super) fn fingerprint(key: u64) -> u32 {
    let mixed = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) as u32).max(DEAD + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_window_of_bytes() {
        let mut ghost = Ghost::new(100);
        for key in 1..=5 {
            ghost.insert(fingerprint(key), 30, 10);
            ghost.trim();
        }
        let remembered: Vec<bool> = (1..=5).map(|key| ghost.take(fingerprint(key))).collect();
        assert_eq!(remembered, [false, false, true, true, true]);
        assert!((1..=5).all(|key| !ghost.take(fingerprint(key))), "a key is found once");
        assert_eq!(ghost.bytes, 0);
    }

    #[test]
    fn a_key_taken_makes_room_for_others() {
        let mut ghost = Ghost::new(100);
        for key in 1..=3 {
            ghost.insert(fingerprint(key), 30, 10);
            ghost.trim();
        }
        assert!(ghost.take(fingerprint(2)));
        ghost.insert(fingerprint(4), 30, 10);
        ghost.trim();
        assert!(ghost.take(fingerprint(1)), "1, 3 and 4 weigh 90 bytes");
    }

    #[test]
    fn a_key_that_leaves_twice_is_remembered_from_the_second_time() {
        let mut ghost = Ghost::new(100);
        for (key, weight_bytes) in [(1, 60), (2, 30), (1, 60), (3, 30)] {
            ghost.insert(fingerprint(key), weight_bytes, 10);
            ghost.trim();
        }
        assert!(ghost.take(fingerprint(1)));
        assert!(!ghost.take(fingerprint(1)));
    }

    #[test]
    fn growth_by_single_buckets_loses_nothing() {
        const KEYS: u64 = 50_000;
        let mut ghost = Ghost::new(u64::MAX);
        for key in 0..KEYS {
            ghost.insert(fingerprint(key), 10, KEYS as usize);
        }
        assert_eq!(ghost.buckets, KEYS as usize);
        assert!(ghost.memory_bytes() < KEYS as usize * 17);
        let found = (0..KEYS).filter(|&key| ghost.take(fingerprint(key))).count();
        assert_eq!(found, KEYS as usize);
    }

    #[test]
    fn entries_stay_in_proportion_to_the_residents() {
        let mut ghost = Ghost::new(u64::MAX);
        ghost.insert(fingerprint(u64::MAX), 1, 1_000);
        for key in 0..100_000 {
            ghost.insert(fingerprint(key), 1, 1_000);
            // Dead entries behind a live one count too.
            if key % 2 == 0 {
                assert!(ghost.take(fingerprint(key)));
            }
        }
        let entries_max = 2 * 1_000 + ENTRIES_SPARE;
        // One step may drop dead entries as well.
        assert!((entries_max - 1..=entries_max).contains(&ghost.len()), "{}", ghost.len());
        assert!(ghost.memory_bytes() < entries_max * 24);
        for key in 0..10_000 {
            ghost.insert(fingerprint(key), 1, 0);
        }
        assert!(ghost.len() <= ENTRIES_SPARE, "residents that left take their share with them");
    }

    #[test]
    fn numbers_wrap() {
        let mut ghost = Ghost::new(3_000);
        let start = NIL - 1_500;
        (ghost.oldest, ghost.newest) = (start, start);
        for key in 0..10_001 {
            ghost.insert(fingerprint(key), 1, 10_000);
            ghost.trim();
            if key % 3 == 0 {
                assert!(ghost.take(fingerprint(key)));
            }
        }
        assert!(ghost.newest < start);
        let remembered = (0..10_001).filter(|&key| ghost.take(fingerprint(key))).count();
        assert_eq!(remembered, 3_000);
    }
}
