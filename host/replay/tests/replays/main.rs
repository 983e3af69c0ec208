//! Replays: against references written for clarity, against published answers, and twice.

#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

mod batches;
mod known_answers;
mod reference;

use portcullis_core::eviction::native::native;
use portcullis_core::eviction::{EvictionPolicy, PolicyLimits};
use portcullis_replay::trace::TraceBuilder;
use portcullis_replay::{Capacity, Outcome, Pace, Setup, Trace};

fn policy(name: &str, capacity: Capacity, seed: u64) -> Box<dyn EvictionPolicy> {
    let capacity_bytes = capacity.capacity_bytes();
    native(name, PolicyLimits { capacity_bytes, seed }).expect("it has a policy")
}

fn exact(trace: &Trace, name: &str, capacity: Capacity) -> Outcome {
    replay(trace, name, capacity, Pace::Exact)
}

fn replay(trace: &Trace, name: &str, capacity: Capacity, pace: Pace) -> Outcome {
    let setup = Setup { capacity, pace, seed: 1, intervals: 10 };
    let Ok(outcome) = portcullis_replay::replay(trace, setup, policy(name, capacity, 1));
    outcome
}

/// A trace of requests for few objects, some of them often, each of its own size.
fn made_up(seed: u64, requests: usize, objects: u64) -> Trace {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut trace = TraceBuilder::new("made up");
    for request in 0..requests {
        let spread = random.u64(0..objects);
        let key = if random.bool() { spread } else { random.u64(0..=spread) };
        // A scan now and then.
        let key = if request % 97 > 80 { (request as u64) % objects } else { key };
        let size_bytes = 1 + (key * 37 % 61) as u32;
        trace.push_sized(key, size_bytes, request as u32).expect("short");
    }
    trace.finish().expect("it has requests")
}
