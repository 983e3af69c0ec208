//! An inlining policy to begin with: small contents travel along where they are read often enough.
//!
//! Change it to what you have in mind. `portcullis policy test` says whether it does what a policy must.

use std::collections::BTreeMap;

use portcullis_sdk::inlining::{ClassId, InliningPolicy, Rule, Stat};
use portcullis_sdk::{Policy, PolicyLimits, register_inlining};

/// Content of files of at most so many bytes travels along,
const SIZE_BYTES_MAX: u64 = 32 * 1024;
/// where at least one in so many files is read.
const READ_ONE_IN: u64 = 10;
/// Classes that are remembered.
const REMEMBERED: usize = 1_000;

/// The policy. One instance serves one gateway.
#[derive(Default)]
pub struct OftenEnough {
    /// Files delivered and files read, by class.
    counts: BTreeMap<ClassId, (u64, u64)>,
}

impl Policy for OftenEnough {
    const NAME: &str = env!("CARGO_PKG_NAME");
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        if !config.is_empty() {
            return Err(format!("{} takes no configuration", Self::NAME));
        }
        Ok(Self::default())
    }
}

impl InliningPolicy for OftenEnough {
    fn rules(&mut self, _now_ms: u64, stats: &[Stat], rules: &mut Vec<Rule>) {
        for stat in stats {
            if self.counts.len() >= REMEMBERED && !self.counts.contains_key(&stat.class) {
                self.counts.clear();
            }
            let (delivered, read) = self.counts.entry(stat.class).or_default();
            *delivered = delivered.saturating_add(stat.counts.delivered);
            *read = read.saturating_add(stat.counts.read);
            let is_often = *read > 0 && *delivered / *read <= READ_ONE_IN;
            let size_bytes_max = if is_often { SIZE_BYTES_MAX } else { 0 };
            rules.push(Rule { class: stat.class, size_bytes_max });
        }
    }
}

register_inlining!(OftenEnough);

#[cfg(test)]
mod tests {
    use portcullis_sdk::inlining::Counts;
    use portcullis_sdk::testing;

    use super::*;

    #[test]
    fn what_is_read_travels_along() {
        let stat = |class, read| {
            let counts = Counts { delivered: 100, read, ..Counts::default() };
            Stat { class: ClassId(class), counts }
        };
        let mut rules = Vec::new();
        OftenEnough::default().rules(0, &[stat(1, 0), stat(2, 50)], &mut rules);
        let sizes: Vec<u64> = rules.iter().map(|rule| rule.size_bytes_max).collect();
        assert_eq!(sizes, [0, SIZE_BYTES_MAX]);
    }

    /// Seeded statistics: the rules keep to the interface and are the same twice; and, where
    /// `portcullis policy test` runs this, the same as the component's.
    #[test]
    fn it_does_what_a_policy_must() {
        testing::inlining::<OftenEnough>(b"");
    }
}
