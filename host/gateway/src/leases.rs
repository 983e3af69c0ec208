//! Until when answers may come from the cache: the leases of all bricks taken together.
//!
//! The cache holds what bricks told over the sessions there are. So it may answer while each of
//! these sessions has a lease, and a client's lease ends with the first of them. A brick that is away
//! does not count: what it had told was forgotten when its session was lost.
//!
//! What must hold: no client has a lease that reaches beyond that of a brick that it may have heard
//! of. So a brick that comes back counts before anything is asked of it ([`Leases::joins`]), and one
//! that is lost keeps all leases at nothing until what it had told is forgotten and clients are being
//! told ([`Leases::lost`], [`Leases::away`]).

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// See the module. Times are the gateway's monotonic clock.
#[derive(Debug)]
pub(crate) struct Leases {
    bricks: Mutex<Vec<Held>>,
    /// The end of the first that ends; 0 where one is lost, or none there.
    until_ms: AtomicU64,
    /// Counts how often a brick ceased to count.
    generation: AtomicU64,
}

/// The lease at one brick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Nothing of what it told is known to anyone.
    Away,
    /// It is lost, and not everybody has been told.
    Lost,
    Until(u64),
}

impl Leases {
    /// No brick is there.
    pub(crate) fn new(bricks: usize) -> Self {
        Self {
            bricks: Mutex::new(vec![Held::Away; bricks]),
            until_ms: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        }
    }

    /// For how long answers may still come from the cache; 0 where they may not.
    pub(crate) fn left_ms(&self, now_ms: u64) -> u64 {
        self.until_ms.load(Ordering::SeqCst).saturating_sub(now_ms)
    }

    /// To be kept before a client's lease is settled: see [`Leases::left_since`].
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// The lease that a client may be given which knew everything there was to be told when the
    /// generation was this one; 0 where a brick was lost since, which it may not have been told.
    pub(crate) fn left_since(&self, generation: u64, now_ms: u64) -> u64 {
        let left_ms = self.left_ms(now_ms);
        if self.generation() == generation { left_ms } else { 0 }
    }

    /// A session with a brick begins, which gave it a lease until then: from now on no client's lease
    /// is longer. `granted` is told until when clients may be given leases, before they are.
    pub(crate) fn joins(&self, brick: usize, until_ms: u64, granted: impl FnOnce(u64)) {
        self.set(brick, Held::Until(until_ms), granted);
    }

    /// The lease of a brick was renewed.
    pub(crate) fn renewed(&self, brick: usize, until_ms: u64, granted: impl FnOnce(u64)) {
        let mut bricks = self.bricks.lock();
        if let Held::Until(before_ms) = bricks[brick] {
            bricks[brick] = Held::Until(before_ms.max(until_ms));
        }
        self.settle(&bricks, granted);
    }

    /// The session with a brick is lost.
    pub(crate) fn lost(&self, brick: usize) {
        self.set(brick, Held::Lost, |_| {});
    }

    /// What a lost brick had told is forgotten here, and clients are being told.
    pub(crate) fn away(&self, brick: usize, granted: impl FnOnce(u64)) {
        // Raised first: whoever finds the longer lease finds the new generation as well.
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.set(brick, Held::Away, granted);
    }

    fn set(&self, brick: usize, held: Held, granted: impl FnOnce(u64)) {
        let mut bricks = self.bricks.lock();
        bricks[brick] = held;
        self.settle(&bricks, granted);
    }

    fn settle(&self, bricks: &[Held], granted: impl FnOnce(u64)) {
        let ends = bricks.iter().filter_map(|held| match held {
            Held::Away => None,
            Held::Lost => Some(0),
            Held::Until(until_ms) => Some(*until_ms),
        });
        let until_ms = ends.min().unwrap_or(0);
        granted(until_ms);
        self.until_ms.store(until_ms, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 4_000;

    #[test]
    fn the_first_lease_to_end_ends_them_all() {
        let leases = Leases::new(3);
        assert_eq!(leases.left_ms(0), 0, "no brick is there");
        leases.joins(0, 5_000, |until_ms| assert_eq!(until_ms, 5_000));
        assert_eq!(leases.left_ms(1_000), LEASE);
        leases.joins(2, 5_500, |until_ms| assert_eq!(until_ms, 5_000));
        leases.renewed(2, 9_000, |_| {});
        assert_eq!(leases.left_ms(1_500), LEASE - 500, "brick 0 was not renewed");
        leases.renewed(0, 8_000, |until_ms| assert_eq!(until_ms, 8_000));
        assert_eq!(leases.left_ms(7_000), 1_000);
        leases.renewed(0, 2_000, |_| {});
        assert_eq!(leases.left_ms(7_000), 1_000, "an older answer takes nothing back");
        leases.renewed(1, 500, |_| {});
        assert_eq!(leases.left_ms(7_000), 1_000, "one that is away has no lease to renew");
    }

    #[test]
    fn a_lost_brick_ends_all_leases_until_it_is_forgotten() {
        let leases = Leases::new(2);
        leases.joins(0, LEASE, |_| {});
        leases.joins(1, LEASE, |_| {});
        let generation = leases.generation();
        leases.lost(1);
        assert_eq!(leases.left_ms(10), 0);
        leases.renewed(1, 99_999, |_| {});
        assert_eq!(leases.left_ms(10), 0, "a late renewal revives nothing");
        leases.away(1, |until_ms| assert_eq!(until_ms, LEASE));
        assert_eq!(leases.left_ms(10), LEASE - 10);
        assert_eq!(leases.left_since(generation, 10), 0, "it may not have been told");
        assert_eq!(leases.left_since(leases.generation(), 10), LEASE - 10);
    }

    #[test]
    fn a_brick_that_comes_back_bounds_all_leases() {
        let leases = Leases::new(2);
        leases.joins(0, 50_000, |_| {});
        leases.joins(1, 44_000, |_| {});
        assert_eq!(leases.left_ms(40_000), LEASE);
    }
}
