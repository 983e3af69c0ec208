//! From a hash to a number, for tables that are looked up at random.
//!
//! A lookup in a large cache waits for memory and for little else, so the table is laid out for
//! few reads that depend on one another: buckets of one cache line, each with 12 numbers and 8 bits
//! of the hash of each. A lookup reads one line here, then what the number that it finds stands
//! for. What finds its bucket full goes into the next one, and each bucket counts what passed it,
//! so that a search knows where to end.
//!
//! What the numbers stand for is elsewhere: whoever calls compares it, and gives its hash when the
//! table grows.

/// Numbers in a bucket.
const WIDTH: usize = 12;
/// Numbers for each bucket at which the table grows, in tenths: fuller, too many would pass theirs.
const LOAD_MAX_TENTHS: usize = 102;
/// Numbers for each bucket after it has settled, in tenths.
const LOAD_SETTLED_TENTHS: usize = 96;

/// The table.
#[derive(Debug, Default)]
pub(super) struct Index {
    buckets: Vec<Bucket>,
    len: u32,
}

/// One cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// Of each number the [`tag`] of its hash, 0 where there is none; then, at [`PASSED`], how many
    /// passed this bucket because it was full.
    tags: [u8; 16],
    numbers: [u32; WIDTH],
}

/// Where a bucket counts what passed it. At 255 it stays there until the table is built anew.
const PASSED: usize = WIDTH;

const _: () = assert!(size_of::<Bucket>() == 64);

impl Index {
    /// An index with room for `len` numbers that holds these.
    pub(super) fn with(
        numbers: impl Iterator<Item = u32>,
        len: usize,
        rehash: impl Fn(u32) -> u64,
    ) -> Self {
        Self::built(numbers, buckets_for(len, LOAD_MAX_TENTHS), rehash)
    }

    fn built(
        numbers: impl Iterator<Item = u32>,
        buckets: usize,
        rehash: impl Fn(u32) -> u64,
    ) -> Self {
        let mut index = Self { buckets: vec![Bucket::EMPTY; buckets], len: 0 };
        numbers.for_each(|number| index.put(rehash(number), number));
        index
    }

    /// How many numbers it holds.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// The number with this hash for which `is_it` holds.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            if let Some(place) = bucket.tagged(tag(hash)).find(|&p| is_it(bucket.numbers[p])) {
                return Some(bucket.numbers[place]);
            }
            if bucket.tags[PASSED] == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// Enters a number that is not there yet. `rehash` gives the hash of any that is there.
    pub(super) fn insert(&mut self, hash: u64, number: u32, rehash: impl Fn(u32) -> u64) {
        let len = self.len() + 1;
        if len * 10 > self.buckets.len() * LOAD_MAX_TENTHS {
            *self = Self::with(self.numbers(), len + len / 2, rehash);
        }
        self.put(hash, number);
    }

    /// Enters a number where there is room for it.
    fn put(&mut self, hash: u64, number: u32) {
        let mut at = self.home(hash);
        loop {
            let bucket = &mut self.buckets[at];
            if let Some(place) = bucket.tagged(0).next() {
                bucket.tags[place] = tag(hash);
                bucket.numbers[place] = number;
                break;
            }
            bucket.tags[PASSED] = bucket.tags[PASSED].saturating_add(1);
            at = self.after(at);
        }
        self.len += 1;
    }

    /// Takes out a number with this hash. `false` where it is not there.
    pub(super) fn remove(&mut self, hash: u64, number: u32) -> bool {
        let home = self.home(hash);
        let mut at = home;
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at];
            let found = bucket.tagged(tag(hash)).find(|&place| bucket.numbers[place] == number);
            if let Some(place) = found {
                bucket.tags[place] = 0;
                self.len -= 1;
                self.unpass(home, at);
                return true;
            }
            if bucket.tags[PASSED] == 0 {
                return false;
            }
            at = self.after(at);
        }
        false
    }

    /// Puts another number in place of one with the same hash. `false` where that is not there.
    pub(super) fn replace(&mut self, hash: u64, old: u32, new: u32) -> bool {
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &mut self.buckets[at];
            let found = bucket.tagged(tag(hash)).find(|&place| bucket.numbers[place] == old);
            if let Some(place) = found {
                bucket.numbers[place] = new;
                return true;
            }
            if bucket.tags[PASSED] == 0 {
                return false;
            }
            at = self.after(at);
        }
        false
    }

    /// Shrinks to about what it holds.
    pub(super) fn settle(&mut self, rehash: impl Fn(u32) -> u64) {
        let wanted = buckets_for(self.len(), LOAD_SETTLED_TENTHS);
        // Building it anew reads what every number stands for: not for less than an eighth of it.
        if wanted + wanted / 8 < self.buckets.len() {
            *self = Self::built(self.numbers(), wanted, rehash);
        }
    }

    /// A number that passed the buckets from `home` to before `end` has left.
    fn unpass(&mut self, home: usize, end: usize) {
        let mut at = home;
        while at != end {
            let passed = &mut self.buckets[at].tags[PASSED];
            if *passed < u8::MAX {
                *passed -= 1;
            }
            at = self.after(at);
        }
    }

    /// The numbers, in no order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.buckets.iter().flat_map(|bucket| {
            let used = |&place: &usize| bucket.tags[place] != 0;
            (0..WIDTH).filter(used).map(|place| bucket.numbers[place])
        })
    }

    /// The bucket where a search begins: any number of buckets, so no remainder is taken.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        ((u64::from(hash as u32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 < self.buckets.len() { at + 1 } else { 0 }
    }
}

impl Bucket {
    const EMPTY: Self = Self { tags: [0; 16], numbers: [0; WIDTH] };

    /// The places that have this tag: all compared at once, in one word of 16 bytes.
    #[inline]
    fn tagged(&self, tag: u8) -> impl Iterator<Item = usize> + use<> {
        const ONES: u128 = u128::MAX / 0xff;
        const LOW: u128 = ONES * 0x7f;
        const PLACES: u128 = (1 << (8 * WIDTH)) - 1;
        let unlike = u128::from_le_bytes(self.tags) ^ (ONES * u128::from(tag));
        // The high bit of each byte that is 0 in `unlike`.
        let mut alike = !(((unlike & LOW) + LOW) | unlike | LOW) & PLACES;
        std::iter::from_fn(move || {
            let place = alike.trailing_zeros() as usize / 8;
            let found = (alike != 0).then_some(place);
            alike &= alike.wrapping_sub(1);
            found
        })
    }
}

/// 8 bits of the hash that [`Index::home`] does not use, never 0.
#[inline]
pub(super) fn tag(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

fn buckets_for(len: usize, load_tenths: usize) -> usize {
    (len * 10).div_ceil(load_tenths).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;

    use super::*;

    /// Hashes of few values make long chains, and fill every bucket there is.
    #[test]
    fn random_insertions_and_removals_agree_with_a_set() {
        for seed in 0..60_u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let values = [3, 200, u64::MAX][seed as usize % 3];
            let most = [8, 40, 1_500][seed as usize / 3 % 3];
            let hasher = FixedState::with_seed(seed);
            let hash_of = |number: u32| hasher.hash_one(hasher.hash_one(number) % values);
            let mut index = Index::default();
            let mut model = BTreeSet::new();
            for step in 0..4_000 {
                let number = random.u32(0..most);
                let hash = hash_of(number);
                let known = model.contains(&number);
                let found = index.find(hash, |other| other == number);
                assert_eq!(found, known.then_some(number), "seed {seed} step {step}");
                // Grows for a while, shrinks for a while.
                if random.u8(0..4) >= if step / 1_000 % 2 == 0 { 3 } else { 1 } {
                    assert_eq!(index.remove(hash, number), known, "seed {seed} step {step}");
                    model.remove(&number);
                } else if !known {
                    index.insert(hash, number, hash_of);
                    model.insert(number);
                }
                if random.u16(..) < 300 {
                    index.settle(hash_of);
                }
                // A name that moves keeps its hash: there, back again.
                let moved = u32::MAX - number;
                let known = model.contains(&number);
                assert_eq!(index.replace(hash, number, moved), known, "seed {seed} step {step}");
                assert_eq!(index.find(hash, |other| other == moved).is_some(), known);
                assert_eq!(index.replace(hash, moved, number), known, "seed {seed} step {step}");
            }
            assert!(index.numbers().collect::<BTreeSet<_>>() == model, "seed {seed}");
            for &number in &model {
                assert!(index.remove(hash_of(number), number), "seed {seed}");
            }
            assert_eq!(index.len(), 0, "seed {seed}");
            let counted = index.buckets.iter().any(|b| !matches!(b.tags[PASSED], 0 | u8::MAX));
            assert!(!counted, "seed {seed}: nothing is left that passed a bucket");
        }
    }

    #[test]
    fn it_takes_about_its_load_and_few_pass_their_bucket() {
        let hasher = FixedState::with_seed(3);
        for len in [12_u32, 100, 1_000, 30_000] {
            let mut index = Index::default();
            for number in 0..len {
                index.insert(hasher.hash_one(number), number, |number| hasher.hash_one(number));
            }
            index.settle(|number| hasher.hash_one(number));
            let buckets = index.buckets.len();
            assert!(buckets <= len as usize / 8 + 2, "{len}: {buckets}");
            let passed: usize = index.buckets.iter().map(|b| b.tags[PASSED] as usize).sum();
            assert!(passed * 5 < len as usize, "{len}: {passed} are not where they belong");
        }
    }
}
