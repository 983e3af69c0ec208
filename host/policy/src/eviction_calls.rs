//! The calls into an eviction component, whichever version of the interface it was made for: one
//! variant a version, which stands between the present types and its own.
//!
//! What must hold: an adapter asks nothing of an old component that its version did not have, and
//! what it cannot be told it is not told.

use portcullis_core::eviction::{Event, PolicyLimits};
use portcullis_core::limits::{POLICY_EVENTS_MAX, POLICY_VICTIMS_MAX};
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::bindings::eviction::EvictionPolicy;
use crate::bindings::eviction::exports::portcullis::policy::control::Limits;
use crate::guest::Guest;
#[cfg(test)]
use crate::older;

/// The exports of a component.
pub(crate) enum EvictionCalls {
    V0_1(EvictionPolicy),
    /// The version that there never was (`tests/wit`).
    #[cfg(test)]
    V0_0(older::EvictionPolicy),
}

impl EvictionCalls {
    /// Looks the exports up.
    pub(crate) fn find(store: &mut Store<Guest>, instance: &Instance) -> wasmtime::Result<Self> {
        #[cfg(test)]
        if older::is_it(store, instance) {
            return Ok(Self::V0_0(older::EvictionPolicy::new(store, instance)?));
        }
        Ok(Self::V0_1(EvictionPolicy::new(store, instance)?))
    }

    /// Name and version.
    pub(crate) fn describe(&self, store: &mut Store<Guest>) -> wasmtime::Result<(String, String)> {
        match self {
            Self::V0_1(policy) => {
                let info = policy.portcullis_policy_control().call_describe(store)?;
                Ok((info.name, info.version))
            }
            #[cfg(test)]
            Self::V0_0(policy) => {
                let info = policy.portcullis_policy_control().call_describe(store)?;
                Ok((info.name, info.version))
            }
        }
    }

    pub(crate) fn init(
        &self,
        store: &mut Store<Guest>,
        limits: PolicyLimits,
        config: &[u8],
    ) -> wasmtime::Result<Result<(), String>> {
        let PolicyLimits { capacity_bytes, seed } = limits;
        let (max_events, max_answers) = (POLICY_EVENTS_MAX as u32, POLICY_VICTIMS_MAX as u32);
        match self {
            Self::V0_1(policy) => {
                let limits = Limits { capacity_bytes, seed, max_events, max_answers };
                policy.portcullis_policy_control().call_init(store, limits, config)
            }
            #[cfg(test)]
            Self::V0_0(policy) => {
                let max_victims = max_answers;
                let limits = older::Limits { capacity_bytes, seed, max_events, max_victims };
                policy.portcullis_policy_control().call_init(store, limits, config)
            }
        }
    }

    /// Packs events as the component knows them.
    pub(crate) fn pack(&self, events: &[Event], words: &mut Vec<u64>) {
        words.clear();
        match self {
            Self::V0_1(_) => words.extend(events.iter().flat_map(Event::pack)),
            #[cfg(test)]
            Self::V0_0(_) => words.extend(events.iter().flat_map(older::pack)),
        }
    }

    pub(crate) fn on_events(
        &self,
        store: &mut Store<Guest>,
        now_ms: u64,
        words: &[u64],
    ) -> wasmtime::Result<()> {
        match self {
            Self::V0_1(policy) => {
                policy.portcullis_policy_eviction().call_on_events(store, now_ms, words)
            }
            #[cfg(test)]
            Self::V0_0(policy) => {
                policy.portcullis_policy_eviction().call_on_events(store, now_ms, words)
            }
        }
    }

    pub(crate) fn propose(
        &self,
        store: &mut Store<Guest>,
        now_ms: u64,
        want: u32,
    ) -> wasmtime::Result<Vec<u64>> {
        match self {
            Self::V0_1(policy) => {
                policy.portcullis_policy_eviction().call_propose(store, now_ms, want)
            }
            #[cfg(test)]
            Self::V0_0(policy) => {
                policy.portcullis_policy_eviction().call_propose(store, now_ms, want)
            }
        }
    }
}
