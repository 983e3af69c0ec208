//! What may be seen of the driver from outside, without holding it up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Of which kind a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// A WebAssembly component.
    Wasm,
    /// Part of the host.
    Native,
}

impl PolicyKind {
    /// `wasm` or `native`.
    pub fn as_str(self) -> &'static str {
        match self {
            PolicyKind::Wasm => "wasm",
            PolicyKind::Native => "native",
        }
    }
}

/// The policy that is active, and what it did since the driver started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionStatus {
    /// Name, as the policy gives it.
    pub name: String,
    /// Version, as the policy gives it.
    pub version: String,
    /// Of which kind it is.
    pub kind: PolicyKind,
    /// SHA-256 of the component in hexadecimal; empty for a native policy.
    pub digest: String,
    /// Where this is the fallback: which component failed, and how. Empty otherwise.
    pub fallback_reason: String,
    /// Calls into policies.
    pub calls: u64,
    /// Those of them that entered Wasm.
    pub wasm_calls: u64,
    /// Events handed over.
    pub events: u64,
    /// Batches of events.
    pub batches: u64,
    /// Victims accepted.
    pub accepted: u64,
    /// Proposals of objects that had left.
    pub stale: u64,
    /// Proposals of objects that were in the reserve already.
    pub repeated: u64,
    /// Proposals of ids that were never given out.
    pub foreign: u64,
    /// CPU time spent in policies.
    pub cpu_ms: u64,
}

/// Who a policy is.
#[derive(Clone, Debug)]
pub(crate) struct PolicyIdentity {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) kind: PolicyKind,
    pub(crate) digest: String,
}

/// What the driver writes and others read. The counters have one writer, the driver's thread.
pub(crate) struct Board {
    /// The active policy, and why it is the fallback. Held for the copy of a pointer only.
    active: Mutex<Arc<(PolicyIdentity, String)>>,
    pub(crate) calls: AtomicU64,
    pub(crate) wasm_calls: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) batches: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) foreign: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
}

impl Board {
    pub(crate) fn new(active: PolicyIdentity) -> Self {
        Self {
            active: Mutex::new(Arc::new((active, String::new()))),
            calls: AtomicU64::new(0),
            wasm_calls: AtomicU64::new(0),
            events: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn active(&self) -> Arc<(PolicyIdentity, String)> {
        self.active.lock().clone()
    }

    pub(crate) fn set_active(&self, active: PolicyIdentity, fallback_reason: String) {
        *self.active.lock() = Arc::new((active, fallback_reason));
    }

    pub(crate) fn status(&self) -> EvictionStatus {
        let active = self.active();
        let (PolicyIdentity { name, version, kind, digest }, fallback_reason) = &*active;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EvictionStatus {
            name: name.clone(),
            version: version.clone(),
            kind: *kind,
            digest: digest.clone(),
            fallback_reason: fallback_reason.clone(),
            calls: load(&self.calls),
            wasm_calls: load(&self.wasm_calls),
            events: load(&self.events),
            batches: load(&self.batches),
            accepted: load(&self.accepted),
            stale: load(&self.stale),
            repeated: load(&self.repeated),
            foreign: load(&self.foreign),
            cpu_ms: load(&self.cpu_ns) / 1_000_000,
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
