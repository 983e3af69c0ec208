//! Counts tests over several runs of `cargo test`, from the lines they print.
//!
//! A test that cannot run here passes for the test harness, but prints `skipped: NAME: WHY` on a
//! line of its own; it is counted as skipped.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::run;

/// How the reason of a test ends that needs data which is not part of this project, and may not be
/// copied into it: it may be skipped in CI too.
const OUTSIDE: &str = " in PORTCULLIS_TRACES";

/// Tests that are run again at most; if more fail, something is broken.
const AGAIN_MAX: usize = 5;

/// What the runs so far came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    /// Runs that ended badly: a test failed, or the code does not compile.
    broken: Vec<String>,
    /// Tests that failed, by name.
    failures: Vec<String>,
    /// Tests that failed beside others and passed alone.
    unsteady: Vec<String>,
}

impl Tally {
    /// Runs a `cargo test` and counts it.
    pub(crate) fn run(&mut self, title: &str, command: &mut Command) -> Result<()> {
        let status = run::with_lines(command, |line| self.count(line))?;
        if !status.success() {
            self.broken.push(title.to_owned());
        }
        Ok(())
    }

    /// Runs a `cargo test`; each test that fails in it is run once more, alone, by `again`. Whole
    /// processes share a small machine with each other, and a deadline that is missed beside five
    /// others says nothing; what fails twice has failed. Tests that passed only then are named.
    pub(crate) fn run_twice(
        &mut self,
        title: &str,
        command: &mut Command,
        again: impl Fn(&str) -> Command,
    ) -> Result<()> {
        let mut first = Self::default();
        first.run(title, command)?;
        self.add_again(first, |name| {
            let mut alone = Self::default();
            alone.run(&format!("{title}: {name}, twice"), &mut again(name))?;
            Ok(alone)
        })
    }

    /// Adds a run, with what `again` makes of each test that failed in it.
    fn add_again(
        &mut self,
        mut first: Self,
        mut again: impl FnMut(&str) -> Result<Self>,
    ) -> Result<()> {
        let failures = std::mem::take(&mut first.failures);
        let is_few = (1..=AGAIN_MAX).contains(&failures.len());
        if is_few && failures.len() as u64 == first.failed {
            first.broken.clear();
            first.failed = 0;
            for name in failures {
                let alone = again(&name)?;
                if alone.is_good() && alone.passed == 1 {
                    self.unsteady.push(name);
                }
                first.add(alone);
            }
        }
        self.add(first);
        Ok(())
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped.extend(other.skipped);
        self.broken.extend(other.broken);
        self.unsteady.extend(other.unsteady);
    }

    /// Whether all ran and none failed.
    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0 && self.broken.is_empty()
    }

    /// Prints the summary, its last line the counts. Where `all_must_run`, skipping is failing.
    pub(crate) fn report(&self, all_must_run: bool) -> Result<ExitCode> {
        let (lines, is_good) = self.judge(all_must_run);
        println!("\n{}", lines.join("\n"));
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn judge(&self, all_must_run: bool) -> (Vec<String>, bool) {
        let skipped = self.skipped.iter().map(|name| format!("skipped: {name}"));
        let failed = self.broken.iter().map(|title| format!("failed: {title}"));
        let unsteady = self.unsteady.iter().map(|name| format!("unsteady: {name}"));
        let mut lines: Vec<String> = skipped.chain(unsteady).chain(failed).collect();
        let bad_skip = all_must_run && self.skipped.iter().any(|name| !name.ends_with(OUTSIDE));
        if bad_skip {
            lines.push("failed: in CI no test may be skipped".to_owned());
        }
        lines.push(self.summary());
        (lines, self.is_good() && !bad_skip)
    }

    fn summary(&self) -> String {
        let skipped = self.skipped.len() as u64;
        let passed = self.passed.saturating_sub(skipped);
        format!("{passed} passed, {} failed, {skipped} skipped", self.failed)
    }

    fn count(&mut self, line: &str) {
        let line = line.trim_end();
        // A harness that runs one test at a time has begun the line with the test's name.
        let own = line.split_once(" ... ").map_or(line, |(_, own)| own);
        self.skipped.extend(own.strip_prefix("skipped: ").map(str::to_owned));
        let test = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        self.failures.extend(test.map(str::to_owned));
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        for part in counts.split([';', '.']) {
            match part.trim().split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(text: &str) -> Tally {
        let mut tally = Tally::default();
        text.lines().for_each(|line| tally.count(line));
        tally
    }

    #[test]
    fn counts_add_up_over_runs_and_a_skipped_test_is_not_a_passed_one() {
        let tally = tally(
            "running 2 tests\n\
             test mount::ls ... skipped: mount::ls: needs FUSE and root\n\
             test other ... ok\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 1 filtered out; finished in 1.20s\n",
        );
        assert_eq!(tally.summary(), "4 passed, 1 failed, 1 skipped");
        assert_eq!(tally.skipped, ["mount::ls: needs FUSE and root"]);
        assert!(!tally.is_good());
    }

    #[test]
    fn a_skipped_test_fails_in_ci_only() {
        let tally = tally("skipped: a: b\ntest result: ok. 1 passed; 0 failed; 0 ignored\n");
        let (lines, is_good) = tally.judge(false);
        assert_eq!((lines.len(), is_good), (2, true), "{lines:?}");
        let (lines, is_good) = tally.judge(true);
        assert_eq!((lines.len(), is_good), (3, false), "{lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("0 passed, 0 failed, 1 skipped"));
    }

    #[test]
    fn a_test_without_data_from_outside_may_be_skipped() {
        let skipped = "skipped: a: needs b in PORTCULLIS_TRACES\n";
        let one = "test result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert!(tally(&format!("{skipped}{one}")).judge(true).1);
        assert!(!tally(&format!("{skipped}skipped: c: d\n{one}")).judge(true).1);
    }

    #[test]
    fn a_test_that_fails_beside_others_is_run_again_alone() {
        let broken = |text| Tally { broken: vec!["suite".to_owned()], ..tally(text) };
        let first = || {
            broken(
                "test a::b ... ok\ntest a::c ... FAILED\n\
                 test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
            )
        };
        let ok = || tally("test result: ok. 1 passed; 0 failed; 0 ignored\n");
        let bad = || broken("test result: FAILED. 0 passed; 1 failed; 0 ignored\n");
        for (again, good, summary) in
            [(ok(), true, "2 passed, 0 failed"), (bad(), false, "1 passed, 1 failed")]
        {
            let mut tally = Tally::default();
            let mut again = Some(again);
            let alone = |name: &str| {
                assert_eq!(name, "a::c");
                Ok(again.take().expect("asked once"))
            };
            tally.add_again(first(), alone).expect("it is added");
            assert_eq!(tally.is_good(), good, "{tally:?}");
            assert!(tally.summary().starts_with(summary), "{tally:?}");
            assert_eq!(tally.unsteady.len(), usize::from(good));
        }
        let mut tally = Tally::default();
        tally.add_again(broken(""), |_| unreachable!()).expect("it is added");
        assert!(!tally.is_good(), "it does not even compile");
    }

    #[test]
    fn a_run_that_does_not_even_compile_is_not_good() {
        let mut tally = Tally::default();
        tally.run("broken", &mut Command::new("false")).expect("false(1) runs");
        assert!(!tally.is_good());
    }
}
