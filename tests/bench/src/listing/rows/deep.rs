//! Crawls of a deep tree: requests to bricks, and what delays on both hops cost.

use super::Bench;
use crate::listing::contest::{self, Contestant, Outcome, Work};
use crate::listing::contestants::Ours;
use crate::listing::installation::Setup;
use crate::listing::report::Report;
use crate::listing::row::{Measure, Row};

/// Each datagram, each way, on both hops.
const DELAY_US: u64 = 10_000;
/// What that may add to a cold crawl.
const DELAY_COST_MAX_MS: f64 = 480.0;

/// Both groups of this module.
pub fn measure(bench: &Bench, report: &mut Report) {
    let tree = bench.deep();
    let setup = bench.setup(&tree);
    for (way, setup) in [("mount", setup.clone().mounted("")), ("portcullis find", setup)] {
        if bench.options.wants("requests") {
            requests(bench, report, way, &setup);
        }
        if bench.options.wants("delay") {
            delay(bench, report, way, &setup);
        }
    }
}

fn requests(bench: &Bench, report: &mut Report, way: &str, setup: &Setup) {
    let outcomes = crawl(bench, report, vec![Box::new(Ours::new(setup.clone()))]);
    let Some(outcome) = outcomes.first() else { return };
    let dirs = bench.sizes.deep.dirs();
    let Some([cold, again]) = outcome.bricks else { return };
    let fuse = outcome
        .fuse
        .map_or(["".into(), "".into()], |counts| counts.map(|count| format!("{count} FUSE")));
    for (when, a_directory, asked, fuse) in
        [("cold", 1.0, cold, &fuse[0]), ("again", 0.0, again, &fuse[1])]
    {
        report.row(Row {
            work: format!("requests to the brick, {way}, {dirs} directories, {when}"),
            ours: Measure::Count(asked as f64),
            against: None,
            bar: Some(a_directory * dirs as f64),
            note: fuse.clone(),
        });
    }
}

fn delay(bench: &Bench, report: &mut Report, way: &str, setup: &Setup) {
    let ours = |delay_us| Box::new(Ours::new(setup.clone().delayed(delay_us))) as Box<_>;
    let outcomes = crawl(bench, report, vec![ours(DELAY_US), ours(0)]);
    let [delayed, at_once] = &outcomes[..] else { return };
    let ms = |outcome: &Outcome| outcome.cold.as_secs_f64() * 1e3;
    let dirs = bench.sizes.deep.dirs();
    let delay_ms = DELAY_US / 1_000;
    report.row(Row {
        work: format!("{delay_ms} ms each way on both hops, {way}, {dirs} directories, cold"),
        ours: Measure::DifferenceMs(ms(delayed) - ms(at_once)),
        against: None,
        bar: Some(DELAY_COST_MAX_MS),
        note: format!("{:.0} ms, without delay {:.0} ms", ms(delayed), ms(at_once)),
    });
}

fn crawl(
    bench: &Bench,
    report: &mut Report,
    mut contestants: Vec<Box<dyn Contestant>>,
) -> Vec<Outcome> {
    let work = Work::Crawl { dir: "" };
    contest::run(report, &mut contestants, work, bench.sizes.deep.entries(), bench.sizes.rounds)
}
