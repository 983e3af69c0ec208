//! The tree as this machine sees it, and what a pass found, in the same terms.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use portcullis_core::{Attr, FileKind, Timestamp};

/// What is compared of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size_bytes: u64,
    pub(super) mtime: Timestamp,
    pub(super) nlink: u32,
    pub(super) rdev: u64,
    pub(super) target: Option<Vec<u8>>,
}

/// A tree: entries by their path below its start, and directories that could not be listed.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) entries: Vec<(Vec<u8>, Facts)>,
    pub(super) unlisted: Vec<Vec<u8>>,
}

impl Facts {
    pub(super) fn of_attr(attr: &Attr, target: Option<&[u8]>) -> Self {
        Self {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size_bytes: attr.size_bytes,
            mtime: attr.mtime,
            nlink: attr.nlink,
            rdev: attr.rdev,
            target: target.map(<[u8]>::to_vec),
        }
    }

    /// What this machine says of the file at `path`.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        Self::of_metadata(path, &fs::symlink_metadata(path)?)
    }

    fn of_metadata(path: &Path, meta: &fs::Metadata) -> io::Result<Self> {
        let target = if meta.file_type().is_symlink() {
            Some(fs::read_link(path)?.into_os_string().as_bytes().to_vec())
        } else {
            None
        };
        Ok(Self {
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            size_bytes: meta.size(),
            mtime: Timestamp { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 },
            nlink: meta.nlink() as u32,
            rdev: meta.rdev(),
            target,
        })
    }

    /// The fields in which two differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let kind = |facts: &Self| FileKind::of_mode(facts.mode);
        [
            ("type", kind(self) != kind(other)),
            ("mode", self.mode & 0o7777 != other.mode & 0o7777),
            ("owner", (self.uid, self.gid) != (other.uid, other.gid)),
            ("size", self.size_bytes != other.size_bytes),
            ("mtime", self.mtime != other.mtime),
            ("links", self.nlink != other.nlink),
            ("device", self.rdev != other.rdev),
            ("target", self.target != other.target),
        ]
        .into_iter()
        .filter_map(|(field, differs)| differs.then_some(field))
        .collect()
    }
}

/// Walks the tree below `start` without Portcullis. Stays on its file system, as a brick does.
pub(super) fn walk(start: &Path) -> io::Result<Tree> {
    let device = fs::symlink_metadata(start)?.dev();
    let mut tree = Tree::default();
    tree.entries.push((Vec::new(), Facts::read(start)?));
    let mut ahead = vec![PathBuf::new()];
    while let Some(dir) = ahead.pop() {
        if list(start, &dir, device, &mut tree, &mut ahead).is_err() {
            tree.unlisted.push(dir.into_os_string().as_bytes().to_vec());
        }
    }
    Ok(tree)
}

fn list(
    start: &Path,
    dir: &Path,
    device: u64,
    tree: &mut Tree,
    ahead: &mut Vec<PathBuf>,
) -> io::Result<()> {
    for entry in fs::read_dir(start.join(dir))? {
        let entry = entry?;
        let path = dir.join(entry.file_name());
        let full = entry.path();
        let meta = match fs::symlink_metadata(&full) {
            Ok(meta) => meta,
            // It went away since it was listed, as far as this walk can tell.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if meta.is_dir() && meta.dev() == device {
            ahead.push(path.clone());
        }
        let facts = Facts::of_metadata(&full, &meta)?;
        tree.entries.push((path.into_os_string().as_bytes().to_vec(), facts));
    }
    Ok(())
}
