//! What a policy may do wrong at work, and that the native one then takes over.

use std::sync::Arc;

use super::guests::Guest;
use super::host::TestHost;
use super::{LIMITS, built, bytes, until};
use crate::{
    DriverOptions, EvictionDriver, EvictionStatus, LoadedPolicy, PolicyChoice, PolicyKind, Recovery,
};

/// A component that fails is not tried again.
pub(super) fn once() -> DriverOptions {
    let recovery = Recovery { strikes_max: 1, rebuild_ms: 0 };
    DriverOptions { recovery, ..DriverOptions::default() }
}

const ENDLESS: &str = "(loop $again (br $again))";

/// Keeps a host busy under a policy until it is replaced; then checks that eviction goes on.
#[track_caller]
pub(super) fn fallback_of(choice: PolicyChoice) -> EvictionStatus {
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let loaded = LoadedPolicy::load(choice, LIMITS).unwrap_or_else(|error| panic!("{error}"));
    let digest = loaded.digest().to_owned();
    let driver = EvictionDriver::start_with(host.clone(), loaded, once()).expect("a thread");
    let mut key = 0;
    let mut requests = |count: u64| {
        for _ in 0..count {
            key += 1;
            host.request(key, 1_000);
            host.request(key - key.min(100), 1_000);
        }
    };
    let status = until("the fallback", || {
        requests(100);
        let status = driver.status();
        (!status.fallback_reason.is_empty()).then_some(status)
    });
    assert_eq!((status.kind, status.name.as_str()), (PolicyKind::Native, "s3-fifo"));
    assert_eq!(status.digest, "");
    assert!(status.fallback_reason.contains(&digest), "{}", status.fallback_reason);

    let before = host.counts();
    until("evictions that the native policy proposed", || {
        requests(100);
        (host.counts().proposed > before.proposed + 1_000).then_some(())
    });
    assert!(host.used_bytes() <= LIMITS.capacity_bytes);
    let after = driver.status();
    assert_eq!(after.fallback_reason, status.fallback_reason, "the reason stays");
    assert_eq!(after.wasm_calls, status.wasm_calls, "Wasm is not entered again");
    after
}

#[track_caller]
fn assert_falls_back(guest: &Guest, reason: &str) -> EvictionStatus {
    let status = fallback_of(bytes("guest", guest.component()));
    assert!(status.fallback_reason.contains(reason), "{}", status.fallback_reason);
    status
}

/// H-2, H-35: the status says who it was, and what it did.
#[test]
fn a_panic_on_the_third_batch() {
    let status = fallback_of(PolicyChoice::File(built("test/trap-third-batch")));
    let reason = &status.fallback_reason;
    assert!(reason.starts_with("trap-third-batch 0.1.0 (sha256 "), "{reason}");
    assert!(reason.ends_with(") trapped in on-events: wasm `unreachable` instruction executed"));
}

#[test]
fn a_trap() {
    let on_events = "(if (i32.eq (global.get $batches) (i32.const 3)) (then unreachable))";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, "trapped in on-events");
    let propose = "unreachable";
    assert_falls_back(&Guest { propose, ..Guest::default() }, "trapped in propose");
    let on_events = "(drop (i32.load (i32.const -4)))";
    let reason = "trapped in on-events: out of bounds memory access";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, reason);
    let on_events = "call $recurse";
    let reason = "trapped in on-events: call stack exhausted";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, reason);
}

#[test]
fn the_native_policy_is_told_of_every_resident() {
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    for key in 0..1_000 {
        host.request(key, 1_000);
    }
    let guest = Guest { on_events: "unreachable", ..Guest::default() };
    let loaded = LoadedPolicy::load(bytes("guest", guest.component()), LIMITS);
    let loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    let driver = EvictionDriver::start_with(host, loaded, once()).expect("a thread");
    // The component was told once, and the native policy again.
    let status = until("both", || {
        let is_over = |status: &_| {
            matches!(status, EvictionStatus { events: 2_000, kind: PolicyKind::Native, .. })
        };
        Some(driver.status()).filter(is_over)
    });
    assert_eq!(status.wasm_calls, 1);
}

/// H-5, H-28.
#[test]
fn an_endless_loop() {
    let on_events = ENDLESS;
    let reason = "used more than 500 ms of CPU time in on-events";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, reason);
    let propose = "(loop $again (br $again)) unreachable";
    let reason = "used more than 500 ms of CPU time in propose";
    assert_falls_back(&Guest { propose, ..Guest::default() }, reason);
    // A loop that only calls the host.
    let on_events = "(loop $again
        (call $log (i32.const 3) (i32.const 256) (i32.const 4)) (br $again))";
    let reason = "used more than 500 ms of CPU time in on-events";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, reason);
}

/// H-11.
#[test]
fn a_memory_bomb() {
    let on_events = "(loop $again (br_if $again
        (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    let reason = "trapped in on-events: wasm `unreachable` instruction executed, after it was \
                  denied 67633152 bytes of memory";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, reason);
}

/// H-12.
#[test]
fn a_table_bomb() {
    let declarations = "(table $table 1 funcref)";
    let on_events = "(loop $again (br_if $again (i32.ne
        (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1)))) unreachable";
    let reason = "denied a table of 17001 elements";
    assert_falls_back(&Guest { declarations, on_events, ..Guest::default() }, reason);
}

/// H-17, H-18.
#[test]
fn an_answer_that_is_too_large() {
    // As many zero ids as were asked for, and one.
    let propose = "(i32.store (i32.const 128) (i32.const 65536))
        (i32.store (i32.const 132) (i32.add (local.get $want) (i32.const 1))) i32.const 128";
    let reason = "where";
    assert_falls_back(&Guest { propose, ..Guest::default() }, reason);
    let propose = "(i32.store (i32.const 128) (i32.const 65536))
        (i32.store (i32.const 132) (i32.const 50000)) i32.const 128";
    assert_falls_back(&Guest { propose, ..Guest::default() }, "failed in propose");
    let propose = "(i32.store (i32.const 128) (i32.const 65536))
        (i32.store (i32.const 132) (i32.const -1)) i32.const 128";
    assert_falls_back(&Guest { propose, ..Guest::default() }, "failed in propose");
    // An address that is not that of a list.
    let propose = "i32.const -8";
    assert_falls_back(&Guest { propose, ..Guest::default() }, "failed in propose");
    // A line of the log that is all of its memory.
    let on_events = "(call $log (i32.const 0) (i32.const 65536) (i32.const 400000))";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, "failed in on-events");
    let on_events = "(call $log (i32.const 9) (i32.const 0) (i32.const 0))";
    assert_falls_back(&Guest { on_events, ..Guest::default() }, "in on-events");
}

/// H-15.
#[test]
fn ids_that_never_existed() {
    let propose = "(i64.store (i32.const 136) (i64.const 0x7fffffff00000001))
        (i32.store (i32.const 128) (i32.const 136)) (i32.store (i32.const 132) (i32.const 1))
        i32.const 128";
    let status =
        assert_falls_back(&Guest { propose, ..Guest::default() }, "proposed 1 ids that never");
    assert_eq!(status.foreign, 1);
}

/// Proposes the first object it was ever told of, for ever, and twice each time. H-15, H-16.
#[test]
fn the_same_id_again_and_again() {
    let on_events = "(if (i64.eqz (i64.load (i32.const 136))) (then
        (i64.store (i32.const 136) (i64.load (local.get $events)))
        (i64.store (i32.const 144) (i64.load (local.get $events)))))";
    let propose = "(i32.store (i32.const 128) (i32.const 136))
        (i32.store (i32.const 132) (i32.const 2)) i32.const 128";
    let guest = Guest { on_events, propose, ..Guest::default() };
    let status = assert_falls_back(&guest, "proposed no usable victim 8 times in a row");
    assert!(status.repeated + status.stale > 0, "{status:?}");
    assert_eq!(status.foreign, 0);
}

/// H-16.
#[test]
fn no_proposals() {
    let reason = "proposed no usable victim 8 times in a row, with";
    assert_falls_back(&Guest::default(), reason);
}
