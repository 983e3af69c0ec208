//! The table of the listing benchmark, and its JSON.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use portcullis_wire::stats::EvictionStats;
use serde_json::{Value, json};

use super::contest::Outcome;
use super::machine;
use super::row::{Measure, Row};

/// All that was measured.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    left_out: Vec<(String, String)>,
    load: Vec<(String, String)>,
    policy: Option<EvictionStats>,
}

impl Report {
    /// Takes a row in.
    pub fn row(&mut self, row: Row) {
        eprintln!("  {}", row.cells().join(" | "));
        self.rows.push(row);
    }

    /// Compares a time of `outcomes`, whose first is ours, with each of the others, and says which
    /// bar holds against whom.
    pub fn compare(
        &mut self,
        work: &str,
        outcomes: &[Outcome],
        again: bool,
        bar: impl Fn(&str) -> Option<f64>,
    ) {
        let Some((ours, others)) = outcomes.split_first() else { return };
        let time = |outcome: &Outcome| if again { outcome.again } else { outcome.cold };
        let when = if again { "again" } else { "cold" };
        let best = |other: &&Outcome| {
            let same = others.iter().filter(|one| system(one) == system(other));
            same.map(time).min() == Some(time(other))
        };
        for other in others.iter().filter(best) {
            let name = format!("{}{}", other.name, rounds(ours, other));
            self.row(Row {
                work: format!("{work}, {when}"),
                ours: Measure::Time(time(ours)),
                against: Some((name, Measure::Time(time(other)))),
                bar: bar(&other.name),
                note: requests(ours, usize::from(again)),
            });
        }
    }

    /// Remembers what was not measured, and why.
    pub fn leave_out(&mut self, what: &str, why: &str) {
        eprintln!("  left out: {what}: {why}");
        self.left_out.push((what.to_owned(), why.to_owned()));
    }

    /// Remembers how busy the machine was.
    pub fn note_load(&mut self, when: &str) {
        self.load.push((when.to_owned(), machine::load()));
    }

    /// Remembers the policy that was active in a gateway; calls add up.
    pub fn note_policy(&mut self, eviction: &EvictionStats) {
        let calls = self.policy.as_ref().map_or(0, |policy| policy.calls);
        self.policy = Some(EvictionStats { calls: calls + eviction.calls, ..eviction.clone() });
    }

    /// The table, what was left out, and where it was measured.
    pub fn table(&self, machine: &Value) -> String {
        let mut text = String::new();
        let mut line = |cells: [String; 6]| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        };
        line(["work", "ours", "against", "ratio", "bar", "requests of ours"].map(String::from));
        line([(); 6].map(|()| "---".to_owned()));
        self.rows.iter().for_each(|row| line(row.cells()));
        text += "\n";
        for (what, why) in &self.left_out {
            let _ = writeln!(text, "left out: {what}: {why}");
        }
        if let Some(policy) = &self.policy {
            let _ = writeln!(
                text,
                "policy: {} ({}, sha256 {}), {} calls into it{}",
                policy.name,
                policy.kind,
                policy.digest,
                policy.calls,
                if policy.fallback_reason.is_empty() { "" } else { "; IT IS THE FALLBACK" }
            );
        }
        for (when, load) in &self.load {
            let _ = writeln!(text, "load, {when}: {load}");
        }
        let _ = writeln!(text, "machine: {machine}");
        text
    }

    /// Writes the JSON.
    pub fn write_json(&self, path: &Path, machine: &Value, is_short: bool) {
        let policy = self.policy.as_ref();
        let pairs = |pairs: &[(String, String)]| -> Value {
            pairs.iter().map(|(what, why)| json!([what, why])).collect()
        };
        let json = json!({
            "machine": machine,
            "short": is_short,
            "policy": policy.map(|policy| json!({
                "name": policy.name,
                "kind": policy.kind,
                "sha256": policy.digest,
                "calls": policy.calls,
                "fallback_reason": policy.fallback_reason,
            })),
            "load": pairs(&self.load),
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "left_out": pairs(&self.left_out),
        });
        let dir = path.parent().expect("a file has a directory");
        fs::create_dir_all(dir).expect("the directory of the JSON");
        fs::write(path, format!("{json:#}\n")).expect("the JSON is written");
    }
}

/// Whose outcome it is: the first word of its name. Of one system with several settings the best
/// counts.
fn system(outcome: &Outcome) -> &str {
    outcome.name.split(' ').next().unwrap_or_default()
}

/// Said where one of the two was measured less often than is usual.
fn rounds(ours: &Outcome, other: &Outcome) -> String {
    if other.rounds == ours.rounds { String::new() } else { format!(", {} rounds", other.rounds) }
}

/// Requests of a pass, as the table shows them.
fn requests(outcome: &Outcome, pass: usize) -> String {
    let shown = |what: &str, counts: Option<[u64; 2]>| {
        counts.map(|counts| format!("{} {what}", counts[pass]))
    };
    let all = [shown("FUSE", outcome.fuse), shown("to bricks", outcome.bricks)];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outcome(name: &str, cold_ms: u64, again_ms: u64) -> Outcome {
        let mut outcome = Outcome::named(name);
        [outcome.cold, outcome.again] = [cold_ms, again_ms].map(Duration::from_millis);
        outcome
    }

    #[test]
    fn of_a_system_with_several_settings_the_best_of_each_pass_is_compared() {
        let ours = outcome("mount", 10, 10);
        let others = [outcome("Other a", 20, 90), outcome("Other b", 30, 40)];
        let outcomes = [&[ours][..], &others].concat();
        let mut report = Report::default();
        report.compare("work", &outcomes, false, |_| Some(0.5));
        report.compare("work", &outcomes, true, |_| Some(0.2));
        let whose = |row: &Row| row.against.as_ref().map(|(name, _)| name.clone());
        let names: Vec<_> = report.rows.iter().filter_map(whose).collect();
        assert_eq!(names, ["Other a", "Other b"]);
        let held: Vec<_> = report.rows.iter().map(Row::holds).collect();
        assert_eq!(held, [Some(true), Some(false)], "a ratio of 0.5 and one of 0.25");
    }
}
