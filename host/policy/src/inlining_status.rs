//! What may be seen of the inlining policy from outside, without holding it up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::status::PolicyIdentity;

/// The inlining policy that is active, and what it did since the gateway started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InliningStatus {
    /// Which it is.
    pub identity: PolicyIdentity,
    /// Where this is the fallback: which component failed, and how, or that the panic switch is on. Empty
    /// otherwise.
    pub fallback_reason: String,
    /// For how long it has been active.
    pub active_ms: u64,
    /// Times that it was asked for rules.
    pub active_calls: u64,
    /// Faults of components.
    pub faults: u64,
    /// Times that policies were asked.
    pub calls: u64,
    /// Rows of statistics handed over.
    pub rows: u64,
    /// Rules taken.
    pub rules: u64,
    /// CPU time spent in policies.
    pub cpu_ms: u64,
}

/// What the driver writes and others read. The counters have one writer, the driver's thread.
pub(crate) struct InliningBoard {
    /// Held for copies only.
    active: Mutex<Active>,
    pub(crate) faults: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) rules: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
}

#[derive(Clone)]
struct Active {
    identity: PolicyIdentity,
    fallback_reason: String,
    since: Instant,
    calls_before: u64,
}

impl InliningBoard {
    pub(crate) fn new(identity: PolicyIdentity) -> Self {
        let (fallback_reason, since) = (String::new(), Instant::now());
        Self {
            active: Mutex::new(Active { identity, fallback_reason, since, calls_before: 0 }),
            faults: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            rules: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn active(&self) -> PolicyIdentity {
        self.active.lock().identity.clone()
    }

    pub(crate) fn set_active(&self, identity: PolicyIdentity, fallback_reason: String) {
        let (since, calls_before) = (Instant::now(), self.calls.load(Ordering::Relaxed));
        *self.active.lock() = Active { identity, fallback_reason, since, calls_before };
    }

    pub(crate) fn status(&self) -> InliningStatus {
        let Active { identity, fallback_reason, since, calls_before } = self.active.lock().clone();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let calls = load(&self.calls);
        InliningStatus {
            identity,
            fallback_reason,
            active_ms: since.elapsed().as_millis() as u64,
            active_calls: calls.saturating_sub(calls_before),
            faults: load(&self.faults),
            calls,
            rows: load(&self.rows),
            rules: load(&self.rules),
            cpu_ms: load(&self.cpu_ns) / 1_000_000,
        }
    }
}
