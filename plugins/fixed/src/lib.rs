//! One size for all contents, as a component. Its configuration is that size in bytes, in decimal;
//! without one it is that of the host's native policy (`portcullis_core::inlining::fixed`), which it wraps.

use portcullis_core::inlining::Fixed;
use portcullis_sdk::inlining::{InliningPolicy, Rule, Stat};
use portcullis_sdk::{Policy, PolicyLimits, register_inlining};

/// The policy.
pub struct Plugin(Fixed);

impl Policy for Plugin {
    const NAME: &str = Fixed::NAME;
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        if config.is_empty() {
            return Ok(Self(Fixed::default()));
        }
        let text = std::str::from_utf8(config).unwrap_or_default().trim();
        let size = text.parse().map_err(|_| {
            "the configuration of fixed is a size in bytes, in decimal: 16384".to_owned()
        })?;
        Ok(Self(Fixed::new(size)))
    }
}

impl InliningPolicy for Plugin {
    fn rules(&mut self, now_ms: u64, stats: &[Stat], rules: &mut Vec<Rule>) {
        self.0.rules(now_ms, stats, rules);
    }
}

register_inlining!(Plugin);

#[cfg(test)]
mod tests {
    use portcullis_sdk::inlining::ClassId;
    use portcullis_sdk::testing::{self, LIMITS};

    use super::*;

    #[test]
    fn the_configuration_is_a_size() {
        for (config, size_bytes_max) in [(&b"4096"[..], 4096), (b"64\n", 64), (b"", 16_384)] {
            let mut rules = Vec::new();
            let mut fixed = Plugin::new(LIMITS, config).expect("it is a size");
            fixed.rules(0, &[], &mut rules);
            assert_eq!(rules, [Rule { class: ClassId::ANY, size_bytes_max }]);
        }
        for config in [&b"4k"[..], b"-1", b"\xff", b" "] {
            let error = Plugin::new(LIMITS, config).err().unwrap_or_default();
            assert!(error.contains("a size in bytes"), "{error}");
        }
    }

    #[test]
    fn it_does_what_a_policy_must() {
        testing::inlining::<Plugin>(b"");
        testing::inlining::<Plugin>(b"1");
    }
}
