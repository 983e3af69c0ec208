//! Rows as a table for people: capacity by capacity, policies in the order given.

use std::fmt::Write;

use crate::row::Row;

/// The table, with a line of headings. `baseline` names what differences are from.
pub fn table(rows: &[Row], baseline: Option<&str>) -> String {
    let has_sizes = rows.iter().any(|row| row.byte_hit_ratio.is_some());
    let mut lines = vec![headings(has_sizes, baseline)];
    let mut capacities = Vec::new();
    for row in rows {
        if !capacities.contains(&row.shown_capacity) {
            capacities.push(row.shown_capacity);
        }
    }
    for capacity in capacities {
        let of_capacity = rows.iter().filter(|row| row.shown_capacity == capacity);
        lines.extend(of_capacity.map(|row| cells(row, has_sizes, baseline.is_some())));
    }
    align(&lines) + &notes(rows)
}

fn headings(has_sizes: bool, baseline: Option<&str>) -> Vec<String> {
    let mut cells = vec!["capacity".to_owned(), "policy".to_owned(), "hit %".to_owned()];
    if has_sizes {
        cells.push("bytes hit %".to_owned());
    }
    cells.push("backend calls".to_owned());
    cells.extend(baseline.map(|name| format!("against {}, points", short(name))));
    cells
}

fn cells(row: &Row, has_sizes: bool, has_baseline: bool) -> Vec<String> {
    let percent = |ratio: f64| format!("{:.2}", 100.0 * ratio);
    let hits = if row.hits_min == row.hits_max {
        percent(row.hit_ratio)
    } else {
        format!("{} to {}", percent(row.hit_ratio_min), percent(row.hit_ratio_max))
    };
    let mut cells = vec![row.shown_capacity.to_string(), short(&row.policy).to_owned(), hits];
    if has_sizes {
        cells.push(row.byte_hit_ratio.map(percent).unwrap_or_default());
    }
    cells.push(row.backend_calls.to_string());
    if has_baseline {
        let shown = row
            .difference
            .map(|difference| format!("{:+.2} ± {:.2}", difference.points, difference.interval_95));
        cells.push(shown.unwrap_or_default());
    }
    cells
}

/// A policy's name without the directories before it.
pub(crate) fn short(policy: &str) -> &str {
    policy.rsplit('/').next().unwrap_or(policy)
}

/// Columns side by side: the first two to the left, the others to the right.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut table = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "   " };
            let _ = if column < 2 {
                write!(text, "{gap}{cell:<width$}")
            } else {
                write!(text, "{gap}{cell:>width$}")
            };
        }
        table.push_str(text.trim_end());
        table.push('\n');
    }
    table
}

/// What a reader has to know of a policy that did not do its work.
fn notes(rows: &[Row]) -> String {
    let mut notes = String::new();
    for row in rows {
        let Row { shown_capacity, shortfall, useless, refused, .. } = row;
        let policy = short(&row.policy);
        if *useless > 0 {
            let _ = writeln!(notes, "{policy} at {shown_capacity}: {useless} proposals of no use");
        }
        if *shortfall > 0 {
            let _ = writeln!(
                notes,
                "{policy} at {shown_capacity}: {shortfall} victims chosen by the host, for want of \
                 proposals"
            );
        }
        if *refused > 0 && row.kind != "reference" {
            let _ = writeln!(
                notes,
                "{policy} at {shown_capacity}: {refused} requests for too large objects"
            );
        }
    }
    if notes.is_empty() { notes } else { format!("\n{notes}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::outcome::{Counts, Outcome};
    use crate::row::{Difference, Subject};

    fn row(policy: &str, entries: u64, hits: &[u64]) -> Row {
        let outcome = |&hits| {
            let total = Counts { requests: 1_000, hits, ..Counts::default() };
            Outcome { total, ..Outcome::default() }
        };
        let outcomes: Vec<Outcome> = hits.iter().map(outcome).collect();
        let subject = Subject { policy: policy.to_owned(), kind: "native", digest: String::new() };
        Row::fold("t", &subject, Capacity::Entries(entries), &outcomes, false).expect("an outcome")
    }

    #[test]
    fn capacities_stand_together_and_columns_line_up() {
        let mut rows = vec![
            row("lru", 100, &[250]),
            row("lru", 1_000, &[500]),
            row("a/b/mine.wasm", 100, &[300, 310, 290]),
            row("a/b/mine.wasm", 1_000, &[512]),
        ];
        rows[2].difference = Some(Difference { points: 5.0, interval_95: 0.125 });
        rows[3].shortfall = 3;
        assert_eq!(
            table(&rows, Some("lru")),
            "\
capacity   policy               hit %   backend calls   against lru, points
100        lru                  25.00             750
100        mine.wasm   29.00 to 31.00             700          +5.00 ± 0.12
1k         lru                  50.00             500
1k         mine.wasm            51.20             488

mine.wasm at 1k: 3 victims chosen by the host, for want of proposals
"
        );
    }
}
