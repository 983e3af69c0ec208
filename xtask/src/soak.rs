//! `cargo xtask soak`: the long tests in their full form.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::tally::Tally;
use crate::{build, run, test, tools};

/// Seeds of the simulator in each round.
const SEEDS: &str = "10000";

/// Runs the simulator with many seeds, then the suite with `PORTCULLIS_SOAK=1`, which gives the long
/// tests their full length, all of it `rounds` times, with other seeds in each. Stops at the first
/// round that fails.
pub(crate) fn soak(root: &Path, rounds: u32) -> Result<ExitCode> {
    build::all_components(root)?;
    build::build(root)?;
    tools::install(root)?;
    let mut tally = Tally::default();
    for round in 1..=rounds {
        eprintln!("\nround {round} of {rounds}");
        let simulator = ["run", "--release", "--package", "portcullis-sim", "--", SEEDS];
        run::run(&mut run::cargo(root, &simulator))?;
        tally.run(&format!("suite, round {round}"), &mut suite(root, round))?;
        if !tally.is_good() {
            break;
        }
    }
    tally.report(run::in_ci())
}

/// One test after the other: full ones take the whole machine, and measure how soon things happen.
fn suite(root: &Path, round: u32) -> Command {
    let mut suite = test::suite(root);
    suite.env("PORTCULLIS_SOAK", "1").env("PORTCULLIS_SOAK_ROUND", (round - 1).to_string());
    suite.args(["--", "--show-output", "--test-threads", "1"]);
    suite
}
