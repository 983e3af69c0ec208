//! Policies exchanged for bad ones, and for themselves with another configuration: a generation is
//! judged by itself, and the one at work stays as it is until another takes its place.

use std::sync::atomic::{AtomicBool, Ordering};

use super::guests::Guest;
use super::misdeeds::misdeed;
use super::swaps::{Busy, PLAIN};
use super::{LIMITS, built, bytes};
use crate::compiler::Compiler;
use crate::component::EVICTION;
use crate::{EvictionStatus, LoadOptions, PolicyChoice, PolicyKind, PolicySetup, Recovery};

const KEEP_CONFIG: LoadOptions = LoadOptions { force: false, keep_config: true };
/// Configurations that change nothing that is seen here.
const HARMLESS: &str = "propose 1000000 one";
const HARMLESS_TOO: &str = "propose 2000000 one";

fn busy(config: &str) -> Busy {
    Busy::set_up(PolicySetup::new(misdeed(config), LIMITS))
}

/// H-21: what is refused was tried on an instance of its own.
#[test]
fn a_configuration_that_is_refused_is_never_at_work() {
    let busy = busy(HARMLESS);
    let before = busy.control.status();
    for config in ["init 0 refuse", "init 0 panic", "nonsense"] {
        busy.control.swap(misdeed(config), PLAIN).expect_err("it is refused");
        let status = busy.control.status();
        assert_eq!(status.digest, before.digest, "{config}");
        assert_eq!(status.config_digest, before.config_digest, "{config}");
        assert_eq!((status.kind, status.fallback_reason.as_str()), (PolicyKind::Wasm, ""));
        assert!(status.last_refusal.contains("misdeed"), "{status:?}");
        busy.works();
    }
    assert_eq!(busy.control.status().swaps, 0);
}

/// H-22, H-25: a configuration makes another policy of the same component, which the status tells, and
/// the one before is as it was.
#[test]
fn another_configuration_is_another_generation() {
    let busy = busy(HARMLESS);
    let before = busy.control.status();
    assert_eq!(before.config_digest.len(), 64, "{before:?}");
    busy.control.swap(misdeed(HARMLESS_TOO), PLAIN).expect("it is good");
    let after = busy.control.status();
    assert_eq!(after.digest, before.digest);
    assert_ne!(after.config_digest, before.config_digest);
    assert_eq!(after.swaps, 1);
    busy.works();
    busy.control.rollback().expect("there is one before");
    assert_eq!(busy.control.status().config_digest, before.config_digest);
    busy.control.swap(misdeed(""), PLAIN).expect("it is good");
    assert_eq!(busy.control.status().config_digest, "");
    busy.works();
}

/// H-34: another component with the configuration that was there.
#[test]
fn a_configuration_is_kept_over_another_component_where_that_is_asked_for() {
    let busy = busy(HARMLESS);
    let before = busy.control.status();
    let same = PolicyChoice::File(built("test/misdeed"));
    busy.control.swap(same.clone(), KEEP_CONFIG).expect("it is good");
    assert_eq!(busy.control.status().config_digest, before.config_digest);
    busy.control.swap(same, PLAIN).expect("it is good");
    assert_eq!(busy.control.status().config_digest, "");
    busy.works();
}

/// H-30: what cannot be swapped in takes nothing with it, neither the active one nor the one before.
#[test]
fn a_failed_swap_leaves_the_way_back() {
    let busy = Busy::set_up(PolicySetup::new(PolicyChoice::File(built("lru")), LIMITS));
    let first = busy.control.status().digest;
    busy.control.swap(misdeed(HARMLESS), PLAIN).expect("it is good");
    for bad in [misdeed("init 0 panic"), bytes("text", b"#!/bin/sh".to_vec())] {
        busy.control.swap(bad, PLAIN).expect_err("it is refused");
        busy.works();
    }
    assert_eq!(busy.control.status().name, "misdeed");
    busy.control.rollback().expect("there is one before");
    assert_eq!(busy.control.status().digest, first);
    busy.works();
}

/// H-32: thousands of functions to compile, and the policy at work does not notice.
#[test]
fn a_slow_compilation_holds_nobody_up() {
    let busy = Busy::set_up(PolicySetup::new(PolicyChoice::File(built("lru")), LIMITS));
    let step = "(local.set 0 (i32.mul (i32.add (local.get 0) (i32.const 7)) (local.get 0)))";
    let function = format!("(func (param i32) (result i32) {} (local.get 0))", step.repeat(40));
    let declarations: &'static str = function.repeat(3_000).leak();
    let slow = Guest { declarations, ..Guest::default() };
    let slow = bytes("slow", slow.component());
    let is_over = AtomicBool::new(false);
    let mut rounds = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It proposes nothing, and is refused in the end.
            busy.control.load(slow, PLAIN).expect_err("it does nothing");
            is_over.store(true, Ordering::SeqCst);
        });
        while !is_over.load(Ordering::SeqCst) {
            busy.works();
            rounds += 1;
        }
    });
    assert!(rounds > 0, "it was over at once");
    assert!(busy.control.status().last_refusal.contains("slow"), "{:?}", busy.control.status());
}

/// H-32: a compiler that takes more than it may is ended by its limits, and the refusal says so.
#[test]
fn a_compiler_that_takes_too_much_is_ended() {
    let shell = |script: &str| Compiler::Child {
        program: "/bin/sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
    };
    let component = std::fs::read(built("lru")).expect("it can be read");
    for (script, reason) in [
        ("kill -XCPU $$", "the compiler was ended by signal 24: it may take"),
        ("echo 'no more memory' >&2; exit 1", "cannot be compiled: no more memory"),
        ("cat >/dev/null; echo nonsense", "cannot be compiled: "),
        ("exit 0", "cannot be compiled: "),
    ] {
        let refused = shell(script).compile(&EVICTION, &component, None).err();
        let message = refused.map(|refusal| refusal.to_string()).unwrap_or_default();
        assert!(message.contains(reason), "{script}: {message:?}");
    }
    let nowhere = Compiler::Child { program: "/nonexistent/compiler".into(), args: Vec::new() };
    let refused = nowhere.compile(&EVICTION, &component, None).err();
    let message = refused.map(|refusal| refusal.to_string()).unwrap_or_default();
    assert!(message.contains("the compiler cannot be started"), "{message:?}");
}

/// H-29, H-36: it is tried again, with ever longer pauses, and not for ever.
#[test]
fn a_policy_that_fails_again_and_again_is_given_up() {
    let recovery = Recovery { strikes_max: 3, rebuild_ms: 5 };
    let setup = PolicySetup { recovery, ..PolicySetup::new(misdeed("on-events 8 panic"), LIMITS) };
    let busy = Busy::set_up(setup);
    let status = super::until("the quarantine", || {
        // The native policy learns what is resident before it is the active one.
        let is_over = |status: &EvictionStatus| {
            !status.quarantined.is_empty() && status.kind == PolicyKind::Native
        };
        Some(busy.control.status()).filter(is_over)
    });
    assert_eq!(status.faults, 3, "{status:?}");
    let refused = busy.control.swap(misdeed("on-events 8 panic"), PLAIN).err();
    let message = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("is quarantined"), "{message}");
    busy.works();
}
