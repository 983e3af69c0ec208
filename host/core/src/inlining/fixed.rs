//! One size for all: content of small files travels along, whoever asks and whatever becomes of it.
//!
//! What others do, each with a threshold of its own: 2 KiB (btrfs `max_inline`), 64 KiB (GlusterFS
//! quick-read, HopsFS). It needs no statistics, and is what a policy that learns is compared with.

use super::{ClassId, InliningPolicy, Rule, Stat};
use crate::limits::INLINE_FIXED_BYTES;

/// The policy.
#[derive(Debug)]
pub struct Fixed {
    size_bytes_max: u64,
    is_said: bool,
}

impl Fixed {
    /// Name by which the policy is known.
    pub const NAME: &str = "fixed";

    /// Content of files of at most so many bytes.
    pub fn new(size_bytes_max: u64) -> Self {
        Self { size_bytes_max, is_said: false }
    }
}

impl Default for Fixed {
    fn default() -> Self {
        Self::new(INLINE_FIXED_BYTES)
    }
}

impl InliningPolicy for Fixed {
    fn rules(&mut self, _now_ms: u64, _stats: &[Stat], rules: &mut Vec<Rule>) {
        if !std::mem::replace(&mut self.is_said, true) {
            rules.push(Rule { class: ClassId::ANY, size_bytes_max: self.size_bytes_max });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_one_size_once() {
        let mut fixed = Fixed::default();
        let mut rules = Vec::new();
        fixed.rules(0, &[], &mut rules);
        fixed.rules(1_000, &[], &mut rules);
        assert_eq!(rules, [Rule { class: ClassId::ANY, size_bytes_max: INLINE_FIXED_BYTES }]);
    }
}
