//! Whether a file has POSIX access control lists: told with its attributes, so that a mount that shows
//! lists need not ask for those of each file, of which nearly all have none.
//!
//! It costs one more system call a file. So nobody is told before somebody asks for it, with a
//! listing; from then on it is told with all attributes that are read where a file is found.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_core::FileKind;
use rustix::buffer::spare_capacity;
use rustix::fs::{listxattr, llistxattr};
use rustix::io::{Errno, Result};

use crate::export::proc_path;

/// What the names of both lists begin with.
const PREFIX: &[u8] = b"system.posix_acl_";
/// Room for the names of a file's attributes; a file with more is not told to have no list.
const NAMES_LEN_BYTES: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct AccessLists {
    are_wanted: AtomicBool,
}

impl AccessLists {
    /// From now on it is told.
    pub(crate) fn tell(&self) {
        self.are_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether it is told, and the file of a descriptor has none.
    pub(crate) fn has_none(&self, file: BorrowedFd<'_>, kind: FileKind) -> bool {
        self.none(kind, |names| listxattr(proc_path(file), spare_capacity(names)))
    }

    /// The same of what a name of a directory stands for.
    pub(crate) fn has_none_by_name(&self, dir: BorrowedFd<'_>, name: &[u8]) -> bool {
        self.none(FileKind::Unknown, |names| {
            let mut path = PathBuf::from(proc_path(dir));
            path.push(std::ffi::OsStr::from_bytes(name));
            llistxattr(path, spare_capacity(names))
        })
    }

    fn none(&self, kind: FileKind, list: impl FnOnce(&mut Vec<u8>) -> Result<usize>) -> bool {
        if !self.are_wanted.load(Ordering::Relaxed) {
            return false;
        }
        if kind == FileKind::Symlink {
            return true;
        }
        let mut names = Vec::with_capacity(NAMES_LEN_BYTES);
        match list(&mut names) {
            Ok(_) => names.split(|&byte| byte == 0).all(|name| !name.starts_with(PREFIX)),
            Err(error) => error == Errno::OPNOTSUPP,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    /// A list that grants user 1000 to read, as in linux/posix_acl_xattr.h.
    fn list() -> Vec<u8> {
        let entry = |tag: u16, perm: u16, id: u32| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries = [(1, 6, none), (2, 4, 1000), (4, 4, none), (16, 4, none), (32, 4, none)];
        let entries = entries.map(|(tag, perm, id)| entry(tag, perm, id)).concat();
        [&2_u32.to_le_bytes()[..], &entries].concat()
    }

    #[test]
    fn only_a_file_without_lists_is_told_to_have_none_and_only_once_it_is_asked_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let [plain, listed] = ["plain", "listed"].map(|name| dir.path().join(name));
        let file = File::create(&plain).expect("made");
        File::create(&listed).expect("made");
        if setxattr(&plain, "user.any", b"value", XattrFlags::empty()).is_err()
            || setxattr(&listed, "system.posix_acl_access", &list(), XattrFlags::empty()).is_err()
        {
            return eprintln!("skipped: no extended attributes or lists here");
        }
        let lists = AccessLists::default();
        let top = File::open(dir.path()).expect("opened");
        assert!(!lists.has_none_by_name(top.as_fd(), b"plain"), "nobody wants to know");
        lists.tell();
        assert!(lists.has_none_by_name(top.as_fd(), b"plain"));
        assert!(lists.has_none(file.as_fd(), FileKind::Regular));
        assert!(!lists.has_none_by_name(top.as_fd(), b"listed"));
        let listed = File::open(listed).expect("opened");
        assert!(!lists.has_none(listed.as_fd(), FileKind::Regular));
        assert!(!lists.has_none_by_name(top.as_fd(), b"absent"));
    }
}
