//! Known answers worked out by hand, and a changing load.

use super::*;
use crate::eviction::testing::{Played, evicted, hit, id, insert};

fn policy() -> WTinyLfu {
    WTinyLfu::new(PolicyLimits { capacity_bytes: 1 << 20, seed: 1 })
}

/// Three places; 1 is used twice, so it is the youngest of the window when 4 comes. The main space may
/// have two bytes of three: 2 and 3 enter it. The candidate 1, seen twice, beats 2. From then on 3, seen
/// once, is weighed against 4, 5 and 6, seen once too: the newcomer leaves.
#[test]
fn newcomers_seen_once_do_not_push_out_one_another() {
    let played = Played::play(policy(), 3, &[1, 2, 3, 1, 4, 5, 6, 7, 3, 1]);
    assert_eq!((played.victims, played.hits), (vec![2, 4, 5, 6], 3));
}

/// 1 and 3 enter the main space, being the oldest of the window; 2, seen twice, beats 1. 4, seen once,
/// does not beat 3, seen three times.
#[test]
fn of_candidate_and_victim_the_one_seen_less_often_leaves() {
    let mut policy = policy();
    policy.on_events(0, &[insert(1), insert(2), insert(3), hit(3), hit(3), hit(2)]);
    assert_eq!(policy.propose(0, 1), [id(1)]);
    assert_eq!(policy.nodes.at(policy.nodes.find(id(2)).unwrap()).state.place, Place::Probation);
    policy.on_events(0, &[evicted(1), insert(4)]);
    assert_eq!(policy.propose(0, 1), [id(4)]);
    assert_eq!(policy.propose(0, 2), [id(3), id(2)]);
    assert_eq!(policy.resident(), 3);
}

/// The sketch remembers who left: 2 comes again, for the third time, and beats 1.
#[test]
fn a_key_that_left_is_not_forgotten() {
    let mut policy = policy();
    policy.on_events(0, &[insert(1), insert(2), hit(1)]);
    assert_eq!(policy.propose(0, 2), [id(2), id(1)]);
    policy.on_events(0, &[Event::Spare { id: id(1) }, evicted(2)]);
    for generation in [2, 3] {
        let again = ObjectId::new(2, generation);
        let class = crate::eviction::Class::Asked;
        policy.on_events(0, &[Event::Insert { id: again, key: 2, class, weight_bytes: 1 }]);
        if generation == 2 {
            assert_eq!(policy.propose(0, 1), [again], "seen twice, as 1 was: the newcomer leaves");
            let reason = crate::eviction::Removal::Evicted;
            policy.on_events(0, &[Event::Remove { id: again, reason }]);
        } else {
            assert_eq!(policy.propose(0, 1), [id(1)]);
        }
    }
}

/// A hit on probation protects. The protected segment has four fifths: of ten protected the oldest
/// two go back on probation, and so leave first.
#[test]
fn the_protected_outlast_those_on_probation() {
    let mut policy = policy();
    for slot in 0..10 {
        policy.on_events(0, &[insert(slot)]);
    }
    assert_eq!(policy.propose(0, 10).len(), 10);
    for slot in 0..10 {
        policy.on_events(0, &[Event::Spare { id: id(slot) }]);
    }
    assert_eq!(policy.propose(0, 1), [id(0)]);
    assert_eq!((policy.probation.bytes(), policy.protected.bytes()), (2, 7));
    policy.on_events(0, &[evicted(0), hit(1)]);
    assert_eq!(policy.propose(0, 1), [id(2)], "1 is protected again");
}

/// A loop that is twice the cache, on which a window is of no use and LRU hits nothing; then uses
/// that come again soon, on which only a window is of use. The window follows.
#[test]
fn the_window_follows_the_load() {
    const PLACES: usize = 200;
    let rounds = (0..400).flat_map(|_| 0..2 * PLACES as u32);
    let played = Played::play(policy(), PLACES, &rounds.collect::<Vec<_>>());
    assert!(played.hits > 400 * PLACES as u32 * 9 / 10, "{} hits", played.hits);
    assert!(played.policy.window_share() < 0.3, "{}", played.policy.window_share());

    // Each object is used once more when 60 others came, and then never again.
    let recent = (1_000..160_000).flat_map(|new| [new, new - 60]);
    let played = Played::play(policy(), PLACES, &recent.collect::<Vec<_>>());
    let share = played.policy.window_share();
    assert!(share > 0.3, "{share}");
}
