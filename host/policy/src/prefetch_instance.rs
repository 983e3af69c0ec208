//! A prefetch component at work.

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::limits::{POLICY_EVENTS_MAX, POLICY_PREFETCH_ANSWERS_MAX};
use portcullis_core::prefetch::{Answer, ClientId, Told};

use crate::bindings::prefetch::PrefetchPolicy;
use crate::bindings::prefetch::exports::portcullis::policy::control::{Info, Limits};
use crate::component::Compiled;
use crate::engine::Engine;
use crate::error::{Fault, Refusal};
use crate::guest::readable;
use crate::sandbox::Sandbox;

/// A component that accepted its configuration.
pub(crate) struct PrefetchInstance {
    sandbox: Sandbox,
    policy: PrefetchPolicy,
    /// Packed events, kept for its room.
    words: Vec<u64>,
}

impl PrefetchInstance {
    /// Instantiates a component and initialises it. `name` is what it is called until it told its
    /// own name.
    pub(crate) fn start(
        engine: &'static Engine,
        compiled: &Compiled,
        limits: PolicyLimits,
        config: &[u8],
        name: &str,
    ) -> Result<(Self, Info), Refusal> {
        let (mut sandbox, policy) = Sandbox::instantiate(
            engine,
            compiled,
            limits.capacity_bytes,
            name,
            |store, instance| PrefetchPolicy::new(store, instance),
        )?;
        let control = policy.portcullis_policy_control();
        let info = sandbox.call("describe", |store| control.call_describe(store))?;
        sandbox.introduce(&info.name, &info.version)?;
        let limits = Limits {
            capacity_bytes: limits.capacity_bytes,
            seed: limits.seed,
            max_events: POLICY_EVENTS_MAX as u32,
            max_answers: POLICY_PREFETCH_ANSWERS_MAX as u32,
        };
        sandbox
            .call("init", |store| control.call_init(store, limits, config))?
            .map_err(|reason| Refusal::Config(readable(&reason)))?;
        Ok((Self { sandbox, policy, words: Vec::new() }, info))
    }

    /// Hands over a batch, of at most [`POLICY_EVENTS_MAX`].
    pub(crate) fn on_events(&mut self, now_ms: u64, events: &[Told]) -> Result<(), Fault> {
        self.words.clear();
        self.words.extend(events.iter().flat_map(Told::pack));
        let prefetch = self.policy.portcullis_policy_prefetch();
        let words = &self.words;
        self.sandbox.call("on-events", |store| prefetch.call_on_events(store, now_ms, words))
    }

    /// Asks what is wanted for a client, and adds that to `answers`: at most
    /// [`POLICY_PREFETCH_ANSWERS_MAX`].
    pub(crate) fn propose(
        &mut self,
        now_ms: u64,
        client: ClientId,
        want: usize,
        answers: &mut Vec<Answer>,
    ) -> Result<(), Fault> {
        let prefetch = self.policy.portcullis_policy_prefetch();
        let words = self
            .sandbox
            .call("propose", |store| prefetch.call_propose(store, now_ms, client.0, want as u32))?;
        let failed = |reason: String| Fault::Failed { call: "propose", reason, denied: None };
        let (packed, rest) = words.as_chunks::<{ Answer::WORDS }>();
        if !rest.is_empty() {
            return Err(failed(format!("{} words are no whole number of answers", words.len())));
        }
        if packed.len() > POLICY_PREFETCH_ANSWERS_MAX {
            return Err(Fault::Oversize {
                proposed: packed.len(),
                wanted: POLICY_PREFETCH_ANSWERS_MAX,
            });
        }
        for &words in packed {
            let answer = Answer::unpack(words);
            answers.push(answer.ok_or_else(|| failed(format!("{words:?} is no answer")))?);
        }
        Ok(())
    }
}
