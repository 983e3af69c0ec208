//! An inlining component at work.

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::inlining::{Rule, Stat};
use portcullis_core::limits::{POLICY_EVENTS_MAX, POLICY_RULES_MAX};

use crate::bindings::inlining::InliningPolicy;
use crate::bindings::inlining::exports::portcullis::policy::control::{Info, Limits};
use crate::component::Compiled;
use crate::engine::Engine;
use crate::error::{Fault, Refusal};
use crate::guest::readable;
use crate::sandbox::Sandbox;

/// A component that accepted its configuration.
pub(crate) struct InliningInstance {
    sandbox: Sandbox,
    policy: InliningPolicy,
}

impl InliningInstance {
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
            |store, instance| InliningPolicy::new(store, instance),
        )?;
        let control = policy.portcullis_policy_control();
        let info = sandbox.call("describe", |store| control.call_describe(store))?;
        sandbox.introduce(&info.name, &info.version)?;
        let limits = Limits {
            capacity_bytes: limits.capacity_bytes,
            seed: limits.seed,
            max_events: POLICY_EVENTS_MAX as u32,
            max_answers: POLICY_RULES_MAX as u32,
        };
        sandbox
            .call("init", |store| control.call_init(store, limits, config))?
            .map_err(|reason| Refusal::Config(readable(&reason)))?;
        Ok((Self { sandbox, policy }, info))
    }

    /// Hands statistics over, at most [`POLICY_EVENTS_MAX`], and adds the rules to `rules`, at most
    /// [`POLICY_RULES_MAX`].
    pub(crate) fn rules(
        &mut self,
        now_ms: u64,
        stats: &[Stat],
        rules: &mut Vec<Rule>,
    ) -> Result<(), Fault> {
        let words: Vec<u64> = stats.iter().flat_map(Stat::pack).collect();
        let inlining = self.policy.portcullis_policy_inlining();
        let words =
            self.sandbox.call("rules", |store| inlining.call_rules(store, now_ms, &words))?;
        let (packed, rest) = words.as_chunks::<{ Rule::WORDS }>();
        if !rest.is_empty() {
            let reason = format!("{} words are no whole number of rules", words.len());
            return Err(Fault::Failed { call: "rules", reason, denied: None });
        }
        if packed.len() > POLICY_RULES_MAX {
            return Err(Fault::Oversize { proposed: packed.len(), wanted: POLICY_RULES_MAX });
        }
        rules.extend(packed.iter().map(|&words| Rule::unpack(words)));
        Ok(())
    }
}
