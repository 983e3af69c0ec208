//! Directories to export.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, makedev, mknodat, utimensat};

/// A few directories and files with content, a link among them. Answers the number of entries
/// that find(1) counts, the root included.
pub fn small(root: &Path) -> usize {
    for dir in ["a", "a/b", "c"] {
        fs::create_dir(root.join(dir)).expect("a directory");
    }
    for (name, content) in [("a/one", "1\n"), ("a/b/two", "22\n"), ("c/empty", ""), ("top", "t")] {
        fs::write(root.join(name), content).expect("a file");
    }
    symlink("a/one", root.join("link")).expect("a link");
    9
}

/// `dirs` directories of `files` empty files each, with 16-byte names.
pub fn wide(root: &Path, dirs: usize, files: usize) {
    for dir in 0..dirs {
        let path = root.join(format!("directory-{dir:06}"));
        fs::create_dir(&path).expect("a directory");
        for file in 0..files {
            File::create(path.join(format!("file-{file:011}"))).expect("a file");
        }
    }
}

/// Everything a directory can hold that a careless program trips over. Devices only for root.
pub fn odd(root: &Path) {
    names(root);
    links(root);
    special(root);
    for (mode, name) in [(0o4755, "setuid"), (0o2755, "setgid"), (0o000, "no mode")] {
        let path = root.join(name);
        fs::write(&path, name).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
    }
    fs::create_dir(root.join("sticky")).expect("a directory");
    fs::set_permissions(root.join("sticky"), Permissions::from_mode(0o1777)).expect("its mode");
    fs::create_dir_all(root.join("unreadable/below")).expect("a directory");
    fs::write(root.join("unreadable/file"), "x").expect("a file");
    fs::set_permissions(root.join("unreadable"), Permissions::from_mode(0o000)).expect("its mode");
    // A hole of 5 GiB: sizes do not fit 32 bits, and blocks do not follow from sizes.
    File::create(root.join("sparse")).expect("a file").set_len(5 << 30).expect("its size");
    for (secs, nanos, name) in
        [(-1, 999_999_999, "before 1970"), (0, 0, "in 1970"), (7_258_118_400, 1, "in 2200")]
    {
        let path = root.join(name);
        File::create(&path).expect("a file");
        set_mtime(&path, secs, nanos);
    }
    let mut deep = root.to_owned();
    for _ in 0..40 {
        deep.push("deep");
        fs::create_dir(&deep).expect("a directory");
    }
}

fn names(root: &Path) {
    let long = vec![b'n'; 255];
    let names: [&[u8]; 14] = [
        b"not \xff\xfe UTF-8",
        b"new\nline",
        b"tab\tand space ",
        b"-rf",
        b"quote's \"and\" \\back",
        b"*?[",
        b"...",
        b".hidden",
        b"\x01\x7f control",
        "pre\u{301}compose\u{e9}".as_bytes(),
        b"e\xcc\x81",
        b"\xc3\xa9",
        b"%s%n",
        &long,
    ];
    let dir = root.join("names");
    fs::create_dir(&dir).expect("a directory");
    for name in names {
        fs::write(dir.join(OsStr::from_bytes(name)), name).expect("a file");
    }
    fs::create_dir(dir.join(OsStr::from_bytes(&[0xff; 255]))).expect("a directory");
}

fn links(root: &Path) {
    let dir = root.join("links");
    fs::create_dir(&dir).expect("a directory");
    let long = "t/".repeat(2047);
    let targets = [
        ("self", "self"),
        ("there", "back"),
        ("back", "there"),
        ("up", ".."),
        ("root", "/"),
        ("dangling", "nowhere/at all"),
        ("absolute", "/etc/hostname"),
    ];
    for (name, target) in targets {
        symlink(target, dir.join(name)).expect("a link");
    }
    // xfs allows 1,023 bytes.
    if symlink(&long, dir.join("long")).is_err() {
        symlink(&long[..1_000], dir.join("long")).expect("a link");
    }
    symlink(OsStr::from_bytes(b"\xff\n"), dir.join("bytes")).expect("a link");
    fs::write(dir.join("first"), "one file, three names").expect("a file");
    fs::hard_link(dir.join("first"), dir.join("second")).expect("a hard link");
    fs::hard_link(dir.join("first"), root.join("third")).expect("a hard link");
}

fn special(root: &Path) {
    let dir = root.join("special");
    fs::create_dir(&dir).expect("a directory");
    drop(UnixListener::bind(dir.join("socket")).expect("a socket"));
    node(&dir.join("fifo"), FileType::Fifo, 0, 0);
    if rustix::process::geteuid().is_root() {
        node(&dir.join("null"), FileType::CharacterDevice, 1, 3);
        node(&dir.join("block"), FileType::BlockDevice, 259, 65_537);
    }
}

fn node(path: &Path, kind: FileType, major: u32, minor: u32) {
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, path, kind, mode, makedev(major, minor)).expect("a node");
}

/// Sets the time of the last change.
pub fn set_mtime(path: &Path, secs: i64, nanos: i64) {
    let time = Timespec { tv_sec: secs, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("its time");
}

/// The real trees of this machine that are compared: with `soaking`, the largest.
pub fn real() -> Vec<PathBuf> {
    let trees: &[&str] =
        if crate::soaking() { &["/usr", "/etc"] } else { &["/usr/include", "/usr/share", "/etc"] };
    let trees: Vec<PathBuf> = trees.iter().map(PathBuf::from).filter(|dir| dir.is_dir()).collect();
    assert!(trees.len() >= 2, "a system has at least two of these");
    trees
}
