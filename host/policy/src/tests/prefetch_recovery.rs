//! Prefetch components that fail are tried again, and given up; what was chosen outlives a restart.

use std::cell::Cell;
use std::path::Path;

use portcullis_core::prefetch::PrefetchChoice;

use super::guests::Guest;
use super::prefetch::join;
use super::{LIMITS, until};
use crate::{
    LoadOptions, PolicyError, PolicyKind, PrefetchControl, PrefetchPolicyChoice, PrefetchSetup,
    PrefetchStanding, Recovery,
};

const PLAIN: LoadOptions = LoadOptions { force: false, keep_config: false };
const FORCED: LoadOptions = LoadOptions { force: true, ..PLAIN };

fn component(guest: &Guest, config: &[u8]) -> PrefetchPolicyChoice {
    let (name, bytes) = ("guest".to_owned(), guest.component());
    PrefetchPolicyChoice::Bytes { name, bytes, config: config.to_vec() }
}

/// It works twice, and traps then.
fn trap() -> PrefetchPolicyChoice {
    let on_events = "(if (i32.ge_u (global.get $batches) (i32.const 3)) (then unreachable))";
    component(&Guest { on_events, propose: "i32.const 64", ..Guest::prefetch() }, b"")
}

fn none() -> PrefetchPolicyChoice {
    PrefetchPolicyChoice::Native(PrefetchChoice::Nothing)
}

fn start(choice: PrefetchPolicyChoice, recovery: Recovery) -> PrefetchControl {
    let setup = PrefetchSetup { recovery, ..PrefetchSetup::new(choice, LIMITS) };
    PrefetchControl::start(setup).unwrap_or_else(|error| panic!("{error}"))
}

fn message<T>(result: Result<T, PolicyError>) -> String {
    result.err().expect("it is refused").to_string()
}

/// A client lists one directory after the other until the policies stand as is wanted.
fn list_until(
    what: &str,
    control: &PrefetchControl,
    wanted: impl Fn(&PrefetchStanding) -> bool,
) -> PrefetchStanding {
    let (engine, client) = join(control.driver());
    let mut dir = 0;
    until(what, || {
        dir += 100;
        engine.enter(&client, dir, [dir + 1]);
        Some(control.standing()).filter(|standing| wanted(standing))
    })
}

/// H-29, H-36 for prefetch.
#[test]
fn one_that_fails_is_tried_again_and_after_three_faults_never() {
    let control = start(trap(), Recovery { strikes_max: 3, rebuild_ms: 50 });
    let strikes = Cell::new(0);
    let standing = list_until("the quarantine", &control, |standing| {
        let status = &standing.status;
        strikes.set(status.strikes.max(strikes.get()));
        // Whatever is active, the status says why it is not the component.
        assert_eq!(status.kind == PolicyKind::Native, !status.fallback_reason.is_empty());
        !status.quarantined.is_empty() && status.kind == PolicyKind::Native
    });
    let status = standing.status;
    assert_eq!((status.faults, status.name.as_str()), (3, "crawl"));
    assert_eq!(strikes.get(), 2, "of the one that the native policy stood in for");
    let quarantined = &status.quarantined[0];
    assert!(quarantined.reason.contains("trapped in on-events"), "{status:?}");
    assert!(status.fallback_reason.contains(&quarantined.digest), "{status:?}");

    for refused in [control.load(trap(), PLAIN), control.swap(trap(), PLAIN)] {
        let refused = message(refused);
        assert!(refused.contains("is quarantined until"), "{refused}");
        assert!(refused.contains("trapped in on-events"), "{refused}");
        assert_eq!(control.standing().last_refusal, refused);
    }
    assert_eq!(control.standing().status.calls, status.calls, "Wasm is not entered again");
    // Another one is not concerned, and there is no way back to the one in quarantine.
    control.swap(component(&Guest::prefetch(), b""), PLAIN).expect("it is good");
    let refused = message(control.rollback());
    assert!(refused.contains("is quarantined until"), "{refused}");
    assert_eq!(control.standing().status.kind, PolicyKind::Wasm);
    // Forced, it may fail once more.
    control.swap(trap(), FORCED).expect("its first batches are good");
    assert_eq!(control.standing().status.quarantined, []);
    list_until("another fault", &control, |standing| standing.status.faults >= 4);
}

/// One that works again, between faults, has the clients again; and a good one that is swapped in
/// meanwhile stays.
#[test]
fn a_fault_now_and_then_is_forgiven_and_another_choice_ends_it() {
    let control = start(trap(), Recovery { strikes_max: usize::MAX, rebuild_ms: 1 });
    list_until("a fresh instance after each of some faults", &control, |standing| {
        standing.status.faults >= 5 && standing.status.kind == PolicyKind::Wasm
    });
    assert_eq!(control.standing().status.quarantined, []);

    let control = start(trap(), Recovery { strikes_max: 3, rebuild_ms: 200 });
    list_until("a fault", &control, |standing| standing.status.faults >= 1);
    control.swap(none(), PLAIN).expect("there is one");
    // Longer than the pause: the one that failed is due, and does not come.
    let status = until("the pause", || {
        let status = control.driver().status();
        (status.active_ms > 400 || status.name != "none").then_some(status)
    });
    assert_eq!((status.name.as_str(), status.faults), ("none", 1));
}

/// What an engine chooses with follows each of them.
#[test]
fn engines_are_told_of_each_change() {
    let control = start(trap(), Recovery { strikes_max: 2, rebuild_ms: 1 });
    let (engine, _client) = join(control.driver());
    assert!(!engine.is_native());
    list_until("the quarantine", &control, |standing| !standing.status.quarantined.is_empty());
    until("the native policy", || engine.is_native().then_some(()));
    assert!(
        engine.restarts() >= 4,
        "at first, after a fault, after the pause, after the other fault"
    );
}

fn state_setup(state: &Path, choice: PrefetchPolicyChoice) -> PrefetchSetup {
    PrefetchSetup { state: Some(state.to_owned()), ..PrefetchSetup::new(choice, LIMITS) }
}

fn standing(setup: &PrefetchSetup) -> PrefetchStanding {
    PrefetchControl::start(setup.clone()).unwrap_or_else(|error| panic!("{error}")).standing()
}

/// H-34 for prefetch: component, configuration and panic switch.
#[test]
fn what_was_swapped_in_is_active_after_a_restart() {
    let state = tempfile::tempdir().expect("a directory");
    let setup = state_setup(state.path(), PrefetchPolicyChoice::default());
    let control = PrefetchControl::start(setup.clone()).expect("it is native");
    let first = control.swap(component(&Guest::prefetch(), b"depth=3"), PLAIN).expect("it is good");
    drop(control);
    let status = standing(&setup).status;
    assert_eq!((status.digest, status.config_digest), (first.digest, first.config_digest.clone()));

    let control = PrefetchControl::start(setup.clone()).expect("it is kept");
    control.swap(none(), PLAIN).expect("there is one");
    control.rollback().expect("there is one before");
    drop(control);
    let control = PrefetchControl::start(setup.clone()).expect("it is kept");
    assert_eq!(control.standing().status.config_digest, first.config_digest, "the one before");
    control.panic().expect("the driver works");
    drop(control);
    let control = PrefetchControl::start(setup.clone()).expect("it is kept");
    assert!(control.standing().is_panic, "the switch stays on");
    assert_eq!(control.standing().status.kind, PolicyKind::Native);
    control.swap(none(), PLAIN).expect("there is one");
    drop(control);
    let after = standing(&setup);
    assert_eq!((after.status.name.as_str(), after.is_panic), ("none", false));
}

/// H-26, H-27 for prefetch: it begins with the policy that it was set up with.
#[test]
fn what_is_kept_and_damaged_is_passed_over_and_said() {
    let state = tempfile::tempdir().expect("a directory");
    let setup = state_setup(state.path(), none());
    let control = PrefetchControl::start(setup.clone()).expect("it is native");
    let swapped = control.swap(component(&Guest::prefetch(), b""), PLAIN).expect("it is good");
    drop(control);
    let kept = state.path().join("prefetch-policies");
    std::fs::write(kept.join(format!("{}.wasm", swapped.digest)), b"something else").expect("ours");
    let after = standing(&setup);
    assert_eq!(after.status.name, "none");
    assert!(after.last_refusal.contains(".wasm is damaged"), "{after:?}");
    std::fs::write(
        kept.join("active"),
        "portcullis-policy 1\nsource native\nname lru\npanic off\n",
    )
    .expect("ours");
    let after = standing(&setup);
    assert_eq!(after.status.name, "none");
    assert!(after.last_refusal.contains("lru"), "no prefetch policy: {after:?}");
}
