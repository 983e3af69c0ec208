//! One trace, played to one policy.

use crate::capacity::Capacity;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::trace::Trace;
use crate::{batched, exact};

/// How often a policy is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// For each victim, knowing of every use.
    Exact,
    /// As the live path does.
    Batched {
        /// Requests between two calls, at least 1.
        requests: u32,
        /// Hits of a million that are dropped.
        dropped_per_million: u32,
    },
}

/// Under what conditions a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Of the cache.
    pub capacity: Capacity,
    /// How often the policy is called.
    pub pace: Pace,
    /// For which hits are dropped. The policy was made with it, too.
    pub seed: u64,
    /// Intervals that are counted apart.
    pub intervals: usize,
}

/// Plays `trace` to `policy`, which knows of no object yet.
///
/// # Errors
/// The policy fails.
pub fn replay<P: Policy>(trace: &Trace, setup: Setup, policy: P) -> Result<Outcome, P::Error> {
    match setup.pace {
        Pace::Exact => exact::replay(trace, setup, policy),
        Pace::Batched { requests, dropped_per_million } => {
            batched::replay(trace, setup, requests, dropped_per_million, policy)
        }
    }
}
