//! An eviction component at work.

use portcullis_core::eviction::{Event, ObjectId, PolicyLimits};

use crate::bindings::eviction::exports::portcullis::policy::control::Info;
use crate::component::Compiled;
use crate::engine::Engine;
use crate::error::{Fault, Refusal};
use crate::eviction_calls::EvictionCalls;
use crate::guest::readable;
use crate::sandbox::Sandbox;

/// A component that accepted its configuration.
pub(crate) struct Instance {
    sandbox: Sandbox,
    calls: EvictionCalls,
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
        let capacity_bytes = limits.capacity_bytes;
        let (mut sandbox, calls) =
            Sandbox::instantiate(engine, compiled, capacity_bytes, name, EvictionCalls::find)?;
        let (name, version) = sandbox.call("describe", |store| calls.describe(store))?;
        sandbox.introduce(&name, &version)?;
        sandbox
            .call("init", |store| calls.init(store, limits, config))?
            .map_err(|reason| Refusal::Config(readable(&reason)))?;
        Ok((Self { sandbox, calls, words: Vec::new() }, Info { name, version }))
    }

    /// Hands over a batch, of at most
    /// [`POLICY_EVENTS_MAX`](portcullis_core::limits::POLICY_EVENTS_MAX).
    pub(crate) fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Fault> {
        self.calls.pack(events, &mut self.words);
        let (calls, words) = (&self.calls, &self.words);
        self.sandbox.call("on-events", |store| calls.on_events(store, now_ms, words))
    }

    /// Asks for victims, at most
    /// [`POLICY_VICTIMS_MAX`](portcullis_core::limits::POLICY_VICTIMS_MAX).
    pub(crate) fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Fault> {
        let calls = &self.calls;
        let ids =
            self.sandbox.call("propose", |store| calls.propose(store, now_ms, want as u32))?;
        if ids.len() > want {
            return Err(Fault::Oversize { proposed: ids.len(), wanted: want });
        }
        Ok(ids.into_iter().map(ObjectId).collect())
    }
}
