//! The policies once more, as short as their papers: lists searched from end to end, one request at a
//! time. And OPT, by trying everything.

use std::collections::HashMap;

use portcullis_core::eviction::native::NAMES;
use portcullis_replay::trace::TraceBuilder;
use portcullis_replay::{Capacity, Trace, opt};

use super::{exact, made_up};

/// An object in a cache.
#[derive(Clone, Debug)]
struct Kept {
    object: u32,
    weight: u64,
    uses: u64,
    used_at: usize,
    priority: f64,
    mark: bool,
    main: bool,
}

/// A cache, oldest first.
#[derive(Default)]
struct Cache {
    kept: Vec<Kept>,
    /// Of S3-FIFO: main, oldest first (`kept` is small then), and the ghost.
    main: Vec<Kept>,
    ghost: Vec<(u32, u64)>,
    /// Of SIEVE: the object the hand is at.
    hand: Option<u32>,
    age: f64,
}

impl Cache {
    fn used(&self) -> u64 {
        self.kept.iter().chain(&self.main).map(|kept| kept.weight).sum()
    }

    fn find(&mut self, object: u32) -> Option<&mut Kept> {
        self.kept.iter_mut().chain(&mut self.main).find(|kept| kept.object == object)
    }

    fn hit(&mut self, policy: &str, object: u32, now: usize) {
        let age = self.age;
        let Some(kept) = self.find(object) else { return };
        kept.mark = true;
        kept.uses += 1;
        kept.used_at = now;
        kept.priority = age + kept.uses as f64 * 1e6 / kept.weight as f64;
        if policy == "s3-fifo" {
            kept.uses = kept.uses.min(3);
        }
        if policy == "lru" {
            self.kept.sort_by_key(|kept| kept.used_at);
        }
    }

    fn evict(&mut self, policy: &str, capacity: u64) {
        match policy {
            "lru" | "fifo" => drop(self.kept.remove(0)),
            "gdsf" => {
                let rank = |kept: &Kept| (kept.priority, kept.used_at);
                let lowest = self
                    .kept
                    .iter()
                    .map(rank)
                    .fold((f64::MAX, 0), |a, b| if b < a { b } else { a });
                self.kept.retain(|kept| rank(kept) != lowest);
                self.age = lowest.0;
            }
            "sieve" => loop {
                let at = self.kept.iter().position(|kept| Some(kept.object) == self.hand);
                let at = at.unwrap_or(0);
                self.hand = self.kept.get(at + 1).map(|kept| kept.object);
                if !std::mem::take(&mut self.kept[at].mark) {
                    self.kept.remove(at);
                    break;
                }
            },
            _ => self.evict_s3_fifo(capacity),
        }
    }

    fn evict_s3_fifo(&mut self, capacity: u64) {
        let small: u64 = self.kept.iter().map(|kept| kept.weight).sum();
        let main: u64 = self.main.iter().map(|kept| kept.weight).sum();
        let mut from_small = small * 10 >= small + main;
        loop {
            if from_small && self.kept.is_empty() {
                from_small = false;
            }
            let mut kept = if from_small { self.kept.remove(0) } else { self.main.remove(0) };
            if from_small && kept.uses >= 2 {
                kept.uses = 0;
                self.main.push(kept);
            } else if !from_small && kept.uses > 0 {
                kept.uses -= 1;
                self.main.push(kept);
            } else {
                if from_small && !kept.main {
                    self.ghost.push((kept.object, kept.weight));
                }
                break;
            }
        }
        while self.ghost.iter().map(|(_, weight)| weight).sum::<u64>() > capacity / 10 * 9 {
            self.ghost.remove(0);
        }
    }

    fn insert(&mut self, policy: &str, object: u32, weight: u64, now: usize, known: bool) {
        let priority = self.age + 1e6 / weight as f64;
        let uses = u64::from(policy != "s3-fifo");
        let kept = Kept { object, weight, uses, used_at: now, priority, mark: false, main: known };
        if known { self.main.push(kept) } else { self.kept.push(kept) }
    }
}

fn hits(policy: &str, trace: &Trace, capacity: u64) -> u64 {
    let mut cache = Cache::default();
    let mut hits = 0;
    for (now, &object) in trace.objects().iter().enumerate() {
        let weight = u64::from(trace.size_bytes(now));
        if cache.find(object).is_some() {
            hits += 1;
            cache.hit(policy, object, now);
            continue;
        }
        let ghosts = cache.ghost.len();
        cache.ghost.retain(|&(ghost, _)| ghost != object);
        let known = cache.ghost.len() < ghosts;
        while cache.used() + weight > capacity {
            cache.evict(policy, capacity);
        }
        cache.insert(policy, object, weight, now, known);
    }
    hits
}

#[test]
fn each_policy_answers_as_its_reference() {
    for seed in 0..40 {
        let trace = made_up(seed, 1_500, 20 + seed * 4);
        for capacity in [70, 200, 611, 1_500] {
            for policy in ["lru", "fifo", "sieve", "s3-fifo", "gdsf"] {
                let found = exact(&trace, policy, Capacity::Bytes(capacity)).total.hits;
                let expected = hits(policy, &trace, capacity);
                assert_eq!(found, expected, "{policy}, seed {seed}, {capacity} bytes");
            }
        }
    }
}

/// The most hits there can be with what is resident, of the requests from `at` on: every choice of a
/// victim tried.
fn best(
    requests: &[u32],
    at: usize,
    resident: &[u32],
    places: usize,
    known: &mut HashMap<(usize, Vec<u32>), u64>,
) -> u64 {
    let Some(&object) = requests.get(at) else { return 0 };
    let mut resident = resident.to_vec();
    resident.sort_unstable();
    if let Some(&hits) = known.get(&(at, resident.clone())) {
        return hits;
    }
    let hits = if resident.contains(&object) {
        1 + best(requests, at + 1, &resident, places, known)
    } else if resident.len() < places {
        let more: Vec<u32> = resident.iter().copied().chain([object]).collect();
        best(requests, at + 1, &more, places, known)
    } else {
        let choices = (0..resident.len()).map(|victim| {
            let mut others = resident.clone();
            others[victim] = object;
            best(requests, at + 1, &others, places, known)
        });
        choices.max().unwrap_or(0)
    };
    known.insert((at, resident), hits);
    hits
}

#[test]
fn nothing_beats_opt_and_no_search_does_better() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut trace = TraceBuilder::new("small");
        for _ in 0..40 {
            trace.push(random.u64(0..8)).expect("short");
        }
        let trace = trace.finish().expect("it has requests");
        for places in 1..5 {
            let capacity = Capacity::Entries(places);
            let found = opt::replay(&trace, &trace.next_uses(), capacity, 1).total.hits;
            let searched = best(trace.objects(), 0, &[], places as usize, &mut HashMap::new());
            assert_eq!(found, searched, "seed {seed}, {places} places");
            for policy in NAMES {
                let hits = exact(&trace, policy, capacity).total.hits;
                assert!(hits <= found, "{policy} has {hits}, OPT {found}");
            }
        }
    }
}
