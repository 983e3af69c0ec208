//! The caching side of a lease: until when answers from the cache are allowed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::LEASE_MS;

/// The lease of one session. A new session has a new one, so a renewal that arrives late cannot
/// revive what a lost session had told.
#[derive(Debug, Default)]
pub struct Lease {
    /// When it ends, by the holder's monotonic clock; 0 where it never held or is given up.
    until_ms: AtomicU64,
}

impl Lease {
    /// Takes in an answer: a renewal that was sent at `sent_ms` was answered with `lease_ms`. What
    /// counts is when it was sent, since the other side counts from when it arrived.
    pub fn renewed(&self, sent_ms: u64, lease_ms: u32) {
        let lease_ms = u64::from(lease_ms).min(LEASE_MS);
        self.until_ms.fetch_max(sent_ms + lease_ms, Ordering::SeqCst);
    }

    /// Milliseconds for which answers from the cache are still allowed, 0 where they are not.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        self.until_ms.load(Ordering::SeqCst).saturating_sub(now_ms)
    }

    /// Whether answers from the cache are allowed.
    pub fn holds(&self, now_ms: u64) -> bool {
        self.left_ms(now_ms) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_when_its_renewal_was_sent() {
        let lease = Lease::default();
        assert!(!lease.holds(0));
        lease.renewed(1000, 300);
        assert_eq!((lease.left_ms(1250), lease.left_ms(1300)), (50, 0));
        lease.renewed(900, 300);
        assert_eq!(lease.left_ms(1250), 50, "an older answer takes nothing back");
        lease.renewed(2000, u32::MAX);
        assert_eq!(lease.left_ms(2000), LEASE_MS, "whatever a server says");
    }
}
