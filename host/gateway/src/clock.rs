//! Monotonic time in milliseconds, as the cache and the leases count it.

use tokio::time::Instant;

/// Counts from when the gateway started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now_ms(self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}
