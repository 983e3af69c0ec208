//! An inlining policy that sends contents of up to 4 KiB along, until it panics when it is asked for rules the
//! third time.

use portcullis_core::inlining::{ClassId, InliningPolicy, Rule, Stat};
use portcullis_sdk::{Policy, PolicyLimits, register_inlining};

/// The policy.
pub struct InliningTrap {
    calls: u32,
}

impl Policy for InliningTrap {
    const NAME: &str = "inlining-trap";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(_limits: PolicyLimits, _config: &[u8]) -> Result<Self, String> {
        Ok(Self { calls: 0 })
    }
}

impl InliningPolicy for InliningTrap {
    fn rules(&mut self, _now_ms: u64, _stats: &[Stat], rules: &mut Vec<Rule>) {
        self.calls += 1;
        assert!(self.calls < 3, "this is call {}", self.calls);
        rules.push(Rule { class: ClassId::ANY, size_bytes_max: 4_096 });
    }
}

register_inlining!(InliningTrap);
