//! What may be seen of the driver from outside, without holding it up.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::strikes::{Quarantined, Recovery, Strikes, Verdict};

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

/// The policy that is active, and what was counted since the driver started.
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
    /// SHA-256 of its configuration in hexadecimal; empty where there is none.
    pub config_digest: String,
    /// Where this is the fallback: which component failed, and how, or that the panic switch is on.
    /// Empty otherwise.
    pub fallback_reason: String,
    /// Whether the panic switch is on.
    pub is_panic: bool,
    /// For how long it has been active.
    pub active_ms: u64,
    /// Calls into policies since it became active.
    pub active_calls: u64,
    /// The policy before it, if there was one.
    pub previous: Option<PreviousPolicy>,
    /// Policies swapped in.
    pub swaps: u64,
    /// Faults of components.
    pub faults: u64,
    /// Those of the active component that count against it.
    pub strikes: u64,
    /// Components that are not let in, the oldest first.
    pub quarantined: Vec<Quarantined>,
    /// Why the last policy that was not taken was not taken; empty if there was none.
    pub last_refusal: String,
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

/// The policy before the active one, which a rollback brings back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousPolicy {
    /// Who it is.
    pub identity: PolicyIdentity,
    /// For how long it is kept at work; where that is over, it would learn what is resident anew.
    pub warm_ms: u64,
}

/// Who a policy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyIdentity {
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
}

impl PolicyIdentity {
    /// A native policy, which is as old as the host.
    pub(crate) fn native(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kind: PolicyKind::Native,
            digest: String::new(),
            config_digest: String::new(),
        }
    }
}

impl fmt::Display for PolicyIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, version, kind, digest, .. } = self;
        match kind {
            PolicyKind::Wasm => write!(f, "{name} {version} (sha256 {digest})"),
            PolicyKind::Native => write!(f, "{name} {version} (native)"),
        }
    }
}

/// What the driver writes and others read. The counters have one writer, the driver's thread.
pub(crate) struct Board {
    began: Instant,
    /// Held for copies only.
    seen: Mutex<Seen>,
    strikes: Mutex<Strikes>,
    pub(crate) swaps: AtomicU64,
    pub(crate) faults: AtomicU64,
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

/// The policy before the active one, and until when it is kept at work.
pub(crate) type Before = Option<(PolicyIdentity, Option<u64>)>;

/// What is shown of the policies.
#[derive(Clone)]
struct Seen {
    active: PolicyIdentity,
    fallback_reason: String,
    is_panic: bool,
    since_ms: u64,
    calls_before: u64,
    previous: Before,
    last_refusal: String,
}

impl Board {
    pub(crate) fn new(active: PolicyIdentity, recovery: Recovery) -> Self {
        Self {
            began: Instant::now(),
            seen: Mutex::new(Seen {
                active,
                fallback_reason: String::new(),
                is_panic: false,
                since_ms: 0,
                calls_before: 0,
                previous: None,
                last_refusal: String::new(),
            }),
            strikes: Mutex::new(Strikes::new(recovery)),
            swaps: AtomicU64::new(0),
            faults: AtomicU64::new(0),
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

    /// Monotonic time, from the start of the driver.
    pub(crate) fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub(crate) fn set_active(
        &self,
        active: PolicyIdentity,
        fallback_reason: String,
        is_panic: bool,
        previous: Before,
    ) {
        let (since_ms, calls_before) = (self.now_ms(), self.calls.load(Ordering::Relaxed));
        let mut seen = self.seen.lock();
        let last_refusal = std::mem::take(&mut seen.last_refusal);
        *seen = Seen {
            active,
            fallback_reason,
            is_panic,
            since_ms,
            calls_before,
            previous,
            last_refusal,
        };
    }

    pub(crate) fn set_previous(&self, previous: Before) {
        self.seen.lock().previous = previous;
    }

    /// A policy was not taken.
    pub(crate) fn refused(&self, why: &str) {
        why.clone_into(&mut self.seen.lock().last_refusal);
    }

    /// Counts a fault of the component with this digest.
    pub(crate) fn strike(&self, digest: &str, reason: &str) -> Verdict {
        add(&self.faults, 1);
        let verdict = self.strikes.lock().note(self.now_ms(), digest, reason);
        if verdict == Verdict::Quarantined {
            tracing::warn!(sha256 = digest, "eviction policy quarantined: it {reason}");
        }
        verdict
    }

    /// Why a component is not let in, if it is not.
    pub(crate) fn quarantine_reason(&self, digest: &str) -> Option<String> {
        self.strikes.lock().reason(digest).map(str::to_owned)
    }

    /// Lets a component in again.
    pub(crate) fn pardon(&self, digest: &str) {
        self.strikes.lock().pardon(digest);
    }

    pub(crate) fn status(&self) -> EvictionStatus {
        let now_ms = self.now_ms();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seen = self.seen.lock().clone();
        let active = seen.active;
        let (quarantined, strikes) = {
            let strikes = self.strikes.lock();
            (strikes.quarantined(), strikes.count(now_ms, &active.digest) as u64)
        };
        let calls = load(&self.calls);
        EvictionStatus {
            name: active.name,
            version: active.version,
            kind: active.kind,
            digest: active.digest,
            config_digest: active.config_digest,
            fallback_reason: seen.fallback_reason,
            is_panic: seen.is_panic,
            active_ms: now_ms.saturating_sub(seen.since_ms),
            active_calls: calls.saturating_sub(seen.calls_before),
            previous: seen.previous.map(|(identity, until_ms)| PreviousPolicy {
                identity,
                warm_ms: until_ms.map_or(0, |until_ms| until_ms.saturating_sub(now_ms)),
            }),
            swaps: load(&self.swaps),
            faults: load(&self.faults),
            strikes,
            quarantined,
            last_refusal: seen.last_refusal,
            calls,
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
