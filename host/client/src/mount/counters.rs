//! What the mount counts of directories: said in the log when it ends.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// One number.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one mount.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Directories opened.
    pub(super) opendirs: Counter,
    /// Of those, where the kernel kept the listing that it had.
    pub(super) kept: Counter,
    /// Requests of the kernel for names.
    pub(super) readdirs: Counter,
    /// Requests of the kernel for one name.
    pub(super) lookups: Counter,
    /// Requests of the kernel for attributes.
    pub(super) getattrs: Counter,
    /// Listings that came from memory.
    pub(super) remembered: Counter,
    /// Listings that the gateway was asked for.
    pub(super) asked: Counter,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} directories opened, {} as the kernel had them; {} requests for their names, {} for \
             one name, {} for attributes; {} listings from memory, {} from the gateway",
            self.opendirs.get(),
            self.kept.get(),
            self.readdirs.get(),
            self.lookups.get(),
            self.getattrs.get(),
            self.remembered.get(),
            self.asked.get(),
        )
    }
}
