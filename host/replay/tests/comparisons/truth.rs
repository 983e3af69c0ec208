//! The live path beside exact replays.

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::eviction::native::{NAMES, native};
use portcullis_replay::{Capacity, Pace, Setup, replay};

use super::belief::oltp;
use super::stand::hit_ratio;

/// With 16 requests under way and policies that work once in 64 requests, each native policy hits as often
/// as an exact replay says, within half a point, in a cache of 8,000 entries.
#[test]
fn the_live_path_hits_as_often_as_exact_replays_say() {
    let Some(trace) = oltp() else { return };
    let mut far = Vec::new();
    for name in NAMES {
        for entries in [1_000, 4_000, 8_000, 16_000] {
            let capacity = Capacity::Entries(entries);
            let limits = PolicyLimits { capacity_bytes: capacity.capacity_bytes(), seed: 1 };
            let setup = Setup { capacity, pace: Pace::Exact, seed: 1, intervals: 1 };
            let Ok(exact) = replay(&trace, setup, native(name, limits).expect("it has a policy"));
            let exact = 100.0 * exact.total.hit_ratio();
            let live = 100.0 * hit_ratio(&trace, name, entries);
            println!("{name} at {entries}: {exact:.2} exactly, {live:.2} live, {:+.2}", live - exact);
            if entries >= 8_000 && (live - exact).abs() > 0.5 {
                far.push(format!("{name} at {entries}: {exact:.2} exactly, {live:.2} live"));
            }
        }
    }
    assert!(far.is_empty(), "{far:?}");
}
