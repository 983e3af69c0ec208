//! What is mounted where, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The mount that a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Top {
    /// Type, with its subtype (`fuse.portcullis`).
    pub(crate) fstype: String,
    /// Source.
    pub(crate) source: String,
}

/// The topmost mount on exactly this directory, if any. Asks no file system.
pub(crate) fn top(mountpoint: &Path) -> Option<Top> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    top_in(&table, mountpoint)
}

/// `id parent major:minor root MOUNTPOINT options [tag ...] - FSTYPE SOURCE super-options`, a line
/// a mount, later ones on top.
fn top_in(table: &[u8], mountpoint: &Path) -> Option<Top> {
    table.split(|&byte| byte == b'\n').rev().find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        let on = unescape(fields.nth(4)?);
        if on.as_bytes() != mountpoint.as_os_str().as_bytes() {
            return None;
        }
        fields.find(|field| field == b"-")?;
        let mut text = || Some(unescape(fields.next()?).to_string_lossy().into_owned());
        Some(Top { fstype: text()?, source: text()? })
    })
}

/// Space, tab, newline and backslash are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match tail {
            &[a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ref after @ ..]
                if byte == b'\\' =>
            {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 253:0 / / rw shared:1 - ext4 /dev/vda rw\n\
        40 22 0:50 / /mnt/a\\040b rw master:1 shared:2 - fuse.portcullis pc://h:1/x ro\n\
        41 40 0:51 / /mnt/a\\040b rw - tmpfs none rw\n";

    #[test]
    fn the_last_mount_on_a_directory_is_the_one_seen() {
        let top = top_in(TABLE, Path::new("/mnt/a b")).unwrap();
        assert_eq!(top, Top { fstype: "tmpfs".into(), source: "none".into() });
    }

    #[test]
    fn tags_between_options_and_type_are_skipped() {
        let one = &TABLE[..TABLE.len() - b"41 40 0:51 / /mnt/a\\040b rw - tmpfs none rw\n".len()];
        let top = top_in(one, Path::new("/mnt/a b")).unwrap();
        assert_eq!(top, Top { fstype: "fuse.portcullis".into(), source: "pc://h:1/x".into() });
    }

    #[test]
    fn a_directory_below_a_mount_is_not_one() {
        assert_eq!(top_in(TABLE, Path::new("/mnt")), None);
        assert_eq!(top_in(b"", Path::new("/")), None);
        assert_eq!(top_in(b"garbage\n1 2 3 4 /x\n", Path::new("/x")), None);
    }
}
