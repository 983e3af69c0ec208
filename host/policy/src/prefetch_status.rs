//! What may be seen of the prefetch policy from outside, without holding it up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::status::{PolicyIdentity, PolicyKind, add};
use crate::strikes::{Quarantined, Recovery, Strikes, Verdict};

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
    /// For how long it has been active.
    pub active_ms: u64,
    /// Calls into components since it became active.
    pub active_calls: u64,
    /// Faults of components.
    pub faults: u64,
    /// Faults of the active component, or of the one that a native policy stands in for, in the last
    /// minute.
    pub strikes: u64,
    /// Components that are not let in, the oldest first.
    pub quarantined: Vec<Quarantined>,
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
    began: Instant,
    /// Held for copies only.
    active: Mutex<Active>,
    strikes: Mutex<Strikes>,
    faults: AtomicU64,
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

/// The active policy, and why it is the fallback.
#[derive(Clone)]
struct Active {
    identity: PolicyIdentity,
    fallback_reason: String,
    /// The component that it stands in for; its own where it does not.
    blamed_digest: String,
    since_ms: u64,
    calls_before: u64,
}

impl PrefetchBoard {
    pub(crate) fn new(identity: PolicyIdentity, recovery: Recovery) -> Self {
        let active = Active {
            blamed_digest: identity.digest.clone(),
            identity,
            fallback_reason: String::new(),
            since_ms: 0,
            calls_before: 0,
        };
        Self {
            began: Instant::now(),
            active: Mutex::new(active),
            strikes: Mutex::new(Strikes::new(recovery)),
            faults: AtomicU64::new(0),
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
        self.active.lock().identity.clone()
    }

    /// Monotonic time, from the start of the driver.
    pub(crate) fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Another policy is at work. `stands_in_for` is the component that failed, and how, where it does.
    pub(crate) fn set_active(
        &self,
        identity: PolicyIdentity,
        fallback_reason: String,
        stands_in_for: Option<&str>,
    ) {
        let blamed_digest = stands_in_for.unwrap_or(&identity.digest).to_owned();
        let (since_ms, calls_before) = (self.now_ms(), self.calls.load(Ordering::Relaxed));
        *self.active.lock() =
            Active { identity, fallback_reason, blamed_digest, since_ms, calls_before };
    }

    /// Counts a fault of the component with this digest.
    pub(crate) fn strike(&self, digest: &str, reason: &str) -> Verdict {
        add(&self.faults, 1);
        let verdict = self.strikes.lock().note(self.now_ms(), digest, reason);
        if verdict == Verdict::Quarantined {
            tracing::warn!(sha256 = digest, "prefetch policy quarantined: it {reason}");
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

    pub(crate) fn status(&self) -> PrefetchStatus {
        let now_ms = self.now_ms();
        let active = self.active.lock().clone();
        let Active { identity, fallback_reason, blamed_digest, since_ms, calls_before } = active;
        let (quarantined, strikes) = {
            let strikes = self.strikes.lock();
            (strikes.quarantined(), strikes.count(now_ms, &blamed_digest) as u64)
        };
        let PolicyIdentity { name, version, kind, digest, config_digest } = identity;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let calls = load(&self.calls);
        PrefetchStatus {
            name,
            version,
            kind,
            digest,
            config_digest,
            fallback_reason,
            active_ms: now_ms.saturating_sub(since_ms),
            active_calls: calls.saturating_sub(calls_before),
            faults: load(&self.faults),
            strikes,
            quarantined,
            calls,
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
