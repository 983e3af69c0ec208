//! Modes and times for people.

use portcullis_core::{FileKind, Timestamp};
use time::OffsetDateTime;

/// The mode as `ls -l` shows it: `drwxr-xr-x`.
pub(crate) fn symbolic_mode(kind: FileKind, mode: u32) -> String {
    let kind = match kind {
        FileKind::Regular => '-',
        FileKind::Unknown => '?',
        other => other.letter(),
    };
    let mut shown = String::from(kind);
    for (shift, special, with_x, without_x) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        let bits = mode >> shift;
        shown.push(if bits & 4 != 0 { 'r' } else { '-' });
        shown.push(if bits & 2 != 0 { 'w' } else { '-' });
        shown.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => with_x,
            (true, false) => 'x',
            (false, true) => without_x,
            (false, false) => '-',
        });
    }
    shown
}

/// What a kind is called.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "character device",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block device",
        FileKind::Regular => "regular file",
        FileKind::Symlink => "symbolic link",
        FileKind::Socket => "socket",
        FileKind::Unknown => "of unknown type",
    }
}

/// A time in UTC to the second, `2026-03-01 12:00:00`; beyond the years that have four digits,
/// `@` and its seconds.
pub(crate) fn utc(time: Timestamp) -> String {
    match OffsetDateTime::from_unix_timestamp(time.secs) {
        Ok(at) if at.year() >= 0 => {
            let (year, month, day) = at.to_calendar_date();
            let (hour, minute, second) = at.to_hms();
            let month = u8::from(month);
            format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
        }
        _ => format!("@{}", time.secs),
    }
}

/// A time in UTC to the nanosecond.
pub(crate) fn utc_nanos(time: Timestamp) -> String {
    format!("{}.{:09} UTC", utc(time), time.nanos)
}

/// Major and minor number of a device, as makedev(3) joined them.
pub(crate) fn device_numbers(rdev: u64) -> (u32, u32) {
    (rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_ls_shows_them() {
        assert_eq!(symbolic_mode(FileKind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(symbolic_mode(FileKind::Regular, 0o4755), "-rwsr-xr-x");
        assert_eq!(symbolic_mode(FileKind::Regular, 0o7640), "-rwSr-S--T");
        assert_eq!(symbolic_mode(FileKind::Symlink, 0o777), "lrwxrwxrwx");
    }

    #[test]
    fn times_are_utc() {
        let at = |secs| utc(Timestamp { secs, nanos: 0 });
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(1_709_208_000), "2024-02-29 12:00:00");
        assert_eq!(at(-1), "1969-12-31 23:59:59");
        assert_eq!(at(i64::MAX), format!("@{}", i64::MAX));
    }
}
