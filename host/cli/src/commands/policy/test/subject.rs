//! A component, as a drill calls it.

use portcullis_policy::{Fault, WordsPolicy};
use portcullis_sdk::testing::{Call, Subject};

/// The component, and how much memory it had after each call.
pub(super) struct Component {
    policy: WordsPolicy,
    pub(super) memory_bytes: Vec<usize>,
}

impl Component {
    pub(super) fn new(policy: WordsPolicy) -> Self {
        Self { policy, memory_bytes: Vec::new() }
    }
}

impl Subject for Component {
    type Error = Fault;

    fn call(&mut self, now_ms: u64, call: Call<'_>) -> Result<Vec<u64>, Fault> {
        let answer = match call {
            Call::OnEvents { words } => self.policy.on_events(now_ms, words).map(|()| Vec::new()),
            Call::Propose { client, want } => self.policy.propose(now_ms, client, want),
            Call::Rules { words } => self.policy.rules(now_ms, words),
        };
        self.memory_bytes.push(self.policy.memory_bytes());
        answer
    }
}
