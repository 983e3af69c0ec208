//! Steps done to directories: the mounts of one volume, or a local one.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use portcullis_suite::view;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::step::{SLOTS, Step};

/// The same volume at several places, and the files that are open there.
#[derive(Debug)]
pub(super) struct Real {
    roots: Vec<PathBuf>,
    slots: [Option<File>; SLOTS],
}

type Told = std::io::Result<String>;

fn done<T>(_: T) -> String {
    "ok".to_owned()
}

impl Real {
    pub(super) fn new(roots: Vec<&Path>) -> Self {
        Self { roots: roots.into_iter().map(Path::to_owned).collect(), slots: Default::default() }
    }

    /// Does a step at one of the places and answers what came of it.
    pub(super) fn apply(&mut self, place: usize, step: &Step) -> String {
        let root = self.roots[place].clone();
        let told = match step {
            Step::Open { slot, path, create, truncate } => {
                let open = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(*create)
                    .truncate(*truncate)
                    .mode(0o644)
                    .open(root.join(path));
                open.map(|file| done(self.slots[*slot].replace(file)))
            }
            Step::Close { slot } => {
                return self.slots[*slot].take().map_or_else(|| "none".to_owned(), done);
            }
            _ => match on_slot(&self.slots, step) {
                Some(None) => return "none".to_owned(),
                Some(Some(told)) => told,
                None => on_names(&root, step).unwrap_or_else(|| on_paths(&root, step)),
            },
        };
        told.unwrap_or_else(|why| view::error(&why))
    }
}

fn on_names(root: &Path, step: &Step) -> Option<Told> {
    let at = |path: &str| root.join(path);
    let told = match step {
        Step::Create { path, mode } => {
            OpenOptions::new().write(true).create_new(true).mode(*mode).open(at(path)).map(done)
        }
        Step::Mkdir { path, mode } => fs::DirBuilder::new().mode(*mode).create(at(path)).map(done),
        Step::Mknod { path, mode } => {
            let mode = Mode::from_raw_mode(*mode);
            told(rustix::fs::mknodat(CWD, at(path), FileType::RegularFile, mode, 0))
        }
        Step::Symlink { target, path } => std::os::unix::fs::symlink(target, at(path)).map(done),
        Step::Link { from, to } => fs::hard_link(at(from), at(to)).map(done),
        Step::Unlink { path } => fs::remove_file(at(path)).map(done),
        Step::Rmdir { path } => fs::remove_dir(at(path)).map(done),
        Step::Clear { name } => match fs::symlink_metadata(at(name)) {
            Ok(attr) if attr.is_dir() => fs::remove_dir_all(at(name)).map(done),
            _ => fs::remove_file(at(name)).map(done),
        },
        Step::Rename { from, to, flags } => {
            let rename = || rustix::fs::renameat_with(CWD, at(from), CWD, at(to), *flags);
            let mut result = rename();
            if result == Err(Errno::STALE) {
                // The kernel knows the directory at another place, whence somebody else has moved
                // it, and cannot take it from there under the locks of a rename where something
                // below is open. It can while it looks.
                let _ = (fs::symlink_metadata(at(from)), fs::symlink_metadata(at(to)));
                result = rename();
            }
            told(result)
        }
        Step::Lstat { path } => fs::symlink_metadata(at(path)).map(|attr| attributes(&attr)),
        Step::Stat { path } => fs::metadata(at(path)).map(|attr| attributes(&attr)),
        Step::Readlink { path } => fs::read_link(at(path)).map(|target| text(target.as_os_str())),
        Step::List { path } => fs::read_dir(at(path)).and_then(|entries| {
            let names: std::io::Result<Vec<String>> =
                entries.map(|entry| entry.map(|entry| text(&entry.file_name()))).collect();
            let mut names = names?;
            names.sort();
            Ok(names.join(" "))
        }),
        _ => return None,
    };
    Some(told)
}

fn on_paths(root: &Path, step: &Step) -> Told {
    let at = |path: &str| root.join(path);
    let write = |path: &str| OpenOptions::new().write(true).open(at(path));
    match step {
        Step::Read { path } => fs::read(at(path)).map(|bytes| summary(&bytes)),
        Step::Write { path, offset, byte, len } => {
            write(path)?.write_all_at(&vec![*byte; *len], *offset).map(done)
        }
        Step::Append { path, byte, len } => {
            let mut file = OpenOptions::new().append(true).open(at(path))?;
            file.write_all(&vec![*byte; *len]).map(done)
        }
        Step::Truncate { path, len } => write(path)?.set_len(*len).map(done),
        Step::Chmod { path, mode } => {
            fs::set_permissions(at(path), Permissions::from_mode(*mode)).map(done)
        }
        Step::Lchown { path, uid, gid } => {
            let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
            told(rustix::fs::chownat(CWD, at(path), uid, gid, AtFlags::SYMLINK_NOFOLLOW))
        }
        Step::Utimens { path, secs } => {
            let time = Timespec { tv_sec: *secs, tv_nsec: 5 };
            let times = Timestamps { last_access: time, last_modification: time };
            told(rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW))?;
            let attr = fs::symlink_metadata(at(path))?;
            Ok(format!("{} {}", attr.mtime(), attr.mtime_nsec()))
        }
        Step::Setxattr { path, name, value } => {
            told(rustix::fs::lsetxattr(at(path), *name, value, XattrFlags::empty()))
        }
        Step::Getxattr { path, name } => {
            let mut value = [0; 256];
            let len = rustix::fs::lgetxattr(at(path), *name, &mut value)?;
            Ok(value[..len].escape_ascii().to_string())
        }
        Step::Removexattr { path, name } => told(rustix::fs::lremovexattr(at(path), *name)),
        _ => panic!("{step:?} is done elsewhere"),
    }
}

/// A step on an open file: `None` where it is another kind, `Some(None)` where nothing is open.
fn on_slot(slots: &[Option<File>; SLOTS], step: &Step) -> Option<Option<Told>> {
    let on = |slot: &usize, act: &dyn Fn(&File) -> Told| Some(slots[*slot].as_ref().map(act));
    match step {
        Step::Pwrite { slot, offset, byte, len } => {
            on(slot, &|file| file.write_all_at(&vec![*byte; *len], *offset).map(done))
        }
        Step::Pread { slot, offset, len } => on(slot, &|file| {
            let mut bytes = vec![0; *len];
            let mut read = 0;
            while read < bytes.len() {
                match file.read_at(&mut bytes[read..], offset + read as u64)? {
                    0 => break,
                    more => read += more,
                }
            }
            Ok(summary(&bytes[..read]))
        }),
        Step::Fstat { slot } => on(slot, &|file| file.metadata().map(|attr| attributes(&attr))),
        Step::Ftruncate { slot, len } => on(slot, &|file| file.set_len(*len).map(done)),
        Step::Fchmod { slot, mode } => {
            on(slot, &|file| file.set_permissions(Permissions::from_mode(*mode)).map(done))
        }
        Step::Punch { slot, offset, len } => on(slot, &|file| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            told(rustix::fs::fallocate(file, flags, *offset, *len))
        }),
        Step::Fsync { slot } => on(slot, &|file| file.sync_all().map(done)),
        _ => None,
    }
}

fn told<T>(result: Result<T, Errno>) -> Told {
    result.map(done).map_err(std::io::Error::from)
}

fn attributes(attr: &fs::Metadata) -> String {
    let size = if attr.is_dir() { 0 } else { attr.size() };
    super::reference::attributes(attr.mode(), attr.nlink(), size, attr.uid(), attr.gid())
}

fn text(name: &std::ffi::OsStr) -> String {
    name.as_bytes().escape_ascii().to_string()
}

/// Content in a line: runs of one byte are counted.
pub(super) fn summary(bytes: &[u8]) -> String {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for byte in bytes {
        match runs.last_mut() {
            Some((last, count)) if last == byte => *count += 1,
            _ => runs.push((*byte, 1)),
        }
    }
    let runs = runs.iter().map(|(byte, count)| format!("{}x{count}", byte.escape_ascii()));
    format!("{}: {}", bytes.len(), runs.collect::<Vec<_>>().join(" "))
}
