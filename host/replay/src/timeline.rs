//! A comparison on live traffic as a plot: the hit ratios of both sides, window by window, as SVG.
//!
//! Windows of a period are joined; between periods there was warming up, which is not shown. The text is
//! the same for the same windows, to the byte.

use std::fmt::Write;

use portcullis_core::ab::Stage;
use portcullis_core::ab::experiment::Window;

use crate::plot::{COLOURS, frame, text};

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;

/// The plot, a whole SVG document. `names` are those of the incumbent and the candidate.
pub fn timeline(windows: &[Window], names: [&str; 2], title: &str) -> String {
    let mut svg = frame(WIDTH, HEIGHT);
    text(&mut svg, (LEFT, TOP - 20.0), "start", title);
    let axes = Axes::of(windows);
    axes.draw(&mut svg);
    let stages =
        [Stage::FirstAlike, Stage::SecondAlike, Stage::First, Stage::Second].map(|stage| {
            let of_stage = windows.iter().filter(move |window| window.stage == stage);
            (stage, of_stage.collect::<Vec<_>>())
        });
    for (stage, of_stage) in &stages {
        let (Some(first), Some(last)) = (of_stage.first(), of_stage.last()) else { continue };
        let middle = (axes.x(first.at_ms) + axes.x(last.at_ms)) / 2.0;
        let name = match stage {
            Stage::First => "A/B",
            Stage::Second => "A/B, sides changed",
            _ => "A/A",
        };
        text(&mut svg, (middle, HEIGHT - BOTTOM + 18.0), "middle", name);
        for (side, colour) in COLOURS.iter().take(2).enumerate() {
            let dash = if *stage >= Stage::First { "" } else { " stroke-dasharray=\"5 4\"" };
            let points: Vec<String> = of_stage
                .iter()
                .map(|window| {
                    let ratio = [window.incumbent_hit_ratio, window.candidate_hit_ratio][side];
                    format!("{:.1} {:.1}", axes.x(window.at_ms), axes.y(ratio))
                })
                .collect();
            let _ = writeln!(
                svg,
                "<path d=\"M{}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"{dash}/>",
                points.join("L")
            );
        }
    }
    for (side, (name, colour)) in names.into_iter().zip(COLOURS).enumerate() {
        let (x, y) = (WIDTH - RIGHT + 20.0, TOP + 10.0 + 20.0 * side as f64);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {y:.1}h24\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>"
        );
        text(&mut svg, (x + 32.0, y + 4.0), "start", name);
    }
    svg.push_str("</svg>\n");
    svg
}

struct Axes {
    last_ms: u64,
    /// The least ratio that is shown, and the most.
    shown: [f64; 2],
}

impl Axes {
    fn of(windows: &[Window]) -> Self {
        let ratios = || {
            windows
                .iter()
                .flat_map(|window| [window.incumbent_hit_ratio, window.candidate_hit_ratio])
        };
        let least = ratios().fold(1.0, f64::min);
        let most = ratios().fold(0.0, f64::max);
        let shown = [(least * 20.0).floor() / 20.0, (most * 20.0).ceil() / 20.0];
        let is_flat = shown[1] <= shown[0];
        Self {
            last_ms: windows.iter().map(|window| window.at_ms).max().unwrap_or(0).max(1),
            shown: if is_flat { [0.0, 1.0] } else { shown },
        }
    }

    fn x(&self, at_ms: u64) -> f64 {
        LEFT + at_ms as f64 / self.last_ms as f64 * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ratio: f64) -> f64 {
        let [least, most] = self.shown;
        HEIGHT - BOTTOM - (ratio - least) / (most - least) * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, svg: &mut String) {
        let [least, most] = self.shown;
        for step in 0..=5 {
            let ratio = least + (most - least) * f64::from(step) / 5.0;
            let (y, right) = (self.y(ratio), WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT:.1} {y:.1}H{right:.1}\" stroke=\"#dddddd\" fill=\"none\"/>"
            );
            text(svg, (LEFT - 8.0, y + 4.0), "end", &format!("{:.0} %", 100.0 * ratio));
        }
        text(svg, (LEFT - 8.0, TOP - 8.0), "end", "hits");
        let seconds = format!("{:.0} s", self.last_ms as f64 / 1e3);
        text(svg, (WIDTH - RIGHT, HEIGHT - 15.0), "end", &seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(stage: Stage, at_ms: u64, ratios: [f64; 2]) -> Window {
        let [incumbent_hit_ratio, candidate_hit_ratio] = ratios;
        Window { stage, at_ms, incumbent_hit_ratio, candidate_hit_ratio }
    }

    /// 550 wide from 70, 310 high from 360; ratios from a half to nine tenths.
    #[test]
    fn windows_are_where_they_belong() {
        let windows = [
            window(Stage::FirstAlike, 1_000, [0.5, 0.5]),
            window(Stage::First, 2_000, [0.7, 0.9]),
            window(Stage::First, 4_000, [0.7, 0.5]),
        ];
        let svg = timeline(&windows, ["lru", "<mine>"], "t");
        assert!(svg.contains("M345.0 205.0L620.0 205.0\" stroke=\"#0072b2\""), "{svg}");
        assert!(svg.contains("M345.0 50.0L620.0 360.0\" stroke=\"#d55e00\""), "{svg}");
        assert!(svg.contains("&lt;mine&gt;") && svg.contains(">A/A<") && svg.contains(">A/B<"));
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn no_windows_are_no_harm() {
        let none = timeline(&[], ["a", "b"], "t");
        assert!(none.ends_with("</svg>\n") && !none.contains("NaN") && !none.contains("inf"));
    }
}
