//! Listing a tree through Portcullis and with the system's find, and comparing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use crate::site::Site;

/// All that a listing and its attributes tell: type, size, mode, owner, group, mtime, path, link
/// target, links, inode. Ended by NUL, since names may hold newlines.
pub const EVERYTHING: &str = "%y %s %m %U %G %T@ %P %l %n %i\\0";

/// What `portcullis find` prints of the tree at `path`, one item an entry.
pub fn through(site: &Site, path: &str, format: &str) -> BTreeSet<Vec<u8>> {
    items(&site.stdout("find", path, &["-printf", format]))
}

/// What the system's find prints of `dir`.
pub fn local(dir: &Path, format: &str) -> BTreeSet<Vec<u8>> {
    let hidden = ["-name", crate::view::ORPHANS, "-prune", "-o"];
    let output = Command::new("find").arg(dir).args(hidden).args(["-printf", format]).output();
    let output = output.expect("find(1) runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    items(&output.stdout)
}

/// Fails where the two differ, showing the first differences.
///
/// # Panics
/// They differ.
pub fn assert_equal(through: &BTreeSet<Vec<u8>>, local: &BTreeSet<Vec<u8>>) {
    assert!(!local.is_empty(), "an empty tree proves nothing");
    let show = |sign: &str, items: &mut dyn Iterator<Item = &Vec<u8>>| -> String {
        let line = |item: &Vec<u8>| format!("{sign} {}\n", item.escape_ascii());
        items.take(10).map(line).collect()
    };
    let missing = show("-", &mut local.difference(through));
    let extra = show("+", &mut through.difference(local));
    assert!(
        missing.is_empty() && extra.is_empty(),
        "of {} entries, lines with - are missing or wrong, with + unexpected:\n{missing}{extra}",
        local.len(),
    );
}

/// The items of a NUL-ended list, each of which must be there once.
pub fn items(printed: &[u8]) -> BTreeSet<Vec<u8>> {
    let items: Vec<&[u8]> =
        printed.split(|&byte| byte == 0).filter(|item| !item.is_empty()).collect();
    let count = items.len();
    let set: BTreeSet<Vec<u8>> = items.into_iter().map(<[u8]>::to_vec).collect();
    assert_eq!(set.len(), count, "an entry was delivered twice");
    set
}

/// A path as the bytes that a command is given.
pub fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
