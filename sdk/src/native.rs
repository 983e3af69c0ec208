//! A policy that the host has natively too, as a component: the same type, so the two cannot differ.

/// Makes a component of a native policy that takes no configuration, and tests that it is the same.
/// `$kind` is `eviction`, `prefetch` or `inlining`; `$native` has a `NAME`; `$make` makes it of
/// [`PolicyLimits`](crate::PolicyLimits). Once in a crate.
#[macro_export]
macro_rules! register_native {
    ($kind:ident, $native:ty, $make:expr) => {
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

        $crate::register_native_as!($kind);

        #[cfg(test)]
        mod tests {
            use super::*;
            use $crate::{Policy, PolicyLimits, testing};

            const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 1 << 20, seed: 0 };

            #[test]
            fn an_empty_configuration_is_the_only_one() {
                assert!(Plugin::new(LIMITS, b"").is_ok());
                let error = Plugin::new(LIMITS, b"x").err().unwrap_or_default();
                assert!(error.ends_with(" takes no configuration"), "{error}");
            }

            #[test]
            fn it_does_what_a_policy_must() {
                testing::$kind::<Plugin>(b"");
            }
        }
    };
}

/// The trait of a kind for a `Plugin` around a native policy.
#[doc(hidden)]
#[macro_export]
macro_rules! register_native_as {
    (eviction) => {
        impl $crate::EvictionPolicy for Plugin {
            fn on_events(&mut self, now_ms: u64, events: &[$crate::Event]) {
                self.0.on_events(now_ms, events);
            }

            fn propose(&mut self, now_ms: u64, want: usize) -> Vec<$crate::ObjectId> {
                self.0.propose(now_ms, want)
            }
        }

        $crate::register_eviction!(Plugin);
    };
    (prefetch) => {
        impl $crate::prefetch::PrefetchPolicy for Plugin {
            fn on_events(&mut self, now_ms: u64, events: &[$crate::prefetch::Event]) {
                self.0.on_events(now_ms, events);
            }

            fn propose(
                &mut self,
                now_ms: u64,
                want: usize,
                answers: &mut Vec<$crate::prefetch::Answer>,
            ) {
                self.0.propose(now_ms, want, answers);
            }
        }

        $crate::register_prefetch!(Plugin);
    };
    (inlining) => {
        impl $crate::inlining::InliningPolicy for Plugin {
            fn rules(
                &mut self,
                now_ms: u64,
                stats: &[$crate::inlining::Stat],
                rules: &mut Vec<$crate::inlining::Rule>,
            ) {
                self.0.rules(now_ms, stats, rules);
            }
        }

        $crate::register_inlining!(Plugin);
    };
}
