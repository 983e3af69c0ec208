//! A policy as a replay calls it: native, or a component, which may fail.

use std::convert::Infallible;

use portcullis_core::eviction::{Event, EvictionPolicy, ObjectId};

/// A policy that is replayed. The caller guarantees what
/// [`EvictionPolicy`] asks of its caller, and hands over at most
/// [`POLICY_EVENTS_MAX`](portcullis_core::limits::POLICY_EVENTS_MAX) events at once.
pub trait Policy {
    /// How it fails.
    type Error;

    /// Takes a batch of events. `now_ms` is the time of the trace.
    ///
    /// # Errors
    /// The policy fails, and is not called again.
    fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Self::Error>;

    /// Proposes up to `want` victims, best first.
    ///
    /// # Errors
    /// The policy fails, and is not called again.
    fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Self::Error>;
}

impl Policy for Box<dyn EvictionPolicy> {
    type Error = Infallible;

    fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Infallible> {
        EvictionPolicy::on_events(&mut **self, now_ms, events);
        Ok(())
    }

    fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Infallible> {
        Ok(EvictionPolicy::propose(&mut **self, now_ms, want))
    }
}
