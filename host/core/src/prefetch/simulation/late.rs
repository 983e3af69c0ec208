//! Policies that answer later than they were asked, or anything at all.

use super::*;

/// A component answers one step later than a native policy.
#[test]
fn a_policy_that_answers_late_takes_hardly_more_round_trips() {
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tree = Tree::random(&mut rng, 1_000);
        for order in [tree.in_depth(), tree.in_breadth()] {
            let mut trips = [0, 0];
            for (late, trips) in trips.iter_mut().enumerate() {
                let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
                host.rng = fastrand::Rng::with_seed(seed);
                host.jitter_ms = TRIP_MS;
                if late == 1 {
                    host.hand();
                }
                *trips = host.walk(&order);
                assert!(host.most_under_way <= BUDGET.requests, "seed {seed}");
                assert_eq!(host.asked + host.begun, tree.len(), "seed {seed}: each once");
            }
            assert!(trips[1] <= trips[0] + trips[0] / 4 + 8, "seed {seed}: {trips:?}");
        }
    }
}

/// Whatever a policy answers and whenever: the budget holds, each listing is counted once, and what
/// is wrong with its answers is told apart.
#[test]
fn answers_at_random_break_nothing() {
    let mut seen = Answered::default();
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tree = Tree::random(&mut rng, 200);
        let budget = Budget { requests: 5, bytes: 40_000, entries: 400 };
        let mut host = Host::new(&tree, PrefetchChoice::Nothing, budget);
        for _ in 0..300 {
            let dir = rng.usize(0..tree.len());
            match rng.u32(0..20) {
                0 => {
                    host.prefetcher.restart();
                    host.under_way.clear();
                }
                1 => host.prefetcher.forgotten(&[Change::Names { dir: of(dir) }]),
                _ => {}
            }
            host.enter(dir);
            let mut events = Vec::new();
            let want = host.prefetcher.drain(&mut events);
            let last = host.prefetcher.last_given();
            let answers: Vec<_> = (0..rng.usize(0..30))
                .map(|_| {
                    let dir = DirId(rng.u64(last.saturating_sub(30)..last + 3));
                    match rng.u32(0..20) {
                        0 => Answer::Forget(dir),
                        1..5 => Answer::Cancel(dir),
                        _ => Answer::List(dir),
                    }
                })
                .collect();
            let (orders, answered) = host.prefetcher.answer(want, &answers);
            let foreign = answers.iter().filter(|answer| {
                let (Answer::List(id) | Answer::Cancel(id) | Answer::Forget(id)) = answer;
                id.0 == 0 || id.0 > last
            });
            assert_eq!(answered.foreign, foreign.count() as u64, "seed {seed}");
            seen.foreign += answered.foreign;
            seen.stale += answered.stale;
            seen.repeated += answered.repeated;
            seen.excess += answered.excess;
            assert!(answered.accepted <= want as u64, "seed {seed}: {answered:?}");
            host.obey(orders);
            assert!(host.most_under_way <= budget.requests, "seed {seed}");
        }
        host.prefetcher.restart();
        let PrefetchCounters { begun, used, late, wasted, cancelled, failed } =
            host.prefetcher.counters();
        assert_eq!(begun, used + late + wasted + cancelled + failed, "seed {seed}");
    }
    let Answered { foreign, stale, repeated, excess, .. } = seen;
    assert!(foreign > 100 && stale > 100 && repeated > 100 && excess > 100, "{seen:?}");
}
