//! What is changed, and the ways to look at it.
//!
//! A case is a handful of names in one directory, made before anything is mounted:
//!
//! | name | what |
//! |---|---|
//! | `file` | a file with content, and the attribute `user.mark` |
//! | `target` | another file |
//! | `link` | a symbolic link |
//! | `empty` | an empty directory |
//! | `sub` | a directory, empty too |
//! | `gone`, `sub/gone` | nothing, until a change makes it |

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use portcullis_suite::view;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    XattrFlags,
};

/// A change to a case, made below the root of a mount.
pub(super) type Change = fn(&Case, &Path);

/// Every mutating operation, by name.
pub(super) const CHANGES: &[(&str, Change)] = &[
    ("create", |case, root| drop(File::create_new(case.at(root, "gone")).expect("create"))),
    ("mkdir", |case, root| fs::create_dir(case.at(root, "gone")).expect("mkdir")),
    ("mknod", |case, root| {
        let mode = Mode::from_raw_mode(0o600);
        let path = case.at(root, "gone");
        rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).expect("mknod");
    }),
    ("symlink", |case, root| symlink("file", case.at(root, "gone")).expect("symlink")),
    ("link", |case, root| {
        fs::hard_link(case.at(root, "file"), case.at(root, "gone")).expect("link");
    }),
    ("link below", |case, root| {
        fs::hard_link(case.at(root, "file"), case.below(root)).expect("link");
    }),
    ("unlink", |case, root| fs::remove_file(case.at(root, "file")).expect("unlink")),
    ("unlink of a link", |case, root| fs::remove_file(case.at(root, "link")).expect("unlink")),
    ("rmdir", |case, root| fs::remove_dir(case.at(root, "empty")).expect("rmdir")),
    ("rename", |case, root| rename(case, root, "file", "gone", RenameFlags::empty())),
    ("rename over", |case, root| rename(case, root, "file", "target", RenameFlags::empty())),
    ("rename of a directory", |case, root| {
        rename(case, root, "sub", "empty", RenameFlags::empty());
    }),
    ("rename below", |case, root| {
        fs::rename(case.at(root, "file"), case.below(root)).expect("rename");
    }),
    ("rename, no replace", |case, root| {
        rename(case, root, "file", "gone", RenameFlags::NOREPLACE);
    }),
    ("exchange", |case, root| rename(case, root, "file", "target", RenameFlags::EXCHANGE)),
    ("exchange of kinds", |case, root| rename(case, root, "file", "sub", RenameFlags::EXCHANGE)),
    ("unnamed, then named", unnamed),
    ("write", |case, root| open(case, root).write_all_at(b"WRITTEN", 2).expect("write")),
    ("append", |case, root| {
        let file = OpenOptions::new().append(true).open(case.at(root, "file")).expect("open");
        std::io::Write::write_all(&mut &file, b"appended").expect("append");
    }),
    ("truncate", |case, root| open(case, root).set_len(3).expect("truncate")),
    ("truncating open", |case, root| drop(File::create(case.at(root, "file")).expect("open"))),
    ("fallocate", |case, root| {
        let file = open(case, root);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 9_999).expect("fallocate");
    }),
    ("punch a hole", |case, root| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(open(case, root), flags, 1, 4).expect("fallocate");
    }),
    ("copy a range", |case, root| {
        let from = File::open(case.at(root, "target")).expect("open");
        let to = open(case, root);
        let (mut from_at, mut to_at) = (0, 4);
        let ranges = (Some(&mut from_at), Some(&mut to_at));
        rustix::fs::copy_file_range(from.as_fd(), ranges.0, to.as_fd(), ranges.1, 6).expect("copy");
    }),
    ("chmod", |case, root| {
        let mode = Permissions::from_mode(0o601);
        fs::set_permissions(case.at(root, "file"), mode).expect("chmod");
    }),
    ("chmod of a directory", |case, root| {
        let mode = Permissions::from_mode(0o711);
        fs::set_permissions(case.at(root, "sub"), mode).expect("chmod");
    }),
    ("chown", |case, root| chown(case.at(root, "file"), Some(11), Some(12)).expect("chown")),
    ("utimens", |case, root| {
        let time = Timespec { tv_sec: 1_000_000_007, tv_nsec: 8 };
        let times = Timestamps { last_access: time, last_modification: time };
        let path = case.at(root, "file");
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("utimens");
    }),
    ("setxattr", |case, root| {
        let path = case.at(root, "file");
        rustix::fs::setxattr(path, "user.mark", b"new", XattrFlags::empty()).expect("setxattr");
    }),
    ("removexattr", |case, root| {
        rustix::fs::removexattr(case.at(root, "file"), "user.mark").expect("removexattr");
    }),
];

fn open(case: &Case, root: &Path) -> File {
    OpenOptions::new().write(true).open(case.at(root, "file")).expect("open")
}

fn rename(case: &Case, root: &Path, from: &str, to: &str, flags: RenameFlags) {
    let (from, to) = (case.at(root, from), case.at(root, to));
    rustix::fs::renameat_with(CWD, from, CWD, to, flags).expect("rename");
}

fn unnamed(case: &Case, root: &Path) {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = rustix::fs::open(root.join(&case.dir), flags, Mode::from_raw_mode(0o640));
    let file = File::from(file.expect("an unnamed file"));
    file.write_all_at(b"unnamed", 0).expect("write");
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, from, CWD, case.at(root, "gone"), follow).expect("link");
}

/// The names of a case, in the order in which they are looked at.
const NAMES: &[&str] = &["file", "gone", "target", "sub", "empty", "link"];

/// A handful of names in a directory.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The directory, from the root of the volume.
    pub(super) dir: PathBuf,
    /// What all names begin with; empty where the directory is the case's own.
    pub(super) prefix: String,
}

impl Case {
    /// Makes the case below `root`.
    pub(super) fn make(&self, root: &Path) {
        fs::create_dir_all(root.join(&self.dir)).expect("a directory");
        fs::write(self.at(root, "file"), "0123456789").expect("a file");
        fs::write(self.at(root, "target"), "the target").expect("a file");
        let path = self.at(root, "file");
        rustix::fs::setxattr(path, "user.mark", b"old", XattrFlags::empty()).expect("an xattr");
        symlink("target", self.at(root, "link")).expect("a link");
        fs::create_dir(self.at(root, "empty")).expect("a directory");
        fs::create_dir(self.at(root, "sub")).expect("a directory");
    }

    fn at(&self, root: &Path, name: &str) -> PathBuf {
        root.join(&self.dir).join(format!("{}{name}", self.prefix))
    }

    fn below(&self, root: &Path) -> PathBuf {
        self.at(root, "sub").join("gone")
    }

    /// The names, beginning with another one for each `turn`: what is looked at first is the
    /// first request after the change.
    fn names(&self, turn: usize) -> impl Iterator<Item = &'static str> {
        NAMES.iter().copied().cycle().skip(turn % NAMES.len()).take(NAMES.len())
    }

    /// Looks at the case in one way.
    pub(super) fn look(&self, look: Look, root: &Path, turn: usize) -> String {
        let name_by_name = |what: &dyn Fn(PathBuf) -> String| -> String {
            let mut lines: Vec<String> = self
                .names(turn)
                .map(|name| format!("{name}: {}\n", what(self.at(root, name))))
                .collect();
            lines.push(format!("sub/gone: {}\n", what(self.below(root))));
            lines.sort();
            lines.concat()
        };
        match look {
            Look::Stat => {
                let mut seen = name_by_name(&|path| view::attr(&path));
                seen += &format!("xattr: {}\n", view::xattr(&self.at(root, "file"), "user.mark"));
                if self.prefix.is_empty() {
                    seen += &format!("the directory: {}\n", view::attr(&root.join(&self.dir)));
                }
                seen
            }
            Look::Readdir => {
                let dirs = [root.join(&self.dir), self.at(root, "sub"), self.at(root, "empty")];
                let lists = dirs.iter().enumerate().map(|(index, dir)| {
                    let prefix = if index == 0 { &self.prefix } else { "" };
                    format!("{}\n", view::names(dir, prefix))
                });
                lists.collect()
            }
            Look::Read => name_by_name(&|path| view::content(&path)),
            Look::Lookup => name_by_name(&|path| view::kind(&path)),
        }
    }
}

/// A way to look at a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Attributes of all names.
    Stat,
    /// Names and types from listings.
    Readdir,
    /// Content, opened anew.
    Read,
    /// Which names exist.
    Lookup,
}

impl Look {
    /// All of them.
    pub(super) const ALL: [Look; 4] = [Look::Stat, Look::Readdir, Look::Read, Look::Lookup];
}
