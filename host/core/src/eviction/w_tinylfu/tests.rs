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
/// does not beat 3, seen three times, which for that is the younger of the two from then on.
#[test]
fn of_candidate_and_victim_the_one_seen_less_often_leaves() {
    let mut policy = policy();
    policy.on_events(0, &[insert(1), insert(2), insert(3), hit(3), hit(3), hit(2)]);
    assert_eq!(policy.propose(0, 1), [id(1)]);
    assert_eq!(policy.nodes.at(policy.nodes.find(id(2)).unwrap()).state.place, Place::Probation);
    policy.on_events(0, &[evicted(1), insert(4)]);
    assert_eq!(policy.propose(0, 1), [id(4)]);
    assert_eq!(policy.propose(0, 2), [id(2), id(3)]);
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

/// Of ten objects that are spared one was proposed out of the window (8) and is there again; the others are
/// protected. That segment has six tenths, so its oldest three go back on probation, and the first of them
/// leaves; of the others a hit protects 1 again. 8 does not beat 2, which for that has another turn.
#[test]
fn the_spared_are_where_a_hit_had_put_them_and_the_protected_last() {
    let mut policy = policy();
    for slot in 0..10 {
        policy.on_events(0, &[insert(slot)]);
    }
    assert_eq!(policy.propose(0, 10), [8, 1, 2, 3, 4, 5, 6, 7, 0, 9].map(id));
    for slot in 0..10 {
        policy.on_events(0, &[Event::Spare { id: id(slot) }]);
    }
    assert_eq!(policy.propose(0, 1), [id(0)]);
    let bytes = [policy.window.bytes(), policy.probation.bytes(), policy.protected.bytes()];
    assert_eq!(bytes, [1, 2, 6]);
    policy.on_events(0, &[evicted(0), hit(1)]);
    assert_eq!(policy.propose(0, 2), [id(8), id(3)]);
}

/// 0, used often once, is the oldest of the main space. It turns 3 away, and not everybody from then on:
/// 4 meets 1.
#[test]
fn one_that_is_hard_to_beat_has_another_turn() {
    let mut policy = policy();
    policy.on_events(0, &[insert(0), hit(0), hit(0), hit(0), insert(1), insert(2), insert(3)]);
    assert_eq!(policy.propose(0, 1), [id(3)]);
    policy.on_events(0, &[evicted(3), insert(4), hit(4)]);
    assert_eq!(policy.propose(0, 1), [id(1)]);
}

/// A loop that is twice the cache, on which a window is of no use and LRU hits nothing; then uses
/// that come again soon, on which only a window is of use. The window follows.
#[test]
fn the_window_follows_the_load() {
    const PLACES: usize = 200;
    let rounds = (0..400).flat_map(|_| 0..2 * PLACES as u32);
    let played = Played::play(policy(), PLACES, &rounds.collect::<Vec<_>>());
    assert!(played.hits > 400 * PLACES as u32 * 3 / 4, "{} hits", played.hits);
    assert!(played.policy.window_share() < 0.3, "{}", played.policy.window_share());

    // Each object is used once more when 60 others came, and then never again.
    let recent = (1_000..160_000).flat_map(|new| [new, new - 60]);
    let played = Played::play(policy(), PLACES, &recent.collect::<Vec<_>>());
    let share = played.policy.window_share();
    assert!(share > 0.3, "{share}");
}
