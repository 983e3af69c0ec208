//! An eviction policy, in words.

use portcullis_core::eviction::{Event, EvictionPolicy, ObjectId, PolicyLimits};

use crate::Policy;

/// The policy of a cache.
#[derive(Debug)]
pub struct EvictionWords<P> {
    policy: P,
    answers_max: usize,
    /// Kept between calls for its room.
    events: Vec<Event>,
}

impl<P: Policy + EvictionPolicy> EvictionWords<P> {
    /// Makes the policy; it proposes at most `answers_max` victims in a call.
    ///
    /// # Errors
    /// What the policy finds wrong with its configuration.
    pub fn new(limits: PolicyLimits, answers_max: usize, config: &[u8]) -> Result<Self, String> {
        Ok(Self { policy: P::new(limits, config)?, answers_max, events: Vec::new() })
    }

    /// Hands a batch over.
    pub fn on_events(&mut self, now_ms: u64, words: &[u64]) {
        let (packed, _) = words.as_chunks::<{ Event::WORDS }>();
        self.events.clear();
        self.events.extend(packed.iter().filter_map(|&words| Event::unpack(words)));
        self.policy.on_events(now_ms, &self.events);
    }

    /// Asks for victims.
    pub fn propose(&mut self, now_ms: u64, want: u32) -> Vec<u64> {
        let want = self.answers_max.min(want as usize);
        self.policy.propose(now_ms, want).into_iter().map(|ObjectId(id)| id).collect()
    }
}
