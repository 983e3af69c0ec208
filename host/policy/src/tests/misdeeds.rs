//! Misdeeds of a real policy: S3-FIFO as a component, but for what its configuration makes it do
//! wrong. Hits go on while it happens, the native policy takes over where it has to, and the status
//! says why.

use std::sync::Arc;

use portcullis_core::eviction::{EvictionHost, ObjectId};
use portcullis_core::limits::POLICY_EVENTS_MAX;

use super::host::TestHost;
use super::misuse::{fallback_of, once};
use super::{LIMITS, built, pause_for_others, until};
use crate::{EvictionDriver, EvictionStatus, LoadedPolicy, PolicyChoice, PolicyKind};

/// The policy that does wrong what `config` says.
pub(super) fn misdeed(config: &str) -> PolicyChoice {
    let bytes = std::fs::read(built("test/misdeed")).expect("it can be read");
    PolicyChoice::Bytes { name: "misdeed".into(), bytes, config: config.as_bytes().to_vec() }
}

#[track_caller]
fn assert_replaced(config: &str, reason: &str) {
    let status = fallback_of(misdeed(config));
    let told = &status.fallback_reason;
    assert!(told.starts_with("misdeed 0.1.0 (sha256 "), "{config}: {told}");
    assert!(told.contains(reason), "{config}: {told}");
}

#[track_caller]
fn assert_refused(config: &str, reason: &str) {
    let refused = LoadedPolicy::load(misdeed(config), LIMITS).err();
    let message = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains(reason), "{config}: {message:?}");
}

/// Under load for a while; answers what is told of a policy that stays.
#[track_caller]
fn status_after_work(config: &str) -> (EvictionStatus, Arc<TestHost>) {
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let loaded = LoadedPolicy::load(misdeed(config), LIMITS).expect("it loads");
    let driver = EvictionDriver::start_with(host.clone(), loaded, once()).expect("a thread");
    let mut key = 0;
    let status = until("work", || {
        for _ in 0..100 {
            key += 1;
            host.request(key, 1_000);
            host.request(key - key.min(100), 1_000);
        }
        let status = driver.status();
        (host.counts().misses > 20_000 && status.accepted > 500).then_some(status)
    });
    assert_eq!(status.fallback_reason, "", "{config}");
    assert_eq!(status.kind, PolicyKind::Wasm, "{config}");
    assert!(host.used_bytes() <= LIMITS.capacity_bytes);
    (status, host)
}

#[test]
fn without_a_misdeed_it_works() {
    let (status, _host) = status_after_work("");
    assert_eq!((status.foreign, status.repeated), (0, 0), "{status:?}");
}

/// H-2, H-17, H-28: in each function, in the first call and in a later one.
#[test]
fn what_cannot_be_survived_brings_the_native_policy() {
    for function in ["on-events", "propose"] {
        for call in [1, 4] {
            let trap = format!("trapped in {function}: wasm `unreachable` instruction executed");
            assert_replaced(&format!("{function} {call} panic"), &trap);
        }
        let overrun = format!("used more than 500 ms of CPU time in {function}");
        assert_replaced(&format!("{function} 3 loop"), &overrun);
        let full = format!("trapped in {function}: call stack exhausted");
        assert_replaced(&format!("{function} 2 recurse"), &full);
        let denied = "bytes of memory";
        assert_replaced(&format!("{function} 2 memory"), denied);
    }
    assert_replaced("propose 2 many", "proposed ");
    assert_replaced("propose 3 nothing", "proposed no usable victim 8 times in a row");
}

/// H-24: what fails in `init` is never at work.
#[test]
fn what_fails_in_init_is_refused() {
    assert_refused("init 0 panic", "misdeed: trapped in init: wasm `unreachable` instruction");
    assert_refused("init 0 loop", "misdeed: used more than 500 ms of CPU time in init");
    assert_refused("init 0 recurse", "misdeed: trapped in init: call stack exhausted");
    assert_refused("init 0 memory", "bytes of memory");
    assert_refused("init zero panic", "misdeed: refuses its configuration: zero is no number");
    let message = LoadedPolicy::load(misdeed("init 0 refuse"), LIMITS).err();
    let message = message.map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("refuses its configuration: no and  [31mno again"), "{message:?}");
    assert!(message.len() < 700 && !message.contains(char::is_control), "{message:?}");
}

/// H-15: foreign ids cost a policy its place; stale and repeated ones are dropped and counted.
#[test]
fn bad_ids_are_dropped_and_counted() {
    assert_replaced("propose 3 foreign", "proposed 1 ids that never existed");
    let (status, host) = status_after_work("propose 3 stale");
    assert!(status.stale > 100, "{status:?}");
    assert_eq!(status.foreign, 0, "{status:?}");
    assert!(host.counts().proposed > 100);
    let (status, host) = status_after_work("propose 3 repeated");
    assert!(status.repeated + status.stale > 100, "{status:?}");
    assert!(host.counts().proposed > 100);
}

/// H-16: the host fills up what is missing, and the policy stays.
#[test]
fn too_few_victims_are_filled_up_by_the_host() {
    let (status, host) = status_after_work("propose 1 one");
    assert!(status.accepted > 500, "{status:?}");
    assert!(host.counts().shortfall > 0, "{:?}", host.counts());
}

/// H-11: memory that grows with each batch ends at the limit, and with it the policy.
#[test]
fn a_policy_that_forgets_nothing_is_replaced() {
    assert_replaced("on-events 1 hoard", "bytes of memory");
}

/// H-8: a flood of lines is cut, and delays nobody for longer than a call may take.
#[test]
fn a_flood_of_lines_is_dropped() {
    let (status, _host) = status_after_work("on-events 2 log");
    assert!(status.batches > 2, "{status:?}");
    assert_replaced("on-events 2 chatter", "used more than 500 ms of CPU time in on-events");
}

/// H-4, H-5: the policy is in an endless loop and the host is asked: it answers, again and again.
#[test]
fn hits_go_on_while_a_policy_loops() {
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let loaded = LoadedPolicy::load(misdeed("on-events 1 loop"), LIMITS).expect("it loads");
    let driver = EvictionDriver::start_with(host.clone(), loaded, once()).expect("a thread");
    for key in 0..2_000 {
        host.request(key, 1_000);
    }
    let in_loop = || {
        let status = driver.status();
        (status.calls, status.fallback_reason.is_empty())
    };
    until("the loop", || (in_loop() == (1, true)).then_some(()));
    let mut during = 0;
    loop {
        let before = host.counts();
        for key in 0..200 {
            host.request(3_000 + key, 1_000);
            host.request(3_000 + key, 1_000);
        }
        if in_loop() != (1, true) {
            break;
        }
        // All of these were answered within that one call.
        let after = host.counts();
        assert_eq!(after.hits + after.misses, before.hits + before.misses + 400);
        assert!(after.hits >= before.hits + 200);
        during += 400;
        pause_for_others();
    }
    assert!(during > 0, "the loop ended before it was looked at");
    until("the native policy", || (!driver.status().fallback_reason.is_empty()).then_some(()));
}

/// H-31: who stops a driver waits for one call at most, and that has a deadline.
#[test]
fn a_driver_stops_while_its_policy_loops() {
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let loaded = LoadedPolicy::load(misdeed("on-events 1 loop"), LIMITS).expect("it loads");
    let driver = EvictionDriver::start_with(host.clone(), loaded, once()).expect("a thread");
    for key in 0..2_000 {
        host.request(key, 1_000);
    }
    until("the loop", || (driver.status().calls > 0).then_some(()));
    driver.stop();
    let calls = driver.status().calls;
    for key in 0..2_000 {
        host.request(10_000 + key, 1_000);
    }
    assert_eq!(driver.status().calls, calls, "a stopped driver works no more");
    assert!(host.used_bytes() <= LIMITS.capacity_bytes);
}

/// H-15: the test host itself tells the kinds apart.
#[test]
fn the_host_tells_bad_ids_apart() {
    let host = TestHost::new(LIMITS.capacity_bytes);
    for key in 0..2_000 {
        host.request(key, 1_000);
    }
    let mut residents = Vec::new();
    host.restart(&mut residents);
    assert!(residents.len() < POLICY_EVENTS_MAX);
    let id = |slot, generation| ObjectId::new(slot, generation);
    let offered = host.offer(&[id(0, 2), id(0, 2), id(0, 1), id(0, 9), id(u32::MAX, 1)]);
    let counts = (offered.accepted, offered.repeated, offered.stale, offered.foreign);
    assert_eq!(counts, (1, 1, 1, 2), "{offered:?}");
}
