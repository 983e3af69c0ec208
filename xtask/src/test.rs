//! `cargo xtask test`: all set-up, then every test, cheapest first and whole processes last.
//!
//! The pure crates are tested in the dev profile, with overflow checks and debug assertions. All
//! others share one release build: compiling wasmtime a second time would take minutes.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::tally::Tally;
use crate::{build, run, tools};

/// Tested with debug assertions; none of them may depend on wasmtime.
const CHECKED: &[&str] = &["portcullis-core", "portcullis-wire", "portcullis-sim", "xtask"];
/// Drives the finished binary, and so comes last.
const SUITE: &str = "portcullis-suite";

/// Runs all tests, or those whose name contains `filter`, and ends with one line of counts.
pub(crate) fn test(root: &Path, filter: Option<&str>) -> Result<ExitCode> {
    build::all_components(root)?;
    build::build(root)?;
    tools::install(root)?;
    let mut tally = Tally::default();
    for (title, mut command) in steps(root) {
        // A test that skips itself says so in its output, which is kept back where it passes.
        command.args(filter).args(["--", "--show-output"]);
        tally.run(title, &mut command)?;
    }
    let mut command = suite(root);
    command.args(filter).args(["--", "--show-output"]);
    let again = |name: &str| {
        let mut command = suite(root);
        command.args(["--", "--show-output", "--exact", name]);
        command
    };
    tally.run_twice("whole processes", &mut command, again)?;
    tally.report(run::in_ci())
}

fn steps(root: &Path) -> [(&'static str, Command); 2] {
    let mut checked = run::cargo(root, &["test", "--no-fail-fast"]);
    for package in CHECKED {
        checked.args(["--package", package]);
    }
    let mut rest = release(root);
    rest.args(["--exclude", SUITE]);
    [("pure crates", checked), ("other crates", rest)]
}

/// The whole-process tests, one after the other or not as its arguments will say.
pub(crate) fn suite(root: &Path) -> Command {
    let mut suite = release(root);
    suite.args(["--test", "suite"]);
    suite
}

/// All that is tested in the release profile: always the same packages, and with them the same
/// features of what they share.
fn release(root: &Path) -> Command {
    let mut release = run::cargo(root, &["test", "--no-fail-fast", "--release", "--workspace"]);
    for package in CHECKED {
        release.args(["--exclude", package]);
    }
    release
}
