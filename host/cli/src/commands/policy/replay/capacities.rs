//! Capacities as they are asked for: `10k`, `64MiB`, `5%`.

use portcullis_replay::row::LIVE_NAME;
use portcullis_replay::{Capacity, ReplayError, Trace};

use crate::units::parse_size;

/// A capacity before the trace is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    Fixed(Capacity),
    /// Of the trace's objects.
    Percent(f64),
    /// Of the gateway that the trace was recorded from.
    Live,
}

/// Letters after a number of entries.
const ENTRIES: &[(&str, u64)] =
    &[("", 1), ("k", 1_000), ("K", 1_000), ("m", 1_000_000), ("M", 1_000_000)];

/// Reads a capacity: entries, by thousands (`k`) and millions (`M`), bytes where there is a `B` in the
/// unit, or percent.
pub(super) fn parse(text: &str) -> Result<Asked, String> {
    let form = "a capacity is a number of entries (500, 10k, 1M), of bytes (64MiB) or percent (5%), or is live";
    let bad = || form.to_owned();
    let text = text.trim();
    if text == LIVE_NAME {
        return Ok(Asked::Live);
    }
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().map_err(|_| bad())?;
        return if percent > 0.0 && percent <= 100.0 {
            Ok(Asked::Percent(percent))
        } else {
            Err(bad())
        };
    }
    let amount = if text.ends_with('B') {
        Capacity::Bytes(parse_size(text)?)
    } else {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let scale = ENTRIES.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let number: u64 = number.parse().map_err(|_| bad())?;
        Capacity::Entries(number.checked_mul(scale.ok_or_else(bad)?).ok_or_else(bad)?)
    };
    if amount.amount() == 0 { Err(bad()) } else { Ok(Asked::Fixed(amount)) }
}

/// The capacities for a trace, each once.
pub(super) fn resolve(asked: &[Asked], trace: &Trace) -> Result<Vec<Capacity>, ReplayError> {
    let mut capacities = Vec::new();
    for asked in asked {
        let capacity = match *asked {
            Asked::Fixed(capacity) => capacity,
            Asked::Percent(percent) => {
                let entries = (trace.distinct() as f64 * percent / 100.0).round();
                Capacity::Entries((entries as u64).max(1))
            }
            Asked::Live => {
                let live = trace.live().ok_or(ReplayError::NotLive)?;
                Capacity::Bytes(live.capacity_bytes.max(1))
            }
        };
        capacity.check(trace)?;
        if !capacities.contains(&capacity) {
            capacities.push(capacity);
        }
    }
    Ok(capacities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_bytes_tells_bytes_from_entries() {
        for (text, asked) in [
            ("500", Asked::Fixed(Capacity::Entries(500))),
            ("10k", Asked::Fixed(Capacity::Entries(10_000))),
            ("1M", Asked::Fixed(Capacity::Entries(1_000_000))),
            ("128MiB", Asked::Fixed(Capacity::Bytes(1 << 27))),
            ("500B", Asked::Fixed(Capacity::Bytes(500))),
            ("2.5%", Asked::Percent(2.5)),
            ("live", Asked::Live),
        ] {
            assert_eq!(parse(text), Ok(asked), "{text}");
        }
        for text in ["", "0", "k", "-1", "1.5k", "10q", "0%", "101%", "NaN%", "xB", "0B"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
