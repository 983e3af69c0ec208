//! Memory stays flat, whatever policies do: in a process of its own, where nothing else is loaded
//! meanwhile.

use std::process::Command;
use std::sync::Arc;

use super::host::TestHost;
use super::misdeeds::misdeed;
use super::misuse::once;
use super::{LIMITS, built, until};
use crate::{CompiledPolicy, EvictionDriver, LoadedPolicy};

/// Set in the process that is measured.
const INSIDE: &str = "PORTCULLIS_TEST_INSIDE";
/// What a round may leave: noise of the allocator, spread over all rounds.
const GROWTH_BYTES_MAX: u64 = 6 << 20;

/// Whether this is the process that is measured. Elsewhere it is run, and has to succeed.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let exe = std::env::current_exe().expect("a test knows its own path");
    let mut inside = Command::new(exe);
    inside.args(["--exact", "--nocapture", "--test-threads", "1", test]).env(INSIDE, "1");
    let output = inside.output().expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    assert!(printed.contains("1 passed"), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.expect("resident memory") * 1024
}

fn compiled() -> CompiledPolicy {
    CompiledPolicy::open(&built("test/misdeed")).expect("it compiles")
}

fn load(compiled: &CompiledPolicy, config: &str) -> LoadedPolicy {
    compiled.clone().with_config(config.as_bytes()).load(LIMITS).expect("it starts")
}

/// Work until the policy is replaced.
fn work_until_replaced(policy: LoadedPolicy) {
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let driver = EvictionDriver::start_with(host.clone(), policy, once()).expect("a thread");
    let mut key = 0;
    until("the fallback", || {
        for _ in 0..100 {
            key += 1;
            host.request(key, 1_000);
            host.request(key, 1_000);
        }
        (!driver.status().fallback_reason.is_empty()).then_some(())
    });
}

/// H-37: policies that trap, overrun their stack, take all the memory they get or lie, one after
/// the other: each is gone with its store.
#[test]
fn memory_is_flat_over_policies_that_fail() {
    if !is_inside("tests::flat::memory_is_flat_over_policies_that_fail") {
        return;
    }
    let deeds = [
        "on-events 2 panic",
        "propose 2 panic",
        "on-events 2 recurse",
        "on-events 2 memory",
        "propose 2 foreign",
        "propose 2 many",
        "on-events 1 hoard",
    ];
    let compiled = compiled();
    let mut after = Vec::new();
    for _ in 0..12 {
        deeds.iter().for_each(|deed| work_until_replaced(load(&compiled, deed)));
        after.push(resident_bytes());
    }
    println!("resident after each round: {after:?}");
    let [_, _, third, .., last] = *after.as_slice() else { panic!("twelve rounds") };
    assert!(last <= third + GROWTH_BYTES_MAX, "{third} became {last}");
}

/// H-23: instances come and go.
#[test]
fn memory_is_flat_over_a_thousand_instances() {
    if !is_inside("tests::flat::memory_is_flat_over_a_thousand_instances") {
        return;
    }
    let compiled = compiled();
    let (mut tenth, mut last) = (0, 0);
    for number in 1..=1_000 {
        drop(load(&compiled, ""));
        if number == 10 {
            tenth = resident_bytes();
        }
        last = resident_bytes();
    }
    println!("resident after the tenth: {tenth}, after the last: {last}");
    assert!(last <= tenth + tenth / 50, "{tenth} became {last}");
}

/// H-9: recursion ends at the policy's own limit, with the thread's stack far away.
#[test]
fn a_full_stack_does_not_end_the_process() {
    if !is_inside("tests::flat::a_full_stack_does_not_end_the_process") {
        return;
    }
    let compiled = compiled();
    for deed in ["on-events 1 recurse", "propose 1 recurse"] {
        work_until_replaced(load(&compiled, deed));
    }
    let init = LoadedPolicy::load(misdeed("init 0 recurse"), LIMITS);
    assert!(init.is_err_and(|error| error.to_string().contains("call stack exhausted")));
}
