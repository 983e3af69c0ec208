//! Policies at work, good and bad, for a host that keeps its books.

mod codes;
mod deadlines;
mod flat;
mod generations;
mod guests;
mod host;
mod inlining;
mod misdeeds;
mod misfits;
mod misuse;
mod mutations;
mod numbers;
mod prefetch;
mod prefetch_recovery;
mod swaps;
mod versions;
mod work;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use portcullis_core::eviction::PolicyLimits;

use crate::PolicyChoice;

const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 1 << 20, seed: 7 };

/// A policy that `cargo xtask policies` made.
fn built(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let target = exe.ancestors().nth(3).expect("a test lies in the build directory");
    let path = target.join("policies").join(name).with_extension("wasm");
    assert!(path.is_file(), "{} is missing: `cargo xtask policies` makes it", path.display());
    path
}

fn bytes(name: &str, bytes: Vec<u8>) -> PolicyChoice {
    PolicyChoice::Bytes { name: name.to_owned(), bytes, config: Vec::new() }
}

/// Waits for a condition; the deadline only bounds a failure.
fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        pause(Duration::from_millis(1));
    }
}

/// Lets another thread run where there are few processors.
fn pause_for_others() {
    std::thread::yield_now();
}

#[expect(clippy::disallowed_methods, reason = "between two looks at a condition")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}
