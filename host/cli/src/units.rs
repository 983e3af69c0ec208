//! Sizes (`64MiB`) and durations (`60s`) as people write them.

use std::time::Duration;

const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const DURATION_UNITS_MS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("min", 60_000), ("h", 3_600_000)];

/// The bytes that a size like `64MiB`, `4MB` or `4096` means. `K`, `M`, `G` and `T` alone are
/// powers of 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let form = "a size is a number with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, as in 64MiB";
    scaled(text, SIZE_UNITS).map_err(|reason| format!("{reason}; {form}"))
}

/// The time that a duration like `60s` or `500ms` means.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let form = "a duration is a number with ms, s, min or h, as in 60s";
    let ms = scaled(text, DURATION_UNITS_MS).map_err(|reason| format!("{reason}; {form}"))?;
    Ok(Duration::from_millis(ms))
}

/// `bytes` for people, as in `1.5 MiB`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes as f64, "B");
    for larger in units {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    if number.is_empty() {
        return Err("no number".into());
    }
    let factor =
        units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(
            || if unit.is_empty() { "no unit".into() } else { format!("no unit {unit:?}") },
        )?;
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| "too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_both_systems() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64MiB", 64 << 20),
            ("4MB", 4_000_000),
            ("1GiB", 1 << 30),
            ("2 KiB", 2048),
            ("3K", 3072),
            ("7B", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "MiB", "-1", "1.5GiB", "64MIB", "3k", "20000000TiB", "99999999999999999999"]
        {
            assert!(parse_size(text).expect_err(text).contains("as in 64MiB"), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        for text in ["60", "s", "1d", "1.5s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(1024), "1.0 KiB");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
    }
}
