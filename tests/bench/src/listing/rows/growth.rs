//! The cost of an entry as a directory grows, beside that of a local `find`. What a listing of an
//! empty directory takes is the cost of starting, and is taken off.

use std::time::Duration;

use super::Bench;
use crate::listing::contest::{self, Contestant, Outcome, Work};
use crate::listing::contestants::{Local, Ours};
use crate::listing::data;
use crate::listing::report::Report;
use crate::listing::row::{Measure, Row};

/// How much more the cost of an entry may grow than that of a local find.
const GROWTH_MAX: f64 = 1.2;
/// Factors between two sizes.
const STEP: usize = 10;

/// What everyone took for one size, or nothing where somebody's listing was short.
type Times = Vec<Outcome>;

/// The rows of this module.
pub fn measure(bench: &Bench, report: &mut Report) {
    let growing = std::iter::successors(Some(bench.sizes.small), |size| Some(size * STEP));
    let growing = growing.take_while(|&size| size < bench.sizes.huge);
    let mut sizes: Vec<usize> = std::iter::once(0).chain(growing).collect();
    sizes.push(bench.sizes.huge);
    let tree = bench.flat(&sizes);
    let times: Vec<Times> = sizes
        .iter()
        .map(|&entries| {
            let setup = bench.setup(&tree);
            let mut all: Vec<Box<dyn Contestant + '_>> = vec![
                Box::new(Ours::new(setup.clone())),
                Box::new(Ours::new(setup.mounted(""))),
                Box::new(Local { root: &tree }),
            ];
            let dir = data::flat_name(entries);
            let work = Work::Crawl { dir: &dir };
            contest::run(report, &mut all, work, entries + 1, bench.sizes.rounds)
        })
        .collect();
    if times.iter().any(|times| times.len() < 3) {
        return report.leave_out("growth", "a listing was short");
    }
    let local = growth(&sizes, &times, 2);
    for (who, again) in [(0, false), (0, true), (1, false), (1, true)] {
        let ours = costs(&sizes, &times, who, again);
        report.row(Row {
            work: format!(
                "growth of the cost of an entry, {} to {}, {}, {}",
                sizes[1],
                bench.sizes.huge,
                times[0][who].name,
                if again { "again" } else { "cold" }
            ),
            ours: Measure::Growth(last_by_first(&ours)),
            against: Some(("local find".into(), Measure::Growth(local))),
            bar: Some(GROWTH_MAX),
            note: shown(&sizes, &ours),
        });
    }
}

fn growth(sizes: &[usize], times: &[Times], who: usize) -> f64 {
    last_by_first(&costs(sizes, times, who, false))
}

fn last_by_first(costs: &[f64]) -> f64 {
    costs.last().copied().unwrap_or(f64::NAN) / costs.first().copied().unwrap_or(f64::NAN)
}

/// Microseconds an entry, for each size but that of the empty directory.
fn costs(sizes: &[usize], times: &[Times], who: usize, again: bool) -> Vec<f64> {
    let time =
        |times: &Times| -> Duration { if again { times[who].again } else { times[who].cold } };
    let start = time(&times[0]).as_secs_f64();
    let sized = sizes.iter().zip(times).skip(1);
    sized.map(|(&size, times)| (time(times).as_secs_f64() - start) * 1e6 / size as f64).collect()
}

fn shown(sizes: &[usize], costs: &[f64]) -> String {
    let each = sizes.iter().skip(1).zip(costs);
    let each: Vec<_> = each.map(|(size, cost)| format!("{cost:.2} us at {size}")).collect();
    each.join(", ")
}
