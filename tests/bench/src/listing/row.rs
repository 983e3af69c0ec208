//! One row of the table: our value, whose it is compared with, and the bar.

use std::time::Duration;

use serde_json::{Value, json};

/// A measured value.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// How long something took.
    Time(Duration),
    /// Milliseconds between two such, which may be less than none.
    DifferenceMs(f64),
    /// How many.
    Count(f64),
    /// How much memory.
    Bytes(f64),
    /// How many times as much.
    Growth(f64),
}

impl Measure {
    /// In seconds, bytes or a number.
    pub fn value(self) -> f64 {
        match self {
            Measure::Time(time) => time.as_secs_f64(),
            Measure::DifferenceMs(value)
            | Measure::Count(value)
            | Measure::Bytes(value)
            | Measure::Growth(value) => value,
        }
    }

    fn with(self, value: f64) -> Self {
        match self {
            Measure::Time(_) => Measure::Time(Duration::from_secs_f64(value)),
            Measure::DifferenceMs(_) => Measure::DifferenceMs(value),
            Measure::Count(_) => Measure::Count(value),
            Measure::Bytes(_) => Measure::Bytes(value),
            Measure::Growth(_) => Measure::Growth(value),
        }
    }

    fn shown(self) -> String {
        match self {
            Measure::Time(time) => shown(time),
            Measure::DifferenceMs(ms) => format!("{ms:+.1} ms"),
            Measure::Count(count) => format!("{count:.2}").trim_end_matches(".00").to_owned(),
            Measure::Bytes(bytes) if bytes >= 1_048_576.0 => {
                format!("{:.1} MiB", bytes / 1_048_576.0)
            }
            Measure::Bytes(bytes) => format!("{bytes:.1} B"),
            Measure::Growth(growth) => format!("{growth:.2}x"),
        }
    }
}

/// A time with three digits.
pub fn shown(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        10_000.0.. => format!("{:.1} s", ms / 1e3),
        1_000.0.. => format!("{:.2} s", ms / 1e3),
        100.0.. => format!("{ms:.0} ms"),
        _ => format!("{ms:.1} ms"),
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was done.
    pub work: String,
    /// Our value.
    pub ours: Measure,
    /// Whose value it is compared with, and that.
    pub against: Option<(String, Measure)>,
    /// The most that the ratio may be, or our value where there is none. `None`: only shown.
    pub bar: Option<f64>,
    /// Requests of ours, and what else is to be said.
    pub note: String,
}

impl Row {
    fn ratio(&self) -> Option<f64> {
        self.against.as_ref().map(|(_, against)| self.ours.value() / against.value())
    }

    /// Whether the bar is held, where there is one.
    pub(super) fn holds(&self) -> Option<bool> {
        self.bar.map(|bar| self.ratio().unwrap_or(self.ours.value()) <= bar)
    }

    pub(super) fn cells(&self) -> [String; 6] {
        let against = self.against.as_ref();
        let bar = self.bar.map(|bar| match self.ratio() {
            Some(_) => format!("{bar:.2}x"),
            None => match self.ours {
                Measure::Time(_) => shown(Duration::from_secs_f64(bar)),
                other => other.with(bar).shown(),
            },
        });
        let held = match self.holds() {
            Some(true) => " held",
            Some(false) => " MISSED",
            None => "",
        };
        [
            self.work.clone(),
            self.ours.shown(),
            against.map_or(String::new(), |(name, value)| format!("{} ({name})", value.shown())),
            self.ratio().map_or(String::new(), |ratio| format!("{ratio:.2}x")),
            bar.map_or(String::new(), |bar| format!("<= {bar}{held}")),
            self.note.clone(),
        ]
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "work": self.work,
            "ours": self.ours.value(),
            "against": self.against.as_ref().map(|(name, _)| name),
            "theirs": self.against.as_ref().map(|(_, value)| value.value()),
            "ratio": self.ratio(),
            "at_most": self.bar,
            "holds": self.holds(),
            "note": self.note,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_without_anything_to_compare_with_is_of_our_own_value() {
        let row = |count| Row {
            work: "requests".into(),
            ours: Measure::Count(count),
            against: None,
            bar: Some(10.0),
            note: String::new(),
        };
        assert_eq!([row(10.0).holds(), row(11.0).holds()], [Some(true), Some(false)]);
        assert_eq!(row(11.0).cells()[4], "<= 10 MISSED");
    }
}
