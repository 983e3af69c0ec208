//! From a name in a directory to its entry: which file, its attributes, its handle.
//!
//! Attributes and handle must be those of one file, whatever happens to the name meanwhile. The
//! sure way is a descriptor of the file, of which both are asked ([`Handles::entry`]). Asking both
//! by name takes two thirds of the time, which is most of a large listing's, so a listing does that
//! where it can tell afterwards that both answers were about one file
//! ([`Handles::entry_by_name`]): the inode number is the same, and the file was there before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portcullis_core::{Attr, Entry, FileKind, Handle, Timestamp};
use rustix::fs::readlinkat;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::kernel::KernelHandle;
use super::numbers::FileNumber;
use super::{Directory, EDGE, Handles, sealing};
use crate::attr::{Stat, stat_name};

/// The time that a file made from now on has for its birth, at the earliest.
pub(crate) fn birth_now() -> Timestamp {
    // File systems take their times from the coarse clock.
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { secs: now.tv_sec, nanos: now.tv_nsec as u32 }
}

impl Handles {
    /// The entry `name`, a valid name, of a directory.
    pub(crate) fn entry(&self, dir: &Directory, name: &[u8]) -> Result<Entry, Errno> {
        self.entry_with(dir, name, |_, _| {})
    }

    /// The same; `before` is called with a descriptor of the file before that is examined, and with
    /// its handle where that is known by then.
    pub(crate) fn entry_with(
        &self,
        dir: &Directory,
        name: &[u8],
        before: impl FnOnce(Option<&Handle>, BorrowedFd<'_>),
    ) -> Result<Entry, Errno> {
        let fd = self.export.open_name(dir.fd.as_fd(), name)?;
        if let Some(pointer) = self.pointer_of(fd.as_fd())? {
            return Ok(self.pointer_entry(&pointer, |handle, fd| before(Some(handle), fd)));
        }
        before(None, fd.as_fd());
        let (stat, handle) = self.examine(fd.as_fd())?;
        let has_no_acl = self.access_lists.has_none(fd.as_fd(), stat.kind());
        let handle = match handle {
            Some(handle) => handle,
            None => self.mount_point(dir, name, &stat)?,
        };
        let target = match stat.kind() {
            FileKind::Symlink => Some(readlinkat(&fd, c"", Vec::new())?.into_bytes()),
            _ => None,
        };
        Ok(self.found(dir, name, handle, (&stat, has_no_acl), target))
    }

    /// The entry of a file that has a number from an earlier life of the brick, if any.
    pub(crate) fn adopted_entry(
        &self,
        dir: &Directory,
        name: &[u8],
        number: Option<FileNumber>,
    ) -> Result<Entry, Errno> {
        if let Some(number) = number {
            self.adopt(self.export.open_name(dir.fd.as_fd(), name)?.as_fd(), number)?;
        }
        self.entry(dir, name)
    }

    /// As [`Handles::entry`], without a descriptor of the file. `None` where the file is out of the
    /// ordinary or may not be one file; `since` is a [`birth_now`] from before the call.
    pub(crate) fn entry_by_name(
        &self,
        dir: &Directory,
        name: &[u8],
        since: Timestamp,
    ) -> Option<Entry> {
        let numbered_since = self.numbers.now();
        let kernel = match self.method.file_system() {
            Some(file_system) => {
                let handle = KernelHandle::of_name(dir.fd.as_fd(), name).ok()??;
                Some((handle, handle.ino(file_system)?))
            }
            None => None,
        };
        // Between the two, so that it is of the same file as they are.
        let has_no_acl = self.access_lists.has_none_by_name(dir.fd.as_fd(), name);
        let stat = stat_name(dir.fd.as_fd(), name).ok()?;
        if stat.kind() == FileKind::Symlink || self.export.crosses(&stat) {
            return None;
        }
        if let Some((_, ino)) = kernel {
            let birth = stat.birth();
            // An inode number that was used again in between belongs to a file born in between.
            if ino != stat.ino() || birth == Timestamp::default() || birth >= since {
                return None;
            }
        }
        let kernel = kernel.map(|(handle, _)| handle);
        let handle = self.identify(kernel, &stat, numbered_since).ok()??;
        Some(self.found(dir, name, handle, (&stat, has_no_acl), None))
    }

    /// The entry of a name whose file cannot be examined; its type is what the directory tells.
    pub(crate) fn unreadable_entry(
        &self,
        dir: &Directory,
        name: &[u8],
        kind: FileKind,
    ) -> Result<Entry, Errno> {
        let handle = self.seal_edge(&[&dir.key, name])?;
        self.places.remember(&handle, kind == FileKind::Directory, &dir.key, name);
        Ok(Entry { handle, attr: None, kind, target: None })
    }

    /// The entry of a file that is no link, just made or opened as `name` by this descriptor.
    pub(crate) fn entry_of(
        &self,
        dir: &Directory,
        name: &[u8],
        fd: BorrowedFd<'_>,
    ) -> Result<Entry, Errno> {
        let (stat, handle) = self.examine(fd)?;
        let handle = handle.ok_or(Errno::XDEV)?;
        let has_no_acl = self.access_lists.has_none(fd, stat.kind());
        Ok(self.found(dir, name, handle, (&stat, has_no_acl), None))
    }

    /// Notes that the file of `handle` is `name` in `dir` from now on.
    pub(crate) fn moved(&self, dir: &Directory, name: &[u8], handle: &Handle, kind: FileKind) {
        if !sealing::is_found_by_itself(handle.as_bytes()) {
            self.places.remember(handle, kind == FileKind::Directory, &dir.key, name);
        }
    }

    /// A directory of the brick's own in the root, which is never told to anybody.
    pub(crate) fn own_directory(&self, fd: OwnedFd, name: &[u8]) -> Result<Directory, Errno> {
        self.own_directory_in(None, fd, name)
    }

    /// The same in another such directory, or in the root.
    pub(crate) fn own_directory_in(
        &self,
        parent: Option<&Directory>,
        fd: OwnedFd,
        name: &[u8],
    ) -> Result<Directory, Errno> {
        let (stat, handle) = self.examine(fd.as_fd())?;
        let handle = handle.filter(|_| stat.kind() == FileKind::Directory).ok_or(Errno::NOTDIR)?;
        if !sealing::is_found_by_itself(handle.as_bytes()) {
            let root = || self.root.as_bytes().into();
            let parent = parent.map_or_else(root, |parent| parent.key.clone());
            self.places.remember(&handle, true, &parent, name);
        }
        Ok(Directory { fd, handle, key: handle.as_bytes().into() })
    }

    /// The handle of the mount point `name`.
    pub(super) fn mount_point(
        &self,
        dir: &Directory,
        name: &[u8],
        stat: &Stat,
    ) -> Result<Handle, Errno> {
        self.seal_edge(&[&dir.key, name, &stat.dev().to_le_bytes(), &stat.ino().to_le_bytes()])
    }

    fn seal_edge(&self, parts: &[&[u8]]) -> Result<Handle, Errno> {
        self.seal(&[&[EDGE], &self.key.digest(parts)])
    }

    fn found(
        &self,
        dir: &Directory,
        name: &[u8],
        handle: Handle,
        (stat, has_no_acl): (&Stat, bool),
        target: Option<Vec<u8>>,
    ) -> Entry {
        let kind = stat.kind();
        self.moved(dir, name, &handle, kind);
        let attr = Attr { has_no_acl, ..self.told(&handle, stat.attr()) };
        Entry { handle, attr: Some(attr), kind, target }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;
    use crate::HandleChoice;
    use crate::export::Export;
    use crate::testing::wait_for_the_next_tick;

    fn handles(path: &std::path::Path, choice: HandleChoice) -> (Handles, Directory) {
        let export = Export::open(path).expect("it opens");
        let handles = Handles::new(export, &[1; 32], choice).expect("handles");
        let root = handles.root_entry().expect("a root").handle;
        let root = handles.directory(&root).expect("the root");
        (handles, root)
    }

    #[test]
    fn attributes_and_handle_are_of_one_file_while_names_are_exchanged() {
        let dir = tempfile::tempdir().expect("a directory");
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        std::fs::write(&a, b"").expect("written");
        std::fs::write(&b, b"").expect("written");
        wait_for_the_next_tick();
        let since = birth_now();
        let (handles, root) = handles(dir.path(), HandleChoice::Auto);
        let pair = |entry: Entry| (entry.handle, entry.attr.map(|attr| attr.ino));
        let pairs = [&b"a"[..], b"b"].map(|name| pair(handles.entry(&root, name).expect("there")));
        let stop = AtomicBool::new(false);
        let (mut by_name, mut mixed) = (0, 0);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).expect("exchanged");
                }
            });
            for _ in 0..20_000 {
                let entry = handles.entry_by_name(&root, b"a", since);
                by_name += usize::from(entry.is_some());
                if let Some(entry) = entry.or_else(|| handles.entry(&root, b"a").ok()) {
                    mixed += usize::from(!pairs.contains(&pair(entry)));
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(mixed, 0, "entries of two files");
        assert!(by_name > 0, "the short way was never taken");
    }

    #[test]
    fn a_file_born_since_is_not_answered_by_name_unless_its_stat_identifies_it() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("old"), b"").expect("written");
        wait_for_the_next_tick();
        let since = birth_now();
        std::fs::write(dir.path().join("new"), b"").expect("written");
        for choice in [HandleChoice::Auto, HandleChoice::Map, HandleChoice::MapByStat] {
            let (handles, root) = handles(dir.path(), choice);
            let by_name = |name: &[u8]| handles.entry_by_name(&root, name, since);
            assert_eq!(by_name(b"old"), handles.entry(&root, b"old").ok(), "{choice:?}");
            let by_stat = handles.choice() == HandleChoice::MapByStat;
            assert_eq!(by_name(b"new").is_some(), by_stat, "{choice:?}");
        }
    }
}
