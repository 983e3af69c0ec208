//! What may be seen of the prefetch policy from outside, without holding it up.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::status::{PolicyIdentity, PolicyKind};

/// The prefetch policy that is active, and what it did since the driver started. Native policies work
/// within their clients' requests: of them nothing is counted here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefetchStatus {
    /// Name, as the policy gives it.
    pub name: String,
    /// Version, as the policy gives it.
    pub version: String,
    /// Of which kind it is.
    pub kind: PolicyKind,
    /// SHA-256 of the component in hexadecimal; empty for a native policy.
    pub digest: String,
    /// SHA-256 of its configuration in hexadecimal; empty where there is none.
    pub config_digest: String,
    /// Where this is the fallback: which component failed, and how. Empty otherwise.
    pub fallback_reason: String,
    /// Calls into components.
    pub calls: u64,
    /// Events handed over.
    pub events: u64,
    /// Batches of events.
    pub batches: u64,
    /// Directories that were then listed.
    pub accepted: u64,
    /// Answers about directories that were forgotten.
    pub stale: u64,
    /// Directories chosen that were listed already.
    pub repeated: u64,
    /// Answers with ids that were never given out.
    pub foreign: u64,
    /// Directories chosen beyond what may be listed at once.
    pub excess: u64,
    /// Times that a client told more than was taken from it, and its policy began anew.
    pub overflows: u64,
    /// CPU time spent in components.
    pub cpu_ms: u64,
}

/// What the driver writes and others read. The counters have one writer, the driver's thread.
pub(crate) struct PrefetchBoard {
    /// The active policy, and why it is the fallback. Held for copies only.
    active: Mutex<(PolicyIdentity, String)>,
    pub(crate) calls: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) foreign: AtomicU64,
    pub(crate) excess: AtomicU64,
    pub(crate) overflows: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
}

impl PrefetchBoard {
    pub(crate) fn new(active: PolicyIdentity) -> Self {
        Self {
            active: Mutex::new((active, String::new())),
            calls: AtomicU64::new(0),
            events: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            excess: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn active(&self) -> PolicyIdentity {
        self.active.lock().0.clone()
    }

    pub(crate) fn set_active(&self, active: PolicyIdentity, fallback_reason: String) {
        *self.active.lock() = (active, fallback_reason);
    }

    pub(crate) fn status(&self) -> PrefetchStatus {
        let (PolicyIdentity { name, version, kind, digest, config_digest }, fallback_reason) =
            self.active.lock().clone();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PrefetchStatus {
            name,
            version,
            kind,
            digest,
            config_digest,
            fallback_reason,
            calls: load(&self.calls),
            events: load(&self.events),
            batches: load(&self.batches),
            accepted: load(&self.accepted),
            stale: load(&self.stale),
            repeated: load(&self.repeated),
            foreign: load(&self.foreign),
            excess: load(&self.excess),
            overflows: load(&self.overflows),
            cpu_ms: load(&self.cpu_ns) / 1_000_000,
        }
    }
}
