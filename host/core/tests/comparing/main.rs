//! The order of things of a comparison: who works where and when, what counts, and what it comes to.

use portcullis_core::ab::{
    Costs, Experiment, Plan, Reading, ShardTally, Side, Sides, Stage, Verdict,
};
use portcullis_core::limits::CACHE_SHARDS;

/// What half of a cache may hold, in bytes; what each step fills in there, too.
const HALF_BYTES: u64 = 320_000;
/// Requests to each shard in a step.
const STEP_REQUESTS: u64 = 100;
/// Milliseconds between two steps.
const STEP_MS: u64 = 10;

/// A cache whose requests miss as a test wants.
struct Traffic {
    experiment: Experiment,
    reading: Reading,
    /// Each stage that began, and who worked where in it.
    stages: Vec<(Stage, Sides)>,
}

impl Traffic {
    fn new(period_requests: u64, period_ms_max: u64) -> Self {
        let plan = Plan {
            period_requests,
            period_ms_max,
            capacity_bytes: 2 * HALF_BYTES,
            candidate_first: 1,
        };
        let reading = Reading {
            now_ms: 5,
            shards: [ShardTally::default(); CACHE_SHARDS],
            costs: [Costs::default(); 2],
        };
        let mut experiment = Experiment::new(plan);
        assert!(!experiment.observe(&reading), "it only begins");
        let stages = vec![(experiment.stage(), experiment.sides())];
        Self { experiment, reading, stages }
    }

    /// Goes on for a step, in which so many of a hundred requests to a shard miss.
    fn step(&mut self, misses: impl Fn(Stage, usize, Side) -> u64) {
        let (stage, sides) = (self.experiment.stage(), self.experiment.sides());
        self.reading.now_ms += STEP_MS;
        for (shard, tally) in self.reading.shards.iter_mut().enumerate() {
            // Shards differ a little, as they do.
            let missed = misses(stage, shard % 2, sides[shard % 2]) + (shard as u64 / 2 % 3);
            tally.requests += STEP_REQUESTS;
            tally.missed += missed;
            tally.filled_bytes += 100 * missed;
            tally.filled_weight_bytes += HALF_BYTES / (CACHE_SHARDS as u64 / 2);
        }
        for cost in &mut self.reading.costs {
            *cost = Costs { cpu_us: cost.cpu_us + 3, events: cost.events + 6 };
        }
        if self.experiment.observe(&self.reading) {
            self.stages.push((self.experiment.stage(), self.experiment.sides()));
        }
    }

    /// Goes on to the end.
    fn run(&mut self, misses: impl Fn(Stage, usize, Side) -> u64) {
        for _ in 0..1_000 {
            self.step(&misses);
            if self.experiment.stage() == Stage::Done {
                return;
            }
        }
        unreachable!("it never ends: {:?}", self.stages);
    }
}

fn candidate_is_better(_: Stage, half: usize, side: Side) -> u64 {
    10 + 20 * half as u64 + if side == Side::Candidate { 0 } else { 5 }
}

#[test]
fn the_candidate_has_each_half_once_and_what_the_halves_differ_by_is_no_difference() {
    let mut traffic = Traffic::new(20_000, 1_000_000);
    traffic.run(candidate_is_better);
    let (old, new) = (Side::Incumbent, Side::Candidate);
    assert_eq!(
        traffic.stages,
        [
            (Stage::WarmAlike, [old, old]),
            (Stage::FirstAlike, [old, old]),
            (Stage::SecondAlike, [old, old]),
            (Stage::WarmFirst, [old, new]),
            (Stage::First, [old, new]),
            (Stage::WarmSecond, [new, old]),
            (Stage::Second, [new, old]),
            (Stage::Done, [old, old]),
        ]
    );
    let report = traffic.experiment.report();
    assert_eq!(report.verdict, Verdict::Better, "{report:?}");
    let found = report.hit_ratio.expect("traffic");
    assert!((found.difference - 5.0).abs() < 1e-6, "{found:?}");
    assert!(!report.alike.expect("traffic").shows_difference(), "{report:?}");
    let bytes = report.bytes_per_request.expect("traffic");
    assert!((bytes.difference + 5.0).abs() < 1e-6, "100 bytes a miss: {bytes:?}");
    assert_eq!(report.cpu_ns_per_event, Some([500.0, 500.0]));
    // Four steps of 6,400 requests make 20,000, in each of two periods.
    assert_eq!(report.requests, 2 * 4 * 6_400);
    assert!(report.all_periods_full && report.all_periods_warm);
    assert!(report.words().starts_with("the candidate is better"), "{}", report.words());
}

/// One that is stopped says what it has seen, and what that is worth.
#[test]
fn what_is_not_through_says_what_is_known_so_far() {
    let mut traffic = Traffic::new(20_000, 1_000_000);
    let words = |traffic: &Traffic| traffic.experiment.report().words();
    assert!(
        words(&traffic).contains("nothing was measured to its end so far"),
        "{}",
        words(&traffic)
    );
    while traffic.experiment.stage() != Stage::WarmFirst {
        traffic.step(candidate_is_better);
    }
    let alike = words(&traffic);
    assert!(alike.contains("both halves had the active policy"), "{alike}");
    assert!(alike.contains("A/A: hit ratio"), "{alike}");
    while traffic.experiment.stage() != Stage::First {
        traffic.step(candidate_is_better);
    }
    traffic.step(candidate_is_better);
    // The candidate's half misses 20 more of a hundred, and the candidate 5 fewer.
    let first = words(&traffic);
    assert!(first.contains("first period, 6 % of it: hit ratio 84"), "{first}");
    assert!(first.contains(", -15.00 points") && first.contains("not changed halves"), "{first}");
    while traffic.experiment.stage() != Stage::Second {
        traffic.step(candidate_is_better);
    }
    traffic.step(candidate_is_better);
    let second = words(&traffic);
    assert!(second.contains("first period, 100 % of it: "), "{second}");
    assert!(
        second.contains(", +25.00 points") && second.contains("each policy was on"),
        "{second}"
    );
    traffic.run(candidate_is_better);
    let report = traffic.experiment.report();
    assert!(report.so_far.is_empty() && !report.words().contains("% of it"), "{}", report.words());
}

#[test]
fn the_same_twice_shows_nothing_and_a_worse_one_is_worse() {
    let mut traffic = Traffic::new(20_000, 1_000_000);
    traffic.run(|_, half, _| 10 + 20 * half as u64);
    assert_eq!(traffic.experiment.report().verdict, Verdict::NoDifference);
    let mut traffic = Traffic::new(20_000, 1_000_000);
    traffic.run(|_, _, side| if side == Side::Candidate { 12 } else { 10 });
    assert_eq!(traffic.experiment.report().verdict, Verdict::Worse);
}

/// Warming up lasts until what each half holds was replaced eight times, which takes eight steps here.
#[test]
fn nothing_counts_before_what_is_held_was_replaced() {
    let mut traffic = Traffic::new(20_000, 1_000_000);
    for _ in 0..7 {
        traffic.step(|_, _, _| 90);
    }
    assert_eq!(traffic.experiment.stage(), Stage::WarmAlike);
    traffic.step(|_, _, _| 90);
    assert_eq!(traffic.experiment.stage(), Stage::FirstAlike);
    traffic.run(|stage, _, _| match stage {
        Stage::WarmAlike | Stage::WarmFirst | Stage::WarmSecond => 90,
        _ => 10,
    });
    let found = traffic.experiment.report().hit_ratio.expect("traffic");
    assert!(found.incumbent > 88.0, "what was missed while it warmed up is not in it: {found:?}");
}

#[test]
fn a_period_without_its_requests_ends_by_its_time_and_says_so() {
    let mut traffic = Traffic::new(10_000_000, 3 * STEP_MS);
    traffic.run(candidate_is_better);
    let report = traffic.experiment.report();
    assert!(!report.all_periods_full && report.requests > 0, "{report:?}");
    assert!(report.words().contains("ended by its time"), "{}", report.words());
    let mut none = Traffic::new(500, 1_000_000);
    none.run(|_, _, _| 10);
    assert!(none.experiment.report().smallest_side_requests >= 500, "a step is more");
}

/// Halves that change over while both have the incumbent: whatever comes after is not to be told from
/// that.
#[test]
fn traffic_that_is_too_uneven_for_a_comparison_is_called_so() {
    let mut traffic = Traffic::new(20_000, 1_000_000);
    traffic.run(|stage, half, side| match (stage, half, side) {
        (Stage::FirstAlike, 0, _) | (Stage::SecondAlike, 1, _) => 60,
        (_, _, Side::Candidate) => 5,
        _ => 10,
    });
    assert_eq!(traffic.experiment.report().verdict, Verdict::Uneven);
}

#[test]
fn what_was_interrupted_is_measured_anew_and_what_was_measured_stays() {
    let mut traffic = Traffic::new(20_000, 1_000_000);
    while traffic.experiment.stage() != Stage::Second {
        traffic.step(candidate_is_better);
    }
    traffic.step(candidate_is_better);
    let before = traffic.experiment.report();
    assert_eq!((before.verdict, before.hit_ratio), (Verdict::UnderWay, None));
    traffic.experiment.resume();
    assert_eq!(traffic.experiment.stage(), Stage::WarmSecond);
    assert_eq!(traffic.experiment.sides(), [Side::Candidate, Side::Incumbent]);
    // Another process counts from 0.
    traffic.reading.shards = [ShardTally::default(); CACHE_SHARDS];
    traffic.reading.now_ms = 0;
    traffic.run(candidate_is_better);
    let report = traffic.experiment.report();
    assert_eq!(report.alike, before.alike);
    assert_eq!((report.verdict, report.requests), (Verdict::Better, 2 * 4 * 6_400));
    assert!(traffic.experiment.windows().len() >= 16, "{:?}", traffic.experiment.windows());
}
