//! Components of another version of the interface than the present one.

use portcullis_core::eviction::{Class, Event, ObjectId};

use super::guests::Guest;
use super::{LIMITS, bytes};
use crate::LoadedPolicy;

const OLDER: &str = include_str!("../../../../tests/wit/0.0.9/policy.wit");

/// Its limits have another field and its events another stride, and it works as ever: told of two
/// objects in four words, it proposes the first.
#[test]
fn a_component_of_an_older_version_works_through_its_adapter() {
    let guest = Guest {
        wit: OLDER.to_owned(),
        on_events: "(if (i32.ne (local.get $count) (i32.const 4)) (then unreachable))
            (if (i64.ne (i64.load offset=8 (local.get $events)) (i64.const 0x700000100))
                (then unreachable))
            (i64.store (i32.const 200) (i64.load (local.get $events)))",
        propose: "(i32.store (i32.const 64) (i32.const 200))
            (i32.store (i32.const 68) (i32.const 1))
            i32.const 64",
        ..Guest::default()
    };
    let loaded = LoadedPolicy::load(bytes("older", guest.component()), LIMITS);
    let mut loaded = loaded.unwrap_or_else(|error| panic!("{error}"));
    let insert = |slot| Event::Insert {
        id: ObjectId::new(slot, 1),
        key: 99,
        class: Class::Listed,
        weight_bytes: 7,
    };
    loaded.on_events(0, &[insert(1), insert(2)]).expect("it takes two words an event");
    assert_eq!(loaded.propose(0, 1).expect("it answers"), [ObjectId::new(1, 1)]);
}

/// Types are exact: without an adapter a field that bears another name is a misfit, and said.
#[test]
fn an_older_shape_under_the_present_version_is_refused() {
    let guest = Guest { wit: OLDER.replace("@0.0.9", "@0.1.0"), ..Guest::default() };
    let refused = LoadedPolicy::load(bytes("odd", guest.component()), LIMITS);
    let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("does not fit the policy interface"), "{message}");
}
