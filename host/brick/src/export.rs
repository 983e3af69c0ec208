//! The exported directory: its root, and the only ways by which a path becomes a file.
//!
//! Every path is resolved by `openat2(2)` beneath a directory of the export, with no symbolic
//! link followed, at the end neither. A single name may be a mount point: [`Export::crosses`]
//! tells, and the caller then goes no further. A whole path ([`Export::open_path`]) may not even
//! touch one. [`Export::contains`] catches what no path catches: a directory that somebody moved
//! out of the export while its handle was known.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use portcullis_core::FileKind;
use portcullis_wire::message::Statfs;
use rustix::fs::{
    CWD, Mode, OFlags, ResolveFlags, StatVfs, fstatfs, fstatvfs, open, openat, openat2, readlinkat,
};
use rustix::io::{Errno, Result, fcntl_dupfd_cloexec};

use crate::attr::{Stat, stat};
use crate::error::BrickError;

/// Longest path given to one `openat2`, below `PATH_MAX`; a longer one is walked in pieces.
const PATH_LEN_MAX: usize = 4000;

/// A directory that is exported.
pub(crate) struct Export {
    /// What was asked for, for messages.
    path: PathBuf,
    root: OwnedFd,
    /// The root as it was when the brick started.
    stat: Stat,
    /// The mount that the export lies on; others are beyond it.
    mount: u64,
    /// Where the root was seen last, as the kernel spells it.
    root_path: Mutex<Vec<u8>>,
}

impl Export {
    /// Opens the directory at `path`.
    pub(crate) fn open(path: &Path) -> std::result::Result<Self, BrickError> {
        let failed = |error: Errno| match error {
            Errno::NOENT => BrickError::Missing { path: path.to_owned() },
            Errno::NOTDIR => BrickError::NotDirectory { path: path.to_owned() },
            _ => BrickError::Export { path: path.to_owned(), source: error.into() },
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty()).map_err(failed)?;
        let root_path = fd_path(root.as_fd()).map_err(|_| BrickError::NoProc)?;
        let stat = stat(root.as_fd()).map_err(failed)?;
        let mount = stat.mount().ok_or(BrickError::Kernel { missing: "STATX_MNT_ID" })?;
        let root_path = Mutex::new(root_path);
        if openat2(&root, c".", path_flags(), Mode::empty(), beneath()).err() == Some(Errno::NOSYS)
        {
            return Err(BrickError::Kernel { missing: "openat2(2)" });
        }
        Ok(Self { path: path.to_owned(), root, stat, mount, root_path })
    }

    /// The path that was asked for.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The root.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The stat of the root when the brick started.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// `f_type` and `f_fsid` of the file system.
    pub(crate) fn file_system(&self) -> Result<(u64, u64)> {
        let fs_type = fstatfs(&self.root)?.f_type;
        Ok((fs_type as u64, fstatvfs(&self.root)?.f_fsid))
    }

    /// Space and inodes.
    pub(crate) fn statfs(&self) -> Result<Statfs> {
        let StatVfs {
            f_frsize: fragment_bytes,
            f_bsize: block_bytes,
            f_blocks: blocks,
            f_bfree: blocks_free,
            f_bavail: blocks_available,
            f_files: files,
            f_ffree: files_free,
            f_namemax: name_len_max,
            ..
        } = fstatvfs(&self.root)?;
        Ok(Statfs {
            fragment_bytes,
            block_bytes,
            blocks,
            blocks_free,
            blocks_available,
            files,
            files_free,
            name_len_max,
        })
    }

    /// A descriptor of the root, to be used as an `O_PATH` one.
    pub(crate) fn open_root(&self) -> Result<OwnedFd> {
        // Not openat2 of `.`, which a directory that may be listed but not searched refuses.
        fcntl_dupfd_cloexec(&self.root, 0)
    }

    /// An `O_PATH` descriptor of what `name`, one valid name, stands for in `dir`: of a link
    /// itself, and at a mount point of what is mounted there.
    pub(crate) fn open_name(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
        debug_assert!(portcullis_core::entry::is_valid_name(name));
        openat2(dir, name, path_flags(), Mode::empty(), beneath())
    }

    /// An `O_PATH` descriptor of what `names` lead to from `dir`, without crossing a mount point.
    pub(crate) fn open_path(&self, dir: BorrowedFd<'_>, names: &[Box<[u8]>]) -> Result<OwnedFd> {
        let resolve = beneath() | ResolveFlags::NO_XDEV;
        let mut at = fcntl_dupfd_cloexec(dir, 0)?;
        let mut path = Vec::new();
        for (index, name) in names.iter().enumerate() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let next_len = names.get(index + 1).map_or(PATH_LEN_MAX, |next| next.len() + 1);
            if path.len() + next_len > PATH_LEN_MAX {
                at = openat2(&at, &path[..], path_flags(), Mode::empty(), resolve)?;
                path.clear();
            }
        }
        Ok(at)
    }

    /// A readable descriptor, with a position of its own, of the directory `dir`.
    pub(crate) fn open_for_list(&self, dir: BorrowedFd<'_>) -> Result<OwnedFd> {
        reopen(dir, OFlags::DIRECTORY)
    }

    /// A descriptor of `file`, which the caller knows to be a regular file, with these flags.
    pub(crate) fn open_file(&self, file: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
        reopen(file, flags | OFlags::NOCTTY | OFlags::NONBLOCK)
    }

    /// Whether a file with this stat lies beyond the export: on another mount, or in a subvolume
    /// of its own. A file that is no directory may have another device on the same mount
    /// (overlayfs) and belongs here.
    pub(crate) fn crosses(&self, stat: &Stat) -> bool {
        stat.mount() != Some(self.mount)
            || (stat.kind() == FileKind::Directory && stat.dev() != self.stat.dev())
    }

    /// Whether the directory `dir` still lies within the export.
    pub(crate) fn contains(&self, dir: BorrowedFd<'_>) -> Result<bool> {
        let path = spelled_path(dir)?;
        if is_within(&path, &self.root_path.lock()) {
            return Ok(true);
        }
        // The root itself may have been moved.
        let root_path = fd_path(self.root())?;
        let within = is_within(&path, &root_path);
        *self.root_path.lock() = root_path;
        Ok(within)
    }

    /// Whether `dir` was removed and is only kept by its descriptor.
    pub(crate) fn is_removed(&self, dir: BorrowedFd<'_>) -> bool {
        self.counts_links() && stat(dir).is_ok_and(|stat| stat.nlink() == 0)
    }

    /// Whether a file without links has no name: some FUSE file systems count no links at all.
    pub(crate) fn counts_links(&self) -> bool {
        self.stat.nlink() > 0
    }
}

/// `O_PATH` descriptors can be opened for reading only through `/proc`, which leads to the same
/// inode whatever its name is by now.
fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    openat(CWD, proc_path(fd), OFlags::CLOEXEC | flags, Mode::empty())
}

/// An `O_PATH` descriptor of an open file, which need not have a name any more.
pub(crate) fn reopen_as_path(file: BorrowedFd<'_>) -> Result<OwnedFd> {
    reopen(file, OFlags::PATH)
}

/// Another descriptor of an open regular file, every write to which goes to its end.
pub(crate) fn reopen_for_append(file: BorrowedFd<'_>) -> Result<OwnedFd> {
    reopen(file, OFlags::WRONLY | OFlags::APPEND)
}

/// The path by which `/proc` leads to the file of a descriptor.
pub(crate) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn fd_path(fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
    Ok(readlinkat(CWD, proc_path(fd), Vec::new())?.into_bytes())
}

/// The path of the directory `dir`, or of the nearest one above it that the kernel can spell: a
/// path that is longer than a page it refuses. The root's can be spelled, so this leads out of the
/// export only where `dir` lies out of it.
fn spelled_path(dir: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut above: Option<OwnedFd> = None;
    loop {
        let at = above.as_ref().map_or(dir, |above| above.as_fd());
        match fd_path(at) {
            Err(Errno::NAMETOOLONG) => {
                let flags = path_flags() | OFlags::DIRECTORY;
                above = Some(openat(at, c"..", flags, Mode::empty())?);
            }
            path => return path,
        }
    }
}

fn is_within(path: &[u8], root: &[u8]) -> bool {
    root == b"/"
        || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn path_flags() -> OFlags {
    OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_ends_at_a_whole_name() {
        assert!(is_within(b"/srv/data", b"/srv/data"));
        assert!(is_within(b"/srv/data/x", b"/srv/data"));
        assert!(!is_within(b"/srv/database", b"/srv/data"));
        assert!(!is_within(b"/srv", b"/srv/data"));
        assert!(is_within(b"/anything", b"/"));
    }

    #[test]
    fn a_path_longer_than_path_max_is_walked_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let export = Export::open(dir.path()).expect("it opens");
        let names: Vec<Box<[u8]>> = (0..40).map(|_| vec![b'd'; 200].into_boxed_slice()).collect();
        let mut at = export.open_root().expect("the root");
        for name in &names {
            rustix::fs::mkdirat(&at, &name[..], Mode::RWXU).expect("made");
            at = export.open_name(at.as_fd(), name).expect("opened");
        }
        let walked = export.open_path(export.root(), &names).expect("walked");
        let ino = |fd: &OwnedFd| stat(fd.as_fd()).expect("stat").ino();
        assert_eq!(ino(&walked), ino(&at));
        assert_eq!(export.contains(at.as_fd()), Ok(true));
        let none = export.open_path(export.root(), &[]).expect("walked");
        assert_eq!(ino(&none), export.stat().ino());
    }

    #[test]
    fn a_directory_moved_out_is_no_longer_within() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("export");
        std::fs::create_dir_all(root.join("inner")).expect("made");
        let export = Export::open(&root).expect("it opens");
        let inner = export.open_name(export.root(), b"inner").expect("opened");
        assert_eq!(export.contains(inner.as_fd()), Ok(true));
        let moved = dir.path().join("moved");
        std::fs::rename(&root, &moved).expect("moved");
        assert_eq!(export.contains(inner.as_fd()), Ok(true), "the whole export moved");
        std::fs::rename(moved.join("inner"), dir.path().join("inner")).expect("moved");
        assert_eq!(export.contains(inner.as_fd()), Ok(false));
        assert_eq!(export.contains(export.root()), Ok(true));
    }

    #[test]
    fn names_that_lead_out_or_through_links_do_not_open() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("d")).expect("made");
        std::os::unix::fs::symlink("d", dir.path().join("link")).expect("made");
        let export = Export::open(dir.path()).expect("it opens");
        let walk = |names: &[&[u8]]| {
            let names: Vec<Box<[u8]>> = names.iter().map(|&name| name.into()).collect();
            export.open_path(export.root(), &names).err()
        };
        // AGAIN where something is renamed anywhere meanwhile, so that the kernel cannot tell.
        for names in [&[&b".."[..]][..], &[b"d", b"..", b".."]] {
            assert!(matches!(walk(names), Some(Errno::XDEV | Errno::AGAIN)));
        }
        assert_eq!(walk(&[b"link", b"x"]), Some(Errno::LOOP));
        assert_eq!(walk(&[b"/etc"]), Some(Errno::XDEV));
        assert_eq!(walk(&[b"link"]), None, "the link itself");
    }
}
