//! Numbers that are none, times that are none, and clocks that policies do not have.

use std::sync::Arc;

use portcullis_core::eviction::{Class, Event, ObjectId};

use super::guests::Guest;
use super::host::TestHost;
use super::misdeeds::misdeed;
use super::misuse::once;
use super::{LIMITS, bytes, until};
use crate::compiler::Compiler;
use crate::component::EVICTION;
use crate::engine::Engine;
use crate::instance::Instance;
use crate::{EvictionDriver, LoadedPolicy, PolicyChoice};

fn start(choice: PolicyChoice) -> Instance {
    let PolicyChoice::Bytes { name, bytes, config } = choice else { panic!("it is in memory") };
    let engine = Engine::shared().expect("Wasm runs here");
    let compiled = Compiler::InProcess.compile(&EVICTION, &bytes, None).expect("it compiles");
    Instance::start(engine, &compiled, LIMITS, &config, &name).expect("it starts").0
}

/// H-13: whichever bits a NaN would have on a machine, a policy sees the same ones.
#[test]
fn every_nan_has_the_same_bits() {
    // The key of the first event, as a float, through an operation that keeps the bits of a NaN on
    // some machines and not on others; the bits of the result are the id.
    for operation in [
        "(f64.add (local.get $float) (f64.const 1))",
        "(f64.mul (local.get $float) (local.get $float))",
        "(f64.div (f64.const 0) (f64.const 0))",
        "(f64.sqrt (f64.const -1))",
        "(f64.sub (f64.const inf) (f64.const inf))",
        "(f64.min (local.get $float) (f64.const 1))",
    ] {
        let on_events = format!(
            "(local.set $float (f64.reinterpret_i64 (i64.load offset=8 (local.get $events))))
            (i64.store (i32.const 136) (i64.reinterpret_f64 {operation}))"
        );
        let on_events: &'static str = on_events.leak();
        let propose = "(i32.store (i32.const 128) (i32.const 136))
            (i32.store (i32.const 132) (i32.const 1)) i32.const 128";
        let guest = Guest { on_events, propose, ..Guest::default() };
        let mut instance = start(bytes("guest", guest.component()));
        for nan in [0x7ff8_0000_0000_0001, 0xfff8_dead_beef_0000, 0x7ff0_0000_0000_0001] {
            let insert = Event::Insert {
                id: ObjectId::new(0, 1),
                key: nan,
                class: Class::Asked,
                weight_bytes: 1,
            };
            instance.on_events(0, &[insert]).expect("no fault");
            let ids = instance.propose(0, 1).expect("no fault");
            assert_eq!(ids, [ObjectId(0x7ff8_0000_0000_0000)], "{operation} of {nan:#x}");
        }
    }
}

/// H-13: weights of nothing and of all there is, keys that are NaN, time that stands or jumps.
#[test]
fn extreme_events_are_survived_by_what_we_ship() {
    for name in ["s3fifo", "lru", "sieve", "w-tinylfu", "gdsf"] {
        let bytes = std::fs::read(super::built(name)).expect("it can be read");
        let choice = PolicyChoice::Bytes { name: name.into(), bytes, config: Vec::new() };
        let mut instance = start(choice);
        let keys = [0, u64::MAX, f64::NAN.to_bits(), f64::INFINITY.to_bits(), 1];
        for (round, now_ms) in [0, u64::MAX, 1, 0].into_iter().enumerate() {
            let generation = round as u32 + 1;
            let id = |slot: usize| ObjectId::new(slot as u32, generation);
            let mut events = Vec::new();
            for (slot, &key) in keys.iter().enumerate() {
                for weight_bytes in [0, 1, u32::MAX] {
                    let class = Class::Prefetched;
                    let id = id(slot * 3 + weight_bytes.min(2) as usize);
                    events.push(Event::Insert { id, key, class, weight_bytes });
                    events.push(Event::Hit { id, count: u32::MAX });
                }
            }
            instance.on_events(now_ms, &events).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            let victims = instance.propose(now_ms, 256);
            let victims = victims.unwrap_or_else(|fault| panic!("{name}: {fault}"));
            assert!(!victims.is_empty(), "{name}");
            for victim in &victims {
                let known = victim.generation() <= generation && victim.slot() < 15;
                assert!(known, "{name} made up {victim:?}");
            }
        }
    }
}

/// H-14: the same events and times give the same choices, however long the machine takes: there is
/// no clock to look at but the one it is given, and no chance but its seed.
#[test]
fn two_runs_of_a_policy_do_not_differ() {
    let mut runs = Vec::new();
    for busy in [false, true] {
        let mut instance = start(misdeed(if busy { "on-events 1 log" } else { "" }));
        let mut answers = Vec::new();
        for round in 0..50u32 {
            let inserts = (0..40).map(|slot| Event::Insert {
                id: ObjectId::new(round * 40 + slot, 1),
                key: u64::from(round * 17 + slot),
                class: Class::Listed,
                weight_bytes: 900 + slot,
            });
            let events: Vec<_> = inserts.collect();
            instance.on_events(u64::from(round), &events).expect("no fault");
            answers.push(instance.propose(u64::from(round), 20).expect("no fault"));
        }
        runs.push(answers);
    }
    assert_eq!(runs[0], runs[1]);
}

/// H-13: a proposal of NaN is an id that never was, and is treated as one.
#[test]
fn a_nan_for_an_id_never_existed() {
    let propose = "(f64.store (i32.const 136) (f64.div (f64.const 0) (f64.const 0)))
        (i32.store (i32.const 128) (i32.const 136)) (i32.store (i32.const 132) (i32.const 1))
        i32.const 128";
    let guest = Guest { propose, ..Guest::default() };
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let loaded = LoadedPolicy::load(bytes("guest", guest.component()), LIMITS).expect("it loads");
    let driver = EvictionDriver::start_with(host.clone(), loaded, once()).expect("a thread");
    let mut key = 0;
    let status = until("the fallback", || {
        (0..100).for_each(|more| host.request(key + more, 1_000));
        key += 100;
        Some(driver.status()).filter(|status| !status.fallback_reason.is_empty())
    });
    assert!(status.fallback_reason.contains("proposed 1 ids that never"), "{status:?}");
}
