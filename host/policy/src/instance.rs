//! An eviction component at work.

use portcullis_core::eviction::{Event, ObjectId, PolicyLimits};
use portcullis_core::limits::{POLICY_EVENTS_MAX, POLICY_VICTIMS_MAX};

use crate::bindings::eviction::EvictionPolicy;
use crate::bindings::eviction::exports::portcullis::policy::control::{Info, Limits};
use crate::component::Compiled;
use crate::engine::Engine;
use crate::error::{Fault, Refusal};
use crate::guest::readable;
use crate::sandbox::Sandbox;

/// A component that accepted its configuration.
pub(crate) struct Instance {
    sandbox: Sandbox,
    policy: EvictionPolicy,
    /// Packed events, kept for its room.
    words: Vec<u64>,
}

impl Instance {
    /// Instantiates a component and initialises it. `name` is what it is called until it told its
    /// own name.
    pub(crate) fn start(
        engine: &'static Engine,
        compiled: &Compiled,
        limits: PolicyLimits,
        config: &[u8],
        name: &str,
    ) -> Result<(Self, Info), Refusal> {
        let (mut sandbox, policy) =
            Sandbox::instantiate(engine, compiled, limits.capacity_bytes, name, |store, instance| {
                EvictionPolicy::new(store, instance)
            })?;
        let control = policy.portcullis_policy_control();
        let info = sandbox.call("describe", |store| control.call_describe(store))?;
        sandbox.introduce(&info.name, &info.version)?;
        let limits = Limits {
            capacity_bytes: limits.capacity_bytes,
            seed: limits.seed,
            max_events: POLICY_EVENTS_MAX as u32,
            max_answers: POLICY_VICTIMS_MAX as u32,
        };
        sandbox
            .call("init", |store| control.call_init(store, limits, config))?
            .map_err(|reason| Refusal::Config(readable(&reason)))?;
        Ok((Self { sandbox, policy, words: Vec::new() }, info))
    }

    /// Hands over a batch, of at most [`POLICY_EVENTS_MAX`].
    pub(crate) fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Fault> {
        self.words.clear();
        self.words.extend(events.iter().flat_map(Event::pack));
        let eviction = self.policy.portcullis_policy_eviction();
        let words = &self.words;
        self.sandbox.call("on-events", |store| eviction.call_on_events(store, now_ms, words))
    }

    /// Asks for victims, at most [`POLICY_VICTIMS_MAX`].
    pub(crate) fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Fault> {
        let eviction = self.policy.portcullis_policy_eviction();
        let ids = self
            .sandbox
            .call("propose", |store| eviction.call_propose(store, now_ms, want as u32))?;
        if ids.len() > want {
            return Err(Fault::Oversize { proposed: ids.len(), wanted: want });
        }
        Ok(ids.into_iter().map(ObjectId).collect())
    }
}
