//! What happened to the datagrams of a direction.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many datagrams of a direction came, went, and did not, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// That came.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// That were passed on.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Passed on after one that came later.
    pub reordered: u64,
    /// Dropped by chance.
    pub lost: u64,
    /// Dropped because the direction was cut.
    pub cut: u64,
    /// Dropped because too many waited for their turn, or were on their way.
    pub overflowed: u64,
    /// Refused by the kernel when they were passed on.
    pub unsent: u64,
}

impl Counters {
    /// That came and will not be passed on.
    pub fn dropped(&self) -> u64 {
        self.lost + self.cut + self.overflowed + self.unsent
    }
}

/// The counters as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    received_packets: AtomicU64,
    received_bytes: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    reordered: AtomicU64,
    lost: AtomicU64,
    cut: AtomicU64,
    overflowed: AtomicU64,
    unsent: AtomicU64,
}

impl Counts {
    pub(crate) fn received(&self, packets: u64, bytes: u64) {
        self.received_packets.fetch_add(packets, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sent(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn reordered(&self) {
        self.reordered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn overflowed(&self) {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unsent(&self, packets: u64) {
        self.unsent.fetch_add(packets, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            received_packets: read(&self.received_packets),
            received_bytes: read(&self.received_bytes),
            packets: read(&self.packets),
            bytes: read(&self.bytes),
            reordered: read(&self.reordered),
            lost: read(&self.lost),
            cut: read(&self.cut),
            overflowed: read(&self.overflowed),
            unsent: read(&self.unsent),
        }
    }
}
