//! Inlining components at work, good and bad, and what an operator does with them.

use std::sync::Arc;

use portcullis_core::Handle;
use portcullis_core::inlining::{ClassId, InliningChoice, Ledger, Line};
use portcullis_core::limits::POLICY_RULES_MAX;

use super::guests::Guest;
use super::{LIMITS, until};
use crate::{
    Compiler, InliningControl, InliningPolicyChoice, InliningStatus, LoadOptions, PolicyKind,
};

fn choice(guest: &Guest) -> InliningPolicyChoice {
    let name = "guest".to_owned();
    InliningPolicyChoice::Bytes { name, bytes: guest.component(), config: Vec::new() }
}

fn start(choice: InliningPolicyChoice) -> (InliningControl, Arc<Ledger>) {
    let ledger = Arc::new(Ledger::new(1));
    let control = InliningControl::start(choice, LIMITS, Compiler::default(), ledger.clone())
        .unwrap_or_else(|error| panic!("{error}"));
    (control, ledger)
}

/// Whose rules are these words.
fn ruling(words: &[u64]) -> Guest {
    let stores = words.iter().enumerate().map(|(at, word)| {
        format!("(i64.store (i32.const {}) (i64.const {}))", 131_072 + 8 * at, *word as i64)
    });
    let stores: String = stores.collect();
    let rules = format!(
        "{stores} (i32.store (i32.const 128) (i32.const 131072))
        (i32.store (i32.const 132) (i32.const {})) i32.const 128",
        words.len()
    );
    Guest { decides: "inlining", propose: rules.leak(), ..Guest::default() }
}

fn status(control: &InliningControl) -> InliningStatus {
    control.standing().status
}

#[test]
fn rules_of_a_component_hold_once_it_is_put_in() {
    let (control, ledger) = start(choice(&ruling(&[u64::MAX, 4_096, 5, 7])));
    assert_eq!(ledger.size_bytes_max(ClassId(1)), Some(4_096));
    assert_eq!(ledger.size_bytes_max(ClassId(5)), Some(7));
    let first = status(&control);
    assert_eq!((first.identity.name.as_str(), first.identity.kind), ("text", PolicyKind::Wasm));
    let handle = Handle::new(b"a file").expect("short");
    ledger.delivered(ClassId(5), 1, Line::default(), std::iter::once((&handle, 10, false)));
    until("it is told", || (status(&control).rows == 1).then_some(()));
    assert_eq!(status(&control).fallback_reason, "");
}

#[track_caller]
fn assert_falls_back(guest: &Guest, reason: &str) {
    let (control, ledger) = start(choice(guest));
    let status = until("the fallback", || {
        Some(status(&control)).filter(|status| !status.fallback_reason.is_empty())
    });
    assert!(status.fallback_reason.contains(reason), "{}", status.fallback_reason);
    assert_eq!((status.identity.name.as_str(), status.faults), ("fixed", 1));
    until("its rule", || ledger.size_bytes_max(ClassId(1)));
}

/// H-2, H-5, H-17, H-18 for inlining.
#[test]
fn a_component_that_fails_leaves_the_native_policy() {
    let with = |propose| Guest { decides: "inlining", propose, ..Guest::default() };
    assert_falls_back(&with("unreachable"), "trapped in rules");
    assert_falls_back(&with("(loop $on (br $on)) i32.const 64"), "ms of CPU time in rules");
    assert_falls_back(&ruling(&[1, 2, 3]), "3 words are no whole number of rules");
    let many = format!(
        "(i32.store (i32.const 128) (i32.const 131072))
        (i32.store (i32.const 132) (i32.const {})) i32.const 128",
        2 * POLICY_RULES_MAX + 2
    );
    let reason = format!("proposed {} where {POLICY_RULES_MAX}", POLICY_RULES_MAX + 1);
    assert_falls_back(&with(many.leak()), &reason);
}

#[test]
fn policies_change_places_and_what_is_refused_changes_nothing() {
    let (control, ledger) = start(InliningPolicyChoice::default());
    assert!(!ledger.is_on());
    let options = LoadOptions::default();
    let swapped = control.swap(choice(&ruling(&[u64::MAX, 9])), options).expect("it is good");
    assert_eq!((swapped.name.as_str(), ledger.size_bytes_max(ClassId(1))), ("text", Some(9)));
    let prefetch = control.swap(choice(&Guest::prefetch()), options);
    let refused = prefetch.expect_err("it is for something else").to_string();
    assert!(refused.contains("it is not an inlining policy"), "{refused}");
    let refuses = Guest { init: "unreachable", ..ruling(&[]) };
    control.load(choice(&refuses), options).expect_err("it traps");
    assert_eq!(ledger.size_bytes_max(ClassId(1)), Some(9));
    assert!(control.standing().last_refusal.contains("trapped in init"));

    control.panic().expect("it works always");
    let standing = control.standing();
    assert!(standing.is_panic && standing.status.identity.name == "none", "{standing:?}");
    assert_eq!(ledger.size_bytes_max(ClassId(1)), None, "its rules do not outlive it");
    control.rollback().expect_err("the switch stays");
    let learnt = InliningPolicyChoice::Native(InliningChoice::Learnt);
    control.swap(learnt, options).expect("there is one");
    assert!(!control.standing().is_panic && ledger.is_on());
    control.rollback().expect("there is one before");
    assert_eq!(status(&control).identity.name, "text");
    control.stop();
    control.swap(InliningPolicyChoice::default(), options).expect_err("it is stopped");
}
