//! `cargo xtask soak`: the whole-process tests with the largest trees of this machine.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::tally::Tally;
use crate::{build, run, tools};

/// Runs the suite `rounds` times with `PORTCULLIS_SOAK=1`, which lifts its bounds on tree sizes.
/// Stops at the first round that fails.
pub(crate) fn soak(root: &Path, rounds: u32) -> Result<ExitCode> {
    build::all_components(root)?;
    build::build(root)?;
    tools::install(root)?;
    let mut tally = Tally::default();
    for round in 1..=rounds {
        eprintln!("\nround {round} of {rounds}");
        let mut command = run::cargo(root, &["test", "--release", "-p", "portcullis-suite"]);
        command.env("PORTCULLIS_SOAK", "1").args(["--", "--show-output"]);
        tally.run(&format!("suite, round {round}"), &mut command)?;
        if !tally.is_good() {
            break;
        }
    }
    tally.report(run::in_ci())
}
