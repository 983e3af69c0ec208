//! What the benchmarks share: alternating runs and their minimum, resident memory, ratios.
//!
//! Absolute times on a shared machine are not stable, so every figure is a ratio between two
//! things measured in turn in the same run, each by the minimum of its rounds.

use std::time::{Duration, Instant};

/// Rounds of every measurement.
pub const ROUNDS: usize = 5;

/// Runs each of `contestants` once a round, in turn, and returns the least time of each.
pub fn alternate(contestants: &mut [&mut dyn FnMut()]) -> Vec<Duration> {
    let mut least = vec![Duration::MAX; contestants.len()];
    for _ in 0..ROUNDS {
        for (contestant, least) in contestants.iter_mut().zip(&mut least) {
            let start = Instant::now();
            contestant();
            *least = (*least).min(start.elapsed());
        }
    }
    least
}

/// Resident memory of this process in bytes, 0 where `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// A pseudo-random sequence (splitmix64, Steele et al., OOPSLA 2014), the same for the same seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "an endless sequence of plain numbers")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
