//! What the benchmarks share: alternating rounds and their minimum, resident memory, the line
//! that says which policy was active.
//!
//! Absolute times on a shared machine are not stable, so every figure is a ratio between things
//! measured in turn in the same run, each by the minimum of its rounds. Benchmarks print; they
//! never fail for being slow.

pub mod chain;
pub mod echo;
pub mod hits;
pub mod listing;
pub mod open_loop;

use std::time::{Duration, Instant};

use portcullis_wire::stats::GatewayStats;

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

/// Prints which eviction policy was active, and how often it was called.
pub fn print_policy(stats: &GatewayStats) {
    let policy = &stats.eviction;
    println!(
        "policy: {} ({}, sha256 {}), {} calls into it{}",
        policy.name,
        policy.kind,
        policy.digest,
        policy.calls,
        if policy.fallback_reason.is_empty() { "" } else { "; IT IS THE FALLBACK" },
    );
}

/// Prints a ratio beside the most it should be.
pub fn print_ratio(what: &str, ratio: f64, bar: &str) {
    println!("{what}: {ratio:.2}x ({bar})");
}

/// Resident memory of this process in bytes, 0 where `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_ascii_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
