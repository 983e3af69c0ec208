//! An inlining policy, in words.

use std::collections::{BTreeSet, VecDeque};

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::inlining::{ClassId, InliningPolicy, Rule, Stat};

use crate::Policy;

/// The policy of a gateway.
#[derive(Debug)]
pub struct InliningWords<P> {
    policy: P,
    answers_max: usize,
    /// Rules that did not fit.
    left_over: VecDeque<Rule>,
}

impl<P: Policy + InliningPolicy> InliningWords<P> {
    /// Makes the policy; it answers at most `answers_max` rules in a call.
    ///
    /// # Errors
    /// What the policy finds wrong with its configuration.
    pub fn new(limits: PolicyLimits, answers_max: usize, config: &[u8]) -> Result<Self, String> {
        Ok(Self { policy: P::new(limits, config)?, answers_max, left_over: VecDeque::new() })
    }

    /// Takes statistics and answers rules.
    pub fn rules(&mut self, now_ms: u64, words: &[u64]) -> Vec<u64> {
        let (packed, _) = words.as_chunks::<{ Stat::WORDS }>();
        let stats: Vec<Stat> = packed.iter().map(|&words| Stat::unpack(words)).collect();
        let mut rules = Vec::new();
        self.policy.rules(now_ms, &stats, &mut rules);
        if !self.left_over.is_empty() {
            // A rule that is still to be told is out of date where there is a new one.
            let told: BTreeSet<ClassId> = rules.iter().map(|rule| rule.class).collect();
            self.left_over.retain(|old| !told.contains(&old.class));
        }
        self.left_over.extend(rules);
        let now = self.left_over.len().min(self.answers_max);
        self.left_over.drain(..now).flat_map(|rule| rule.pack()).collect()
    }
}

#[cfg(test)]
mod tests {
    use portcullis_core::inlining::Counts;

    use super::*;

    /// As many bytes as were delivered.
    struct Echo;

    impl Policy for Echo {
        const NAME: &str = "echo";
        const VERSION: &str = "1";

        fn new(_limits: PolicyLimits, _config: &[u8]) -> Result<Self, String> {
            Ok(Self)
        }
    }

    impl InliningPolicy for Echo {
        fn rules(&mut self, _now_ms: u64, stats: &[Stat], rules: &mut Vec<Rule>) {
            rules.extend(
                stats
                    .iter()
                    .map(|stat| Rule { class: stat.class, size_bytes_max: stat.counts.delivered }),
            );
        }
    }

    fn stat(class: u64, delivered: u64) -> [u64; 8] {
        let counts = Counts { delivered, ..Counts::default() };
        Stat { class: ClassId(class), counts }.pack()
    }

    #[test]
    fn rules_that_do_not_fit_come_the_next_time_unless_they_are_out_of_date() {
        let limits = PolicyLimits { capacity_bytes: 0, seed: 0 };
        let mut words = InliningWords::<Echo>::new(limits, 2, b"").expect("no config is fine");
        let stats = [stat(1, 10), stat(2, 20), stat(3, 30), stat(4, 40)].concat();
        assert_eq!(words.rules(0, &stats), [1, 10, 2, 20]);
        assert_eq!(words.rules(0, &stat(3, 31)), [4, 40, 3, 31]);
        assert_eq!(words.rules(0, &[5; 7]), [], "half a row is none");
    }
}
