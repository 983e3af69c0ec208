//! What is worth its bytes, by the odds that it is read.
//!
//! To send `s` bytes along costs their time on the line where nobody reads them, and saves a round trip
//! where somebody does. With `p` the chance that the content of a file is read while its attributes are
//! valid, `B` the bandwidth and `L` the latency saved, it pays where `(1 - p) s / B < p L`, so for files
//! smaller than `B L p / (1 - p)`: the bandwidth-delay product times the odds. `p` differs between a
//! listing with `ls -l`, which reads nothing, and a search with `grep -r`, which reads everything, so it
//! is learnt by class. Known precedents take one size instead ([`fixed`](super::fixed)).
//!
//! What must hold: of each class at most [`MEMORY`] deliveries weigh in, so that a class which changes
//! its ways is noticed; a class of which little is known is taken for one like all others; a rule is
//! told again only where it changed by more than an eighth.

use std::collections::BTreeMap;

use super::{ClassId, Counts, InliningPolicy, Rule, Stat};
use crate::limits::{INLINE_BYTES_MAX, INLINE_CLASSES_MAX};

/// Deliveries of one class that weigh in: where there are more, all count half.
const MEMORY: u64 = 4096;
/// A class is taken for one like all others for so many deliveries.
const PRIOR: u64 = 32;
/// A chance is taken for at most this, one less than a certainty, and in as many parts.
const PARTS: u64 = 1 << 16;

/// The policy.
#[derive(Debug, Default)]
pub struct Learnt {
    classes: BTreeMap<ClassId, Class>,
    /// All classes together.
    all: Class,
    calls: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Class {
    delivered: u64,
    read: u64,
    bandwidth_bytes_per_s: u64,
    latency_us: u64,
    /// The rule that was told.
    told_bytes: Option<u64>,
    /// The call that it was last told of in.
    last_call: u64,
}

impl Learnt {
    /// Name by which the policy is known.
    pub const NAME: &str = "learnt";

    /// Classes that it remembers.
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    fn learn(&mut self, stat: &Stat) {
        self.all.learn(&stat.counts, MEMORY * 16);
        if stat.class == ClassId::ANY {
            return;
        }
        if self.classes.len() >= INLINE_CLASSES_MAX && !self.classes.contains_key(&stat.class) {
            self.forget_half();
        }
        let class = self.classes.entry(stat.class).or_default();
        class.last_call = self.calls;
        class.learn(&stat.counts, MEMORY);
    }

    /// Forgets the half of the classes that were told of longest ago.
    fn forget_half(&mut self) {
        let mut by_age: Vec<_> =
            self.classes.iter().map(|(&id, class)| (class.last_call, id)).collect();
        by_age.sort_unstable();
        for (_, id) in &by_age[..by_age.len().div_ceil(2)] {
            self.classes.remove(id);
        }
    }
}

impl Class {
    fn learn(&mut self, counts: &Counts, memory: u64) {
        // Reads of what was delivered earlier do not make more than a certainty.
        self.delivered = self.delivered.saturating_add(counts.delivered);
        self.read = self.read.saturating_add(counts.read).min(self.delivered);
        while self.delivered > memory {
            self.delivered /= 2;
            self.read /= 2;
        }
        if counts.bandwidth_bytes_per_s > 0 {
            self.bandwidth_bytes_per_s = counts.bandwidth_bytes_per_s;
        }
        if counts.latency_us > 0 {
            self.latency_us = counts.latency_us;
        }
    }

    /// The chance that a content is read, in parts of [`PARTS`]; `prior` is that of all classes.
    fn chance(&self, prior: u64) -> u64 {
        let parts = (self.read * PARTS + prior * PRIOR) / (self.delivered + PRIOR);
        parts.min(PARTS - 1)
    }

    /// The size below which it pays, where `chance` is that of the class. What is not known of its
    /// line is that of all.
    fn pays_bytes(&self, chance: u64, all: &Class) -> u64 {
        let or = |own: u64, all: u64| if own > 0 { own } else { all };
        let bandwidth = or(self.bandwidth_bytes_per_s, all.bandwidth_bytes_per_s);
        let latency_us = or(self.latency_us, all.latency_us);
        let product_bytes = u128::from(bandwidth) * u128::from(latency_us) / 1_000_000;
        let pays = product_bytes.saturating_mul(chance.into()) / u128::from(PARTS - chance);
        u64::try_from(pays).map_or(INLINE_BYTES_MAX, |bytes| bytes.min(INLINE_BYTES_MAX))
    }

    /// The rule, where it is another one than was told.
    fn rule(&mut self, id: ClassId, pays_bytes: u64) -> Option<Rule> {
        let is_near = |told: u64| told.abs_diff(pays_bytes) <= told / 8;
        if self.told_bytes.is_some_and(is_near) {
            return None;
        }
        self.told_bytes = Some(pays_bytes);
        Some(Rule { class: id, size_bytes_max: pays_bytes })
    }
}

impl InliningPolicy for Learnt {
    fn rules(&mut self, _now_ms: u64, stats: &[Stat], rules: &mut Vec<Rule>) {
        self.calls += 1;
        stats.iter().for_each(|stat| self.learn(stat));
        let chance = self.all.chance(0);
        let all = self.all;
        rules.extend(self.all.rule(ClassId::ANY, all.pays_bytes(chance, &all)));
        for (&id, class) in &mut self.classes {
            if class.last_call == self.calls {
                let pays_bytes = class.pays_bytes(class.chance(chance), &all);
                rules.extend(class.rule(id, pays_bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of 100 MB/s that saves 2 ms: 200,000 bytes.
    const LINE: Counts = Counts {
        delivered: 0,
        read: 0,
        inlined: 0,
        inlined_read: 0,
        inlined_bytes: 0,
        bandwidth_bytes_per_s: 100_000_000,
        latency_us: 2_000,
    };

    fn stat(class: u64, delivered: u64, read: u64) -> Stat {
        Stat { class: ClassId(class), counts: Counts { delivered, read, ..LINE } }
    }

    fn rule_of(rules: &[Rule], class: ClassId) -> Option<u64> {
        rules.iter().rev().find(|rule| rule.class == class).map(|rule| rule.size_bytes_max)
    }

    fn after(calls: &[&[Stat]]) -> Vec<Rule> {
        let (mut learnt, mut rules) = (Learnt::default(), Vec::new());
        for (second, stats) in (0..).zip(calls) {
            learnt.rules(second * 1_000, stats, &mut rules);
        }
        rules
    }

    /// Known answers: 200,000 bytes times the odds. The prior of 32 deliveries is that of all, which
    /// here is the class itself.
    #[test]
    fn the_size_is_the_product_times_the_odds() {
        for (delivered, read, odds) in
            [(2_000, 1_000, 1.0), (2_000, 400, 0.25), (4_000, 40, 0.0101)]
        {
            let size = rule_of(&after(&[&[stat(1, delivered, read)]]), ClassId(1));
            let (size, expected) = (size.expect("a rule") as f64, 200_000.0 * odds);
            assert!((size - expected).abs() < expected * 0.04, "{size} for {expected}");
        }
    }

    #[test]
    fn a_listing_sends_nothing_along_and_a_search_everything() {
        let rules = after(&[&[stat(1, 10_000, 0), stat(2, 10_000, 10_000)]]);
        let listing = rule_of(&rules, ClassId(1)).expect("a rule");
        assert!(listing < 2_000, "{listing}");
        assert_eq!(rule_of(&rules, ClassId(2)), Some(INLINE_BYTES_MAX));
        let others = rule_of(&rules, ClassId::ANY).expect("a rule");
        assert!((180_000..=200_000).contains(&others), "half is read: {others}");
    }

    #[test]
    fn a_class_that_changes_its_ways_is_noticed() {
        let mut calls = vec![vec![stat(1, 4_000, 0)]; 100];
        calls.extend(vec![vec![stat(1, 4_000, 4_000)]; 4]);
        let calls: Vec<&[Stat]> = calls.iter().map(Vec::as_slice).collect();
        assert!(rule_of(&after(&calls[..100]), ClassId(1)) < Some(100));
        assert_eq!(rule_of(&after(&calls), ClassId(1)), Some(INLINE_BYTES_MAX));
    }

    #[test]
    fn one_of_which_little_is_known_is_like_all_others() {
        let rules = after(&[&[stat(1, 4_000, 2_000)], &[stat(2, 1, 0)]]);
        let size = rule_of(&rules, ClassId(2)).expect("a rule");
        assert!((170_000..=200_000).contains(&size), "{size}");
    }

    #[test]
    fn rules_that_stay_are_not_told_again() {
        let (mut learnt, mut rules) = (Learnt::default(), Vec::new());
        for second in 0..100 {
            learnt.rules(second * 1_000, &[stat(1, 1_000, 500)], &mut rules);
        }
        assert!(rules.len() <= 4, "{rules:?}");
    }

    #[test]
    fn numbers_that_make_no_sense_do_no_harm() {
        let most = Counts {
            delivered: u64::MAX,
            read: u64::MAX,
            bandwidth_bytes_per_s: u64::MAX,
            latency_us: u64::MAX,
            ..LINE
        };
        let absurd = [Stat { class: ClassId(1), counts: most }, stat(2, 0, 1_000), stat(3, 0, 0)];
        let rules = after(&[&absurd, &absurd]);
        assert!(rules.iter().all(|rule| rule.size_bytes_max <= INLINE_BYTES_MAX), "{rules:?}");
        assert_eq!(rule_of(&rules, ClassId(1)), Some(INLINE_BYTES_MAX));
        let unknown = Stat {
            class: ClassId(1),
            counts: Counts { delivered: 9, read: 9, ..Counts::default() },
        };
        assert_eq!(
            rule_of(&after(&[&[unknown]]), ClassId(1)),
            Some(0),
            "nothing is known of the line"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let (mut learnt, mut rules) = (Learnt::default(), Vec::new());
        for call in 0..50 {
            let stats: Vec<Stat> =
                (0..1_000).map(|class| stat(call * 1_000 + class, 10, 5)).collect();
            learnt.rules(call * 1_000, &stats, &mut rules);
            assert!(learnt.classes() <= INLINE_CLASSES_MAX);
        }
        assert!(learnt.classes() >= INLINE_CLASSES_MAX / 2);
    }
}
