//! The access word of an object: what its hits leave behind, for eviction.
//!
//! Hits come from threads that hold the shard shared, at the same time; everything else happens
//! while it is held exclusively.

use std::sync::atomic::{AtomicU32, Ordering};

/// Hits of one object that wait to be told. More are not counted, so that the word of what is hit
/// all the time is only read, and stays in the cache of each processor that reads it.
const HITS_MAX: u32 = 255;
/// Touched since it was proposed as a victim.
const TOUCHED: u32 = 1 << 8;
/// Touched since the sweep last came by.
const RECENT: u32 = 1 << 9;

/// An access word: hits in its lowest 8 bits, then the bits above.
#[derive(Debug, Default)]
pub(super) struct AccessWord(AtomicU32);

impl AccessWord {
    /// Whether hits wait to be told.
    #[inline]
    pub(super) fn has_hits(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HITS_MAX != 0
    }

    /// Notes a touch and counts it as a hit. `false` where no more hits are counted.
    #[inline]
    pub(super) fn count_hit(&self) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let counted = now & HITS_MAX < HITS_MAX;
            let next = (now + u32::from(counted)) | TOUCHED | RECENT;
            if next == now {
                return false;
            }
            match self.0.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return counted,
                Err(other) => now = other,
            }
        }
    }

    /// Notes a touch that is not counted.
    pub(super) fn touch(&self) {
        self.0.fetch_or(TOUCHED | RECENT, Ordering::Relaxed);
    }

    /// Takes the hits that wait to be told.
    pub(super) fn take_hits(&mut self) -> u32 {
        self.take(HITS_MAX)
    }

    /// Whether it was touched since this was asked last, for the host's own choice of a victim.
    pub(super) fn take_recent(&mut self) -> bool {
        self.take(RECENT) != 0
    }

    /// Whether it was touched since this was asked last, for judging a proposed victim.
    pub(super) fn take_touched(&mut self) -> bool {
        self.take(TOUCHED) != 0
    }

    fn take(&mut self, bits: u32) -> u32 {
        let word = self.0.get_mut();
        let taken = *word & bits;
        *word &= !bits;
        taken
    }
}
