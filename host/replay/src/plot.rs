//! Rows as a plot: hit ratio over capacity, one line a policy, as SVG.
//!
//! The axis of capacities is logarithmic. Where seeds differ, a band goes from the least to the most.
//! The text is the same for the same rows, to the byte.

use std::fmt::Write;

use crate::row::Row;
use crate::table::short;

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Colours that are told apart with any kind of sight (Okabe and Ito).
pub(crate) const COLOURS: &[&str] =
    &["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8b6f00"];
const REFERENCE_COLOUR: &str = "#888888";

/// The plot, a whole SVG document.
pub fn plot(rows: &[Row], title: &str) -> String {
    let mut svg = frame(WIDTH, HEIGHT);
    text(&mut svg, (LEFT, TOP - 20.0), "start", title);
    let axes = Axes::of(rows);
    axes.draw(&mut svg, rows);
    let mut policies: Vec<&str> = Vec::new();
    for row in rows {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    let mut colours = COLOURS.iter().cycle();
    for (number, policy) in policies.into_iter().enumerate() {
        let of_policy: Vec<&Row> = rows.iter().filter(|row| row.policy == policy).collect();
        let is_reference = of_policy.iter().any(|row| row.kind == "reference");
        let colour = if is_reference { None } else { colours.next().copied() };
        line(&mut svg, &axes, &of_policy, number, colour);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The beginning of a document of this size, on white.
pub(crate) fn frame(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    )
}

/// From capacities and ratios to places.
struct Axes {
    least: f64,
    decades: f64,
    ratio_max: f64,
}

impl Axes {
    fn of(rows: &[Row]) -> Self {
        let capacities = || rows.iter().map(|row| row.capacity.max(1) as f64);
        let least = capacities().fold(f64::INFINITY, f64::min);
        let most = capacities().fold(1.0, f64::max);
        let best = rows.iter().map(|row| row.hit_ratio_max).fold(0.0, f64::max);
        Self {
            least: if least.is_finite() { least } else { 1.0 },
            decades: (most / least).log10(),
            ratio_max: ((best * 10.0).ceil() / 10.0).clamp(0.1, 1.0),
        }
    }

    fn x(&self, capacity: u64) -> f64 {
        let share = if self.decades > 0.0 {
            (capacity.max(1) as f64 / self.least).log10() / self.decades
        } else {
            0.5
        };
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ratio: f64) -> f64 {
        HEIGHT - BOTTOM - ratio / self.ratio_max * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, svg: &mut String, rows: &[Row]) {
        let right = WIDTH - RIGHT;
        for step in 0..=(self.ratio_max * 10.0).round() as u32 {
            let y = self.y(f64::from(step) / 10.0);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT:.1} {y:.1}H{right:.1}\" stroke=\"#dddddd\" fill=\"none\"/>"
            );
            text(svg, (LEFT - 8.0, y + 4.0), "end", &format!("{} %", step * 10));
        }
        let mut last = f64::NEG_INFINITY;
        let mut capacities: Vec<_> = rows.iter().map(|row| row.shown_capacity).collect();
        capacities.sort_by_key(|capacity| capacity.amount());
        for capacity in capacities {
            let x = self.x(capacity.amount());
            let base = HEIGHT - BOTTOM;
            let _ =
                writeln!(svg, "<path d=\"M{x:.1} {base:.1}v5\" stroke=\"black\" fill=\"none\"/>");
            // Names that would lie upon one another are left out.
            if x - last > 45.0 {
                text(svg, (x, base + 18.0), "middle", &capacity.to_string());
                last = x;
            }
        }
        let unit = rows.first().map_or("", |row| row.unit);
        let label = format!("capacity, {unit}");
        text(svg, ((LEFT + right) / 2.0, HEIGHT - 15.0), "middle", &label);
        text(svg, (LEFT - 8.0, TOP - 8.0), "end", "hits");
    }
}

/// One policy: its line, its band where seeds differ, its name. Without a colour it is a reference.
fn line(svg: &mut String, axes: &Axes, rows: &[&Row], number: usize, colour: Option<&str>) {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.capacity);
    let at = |row: &Row, ratio: f64| format!("{:.1} {:.1}", axes.x(row.capacity), axes.y(ratio));
    let (stroke, dash) = match colour {
        Some(colour) => (colour, ""),
        None => (REFERENCE_COLOUR, " stroke-dasharray=\"5 4\""),
    };
    if rows.iter().any(|row| row.hits_min < row.hits_max) {
        let upper = rows.iter().map(|row| at(row, row.hit_ratio_max));
        let lower = rows.iter().rev().map(|row| at(row, row.hit_ratio_min));
        let points: Vec<String> = upper.chain(lower).collect();
        let _ = writeln!(
            svg,
            "<path d=\"M{}Z\" fill=\"{stroke}\" fill-opacity=\"0.15\"/>",
            points.join("L")
        );
    }
    let points: Vec<String> = rows.iter().map(|row| at(row, row.hit_ratio)).collect();
    let _ = writeln!(
        svg,
        "<path d=\"M{}\" stroke=\"{stroke}\" stroke-width=\"2\" fill=\"none\"{dash}/>",
        points.join("L")
    );
    for row in &rows {
        let (x, y) = (axes.x(row.capacity), axes.y(row.hit_ratio));
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{stroke}\"/>");
    }
    let (x, y) = (WIDTH - RIGHT + 20.0, TOP + 10.0 + 20.0 * number as f64);
    let _ = writeln!(
        svg,
        "<path d=\"M{x:.1} {y:.1}h24\" stroke=\"{stroke}\" stroke-width=\"2\" fill=\"none\"{dash}/>"
    );
    let name = rows.first().map_or("", |row| short(&row.policy));
    text(svg, (x + 32.0, y + 4.0), "start", name);
}

pub(crate) fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">");
    for char in words.chars() {
        match char {
            '&' => svg.push_str("&amp;"),
            '<' => svg.push_str("&lt;"),
            '>' => svg.push_str("&gt;"),
            // XML has no way to say most of them.
            char if char.is_control() => svg.push('?'),
            char => svg.push(char),
        }
    }
    svg.push_str("</text>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::outcome::{Counts, Outcome};
    use crate::row::Subject;

    fn row(policy: &str, kind: &'static str, entries: u64, hits: &[u64]) -> Row {
        let outcome = |&hits| {
            let total = Counts { requests: 1_000, hits, ..Counts::default() };
            Outcome { total, ..Outcome::default() }
        };
        let outcomes: Vec<Outcome> = hits.iter().map(outcome).collect();
        let subject = Subject { policy: policy.to_owned(), kind, digest: String::new() };
        Row::fold("t", &subject, Capacity::Entries(entries), &outcomes, false).expect("an outcome")
    }

    /// The plot is 550 wide and 370 high, from (70, 420). Of ratios up to a half, a quarter is in the
    /// middle; 100 is half way from 10 to 1,000.
    #[test]
    fn points_are_where_they_belong() {
        let rows = [
            row("lru", "native", 10, &[0]),
            row("lru", "native", 1_000, &[500]),
            row("lru", "native", 100, &[250]),
            row("opt", "reference", 100, &[450, 400]),
        ];
        let svg = plot(&rows, "a <b> & c");
        assert!(svg.contains("<path d=\"M70.0 420.0L345.0 235.0L620.0 50.0\" stroke=\"#0072b2\""));
        assert!(svg.contains("M345.0 87.0L345.0 124.0Z"), "the band of opt: {svg}");
        assert!(svg.contains(">a &lt;b&gt; &amp; c</text>"));
        assert!(svg.contains(">capacity, entries</text>") && svg.contains(">50 %</text>"));
        assert_eq!(svg.matches("stroke-dasharray").count(), 2, "opt's line and its name");
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
        assert_eq!(plot(&rows, "t"), plot(&rows, "t"));
    }

    #[test]
    fn one_capacity_is_in_the_middle_and_none_is_no_harm() {
        let svg = plot(&[row("lru", "native", 10, &[100])], "t");
        assert!(svg.contains("cx=\"345.0\" cy=\"50.0\""), "{svg}");
        let none = plot(&[], "t");
        assert!(none.ends_with("</svg>\n") && !none.contains("NaN") && !none.contains("inf"));
    }
}
