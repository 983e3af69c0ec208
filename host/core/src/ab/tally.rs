//! What is counted: of each shard, and of each half's policy.

use serde::{Deserialize, Serialize};

/// What the requests to one shard came to, since some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardTally {
    /// Requests that the cache was asked.
    pub requests: u64,
    /// Those of them that cost a call to a brick: neither the cache knew, nor was it asked already.
    pub missed: u64,
    /// Bytes that came from bricks for them.
    pub filled_bytes: u64,
    /// What those weigh in the cache.
    pub filled_weight_bytes: u64,
    /// How long the requests waited for bricks, all together.
    pub waited_us: u64,
}

impl ShardTally {
    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            missed: self.missed.saturating_sub(earlier.missed),
            filled_bytes: self.filled_bytes.saturating_sub(earlier.filled_bytes),
            filled_weight_bytes: self
                .filled_weight_bytes
                .saturating_sub(earlier.filled_weight_bytes),
            waited_us: self.waited_us.saturating_sub(earlier.waited_us),
        }
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.missed += other.missed;
        self.filled_bytes += other.filled_bytes;
        self.filled_weight_bytes += other.filled_weight_bytes;
        self.waited_us += other.waited_us;
    }

    /// Requests answered from the cache, from 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        match self.requests {
            0 => 0.0,
            requests => 1.0 - self.missed as f64 / requests as f64,
        }
    }
}

/// What the policy of one half cost, since some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// CPU time spent in it.
    pub cpu_us: u64,
    /// Events handed to it.
    pub events: u64,
}

impl Costs {
    /// What was counted since `earlier`; all of it where the policy is another one since.
    pub fn since(&self, earlier: &Self) -> Self {
        match (self.cpu_us.checked_sub(earlier.cpu_us), self.events.checked_sub(earlier.events)) {
            (Some(cpu_us), Some(events)) => Self { cpu_us, events },
            _ => *self,
        }
    }

    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.cpu_us += other.cpu_us;
        self.events += other.events;
    }
}
