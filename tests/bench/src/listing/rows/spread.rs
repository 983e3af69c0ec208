//! Where attributes come from that are listed: those of a directory that many bricks hold, in the
//! listing of its parent.

use std::path::Path;

use super::Bench;
use crate::listing::contest::time;
use crate::listing::installation::{Setup, refuses};
use crate::listing::planting;
use crate::listing::report::Report;
use crate::listing::row::{Measure, Row};

/// Bricks of the volume.
const BRICKS: usize = 16;
/// Files of the directory: enough that every brick has one.
const FILES: usize = 400;
/// How attributes are asked for, but in listings.
const VERBS: [&str; 3] = ["getattr", "getattrs", "lookup"];

/// The row of this module.
pub fn measure(bench: &Bench, report: &mut Report) {
    let what = format!("attributes of a directory that {BRICKS} bricks hold");
    if let Some(why) = refuses(BRICKS) {
        return report.leave_out(&what, &why);
    }
    let (exports, _) = bench.exports("spread", BRICKS);
    let setup = Setup { exports, ..bench.setup(Path::new("")) };
    planting::dir_of_files(&setup.start(), "dir", FILES);
    let running = setup.start();
    let before = running.requests_of(&VERBS);
    let listed = time(running.command("ls", "/").arg("-l"));
    if let Err(why) = listed {
        return report.leave_out(&what, &why);
    }
    let after = running.requests_of(&VERBS);
    let asked = before.iter().zip(&after).filter(|(before, after)| before < after).count();
    report.row(Row {
        work: format!("bricks asked for {what}, in its parent's listing"),
        // The one that lists its name has them, or one more is asked.
        ours: Measure::Count(asked.max(1) as f64),
        against: None,
        bar: Some(1.0),
        note: format!("{asked} beside those that list the parent"),
    });
}
