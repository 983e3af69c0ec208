//! What calls into a policy cost: `cargo run --release -p portcullis-policy --example cost`.
//!
//! Every figure is the least of several rounds. Names a policy file to measure that one instead of
//! the built-in one.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use portcullis_core::eviction::{Class, Event, ObjectId, PolicyLimits, Removal};
use portcullis_policy::{LoadedPolicy, PolicyChoice};

const BATCH: usize = 512;
const OBJECTS: u32 = 1_000_000;
const ROUNDS: usize = 5;
const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 256_000_000, seed: 1 };

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let component = match std::env::args_os().nth(1) {
        Some(file) => PolicyChoice::File(PathBuf::from(file)),
        None => PolicyChoice::BuiltIn,
    };
    for choice in [component, PolicyChoice::Native] {
        let began = Instant::now();
        let mut policy = LoadedPolicy::load(choice, LIMITS)?;
        println!(
            "{} sha256 {:?}: loaded in {:.1} ms",
            policy.name(),
            policy.digest(),
            began.elapsed().as_secs_f64() * 1e3
        );
        println!("  an empty call              {:8.0} ns", empty_call(&mut policy)?);
        println!("  insert                     {:8.1} ns an event", inserts(&mut policy)?);
        println!("  hit                        {:8.1} ns an event", hits(&mut policy)?);
        println!("  evict, with its insert     {:8.1} ns an object", evictions(&mut policy)?);
    }
    Ok(())
}

/// Least nanoseconds of `rounds` runs of `run`, divided by `count`.
fn least<E>(count: usize, mut run: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        run()?;
        least = least.min(began.elapsed().as_nanos() as f64 / count as f64);
    }
    Ok(least)
}

fn empty_call(policy: &mut LoadedPolicy) -> Result<f64, portcullis_policy::Fault> {
    const CALLS: usize = 100_000;
    least(CALLS, || {
        (0..CALLS).try_for_each(|_| policy.propose(0, 0).map(|victims| drop(black_box(victims))))
    })
}

/// The only round that can be run once: the objects stay.
fn inserts(policy: &mut LoadedPolicy) -> Result<f64, portcullis_policy::Fault> {
    let events: Vec<Event> = (0..OBJECTS).map(|slot| insert(ObjectId::new(slot, 1))).collect();
    let began = Instant::now();
    for batch in events.chunks(BATCH) {
        policy.on_events(0, batch)?;
    }
    Ok(began.elapsed().as_nanos() as f64 / f64::from(OBJECTS))
}

/// Hits all over the objects, in no order that a cache of the processor would like.
fn hits(policy: &mut LoadedPolicy) -> Result<f64, portcullis_policy::Fault> {
    let slots = (0..OBJECTS).map(|number| number.wrapping_mul(2_654_435_761) % OBJECTS);
    let events: Vec<Event> =
        slots.map(|slot| Event::Hit { id: ObjectId::new(slot, 1), count: 1 }).collect();
    least(events.len(), || events.chunks(BATCH).try_for_each(|batch| policy.on_events(0, batch)))
}

/// A full cache at work: victims, their removal, and others in their slots.
fn evictions(policy: &mut LoadedPolicy) -> Result<f64, portcullis_policy::Fault> {
    const VICTIMS: usize = 128;
    const TIMES: usize = 1_000;
    let mut generation = 1;
    least(VICTIMS * TIMES, || {
        for _ in 0..TIMES {
            generation += 1;
            let victims = policy.propose(0, VICTIMS)?;
            let remove = victims.iter().map(|&id| Event::Remove { id, reason: Removal::Evicted });
            let again = victims.iter().map(|id| insert(ObjectId::new(id.slot(), generation)));
            policy.on_events(0, &remove.chain(again).collect::<Vec<_>>())?;
        }
        Ok(())
    })
}

fn insert(id: ObjectId) -> Event {
    let key = u64::from(id.slot()) << 32 | u64::from(id.generation());
    Event::Insert { id, key, class: Class::Asked, weight_bytes: 256 }
}
