//! A prefetch policy that works as the crawl does, until it panics on its 20th batch of events.

use portcullis_core::prefetch::{Answer, Crawl, Event, PrefetchPolicy};
use portcullis_sdk::{Policy, PolicyLimits, register_prefetch};

/// The policy.
pub struct PrefetchTrap {
    policy: Crawl,
    batches: u32,
}

impl Policy for PrefetchTrap {
    const NAME: &str = "prefetch-trap";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, _config: &[u8]) -> Result<Self, String> {
        Ok(Self { policy: Crawl::default(), batches: 0 })
    }
}

impl PrefetchPolicy for PrefetchTrap {
    fn on_events(&mut self, now_ms: u64, events: &[Event]) {
        self.batches += 1;
        assert!(self.batches < 20, "this is batch {}", self.batches);
        self.policy.on_events(now_ms, events);
    }

    fn propose(&mut self, now_ms: u64, want: usize, answers: &mut Vec<Answer>) {
        self.policy.propose(now_ms, want, answers);
    }
}

register_prefetch!(PrefetchTrap);
