//! Who waits for whom, and until when.

use super::*;
use crate::limits::{CHANGES_QUEUED_MAX, CHANGES_TOLD_MAX, TELLS_IN_FLIGHT_MAX};
use crate::testing::handle;

fn grantor() -> Grantor<&'static str> {
    Grantor::new(7, 0)
}

fn attr(number: u64) -> Change {
    Change::Attr { handle: handle(number) }
}

fn begin(grantor: &Grantor<&'static str>, origin: Option<SessionId>, change: Change) -> bool {
    matches!(grantor.change(origin, &[change], || "writer"), Round::UnderWay(_))
}

#[test]
fn whoever_changes_waits_for_all_who_watch_and_for_nobody_else() {
    let grantor = grantor();
    let [(a, watched_a), (b, watched_b), (_, watched_c)] = [0; 3].map(|now| grantor.open(now));
    watched_a.watch_attr(&handle(1));
    watched_b.watch_attr(&handle(1));
    watched_c.watch_attr(&handle(2));
    assert!(begin(&grantor, None, attr(1)));
    let [tell_a, tell_b] = [a, b].map(|id| grantor.next_tell(id).expect("it is told"));
    assert_eq!((tell_a.changes, tell_b.changes), (vec![attr(1)], vec![attr(1)]));
    assert!(grantor.told(a, tell_a.number).is_empty());
    assert!(grantor.told(a, tell_a.number).is_empty(), "the same one twice");
    assert_eq!(grantor.told(b, tell_b.number), ["writer"]);
    assert!(!begin(&grantor, None, attr(1)), "the watches are used up");
    assert_eq!(grantor.rounds(), 0);
}

#[test]
fn whoever_changes_is_not_told_and_keeps_its_watch() {
    let grantor = grantor();
    let (a, watched) = grantor.open(0);
    watched.watch_attr(&handle(1));
    assert!(!begin(&grantor, Some(a), attr(1)));
    assert!(begin(&grantor, None, attr(1)));
}

#[test]
fn a_session_whose_lease_ran_out_is_not_waited_for() {
    let grantor = grantor();
    let (a, watched) = grantor.open(0);
    assert!(matches!(grantor.renew(1000, a, || "renewal"), Some(Round::Over)));
    watched.watch_attr(&handle(1));
    assert!(begin(&grantor, None, attr(1)));
    assert!(matches!(grantor.renew(2000, a, || "renewal"), Some(Round::UnderWay(_))));
    assert_eq!(grantor.expire(1000 + LEASE_HELD_MS - 1), (vec![], vec![]));
    let (over, waiters) = grantor.expire(1000 + LEASE_HELD_MS);
    assert_eq!((over, waiters), (vec![a], vec!["writer", "renewal"]));
    assert!(grantor.renew(9000, a, || "renewal").is_none());
    assert!(grantor.next_tell(a).is_none() && !grantor.is_open(a));
}

#[test]
fn a_renewal_waits_for_what_was_queued_before_it() {
    let grantor = grantor();
    let (a, watched) = grantor.open(0);
    assert!(matches!(grantor.renew(0, a, || "renewal"), Some(Round::Over)));
    watched.watch_attr(&handle(1));
    watched.watch_attr(&handle(2));
    assert!(begin(&grantor, None, attr(1)));
    let first = grantor.next_tell(a).expect("it is told");
    assert!(matches!(grantor.renew(0, a, || "renewal"), Some(Round::UnderWay(_))));
    assert!(begin(&grantor, None, attr(2)));
    let second = grantor.next_tell(a).expect("it is told");
    assert!(grantor.told(a, second.number).is_empty(), "acknowledged before its turn");
    assert_eq!(grantor.told(a, first.number), ["writer", "renewal", "writer"]);
}

#[test]
fn a_session_that_does_not_keep_up_is_told_to_forget_everything() {
    let grantor = grantor();
    let (a, watched) = grantor.open(0);
    let count = (TELLS_IN_FLIGHT_MAX * CHANGES_TOLD_MAX + 2 * CHANGES_QUEUED_MAX) as u64;
    let mut tells = Vec::new();
    for number in 0..count {
        watched.watch_attr(&handle(number));
        assert!(begin(&grantor, None, attr(number)), "change {number}");
        tells.extend(grantor.next_tell(a));
    }
    assert_eq!(tells.len(), TELLS_IN_FLIGHT_MAX, "the rest waits");
    let mut answered = 0;
    let mut everything = 0;
    while let Some(tell) = tells.pop() {
        answered += grantor.told(a, tell.number).len();
        everything += usize::from(tell.changes == [Change::All]);
        tells.extend(grantor.next_tell(a));
    }
    assert_eq!(answered as u64, count, "nobody is left waiting");
    assert_eq!(everything, 1);
    assert!(matches!(grantor.renew(0, a, || "renewal"), Some(Round::Over)), "it owes nothing");
    watched.watch_attr(&handle(3));
    assert!(begin(&grantor, None, attr(3)), "and watches anew");
}

#[test]
fn a_watch_that_came_too_late_is_noticed_by_its_reader() {
    let grantor = grantor();
    let (_, watched) = grantor.open(0);
    let reading = grantor.read();
    assert!(!begin(&grantor, None, attr(1)), "nobody watches yet");
    watched.watch_attr(&handle(1));
    assert!(grantor.attr_changed_since(reading, &handle(1)));
    assert!(!grantor.attr_changed_since(reading, &handle(2)));
    assert!(!grantor.names_changed_since(reading, &handle(1)));
    assert!(!grantor.attr_changed_since(grantor.read(), &handle(1)));
}

/// A session that renews and never acknowledges holds nobody up for longer than its lease.
#[test]
fn a_lease_does_not_grow_over_what_is_not_acknowledged() {
    let grantor = grantor();
    let (a, watched) = grantor.open(0);
    watched.watch_attr(&handle(1));
    assert!(begin(&grantor, None, attr(1)));
    for now_ms in (1000..LEASE_HELD_MS).step_by(1000) {
        assert!(matches!(grantor.renew(now_ms, a, || "renewal"), Some(Round::UnderWay(_))));
    }
    let (over, waiters) = grantor.expire(LEASE_HELD_MS);
    assert_eq!((over, waiters[0]), (vec![a], "writer"));
}

#[test]
fn a_renewal_that_waited_counts_from_when_it_came() {
    let grantor = grantor();
    let (a, watched) = grantor.open(0);
    watched.watch_attr(&handle(1));
    assert!(begin(&grantor, None, attr(1)));
    let tell = grantor.next_tell(a).expect("it is told");
    assert!(matches!(grantor.renew(1000, a, || "renewal"), Some(Round::UnderWay(_))));
    assert_eq!(grantor.told(a, tell.number), ["writer", "renewal"]);
    assert_eq!(grantor.expire(1000 + LEASE_HELD_MS - 1).0, []);
    assert_eq!(grantor.expire(1000 + LEASE_HELD_MS).0, [a]);
}

#[test]
fn leases_of_an_earlier_life_are_waited_for() {
    let grantor = grantor();
    grantor.wait_for_earlier_life(100);
    let (a, watched) = grantor.open(200);
    watched.watch_attr(&handle(1));
    assert!(begin(&grantor, Some(a), attr(1)), "also where nobody known watches");
    assert!(begin(&grantor, None, attr(1)));
    let tell = grantor.next_tell(a).expect("it is told");
    assert!(grantor.told(a, tell.number).is_empty());
    assert_eq!(grantor.expire(100 + LEASE_HELD_MS - 1), (vec![], vec![]));
    assert_eq!(grantor.expire(100 + LEASE_HELD_MS), (vec![], vec!["writer", "writer"]));
    assert!(!begin(&grantor, Some(a), attr(1)), "once");
}

#[test]
fn whoever_owes_is_not_waited_for_beyond_the_leases_that_can_have_been_given() {
    let grantor = grantor();
    grantor.bound_leases(2000);
    let (a, watched) = grantor.open(1000);
    let (b, _) = grantor.open(1000);
    watched.watch_attr(&handle(1));
    assert!(begin(&grantor, None, attr(1)));
    assert_eq!(grantor.expire(2000 + LEASE_MARGIN_MS - 1), (vec![], vec![]));
    assert_eq!(grantor.expire(2000 + LEASE_MARGIN_MS), (vec![a], vec!["writer"]));
    assert!(grantor.is_open(b), "it owes nothing, so what it caches is true");
}

/// The first change uses up the watch, but the session may answer from what it knew until it has
/// acknowledged: whoever changes the same thing again waits for that, too.
#[test]
fn a_second_change_waits_for_the_acknowledgement_of_the_first() {
    let grantor = grantor();
    let (a, watched) = grantor.open(0);
    watched.watch_attr(&handle(1));
    watched.watch_attr(&handle(2));
    assert!(begin(&grantor, None, attr(1)));
    assert!(begin(&grantor, None, attr(1)), "told, but not acknowledged");
    assert!(!begin(&grantor, Some(a), attr(1)), "its own answer tells it");
    assert!(!begin(&grantor, None, attr(3)), "never watched");
    let tell = grantor.next_tell(a).expect("it is told");
    assert_eq!(tell.changes, [attr(1)], "once");
    assert!(begin(&grantor, None, attr(1)), "under way");
    assert_eq!(grantor.told(a, tell.number), ["writer"; 3]);
    assert!(!begin(&grantor, None, attr(1)));
    assert!(begin(&grantor, None, Change::All));
    assert!(begin(&grantor, None, attr(4)), "whatever it is");
}
