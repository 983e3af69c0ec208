//! Tests of prefetch: made-up trees, walked by a made-up client over a line with latency.
//!
//! Time is counted in round trips: what is known costs none, what has to be asked for one (or up to
//! two, by chance). Seeds are printed where something fails.

mod late;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::attr::FileKind;
use crate::chunk::{Chunk, ChunkBuilder};
use crate::entry::EntryRef;
use crate::handle::Handle;
use crate::limits::{PREFETCH_DIRS_MAX, PREFETCH_WINDOW_DIRS_MIN};
use crate::testing::handle;
use crate::watch::Change;

/// A round trip.
const TRIP_MS: u64 = 100;

const BUDGET: Budget = Budget { requests: 64, bytes: 1 << 20, entries: 1 << 16 };

/// The subdirectories of each directory, in the order of its listing; the root is 0.
struct Tree(Vec<Vec<usize>>);

impl Tree {
    /// So many subdirectories in each directory, level by level.
    fn even(levels: &[usize]) -> Self {
        let mut dirs = vec![Vec::new()];
        let mut level = vec![0];
        for &count in levels {
            let mut next = Vec::new();
            for dir in level {
                for _ in 0..count {
                    let subdir = dirs.len();
                    next.push(subdir);
                    dirs[dir].push(subdir);
                    dirs.push(Vec::new());
                }
            }
            level = next;
        }
        Self(dirs)
    }

    /// Each directory below one of the last ones before it.
    fn random(rng: &mut fastrand::Rng, len: usize) -> Self {
        let mut dirs = vec![Vec::new()];
        for dir in 1..len {
            let back = 1 + rng.usize(0..40);
            let parent = rng.usize(dir.saturating_sub(back)..dir);
            dirs[parent].push(dir);
            dirs.push(Vec::new());
        }
        dirs.iter_mut().for_each(|subdirs| rng.shuffle(subdirs));
        Self(dirs)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn in_depth(&self) -> Vec<usize> {
        let (mut order, mut stack) = (Vec::new(), vec![0]);
        while let Some(dir) = stack.pop() {
            order.push(dir);
            stack.extend(self.0[dir].iter().rev());
        }
        order
    }

    fn in_breadth(&self) -> Vec<usize> {
        let mut order = vec![0];
        let mut at = 0;
        while at < order.len() {
            order.extend(&self.0[order[at]]);
            at += 1;
        }
        order
    }

    fn chunks(&self, dir: usize) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let mut builder = ChunkBuilder::default();
        for &subdir in &self.0[dir] {
            let name = format!("dir-{subdir}");
            let entry = EntryRef {
                name: name.as_bytes(),
                handle: of(subdir),
                attr: None,
                kind: FileKind::Directory,
                target: None,
                cookie: subdir as u64 + 1,
            };
            if !builder.push(&entry) {
                chunks.extend(builder.finish(0));
                assert!(builder.push(&entry));
            }
        }
        chunks.extend(builder.finish(0));
        chunks
    }
}

fn of(dir: usize) -> Handle {
    handle(dir as u64 + 1)
}

fn dir_of(handle: &Handle) -> usize {
    u64::from_le_bytes(handle.as_bytes().try_into().expect("8 bytes")) as usize - 1
}

/// The host: a cache without bounds, and listings on their way.
struct Host<'a> {
    tree: &'a Tree,
    policy: Box<dyn PrefetchPolicy>,
    prefetcher: Prefetcher,
    rng: fastrand::Rng,
    /// Trips vary by this much.
    jitter_ms: u64,
    now_ms: u64,
    cached: BTreeSet<usize>,
    /// When they end, by their number.
    under_way: BTreeMap<(u64, usize), usize>,
    begun: usize,
    most_under_way: usize,
    asked: usize,
    /// What is begun ahead, and when, where that is of interest.
    log: Option<Vec<(u64, usize)>>,
    /// How many directories listed ahead last in memory, where that is bounded, and those that do.
    lasting: Option<usize>,
    lasts: Vec<usize>,
    /// Where the policy works elsewhere: what it was handed last, and has not answered.
    handed: Option<(Vec<Event>, usize)>,
}

impl<'a> Host<'a> {
    fn new(tree: &'a Tree, choice: PrefetchChoice, budget: Budget) -> Self {
        Self {
            tree,
            policy: choice.policy(),
            prefetcher: Prefetcher::new(budget, 7),
            rng: fastrand::Rng::with_seed(1),
            jitter_ms: 0,
            now_ms: 0,
            cached: BTreeSet::new(),
            under_way: BTreeMap::new(),
            begun: 0,
            most_under_way: 0,
            asked: 0,
            log: None,
            lasting: None,
            lasts: Vec::new(),
            handed: None,
        }
    }

    fn trip_ms(&mut self) -> u64 {
        TRIP_MS + self.rng.u64(0..=self.jitter_ms)
    }

    fn take(&mut self) {
        let orders = match self.handed.take() {
            None => self.prefetcher.take(&mut *self.policy, self.now_ms),
            Some((events, want)) => {
                // It answers what it was handed one step ago, and is handed the rest.
                self.policy.on_events(self.now_ms, &events);
                let mut answers = Vec::new();
                self.policy.propose(self.now_ms, want, &mut answers);
                let (orders, answered) = self.prefetcher.answer(want, &answers);
                assert_eq!((answered.foreign, answered.stale, answered.excess), (0, 0, 0));
                self.hand();
                orders
            }
        };
        self.obey(orders);
    }

    fn hand(&mut self) {
        let mut events = Vec::new();
        let want = self.prefetcher.drain(&mut events);
        self.handed = Some((events, want));
    }

    fn obey(&mut self, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::List(handle) => {
                    let dir = dir_of(&handle);
                    let known = self.cached.contains(&dir);
                    if known {
                        self.prefetcher.ended_ahead(&handle, Err(Loss::Known));
                        continue;
                    }
                    self.begun += 1;
                    let now_ms = self.now_ms;
                    self.log.iter_mut().for_each(|log| log.push((now_ms, dir)));
                    let ends_ms = self.now_ms + self.trip_ms();
                    self.under_way.insert((ends_ms, self.begun), dir);
                }
                Order::Stop(handle) => {
                    let dir = dir_of(&handle);
                    self.under_way.retain(|_, other| *other != dir);
                }
            }
        }
        assert_eq!(self.under_way.len(), self.prefetcher.under_way());
        self.most_under_way = self.most_under_way.max(self.under_way.len());
    }

    /// Time goes by until then, or until `awaited` is there.
    fn wait(&mut self, until_ms: u64, awaited: Option<usize>) {
        while let Some((&(ends_ms, number), &dir)) = self.under_way.first_key_value() {
            if ends_ms > until_ms {
                break;
            }
            self.now_ms = ends_ms;
            self.under_way.remove(&(ends_ms, number));
            let fits = self.tree.chunks(dir).iter().all(|chunk| {
                // All are told, as they come.
                self.prefetcher.told_ahead(&of(dir), chunk)
            });
            if fits {
                self.cached.insert(dir);
                self.evict(dir);
            }
            let outcome = if fits { Ok(()) } else { Err(Loss::Dropped) };
            self.prefetcher.ended_ahead(&of(dir), outcome);
            self.take();
            if awaited == Some(dir) {
                return;
            }
        }
        self.now_ms = self.now_ms.max(until_ms.min(u64::MAX - 1));
    }

    /// Where memory is short, what was fetched first and is not used goes first.
    fn evict(&mut self, fetched: usize) {
        let Some(lasting) = self.lasting else { return };
        self.lasts.push(fetched);
        if self.lasts.len() > lasting {
            let evicted = self.lasts.remove(0);
            self.cached.remove(&evicted);
        }
    }

    fn enter(&mut self, dir: usize) {
        let is_cached = self.cached.contains(&dir);
        self.lasts.retain(|other| *other != dir);
        let meeting = self.prefetcher.entered(&of(dir), is_cached);
        self.take();
        match meeting {
            Meeting::UnderWay => {
                let is_it = |(_, other): &(_, &usize)| **other == dir;
                let ends = self.under_way.iter().find(is_it).map(|(&(ends_ms, _), _)| ends_ms);
                self.wait(ends.expect("it is under way"), Some(dir));
            }
            Meeting::Alone => {
                if !is_cached {
                    self.asked += 1;
                    let ends_ms = self.now_ms + self.trip_ms();
                    self.wait(ends_ms, None);
                    self.cached.insert(dir);
                }
                self.tree
                    .chunks(dir)
                    .iter()
                    .for_each(|chunk| self.prefetcher.told(&of(dir), chunk));
                self.prefetcher.ended(&of(dir));
            }
        }
        self.take();
    }

    /// The client has its own listing of a directory.
    fn answered(&mut self, dir: usize) {
        self.tree.chunks(dir).iter().for_each(|chunk| self.prefetcher.told(&of(dir), chunk));
        self.prefetcher.ended(&of(dir));
        self.take();
    }

    /// Enters directories one after the other; answers how many round trips that took.
    fn walk(&mut self, order: &[usize]) -> u64 {
        let began_ms = self.now_ms;
        order.iter().for_each(|&dir| self.enter(dir));
        (self.now_ms - began_ms) / TRIP_MS
    }

    fn in_vain(&self) -> u64 {
        let counters = self.prefetcher.counters();
        counters.begun - counters.used - counters.late
    }
}

#[test]
fn nothing_fetches_nothing() {
    let tree = Tree::even(&[10, 10]);
    let mut host = Host::new(&tree, PrefetchChoice::Nothing, BUDGET);
    assert_eq!(host.walk(&tree.in_depth()), 111);
    assert_eq!(host.prefetcher.counters(), PrefetchCounters::default());
}

#[test]
fn a_walk_takes_few_round_trips_in_depth_and_in_breadth() {
    let tree = Tree::even(&[10, 10, 10]);
    let wide = Budget { requests: 1_000, ..BUDGET };
    for (way, order) in [("depth", tree.in_depth()), ("breadth", tree.in_breadth())] {
        let mut host = Host::new(&tree, PrefetchChoice::Crawl, wide);
        let trips = host.walk(&order);
        let counters = host.prefetcher.counters();
        assert!(trips <= 16, "in {way} {trips} round trips for 1111 directories, {counters:?}");
        assert!(host.asked <= 8, "in {way} {} were not listed ahead", host.asked);
        assert_eq!((host.in_vain(), host.prefetcher.under_way()), (0, 0), "{counters:?}");
    }
}

#[test]
fn random_trees_are_walked_ahead_with_latencies_that_vary() {
    for seed in 0..8 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tree = Tree::random(&mut rng, 1_000);
        let orders = [tree.in_depth(), tree.in_breadth()];
        for (number, order) in orders.into_iter().enumerate() {
            let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
            host.rng = fastrand::Rng::with_seed(seed);
            host.jitter_ms = TRIP_MS;
            let trips = host.walk(&order);
            let counters = host.prefetcher.counters();
            assert!(trips < 250, "seed {seed}, order {number}: {trips} trips, {counters:?}");
            assert!(host.most_under_way <= BUDGET.requests, "seed {seed}");
            assert_eq!(host.asked + host.begun, tree.len(), "seed {seed}: each is listed once");
        }
    }
}

#[test]
fn no_more_is_under_way_or_unused_than_the_budget_has() {
    let tree = Tree::even(&[20, 20, 5]);
    for requests in [1, 2, 7] {
        let mut host = Host::new(&tree, PrefetchChoice::Crawl, Budget { requests, ..BUDGET });
        host.walk(&tree.in_depth());
        assert_eq!(host.most_under_way, requests);
    }
    let budget = Budget { entries: 100, ..BUDGET };
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, budget);
    let mut most = 0;
    for dir in tree.in_depth() {
        host.enter(dir);
        most = most.max(host.prefetcher.held().entries);
    }
    // What was under way when the budget was reached is still taken in.
    assert!(most >= 100 && most < 100 + 20 * BUDGET.requests as u64, "{most} entries");
    assert_eq!(host.prefetcher.held().entries, 0, "all were used");
}

#[test]
fn no_more_is_fetched_than_lasts_until_it_is_used() {
    let tree = Tree::even(&[20, 20, 5]);
    let order = tree.in_depth();
    for lasting in [0, 1, 3, 10, 40] {
        let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
        host.lasting = Some(lasting);
        let trips = host.walk(&order);
        let PrefetchCounters { begun, wasted, .. } = host.prefetcher.counters();
        println!("{lasting} last: {begun} begun, {wasted} wasted, {trips} round trips");
        assert!(wasted <= 100 + begun / 4, "{lasting} last: {wasted} of {begun} wasted");
        assert!(lasting < 10 || trips < order.len() as u64, "{lasting} last: {trips} round trips");
    }
}

#[test]
fn a_directory_that_is_larger_than_the_budget_is_given_up() {
    let tree = Tree::even(&[3, 300]);
    let budget = Budget { entries: 200, ..BUDGET };
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, budget);
    host.walk(&[0, 1]);
    host.wait(host.now_ms + 10 * TRIP_MS, None);
    assert!(!host.cached.contains(&2) && !host.cached.contains(&3));
    assert!(host.prefetcher.counters().wasted >= 2);
    assert!(host.prefetcher.held().entries <= 64, "{:?}", host.prefetcher);
}

#[test]
fn directories_entered_at_random_stop_it() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tree = Tree::even(&[4_000]);
        let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
        host.enter(0);
        let mut order: Vec<_> = tree.0[0].clone();
        rng.shuffle(&mut order);
        host.walk(&order[..2_000]);
        let in_vain = host.in_vain();
        assert!(in_vain <= 8 * PREFETCH_WINDOW_DIRS_MIN as u64, "seed {seed}: {in_vain} in vain");
        assert_eq!(host.prefetcher.under_way(), 0, "seed {seed}");
    }
}

#[test]
fn listing_one_directory_or_going_down_one_path_fetches_little() {
    let tree = Tree::even(&[50, 50, 50]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    host.walk(&[0, 0, 0]);
    assert_eq!(host.begun, 0, "a listing alone is no walk");
    let (first, second) = (tree.0[0][30], tree.0[tree.0[0][30]][20]);
    host.walk(&[first, second, tree.0[second][40]]);
    host.wait(host.now_ms + 10 * TRIP_MS, None);
    assert!(host.begun <= 2 * PREFETCH_WINDOW_DIRS_MIN, "{} listed ahead", host.begun);
}

#[test]
fn what_is_on_its_way_is_cancelled_when_the_client_turns_elsewhere() {
    let tree = Tree::even(&[2, 200]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    // Deep in the first half.
    host.walk(&tree.in_depth()[..60]);
    let gone_ahead = |counters: PrefetchCounters| counters.used + counters.late;
    assert!(gone_ahead(host.prefetcher.counters()) > 30, "{:?}", host.prefetcher);
    // Trips take for ever from now on, and other directories are known.
    host.jitter_ms = 0;
    host.enter(tree.0[1][59]);
    let under_way = host.prefetcher.under_way();
    let elsewhere: Vec<usize> = (10_000..10_100).collect();
    for &dir in &elsewhere {
        host.prefetcher.entered(&of(dir), true);
        host.prefetcher.ended(&of(dir));
        host.take();
    }
    assert_eq!(host.prefetcher.under_way(), 0, "of {under_way}");
    let counters = host.prefetcher.counters();
    assert_eq!(counters.cancelled, under_way as u64);
    assert_eq!(
        counters.used + counters.late + counters.cancelled + counters.wasted,
        counters.begun
    );
    // Back again, it goes on.
    host.walk(&tree.in_depth()[60..120]);
    let more = gone_ahead(host.prefetcher.counters()) - gone_ahead(counters);
    assert!(more > 20, "{:?}", host.prefetcher);
}

#[test]
fn pruned_subtrees_do_not_stop_the_rest() {
    // Of each 10 directories one is never entered.
    let tree = Tree::even(&[30, 10, 3]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    let mut pruned: BTreeSet<usize> = BTreeSet::new();
    let mut order = Vec::new();
    for dir in tree.in_depth() {
        if pruned.contains(&dir) || tree.0[dir].len() == 3 && dir % 10 == 0 {
            pruned.extend(&tree.0[dir]);
        } else {
            order.push(dir);
        }
    }
    let trips = host.walk(&order);
    assert!(trips < order.len() as u64 / 5, "{trips} trips for {} directories", order.len());
}

#[test]
fn what_changes_or_leaves_before_it_is_used_is_wasted() {
    let tree = Tree::even(&[40]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    host.walk(&tree.in_depth()[..10]);
    host.wait(host.now_ms + 2 * TRIP_MS, None);
    let [changed, evicted] = [tree.0[0][12], tree.0[0][14]];
    assert!(host.cached.contains(&changed) && host.cached.contains(&evicted));
    let before = host.prefetcher.counters();
    host.cached.remove(&changed);
    host.cached.remove(&evicted);
    host.prefetcher.forgotten(&[Change::Names { dir: of(changed) }]);
    assert_eq!(host.prefetcher.counters().wasted, before.wasted + 1);
    host.enter(changed);
    host.enter(evicted);
    let after = host.prefetcher.counters();
    assert_eq!((after.wasted, after.used), (before.wasted + 2, before.used));
    host.prefetcher.forgotten(&[Change::All]);
    assert_eq!(host.prefetcher.held(), Default::default());
}

#[test]
fn what_is_remembered_is_bounded() {
    let tree = Tree::even(&[3, PREFETCH_DIRS_MAX]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    // Listed, but not walked, one after the other.
    for dir in 1..4 {
        host.enter(dir);
        assert!(host.prefetcher.known() <= PREFETCH_DIRS_MAX + 3, "{}", host.prefetcher.known());
    }
    // All of the last one are known: its walk is gone ahead of.
    let order = &tree.0[3][..1_000];
    let trips = host.walk(order);
    assert!(trips < 60, "{trips} trips");
    // A walk to its end leaves nothing behind.
    let tree = Tree::even(&[10, 10]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    host.walk(&tree.in_depth());
    host.take();
    assert_eq!(host.prefetcher.known(), 0);
}

#[test]
fn two_walks_at_once_are_both_gone_ahead_of() {
    let tree = Tree::even(&[2, 10, 20]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    let order = tree.in_depth();
    let [first, second] = [&order[1..212], &order[212..]];
    // Not from their common root, so they are two.
    let mixed: Vec<_> = first.iter().zip(second).flat_map(|(&a, &b)| [a, b]).collect();
    let trips = host.walk(&mixed);
    assert!(trips < 45, "{trips} trips for {} directories", mixed.len());
}

#[test]
fn of_a_client_that_leaves_all_is_accounted_for() {
    let tree = Tree::even(&[10, 10]);
    let mut host = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    host.walk(&tree.in_depth()[..20]);
    let late = host.under_way.values().next().copied().expect("some are under way");
    assert_eq!(host.prefetcher.entered(&of(late), false), Meeting::UnderWay);
    host.prefetcher.restart();
    let counters = host.prefetcher.counters();
    assert_eq!((host.prefetcher.under_way(), host.prefetcher.known()), (0, 0));
    assert_eq!(
        counters.used + counters.late + counters.cancelled + counters.wasted,
        counters.begun
    );
}

/// A gateway between the client and the tree: each tier goes ahead of the one before it.
#[test]
fn a_tier_goes_ahead_of_another_ones_prefetch() {
    let tree = Tree::even(&[10, 10, 10]);
    let mut near = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    near.jitter_ms = TRIP_MS;
    // What the second tier is asked for, at which time, by the first.
    let mut asked: Vec<(u64, usize)> = Vec::new();
    let order = tree.in_depth();
    for &dir in &order {
        if !near.cached.contains(&dir) && !near.under_way.values().any(|other| *other == dir) {
            asked.push((near.now_ms, dir));
        }
        near.log = Some(Vec::new());
        near.enter(dir);
        asked.extend(near.log.take().into_iter().flatten());
    }
    asked.sort_by_key(|&(at_ms, _)| at_ms);
    assert_eq!(asked.len(), tree.len());
    // It takes as long as the first to list a directory, and begins half a trip later.
    let mut far = Host::new(&tree, PrefetchChoice::Crawl, BUDGET);
    far.jitter_ms = TRIP_MS / 2;
    let mut own: BTreeMap<(u64, usize), usize> = BTreeMap::new();
    for (number, &(at_ms, dir)) in asked.iter().enumerate() {
        // Listings of its own that are over by now.
        while let Some((&(ends_ms, other), &done)) = own.first_key_value() {
            if ends_ms > at_ms {
                break;
            }
            own.remove(&(ends_ms, other));
            far.wait(ends_ms, None);
            far.cached.insert(done);
            far.answered(done);
        }
        far.wait(at_ms, None);
        let is_cached = far.cached.contains(&dir);
        let meeting = far.prefetcher.entered(&of(dir), is_cached);
        far.take();
        if is_cached {
            far.answered(dir);
        } else if meeting == Meeting::Alone {
            own.insert((at_ms + TRIP_MS / 2, number), dir);
        }
    }
    let counters = far.prefetcher.counters();
    let gone_ahead = counters.used + counters.late;
    assert!(gone_ahead > tree.len() as u64 * 3 / 4, "{counters:?}");
    assert!(counters.wasted + counters.cancelled < tree.len() as u64 / 5, "{counters:?}");
}
