//! A policy that the host has natively too, as a component: the same type, so the two cannot differ.

/// Makes a component of a native policy that takes no configuration, and tests that it is the same.
/// `$native` has a `NAME`; `$make` makes it of [`PolicyLimits`](crate::PolicyLimits). Once in a crate.
#[macro_export]
macro_rules! register_native {
    ($native:ty, $make:expr) => {
        /// The policy.
        pub struct Plugin($native);

        impl $crate::Policy for Plugin {
            const NAME: &str = <$native>::NAME;
            const VERSION: &str = env!("CARGO_PKG_VERSION");

            fn new(limits: $crate::PolicyLimits, config: &[u8]) -> Result<Self, String> {
                if !config.is_empty() {
                    return Err(format!("{} takes no configuration", <$native>::NAME));
                }
                let make: fn($crate::PolicyLimits) -> $native = $make;
                Ok(Self(make(limits)))
            }
        }

        impl $crate::EvictionPolicy for Plugin {
            fn on_events(&mut self, now_ms: u64, events: &[$crate::Event]) {
                self.0.on_events(now_ms, events);
            }

            fn propose(&mut self, now_ms: u64, want: usize) -> Vec<$crate::ObjectId> {
                self.0.propose(now_ms, want)
            }
        }

        $crate::register_eviction!(Plugin);

        #[cfg(test)]
        mod tests {
            use super::*;
            use $crate::{Class, Event, EvictionPolicy, ObjectId, Policy, PolicyLimits};

            const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 1 << 20, seed: 0 };

            #[test]
            fn an_empty_configuration_is_the_only_one() {
                assert!(Plugin::new(LIMITS, b"").is_ok());
                let error = Plugin::new(LIMITS, b"x").err().unwrap_or_default();
                assert!(error.ends_with(" takes no configuration"), "{error}");
            }

            #[test]
            fn it_is_the_native_policy() {
                let mut plugin = Plugin::new(LIMITS, b"").expect("an empty configuration is fine");
                let make: fn(PolicyLimits) -> $native = $make;
                let mut native = make(LIMITS);
                for slot in 0..100 {
                    let id = ObjectId::new(slot, 1);
                    let (key, weight_bytes) = (slot.into(), 100 + slot % 7);
                    let insert = Event::Insert { id, key, class: Class::Asked, weight_bytes };
                    let events = [insert, Event::Hit { id, count: slot % 4 }];
                    plugin.on_events(0, &events);
                    native.on_events(0, &events);
                }
                assert_eq!(plugin.propose(0, 100), native.propose(0, 100));
            }
        }
    };
}
