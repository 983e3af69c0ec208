//! Replays as the live path goes, beside exact ones.

use portcullis_core::eviction::native::NAMES;
use portcullis_core::eviction::{Event, ObjectId};
use portcullis_replay::{Capacity, Pace, Policy, Setup};

use super::{exact, made_up, replay};

#[test]
fn the_same_replay_twice_is_the_same() {
    let trace = made_up(1, 20_000, 500);
    let pace = Pace::Batched { requests: 16, dropped_per_million: 100_000 };
    for name in NAMES {
        for pace in [Pace::Exact, pace] {
            let capacity = Capacity::Bytes(3_000);
            let outcomes = [0, 1].map(|_| replay(&trace, name, capacity, pace));
            assert_eq!(outcomes[0], outcomes[1], "{name}, {pace:?}");
            assert_eq!(outcomes[0].total.requests, 20_000);
        }
    }
}

/// In a cache of some size, batches cost little, for SIEVE too, which a use that is told late would
/// otherwise harm; drops are counted.
#[test]
fn batches_change_little_and_drops_are_counted() {
    let trace = made_up(2, 60_000, 4_000);
    let capacity = Capacity::Entries(600);
    for name in NAMES {
        let exactly = exact(&trace, name, capacity).total.hit_ratio();
        let batched = |requests, dropped_per_million| {
            replay(&trace, name, capacity, Pace::Batched { requests, dropped_per_million })
        };
        let every = batched(8, 0);
        let found = every.total.hit_ratio();
        assert!(exactly - found < 0.01, "{name}: {exactly} exactly, {found} batched");
        assert_eq!((every.dropped, every.useless), (0, 0), "{name}");
        let half = batched(8, 500_000);
        let share = half.dropped as f64 / half.total.hits as f64;
        assert!((0.45..0.55).contains(&share), "{name}: {share} dropped");
    }
}

/// A policy that keeps books on what a host owes it.
#[derive(Default)]
struct Bookkeeper {
    /// Residents, and whether they are proposed.
    residents: Vec<(ObjectId, bool)>,
    spared: u64,
    hits: u64,
}

impl Policy for &mut Bookkeeper {
    type Error = String;

    fn on_events(&mut self, _now_ms: u64, events: &[Event]) -> Result<(), String> {
        for event in events {
            let known = |id| self.residents.iter().position(|&(other, _)| other == id);
            match *event {
                Event::Insert { id, .. } if known(id).is_none() => {
                    self.residents.push((id, false));
                }
                Event::Hit { id, count } if known(id).is_some() => self.hits += u64::from(count),
                Event::Remove { id, .. } if known(id).is_some() => {
                    self.residents.retain(|&(other, _)| other != id);
                }
                Event::Spare { id } => match known(id) {
                    Some(at) if self.residents[at].1 => {
                        self.residents[at].1 = false;
                        self.spared += 1;
                    }
                    _ => return Err(format!("{event:?} of one that is not proposed")),
                },
                _ => return Err(format!("{event:?} out of order")),
            }
        }
        Ok(())
    }

    fn propose(&mut self, _now_ms: u64, want: usize) -> Result<Vec<ObjectId>, String> {
        let open = self.residents.iter_mut().filter(|(_, proposed)| !proposed).take(want);
        Ok(open
            .map(|(id, proposed)| {
                *proposed = true;
                *id
            })
            .collect())
    }
}

#[test]
fn events_come_in_order_and_none_is_lost() {
    let trace = made_up(3, 20_000, 300);
    for requests in [1, 7, 64, 1_000] {
        let mut books = Bookkeeper::default();
        let pace = Pace::Batched { requests, dropped_per_million: 0 };
        let setup = Setup { capacity: Capacity::Bytes(3_000), pace, seed: 1, intervals: 1 };
        let outcome = portcullis_replay::replay(&trace, setup, &mut books).expect("in order");
        assert_eq!(books.spared, outcome.spared, "{requests}");
        assert!(books.hits <= outcome.total.hits);
        assert!(outcome.spared > 0 && outcome.evicted > 0, "{outcome:?}");
        let resident = outcome.total.misses() - outcome.evicted - outcome.shortfall;
        assert_eq!(books.residents.len() as u64, resident, "{requests}");
    }
}

/// One that proposes what is not there, and one that proposes nothing: the host helps itself.
#[test]
fn a_policy_without_a_word_of_use_leaves_the_choice_to_the_host() {
    struct Useless(Vec<ObjectId>);
    impl Policy for Useless {
        type Error = ();
        fn on_events(&mut self, _: u64, _: &[Event]) -> Result<(), ()> {
            Ok(())
        }
        fn propose(&mut self, _: u64, _: usize) -> Result<Vec<ObjectId>, ()> {
            Ok(self.0.clone())
        }
    }
    let trace = made_up(4, 5_000, 200);
    let capacity = Capacity::Bytes(1_000);
    for pace in [Pace::Exact, Pace::Batched { requests: 4, dropped_per_million: 0 }] {
        let setup = Setup { capacity, pace, seed: 1, intervals: 1 };
        for proposals in [vec![], vec![ObjectId::new(7_000, 1)]] {
            let silent = proposals.is_empty();
            let outcome = portcullis_replay::replay(&trace, setup, Useless(proposals));
            let outcome = outcome.expect("it does not fail");
            assert_eq!(outcome.evicted, 0);
            assert!(outcome.shortfall > 0 && outcome.total.hits > 0);
            assert_eq!(outcome.useless == 0, silent);
        }
    }
}
