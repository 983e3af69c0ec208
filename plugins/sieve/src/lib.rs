//! SIEVE as a component.
//!
//! The algorithm, with the paper it is from, is in `portcullis_core::eviction::sieve`: the component
//! and the host's native policy are the same type, so the two cannot differ.

use portcullis_core::eviction::sieve::Sieve;
use portcullis_sdk::{Event, EvictionPolicy, ObjectId, Policy, PolicyLimits, register_eviction};

/// The policy.
pub struct Plugin(Sieve);

impl Policy for Plugin {
    const NAME: &str = Sieve::NAME;
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        if !config.is_empty() {
            return Err(format!("{} takes no configuration", Sieve::NAME));
        }
        Ok(Self(Sieve::default()))
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
        let error = Plugin::new(LIMITS, b"x").err();
        assert_eq!(error.as_deref(), Some("sieve takes no configuration"));
    }

    #[test]
    fn it_is_the_native_policy() {
        let mut plugin = Plugin::new(LIMITS, b"").expect("an empty configuration is fine");
        let mut native = Sieve::default();
        for slot in 0..100 {
            let id = ObjectId::new(slot, 1);
            let class = portcullis_sdk::Class::Asked;
            let insert =
                Event::Insert { id, key: slot.into(), class, weight_bytes: 100 + slot % 7 };
            let events = [insert, Event::Hit { id, count: slot % 4 }];
            plugin.on_events(0, &events);
            native.on_events(0, &events);
        }
        assert_eq!(plugin.propose(0, 100), native.propose(0, 100));
    }
}
