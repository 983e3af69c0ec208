//! A lock that any number of threads hold shared without getting in each other's way.
//!
//! One counter of readers would be written by every one of them, and its cache line would travel
//! from processor to processor at each hit. So the lock is made of several, each on a cache line
//! of its own: a reader takes the one of its thread, a writer takes all of them. Reading then
//! costs what an uncontended lock costs, writing a few times that, which is little beside a fill.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RawRwLock;
use parking_lot::lock_api::{self, GuardNoSend};

/// Locks that one is made of. Threads beyond that share them.
pub(super) const STRIPES: usize = 8;

/// The lock around `T`.
pub(super) type StripedLock<T> = lock_api::RwLock<RawStripedLock, T>;

/// Which of [`STRIPES`] parts the calling thread uses, always the same one.
#[inline]
pub(super) fn stripe() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    STRIPE.with(|&stripe| stripe)
}

#[repr(align(64))]
struct Stripe(RawRwLock);

/// The state of a [`StripedLock`].
pub(super) struct RawStripedLock {
    stripes: [Stripe; STRIPES],
}

// SAFETY: whoever holds it exclusively holds every stripe exclusively, whoever holds it shared
// holds one stripe shared, and a stripe is never held both ways; so neither is the whole. Guards
// stay on their thread (`GuardNoSend`), and a thread keeps its stripe, so what `unlock_shared`
// lets go is what `lock_shared` took.
unsafe impl lock_api::RawRwLock for RawStripedLock {
    const INIT: Self = Self { stripes: [const { Stripe(RawRwLock::INIT) }; STRIPES] };

    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.stripes[stripe()].0.lock_shared();
    }

    fn try_lock_shared(&self) -> bool {
        self.stripes[stripe()].0.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds it shared on this thread, which is this stripe.
        unsafe { self.stripes[stripe()].0.unlock_shared() }
    }

    fn lock_exclusive(&self) {
        // All take them in the same order, and whoever holds one shared waits for no other.
        self.stripes.iter().for_each(|stripe| stripe.0.lock_exclusive());
    }

    fn try_lock_exclusive(&self) -> bool {
        let taken = self.stripes.iter().take_while(|stripe| stripe.0.try_lock_exclusive()).count();
        if taken < STRIPES {
            for stripe in &self.stripes[..taken] {
                // SAFETY: taken just now.
                unsafe { stripe.0.unlock_exclusive() }
            }
        }
        taken == STRIPES
    }

    unsafe fn unlock_exclusive(&self) {
        for stripe in &self.stripes {
            // SAFETY: the caller holds it exclusively, which is every stripe.
            unsafe { stripe.0.unlock_exclusive() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// More threads than stripes. A writer that does not keep out every reader, or another writer,
    /// lets somebody see the two numbers differ, or loses a round.
    #[test]
    fn writers_are_alone() {
        const THREADS: usize = STRIPES + 3;
        const ROUNDS: u64 = 2_000;
        let lock = StripedLock::new((0_u64, 0_u64));
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    for round in 0..ROUNDS {
                        if round % 4 == 0 {
                            let mut pair = lock.write();
                            pair.0 += 1;
                            // Whoever is not kept out gets to run.
                            std::thread::yield_now();
                            pair.1 += 1;
                        }
                        let pair = lock.read();
                        let first = pair.0;
                        std::thread::yield_now();
                        assert_eq!(first, pair.1);
                    }
                });
            }
        });
        assert_eq!(lock.into_inner().0, THREADS as u64 * ROUNDS / 4);
    }

    #[test]
    fn readers_share_and_keep_writers_out() {
        let lock = StripedLock::new(());
        let all = Barrier::new(STRIPES + 1);
        std::thread::scope(|scope| {
            for _ in 0..=STRIPES {
                scope.spawn(|| {
                    let shared = lock.read();
                    // Passed only once all of them hold it.
                    all.wait();
                    assert!(lock.try_write().is_none());
                    all.wait();
                    drop(shared);
                });
            }
        });
        let alone = lock.try_write().expect("what a failed attempt took was given back");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_read().is_none()));
        });
        drop(alone);
        assert!(lock.try_read().is_some());
    }
}
