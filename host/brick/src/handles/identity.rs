//! What identifies a file, and so goes into its handle.
//!
//! That is the kernel's handle where it is used, else device, inode number and birth time, and
//! where no birth time is told either a number that the brick gave ([`super::numbers`]). The first
//! two are a file's own. A number has to be taken from it when it is gone: whoever removes a name
//! does so within [`Handles::removing`].

use std::os::fd::{AsFd, BorrowedFd};

use portcullis_core::{Handle, Timestamp};
use rustix::io::Errno;

use super::choice::Method;
use super::kernel::KernelHandle;
use super::numbers::{FileNumber, Inode, Moment};
use super::{Handles, KERNEL, NUMBERED, PLACED, PLACED_BY_STAT, sealing};
use crate::attr::{Stat, stat, stat_synced};

/// How often a file is examined again because its inode became free meanwhile.
const TRIES_MAX: usize = 16;

impl Handles {
    /// Stat and handle of the file of a descriptor; no handle where it lies beyond the export.
    pub(super) fn examine(&self, fd: BorrowedFd<'_>) -> Result<(Stat, Option<Handle>), Errno> {
        for _ in 0..TRIES_MAX {
            let since = self.numbers.now();
            let stat = stat(fd)?;
            if self.export.crosses(&stat) {
                return Ok((stat, None));
            }
            if let Some(handle) = self.identify(self.kernel_handle(fd)?, &stat, since)? {
                return Ok((stat, Some(handle)));
            }
        }
        Err(Errno::BUSY)
    }

    /// The handle of the file of a descriptor.
    pub(crate) fn handle_of(&self, fd: BorrowedFd<'_>, stat: &Stat) -> Result<Handle, Errno> {
        let kernel = self.kernel_handle(fd)?;
        if is_lasting(kernel.as_ref(), stat) {
            return self.seal_own(kernel, stat);
        }
        self.examine(fd)?.1.ok_or(Errno::XDEV)
    }

    /// The handle of the file of which the kernel gave this handle, or none, and that had this stat
    /// at some time after `since`; `None` where it need not be there any more.
    pub(super) fn identify(
        &self,
        kernel: Option<KernelHandle>,
        stat: &Stat,
        since: Moment,
    ) -> Result<Option<Handle>, Errno> {
        if is_lasting(kernel.as_ref(), stat) {
            return self.seal_own(kernel, stat).map(Some);
        }
        let inode = Inode::of(stat);
        let number = if stat.nlink() == 0 && self.export.counts_links() {
            self.numbers.number_of_nameless(inode, stat.kind(), since)
        } else {
            self.numbers.number(inode, stat.kind(), since)
        };
        number.map(|number| self.seal_number(inode, number)).transpose()
    }

    /// The handle of the file for which the kernel has a handle of this type with these bytes.
    pub(crate) fn of_kernel(&self, kind: i32, bytes: &[u8]) -> Option<Handle> {
        let kernel = KernelHandle::of_parts(kind, bytes)?;
        let first = match self.method {
            Method::Kernel(_) => KERNEL,
            Method::Map(_) => PLACED,
            Method::MapByStat => return None,
        };
        self.seal(&[&[first], kernel.as_bytes()]).ok()
    }

    /// The number by which a handle identifies its file, `None` where it is by something else.
    pub(crate) fn number_of(&self, handle: &Handle) -> Option<FileNumber> {
        self.numbered(handle).map(|(_, number)| number)
    }

    /// The file of a descriptor has a number, from an earlier life of the brick or from when it had
    /// no name: it keeps that.
    pub(crate) fn adopt(&self, fd: BorrowedFd<'_>, number: FileNumber) -> Result<(), Errno> {
        let stat = stat(fd)?;
        self.numbers.adopt(Inode::of(&stat), stat.kind(), number);
        Ok(())
    }

    /// Does `remove`, which takes a name from a file. Where that was its last, the handle will
    /// never stand for another.
    pub(crate) fn removing<T>(
        &self,
        handle: &Handle,
        remove: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some((inode, _)) = self.numbered(handle) else { return remove() };
        let object = (!inode.is_dir).then(|| self.object(handle).ok()).flatten();
        // Where it cannot be told, its other names get another handle: that is no harm.
        let has_more_names = || {
            let stat = stat_synced(object.as_ref()?.fd.as_fd()).ok()?;
            Some(stat.nlink() > 1)
        };
        self.leave(handle, || has_more_names() != Some(true), remove)
    }

    /// The same for a name that is known to be the last.
    pub(crate) fn removing_last<T>(
        &self,
        handle: &Handle,
        remove: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.leave(handle, || true, remove)
    }

    /// The file of a handle is nowhere to be found: whatever has its inode is another from now on.
    pub(crate) fn give_up(&self, handle: &Handle) {
        if let Some((inode, number)) = self.numbered(handle) {
            self.numbers.give_up(inode, number);
        }
    }

    fn leave<T>(
        &self,
        handle: &Handle,
        is_last: impl FnOnce() -> bool,
        remove: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some((inode, _)) = self.numbered(handle) else { return remove() };
        let leaving = self.numbers.leave(inode);
        let is_last = is_last();
        let removed = remove();
        match &removed {
            Ok(_) if is_last => leaving.gone(),
            Ok(_) => {}
            Err(_) => {
                drop(leaving);
                // It may have failed after the fact.
                if self.object(handle).is_err() {
                    self.give_up(handle);
                }
            }
        }
        removed
    }

    pub(super) fn kernel_handle(&self, fd: BorrowedFd<'_>) -> Result<Option<KernelHandle>, Errno> {
        match self.method {
            Method::Kernel(_) | Method::Map(_) => KernelHandle::of(fd),
            Method::MapByStat => Ok(None),
        }
    }

    fn seal_own(&self, kernel: Option<KernelHandle>, stat: &Stat) -> Result<Handle, Errno> {
        seal_own_by(|parts| self.seal(parts), self.method, kernel, stat)
    }

    /// The body: kind of handle, whether it is a directory, device, inode number, number.
    fn seal_number(&self, inode: Inode, number: FileNumber) -> Result<Handle, Errno> {
        let Inode { dev, ino, is_dir } = inode;
        let words = [dev, ino, number.get()].map(u64::to_le_bytes);
        let parts = [&[NUMBERED, u8::from(is_dir)][..], words.as_flattened()];
        self.seal(&parts)
    }

    fn numbered(&self, handle: &Handle) -> Option<(Inode, FileNumber)> {
        if sealing::kind(handle) != Some(NUMBERED) {
            return None;
        }
        let &[_, is_dir, ref words @ ..] = self.unseal(handle).ok()? else { return None };
        let (&[dev, ino, number], []) = words.as_chunks() else { return None };
        let [dev, ino, number] = [dev, ino, number].map(u64::from_le_bytes);
        Some((Inode { dev, ino, is_dir: is_dir != 0 }, FileNumber::new(number)?))
    }
}

/// Whether a file is identified by what is its own.
fn is_lasting(kernel: Option<&KernelHandle>, stat: &Stat) -> bool {
    kernel.is_some() || stat.birth() != Timestamp::default()
}

/// Seals the handle of a file by what is its own; of the root whatever there is of that, since
/// another root is another export.
pub(super) fn seal_own_by(
    seal: impl FnOnce(&[&[u8]]) -> Result<Handle, Errno>,
    method: Method,
    kernel: Option<KernelHandle>,
    stat: &Stat,
) -> Result<Handle, Errno> {
    match (kernel, method) {
        (Some(handle), Method::Kernel(_)) => seal(&[&[KERNEL], handle.as_bytes()]),
        (Some(handle), _) => seal(&[&[PLACED], handle.as_bytes()]),
        (None, _) => seal(&[&[PLACED_BY_STAT], &identity_by_stat(stat)]),
    }
}

/// Device, inode number and birth time.
pub(super) fn identity_by_stat(stat: &Stat) -> [u8; 28] {
    let birth = stat.birth();
    let mut identity = [0; 28];
    identity[..8].copy_from_slice(&stat.dev().to_le_bytes());
    identity[8..16].copy_from_slice(&stat.ino().to_le_bytes());
    identity[16..24].copy_from_slice(&birth.secs.to_le_bytes());
    identity[24..].copy_from_slice(&birth.nanos.to_le_bytes());
    identity
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use portcullis_core::Status;
    use portcullis_wire::message::Caller;
    use rustix::fs::{AtFlags, CWD, FileType, Mode, mkdirat, mknodat, symlinkat, unlinkat};

    use super::*;
    use crate::HandleChoice;
    use crate::handles::birth_now;
    use crate::mutate::{Changes, Mutator, Place};
    use crate::orphans::Orphans;
    use crate::testing::{handles_of, on_bindfs, reuse, until_reused};

    /// An export whose files are numbered.
    struct Numbered<'a> {
        path: &'a Path,
        handles: Arc<Handles>,
    }

    impl<'a> Numbered<'a> {
        fn new(path: &'a Path) -> Self {
            Self { path, handles: handles_of(path, HandleChoice::Auto) }
        }

        fn handle(&self, name: &str) -> Handle {
            let root = self.handles.directory(self.handles.root()).expect("the root");
            let handle = self.handles.entry(&root, name.as_bytes()).expect("there").handle;
            assert!(self.handles.number_of(&handle).is_some(), "it has no birth time");
            handle
        }

        fn ino(&self, name: &str) -> u64 {
            self.path.join(name).symlink_metadata().expect("there").ino()
        }

        fn make(&self, name: &str, kind: FileType) {
            let (path, mode) = (self.path.join(name), Mode::from_raw_mode(0o700));
            let made = match kind {
                FileType::Directory => mkdirat(CWD, path, mode),
                FileType::Symlink => symlinkat("target", CWD, path),
                _ => mknodat(CWD, path, kind, mode, 0),
            };
            made.expect("made");
        }

        /// The handle of a new file with this inode number.
        fn reuse(&self, prefix: &str, ino: u64, kind: FileType) -> Option<Handle> {
            let name = reuse(self.path, prefix, ino, |name| self.make(name, kind))?;
            Some(self.handle(&name))
        }

        /// Removes a name as the brick does.
        fn remove(&self, handle: &Handle, name: &str) {
            let flags = match self.handles.object(handle).expect("there").stat.kind() {
                portcullis_core::FileKind::Directory => AtFlags::REMOVEDIR,
                _ => AtFlags::empty(),
            };
            let remove = || unlinkat(CWD, self.path.join(name), flags);
            self.handles.removing(handle, remove).expect("removed");
        }

        fn is_stale(&self, handle: &Handle) -> bool {
            self.handles.object(handle).is_err_and(|failure| failure.status == Status::Stale)
        }
    }

    const KINDS: [FileType; 4] =
        [FileType::RegularFile, FileType::Directory, FileType::Symlink, FileType::Fifo];

    #[test]
    fn a_handle_never_stands_for_the_file_that_gets_the_inode_next() {
        let test = "a_handle_never_stands_for_the_file_that_gets_the_inode_next";
        on_bindfs(test, |_, path| {
            let export = Numbered::new(path);
            for (number, kind) in KINDS.into_iter().enumerate() {
                until_reused(&format!("{test} ({kind:?})"), |round| {
                    let name = format!("{round}-{number}");
                    export.make(&name, kind);
                    let (first, ino) = (export.handle(&name), export.ino(&name));
                    assert_eq!(export.handle(&name), first);
                    export.remove(&first, &name);
                    let second = export.reuse(&name, ino, kind)?;
                    assert!(second != first && export.is_stale(&first), "{kind:?}");
                    assert!(!export.is_stale(&second), "{kind:?}");
                    Some(())
                });
            }
        });
    }

    #[test]
    fn every_removal_through_the_brick_takes_the_handle() {
        let test = "every_removal_through_the_brick_takes_the_handle";
        on_bindfs(test, |_, path| {
            let export = Numbered::new(path);
            let orphans = Orphans::with_grace(export.handles.clone(), Duration::ZERO);
            let mutator = Mutator::new(export.handles.clone(), orphans);
            let caller = Caller::new(0, 0, vec![]);
            for (number, kind) in KINDS.into_iter().enumerate() {
                let remove = |name: &str| {
                    let at = Place { dir: export.handles.root(), name: name.as_bytes() };
                    match kind {
                        FileType::Directory => mutator.rmdir(&caller, at, &mut Changes::default()),
                        _ => mutator.unlink(&caller, at, &mut Changes::default()),
                    }
                };
                let replace = |name: &str| {
                    let other = format!("{name}-other");
                    export.make(&other, kind);
                    let [from, to] = [other.as_bytes(), name.as_bytes()]
                        .map(|name| Place { dir: export.handles.root(), name });
                    mutator.rename(&caller, from, to, 0, &mut Changes::default())
                };
                for (does_replace, how) in [(false, "removed"), (true, "replaced")] {
                    until_reused(&format!("{test} ({how} {kind:?})"), |round| {
                        let name = format!("{round}-{number}-{how}");
                        export.make(&name, kind);
                        let (first, ino) = (export.handle(&name), export.ino(&name));
                        let done = if does_replace { replace(&name) } else { remove(&name) };
                        done.expect(how);
                        let second = export.reuse(&name, ino, kind)?;
                        assert!(second != first && export.is_stale(&first), "{how} {kind:?}");
                        Some(())
                    });
                }
            }
        });
    }

    #[test]
    fn a_file_with_another_name_keeps_its_handle() {
        let test = "a_file_with_another_name_keeps_its_handle";
        on_bindfs(test, |_, path| {
            let export = Numbered::new(path);
            until_reused(test, |round| {
                let [a, b] = ["a", "b"].map(|end| format!("{round}-{end}"));
                export.make(&a, FileType::RegularFile);
                std::fs::hard_link(path.join(&a), path.join(&b)).expect("linked");
                let (handle, ino) = (export.handle(&a), export.ino(&a));
                export.remove(&handle, &a);
                assert_eq!(export.handle(&b), handle);
                export.remove(&handle, &b);
                assert_ne!(export.reuse(round, ino, FileType::RegularFile)?, handle);
                Some(())
            });
        });
    }

    #[test]
    fn a_removal_that_fails_takes_the_handle_only_if_the_file_is_gone() {
        let test = "a_removal_that_fails_takes_the_handle_only_if_the_file_is_gone";
        on_bindfs(test, |_, path| {
            let export = Numbered::new(path);
            until_reused(test, |round| {
                export.make(round, FileType::RegularFile);
                let (handle, ino) = (export.handle(round), export.ino(round));
                let failed = export.handles.removing(&handle, || Err::<(), _>(Errno::PERM));
                assert_eq!(failed, Err(Errno::PERM));
                assert_eq!(export.handle(round), handle);
                let after_the_fact = || {
                    unlinkat(CWD, path.join(round), AtFlags::empty())?;
                    Err::<(), _>(Errno::IO)
                };
                assert_eq!(export.handles.removing(&handle, after_the_fact), Err(Errno::IO));
                assert_ne!(export.reuse(round, ino, FileType::RegularFile)?, handle);
                Some(())
            });
        });
    }

    #[test]
    fn another_life_of_the_brick_knows_no_number_of_this_one() {
        on_bindfs("another_life_of_the_brick_knows_no_number_of_this_one", |_, path| {
            let lives = [Numbered::new(path), Numbered::new(path)];
            assert_eq!(lives[0].handles.root(), lives[1].handles.root());
            lives[0].make("file", FileType::RegularFile);
            let [first, second] = [&lives[0], &lives[1]].map(|life| life.handle("file"));
            assert_ne!(first, second);
            assert!(lives[1].is_stale(&first) && !lives[1].is_stale(&second));
        });
    }

    #[test]
    fn what_is_looked_up_while_files_come_and_go_is_one_file() {
        const FILES: u32 = 2000;
        // A mode is as it was asked for from the beginning.
        crate::caller::clear_umask();
        on_bindfs("what_is_looked_up_while_files_come_and_go_is_one_file", |_, path| {
            let export = Numbered::new(path);
            let root = export.handles.directory(export.handles.root()).expect("the root");
            let stop = AtomicBool::new(false);
            let look = |by_name: bool| {
                // A file's mode is its serial number.
                let mut told = HashMap::<Handle, u32>::new();
                while !stop.load(Ordering::Relaxed) {
                    let entry = match by_name {
                        true => export.handles.entry_by_name(&root, b"f", birth_now()),
                        false => export.handles.entry(&root, b"f").ok(),
                    };
                    let Some((handle, attr)) = entry.and_then(|e| Some((e.handle, e.attr?))) else {
                        continue;
                    };
                    let known = *told.entry(handle).or_insert(attr.mode);
                    assert_eq!(known, attr.mode, "two files have one handle");
                }
                told
            };
            let told = std::thread::scope(|threads| {
                let looks = [false, true].map(|by_name| threads.spawn(move || look(by_name)));
                for serial in 0..FILES {
                    let mode = Mode::from_raw_mode(serial % 0o1000);
                    mknodat(CWD, path.join("f"), FileType::RegularFile, mode, 0).expect("made");
                    let handle = export.handle("f");
                    export.remove(&handle, "f");
                }
                stop.store(true, Ordering::Relaxed);
                looks.map(|look| look.join().expect("one file each"))
            });
            assert!(told.iter().map(HashMap::len).sum::<usize>() > 2, "files were seen");
        });
    }
}
