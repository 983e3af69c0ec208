//! S3-FIFO as a component: the very type that the host falls back to, so the two cannot differ.
//!
//! The algorithm is in `portcullis_core::eviction::s3fifo`.

use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_sdk::{Event, EvictionPolicy, ObjectId, Policy, PolicyLimits, register_eviction};

/// The policy.
pub struct Plugin(S3Fifo);

impl Policy for Plugin {
    const NAME: &str = S3Fifo::NAME;
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        if !config.is_empty() {
            return Err("s3-fifo takes no configuration".to_owned());
        }
        Ok(Self(S3Fifo::new(limits)))
    }
}

impl EvictionPolicy for Plugin {
    fn on_events(&mut self, now_ms: u64, events: &[Event]) {
        self.0.on_events(now_ms, events);
    }

    fn propose(&mut self, now_ms: u64, want: usize) -> Vec<ObjectId> {
        self.0.propose(now_ms, want)
    }
}

register_eviction!(Plugin);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 1 << 20, seed: 0 };

    #[test]
    fn an_empty_configuration_is_the_only_one() {
        assert!(Plugin::new(LIMITS, b"").is_ok());
        let error = Plugin::new(LIMITS, b"small=20%").err();
        assert_eq!(error.as_deref(), Some("s3-fifo takes no configuration"));
    }

    #[test]
    fn it_is_the_native_policy() {
        let mut plugin = Plugin::new(LIMITS, b"").expect("an empty configuration is fine");
        let mut native = S3Fifo::new(LIMITS);
        for slot in 0..100 {
            let id = ObjectId::new(slot, 1);
            let class = portcullis_sdk::Class::Asked;
            let insert = Event::Insert { id, key: slot.into(), class, weight_bytes: 100 };
            let events = [insert, Event::Hit { id, count: slot % 4 }];
            plugin.on_events(0, &events);
            native.on_events(0, &events);
        }
        assert_eq!(plugin.propose(0, 100), native.propose(0, 100));
    }
}
