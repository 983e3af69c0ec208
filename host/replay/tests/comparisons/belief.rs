//! When a comparison says that there is a difference, and when not.

use std::io::Write;
use std::path::PathBuf;

use portcullis_core::ab::{Stage, Verdict};
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::eviction::native::native;
use portcullis_replay::{Capacity, Pace, Setup, Trace, formats, replay};

use super::stand::{Comparison, Ended};

/// The trace of the ARC paper, where there are traces.
pub(crate) fn oltp(test: &str) -> Option<Trace> {
    let Some(dir) = std::env::var_os("PORTCULLIS_TRACES") else {
        // Written past the test harness, as all that skip themselves do.
        let line = format!("skipped: {test}: needs OLTP.lis.zst in PORTCULLIS_TRACES\n");
        std::io::stdout().write_all(line.as_bytes()).expect("stdout is there");
        return None;
    };
    let path = PathBuf::from(dir).join("OLTP.lis.zst");
    let content = std::fs::read(&path).expect("the directory of traces has OLTP.lis.zst");
    Some(formats::read("OLTP.lis.zst", &content).expect("a trace"))
}

/// So many that the trace is long enough for what is held to be replaced as often as it takes.
const ENTRIES: u64 = 4_000;
const PERIOD_REQUESTS: u64 = 120_000;

fn compare(trace: &Trace, incumbent: &str, candidate: &str, seed: u64) -> Ended {
    let (entries, period_requests) = (ENTRIES, PERIOD_REQUESTS);
    Comparison { trace, incumbent, candidate, entries, period_requests, seed }.run()
}

/// The shorter form has 25 runs, which have to be as good: the seeds are the same each time.
fn runs() -> u64 {
    if std::env::var_os("PORTCULLIS_SOAK").is_some() { 100 } else { 25 }
}

/// Under one policy on both sides.
#[test]
fn the_same_policy_twice_shows_no_difference() {
    let Some(trace) = oltp("the_same_policy_twice_shows_no_difference") else { return };
    let (mut none, mut largest) = (0, 0.0_f64);
    for seed in 0..runs() {
        let report = compare(&trace, "s3-fifo", "s3-fifo", seed).report;
        assert_eq!(report.stage, Stage::Done, "the trace is long enough");
        assert!(report.all_periods_warm && report.all_periods_full, "{report:?}");
        let found = report.hit_ratio.expect("an estimate");
        println!(
            "seed {seed}: {:?} {:+.2} ± {:.2} of {:.1} %, A/A {:+.2} ± {:.2}, freedom {:.0}",
            report.verdict,
            found.difference,
            found.interval_95,
            found.incumbent,
            report.alike.map_or(0.0, |alike| alike.difference),
            report.alike.map_or(0.0, |alike| alike.interval_95),
            found.freedom,
        );
        match report.verdict {
            Verdict::NoDifference => none += 1,
            Verdict::Better | Verdict::Worse => largest = largest.max(found.difference.abs()),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(100 * none >= 92 * runs(), "{none} of {} show no difference", runs());
    assert!(largest < 1.0, "a difference of {largest} points where there is none");
}

/// By how many points `candidate` hits more than `incumbent` in exact replays, of the requests that were
/// measured.
fn replayed_gap(trace: &Trace, [incumbent, candidate]: [&str; 2], ended: &Ended) -> f64 {
    let hit_ratio = |name: &str| {
        let capacity = Capacity::Entries(ENTRIES);
        let limits = PolicyLimits { capacity_bytes: capacity.capacity_bytes(), seed: 1 };
        let intervals = trace.objects().len() / 500;
        let setup = Setup { capacity, pace: Pace::Exact, seed: 1, intervals };
        let Ok(outcome) = replay(trace, setup, native(name, limits).expect("it has a policy"));
        let len = trace.objects().len().div_ceil(intervals);
        // The mean of the periods, as the estimate is.
        let of_period = ended.measured.iter().map(|measured| {
            let counts = &outcome.intervals[measured.start / len..measured.end / len];
            let hits: u64 = counts.iter().map(|counts| counts.hits).sum();
            let requests: u64 = counts.iter().map(|counts| counts.requests).sum();
            hits as f64 / requests as f64
        });
        of_period.sum::<f64>() / ended.measured.len() as f64
    };
    100.0 * (hit_ratio(candidate) - hit_ratio(incumbent))
}

/// Both ways round: the sign is that of the replay, and its figure lies within the 95 % interval in nine
/// of ten runs or more. (They are of one trace, so they miss together.)
#[test]
fn policies_with_a_gap_are_told_apart() {
    let Some(trace) = oltp("policies_with_a_gap_are_told_apart") else { return };
    let (mut told, mut covered) = (0, 0);
    let runs = runs() / 5 * 2;
    for seed in 0..runs {
        let pair = if seed % 4 < 2 { ["fifo", "s3-fifo"] } else { ["s3-fifo", "fifo"] };
        let ended = compare(&trace, pair[0], pair[1], seed);
        let gap = replayed_gap(&trace, pair, &ended);
        let found = ended.report.hit_ratio.expect("an estimate");
        println!(
            "seed {seed}: {:?} {:+.2} ± {:.2}, replayed {gap:+.2}",
            ended.report.verdict, found.difference, found.interval_95
        );
        assert!(gap.abs() > 1.0, "seed {seed}: no gap to find, {gap}");
        let verdict = if gap > 0.0 { Verdict::Better } else { Verdict::Worse };
        told += u64::from(ended.report.verdict == verdict);
        covered += u64::from((found.difference - gap).abs() <= found.interval_95);
    }
    assert!(10 * told >= 9 * runs, "{told} of {runs} told apart");
    assert!(10 * covered >= 9 * runs, "{covered} of {runs} intervals cover the replay's figure");
}

/// A few thousand requests are too few for any of it, and a trace that ends before the comparison does
/// leaves it under way.
#[test]
fn too_little_traffic_says_so() {
    let Some(trace) = oltp("too_little_traffic_says_so") else { return };
    let small = Comparison {
        trace: &trace,
        incumbent: "fifo",
        candidate: "w-tinylfu",
        entries: ENTRIES,
        period_requests: 1_500,
        seed: 1,
    };
    let report = small.run().report;
    assert_eq!(report.verdict, Verdict::TooLittleTraffic, "{report:?}");
    assert!(report.words().contains("too little traffic"), "{}", report.words());
    let long = Comparison { period_requests: 10_000_000, ..small };
    assert_eq!(long.run().report.verdict, Verdict::UnderWay);
}
