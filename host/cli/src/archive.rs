//! A tar archive, written as a stream: POSIX headers, with extended ones (pax) for what a plain
//! header cannot hold.
//!
//! Extended records carry the nanoseconds of the time of last change, paths over 100 bytes, and
//! numbers too large for their field. A path that is not UTF-8 is announced by
//! `hdrcharset=BINARY`. GNU tar, bsdtar and Python's tarfile read all of it.

use portcullis_core::{Attr, FileKind, Timestamp};
use tar::{EntryType, Header};

use crate::text::device_numbers;

/// An archive is a series of blocks of this size.
const BLOCK_LEN_BYTES: usize = 512;
/// Archives are padded to a multiple of this, as GNU tar does.
const RECORD_LEN_BYTES: u64 = 20 * BLOCK_LEN_BYTES as u64;
/// What the octal field of a size holds at most, and that of an owner.
const SIZE_BYTES_MAX: u64 = 0o77_777_777_777;
const OWNER_MAX: u64 = 0o7_777_777;
/// Where a path is cut to fit the plain header; the whole path is in the extended one.
const PLAIN_PATH_LEN_MAX: usize = 100;

/// What an entry of an archive is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Member<'a> {
    /// A file of the kind its attributes say.
    File,
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: &'a [u8],
    },
    /// Another name of a file that is already in the archive.
    Hardlink {
        /// Its path in the archive.
        target: &'a [u8],
    },
}

/// Appends the headers of an entry; a regular file's content follows them, then
/// [`push_padding`]. `false`, with nothing appended, for what an archive cannot hold: a socket.
pub(crate) fn push_headers(
    out: &mut Vec<u8>,
    path: &[u8],
    attr: &Attr,
    member: Member<'_>,
) -> bool {
    let (kind, target) = match member {
        Member::Hardlink { target } => (EntryType::Link, target),
        Member::Symlink { target } => (EntryType::Symlink, target),
        Member::File => match attr.kind() {
            FileKind::Regular => (EntryType::Regular, &b""[..]),
            FileKind::Directory => (EntryType::Directory, &b""[..]),
            FileKind::Fifo => (EntryType::Fifo, &b""[..]),
            FileKind::CharDevice => (EntryType::Char, &b""[..]),
            FileKind::BlockDevice => (EntryType::Block, &b""[..]),
            FileKind::Symlink | FileKind::Socket | FileKind::Unknown => return false,
        },
    };
    let size_bytes = if kind == EntryType::Regular { attr.size_bytes } else { 0 };
    let records = extended_records(path, target, attr, size_bytes);
    if !records.is_empty() {
        push_extended(out, path, &records);
    }
    let mut header = plain_header(path, kind, size_bytes);
    header.set_mode(attr.mode & 0o7777);
    header.set_uid(u64::from(attr.uid).min(OWNER_MAX));
    header.set_gid(u64::from(attr.gid).min(OWNER_MAX));
    header.set_mtime(attr.mtime.secs.clamp(0, SIZE_BYTES_MAX as i64) as u64);
    put(&mut header.as_old_mut().linkname, target);
    if matches!(kind, EntryType::Char | EntryType::Block) {
        let (major, minor) = device_numbers(attr.rdev);
        if let Some(ustar) = header.as_ustar_mut() {
            ustar.set_device_major(major);
            ustar.set_device_minor(minor);
        }
    }
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    true
}

/// Appends what fills the last block of a content of `len_bytes`.
pub(crate) fn push_padding(out: &mut Vec<u8>, len_bytes: u64) {
    let over = (len_bytes % BLOCK_LEN_BYTES as u64) as usize;
    if over > 0 {
        out.resize(out.len() + BLOCK_LEN_BYTES - over, 0);
    }
}

/// Appends the end of an archive of `len_bytes` so far.
pub(crate) fn push_end(out: &mut Vec<u8>, len_bytes: u64) {
    let end = (len_bytes + 2 * BLOCK_LEN_BYTES as u64).next_multiple_of(RECORD_LEN_BYTES);
    out.resize(out.len() + (end - len_bytes) as usize, 0);
}

fn plain_header(path: &[u8], kind: EntryType, size_bytes: u64) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size_bytes.min(SIZE_BYTES_MAX));
    put(&mut header.as_old_mut().name, path);
    header
}

fn push_extended(out: &mut Vec<u8>, path: &[u8], records: &[u8]) {
    let mut name = b"PaxHeaders/".to_vec();
    name.extend_from_slice(path.strip_prefix(b"./").unwrap_or(path));
    name.truncate(PLAIN_PATH_LEN_MAX);
    let mut header = plain_header(&name, EntryType::XHeader, records.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(records);
    push_padding(out, records.len() as u64);
}

fn extended_records(path: &[u8], target: &[u8], attr: &Attr, size_bytes: u64) -> Vec<u8> {
    let mut records = Vec::new();
    let is_text = |name: &[u8]| std::str::from_utf8(name).is_ok();
    let long = |name: &[u8]| name.len() > PLAIN_PATH_LEN_MAX;
    if (long(path) && !is_text(path)) || (long(target) && !is_text(target)) {
        push_record(&mut records, "hdrcharset", b"BINARY");
    }
    if long(path) {
        push_record(&mut records, "path", path);
    }
    if long(target) {
        push_record(&mut records, "linkpath", target);
    }
    if attr.mtime.nanos > 0 || !(0..=SIZE_BYTES_MAX as i64).contains(&attr.mtime.secs) {
        push_record(&mut records, "mtime", decimal_time(attr.mtime).as_bytes());
    }
    for (key, value, max) in [
        ("size", size_bytes, SIZE_BYTES_MAX),
        ("uid", u64::from(attr.uid), OWNER_MAX),
        ("gid", u64::from(attr.gid), OWNER_MAX),
    ] {
        if value > max {
            push_record(&mut records, key, value.to_string().as_bytes());
        }
    }
    records
}

/// A time as a decimal number; the nanoseconds of [`Timestamp`] count upwards from its second, the
/// digits after a minus sign downwards.
fn decimal_time(time: Timestamp) -> String {
    if time.secs >= 0 || time.nanos == 0 {
        let nanos = format!("{:09}", time.nanos);
        let digits = nanos.trim_end_matches('0');
        let point = if digits.is_empty() { "" } else { "." };
        return format!("{}{point}{digits}", time.secs);
    }
    let below = Timestamp { secs: -1 - time.secs, nanos: 1_000_000_000 - time.nanos };
    format!("-{}", decimal_time(below))
}

/// A record is its own length, a space, `key=value` and a line end.
fn push_record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(format!("{len} {key}=").as_bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

/// Copies what fits.
fn put(field: &mut [u8], bytes: &[u8]) {
    let len = bytes.len().min(field.len());
    field[..len].copy_from_slice(&bytes[..len]);
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn attr(mode: u32) -> Attr {
        Attr { mode, mtime: Timestamp { secs: 5, nanos: 7 }, ..Attr::default() }
    }

    fn archive(entries: &[(&[u8], Attr, Member<'_>, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, attr, member, content) in entries {
            assert!(push_headers(&mut out, path, attr, *member));
            out.extend_from_slice(content);
            push_padding(&mut out, content.len() as u64);
        }
        let len = out.len() as u64;
        push_end(&mut out, len);
        assert_eq!(out.len() as u64 % RECORD_LEN_BYTES, 0);
        out
    }

    #[test]
    fn another_reader_finds_paths_contents_and_kinds() {
        let long = [b"./".as_slice(), &b"d\xff/".repeat(60), b"file"].concat();
        let regular = Attr { size_bytes: 3, ..attr(0o100_640) };
        let device = Attr { rdev: rustix::fs::makedev(259, 70_000), ..attr(0o060_600) };
        let bytes = archive(&[
            (b"./", attr(0o040_755), Member::File, b""),
            (b"./a", regular, Member::File, b"abc"),
            (&long, regular, Member::File, b"xyz"),
            (b"./b", regular, Member::Hardlink { target: &long }, b""),
            (b"./l", attr(0o120_777), Member::Symlink { target: b"\xfe to" }, b""),
            (b"./dev", device, Member::File, b""),
            (b"./fifo", attr(0o010_600), Member::File, b""),
        ]);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut found = Vec::new();
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("content");
            let link = entry.link_name_bytes().map(|link| link.into_owned());
            let kind = entry.header().entry_type();
            found.push((entry.path_bytes().into_owned(), kind, link.unwrap_or_default(), content));
            let header = entry.header();
            if kind == EntryType::Block {
                let device = (header.device_major(), header.device_minor());
                assert_eq!(device.0.expect("a number"), Some(259));
                assert_eq!(device.1.expect("a number"), Some(70_000));
            }
        }
        let none = Vec::new;
        assert_eq!(
            found,
            [
                (b"./".to_vec(), EntryType::Directory, none(), none()),
                (b"./a".to_vec(), EntryType::Regular, none(), b"abc".to_vec()),
                (long.clone(), EntryType::Regular, none(), b"xyz".to_vec()),
                (b"./b".to_vec(), EntryType::Link, long, none()),
                (b"./l".to_vec(), EntryType::Symlink, b"\xfe to".to_vec(), none()),
                (b"./dev".to_vec(), EntryType::Block, none(), none()),
                (b"./fifo".to_vec(), EntryType::Fifo, none(), none()),
            ]
        );
    }

    #[test]
    fn a_socket_is_no_member() {
        let mut out = Vec::new();
        assert!(!push_headers(&mut out, b"./s", &attr(0o140_755), Member::File));
        assert!(out.is_empty());
    }

    #[test]
    fn what_a_header_cannot_hold_is_in_records_of_the_right_length() {
        let mtime = Timestamp { secs: -3, nanos: 500_000_000 };
        let big = Attr { size_bytes: 1 << 40, uid: u32::MAX, mtime, ..attr(0o100_600) };
        let records = extended_records(b"p", b"", &big, big.size_bytes);
        let expected = "14 mtime=-2.5\n22 size=1099511627776\n18 uid=4294967295\n";
        assert_eq!(String::from_utf8_lossy(&records), expected);
        for len in 80..120 {
            let mut records = Vec::new();
            push_record(&mut records, "path", &vec![b'x'; len]);
            let text = String::from_utf8_lossy(&records);
            let (said, _) = text.split_once(' ').expect("a length");
            assert_eq!(said.parse(), Ok(records.len()));
        }
    }
}
