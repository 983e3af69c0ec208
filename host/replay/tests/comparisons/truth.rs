//! The live path beside replays: exact ones, and those with the batches of the live path.

use std::convert::Infallible;

use portcullis_core::eviction::native::{NAMES, native};
use portcullis_core::eviction::{Event, EvictionPolicy, ObjectId, PolicyLimits};
use portcullis_replay::{Capacity, Pace, Policy, Setup, Trace, replay};

use super::belief::oltp;
use super::stand::{TURN, hit_ratio};

/// By how much two may differ, in points.
const BAR_POINTS: f64 = 0.5;
/// From this capacity on.
const BAR_ENTRIES: u64 = 8_000;
/// The policy that hits more often live than an exact replay says: see
/// [`sieve_takes_newcomers_at_once_for_long_stretches`].
const BETTER_LIVE: &str = "sieve";

fn replayed(trace: &Trace, name: &str, entries: u64, pace: Pace) -> f64 {
    let capacity = Capacity::Entries(entries);
    let limits = PolicyLimits { capacity_bytes: capacity.capacity_bytes(), seed: 1 };
    let setup = Setup { capacity, pace, seed: 1, intervals: 1 };
    let Ok(outcome) = replay(trace, setup, native(name, limits).expect("it has a policy"));
    100.0 * outcome.total.hit_ratio()
}

/// With 16 requests under way and policies that work once in 64 requests, in caches of 8,000 entries and
/// more, the hit ratio of each native policy is that of an exact replay within half a point; SIEVE alone
/// hits more often. A replay with batches is as near for each of them.
#[test]
fn the_live_path_hits_as_often_as_replays_say() {
    let Some(trace) = oltp("the_live_path_hits_as_often_as_replays_say") else { return };
    let batched = Pace::Batched { requests: TURN as u32, dropped_per_million: 0 };
    let mut far = Vec::new();
    for name in NAMES {
        for entries in [1_000, 4_000, 8_000, 16_000] {
            let live = 100.0 * hit_ratio(&trace, name, entries);
            let exact = live - replayed(&trace, name, entries, Pace::Exact);
            let batched = live - replayed(&trace, name, entries, batched);
            let line = format!(
                "{name} at {entries}: {live:.2} live, {exact:+.2} against an exact replay, \
                 {batched:+.2} against one with batches"
            );
            println!("{line}");
            let is_near = exact.abs() <= BAR_POINTS || *name == BETTER_LIVE && exact > 0.0;
            if entries >= BAR_ENTRIES && !(is_near && batched.abs() <= BAR_POINTS) {
                far.push(line);
            }
        }
    }
    assert!(far.is_empty(), "{far:#?}");
}

/// Notes how many objects came between a victim and its eviction.
struct Ages {
    policy: Box<dyn EvictionPolicy>,
    came: u64,
    /// By slot: how many had come before what is there.
    born: Vec<u64>,
    victims: u64,
    /// Victims after which fewer than eight had come.
    newcomers: u64,
}

impl Policy for &mut Ages {
    type Error = Infallible;

    fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Infallible> {
        for event in events {
            if let Event::Insert { id, .. } = event {
                let slot = id.slot() as usize;
                self.born.resize(self.born.len().max(slot + 1), 0);
                self.born[slot] = self.came;
                self.came += 1;
            }
        }
        Policy::on_events(&mut self.policy, now_ms, events)
    }

    fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Infallible> {
        let Ok(victims) = Policy::propose(&mut self.policy, now_ms, want);
        for victim in &victims {
            self.victims += 1;
            self.newcomers += u64::from(self.came - self.born[victim.slot() as usize] < 8);
        }
        Ok(victims)
    }
}

/// Why SIEVE is better live. Its hand moves at least as fast as newcomers come, so where it is near the
/// youngest and nothing between them is used, it stays that near: each newcomer is the victim after a few
/// others, before it can be used again, for thousands of requests. A policy that works beside the requests
/// learns of a newcomer later than that, and whatever is used meanwhile moves the hand on.
#[test]
fn sieve_takes_newcomers_at_once_for_long_stretches() {
    let Some(trace) = oltp("sieve_takes_newcomers_at_once_for_long_stretches") else { return };
    let capacity = Capacity::Entries(8_000);
    let limits = PolicyLimits { capacity_bytes: capacity.capacity_bytes(), seed: 1 };
    let setup = Setup { capacity, pace: Pace::Exact, seed: 1, intervals: 1 };
    for (name, percent) in [("sieve", 15..=20), ("lru", 0..=0), ("s3-fifo", 0..=0)] {
        let policy = native(name, limits).expect("it has a policy");
        let mut ages = Ages { policy, came: 0, born: Vec::new(), victims: 0, newcomers: 0 };
        let Ok(_) = replay(&trace, setup, &mut ages);
        let Ages { victims, newcomers, .. } = ages;
        println!("{name}: {newcomers} of {victims} victims came with the last eight objects");
        assert!(percent.contains(&(100 * newcomers / victims)), "{name}: {newcomers} of {victims}");
    }
}
