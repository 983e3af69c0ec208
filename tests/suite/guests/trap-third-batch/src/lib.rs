//! A policy that works, until it panics on its third batch of events.

use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_sdk::{Event, EvictionPolicy, ObjectId, Policy, PolicyLimits, register_eviction};

/// The policy.
pub struct TrapThirdBatch {
    policy: S3Fifo,
    batches: u32,
}

impl Policy for TrapThirdBatch {
    const NAME: &str = "trap-third-batch";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(limits: PolicyLimits, _config: &[u8]) -> Result<Self, String> {
        Ok(Self { policy: S3Fifo::new(limits), batches: 0 })
    }
}

impl EvictionPolicy for TrapThirdBatch {
    fn on_events(&mut self, now_ms: u64, events: &[Event]) {
        self.batches += 1;
        assert!(self.batches < 3, "this is batch {}", self.batches);
        self.policy.on_events(now_ms, events);
    }

    fn propose(&mut self, now_ms: u64, want: usize) -> Vec<ObjectId> {
        self.policy.propose(now_ms, want)
    }
}

register_eviction!(TrapThirdBatch);
