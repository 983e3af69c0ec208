//! Opening files, those too that are made by it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use portcullis_core::{Attr, Entry, Handle, Status};
use portcullis_wire::message::{Caller, Failure};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, Result as IoResult};

use super::names::Place;
use super::{Changes, Mutator};
use crate::attr::stat;
use crate::caller::as_caller;
use crate::error::failure;
use crate::handles::Directory;
use crate::name;
use crate::orphans::Held;

/// How often a create begins anew because the name went away or came back meanwhile.
const TRIES_MAX: usize = 16;
/// What of the flags of open(2) reaches the file system: how it is accessed and written back.
/// Appending is asked for with each write.
const FLAGS_PASSED: OFlags = OFlags::RWMODE.union(OFlags::SYNC).union(OFlags::DSYNC);

/// A file just opened.
pub(crate) struct Opened {
    /// The descriptor.
    pub(crate) fd: Arc<OwnedFd>,
    /// Keeps the file while it is open.
    pub(crate) held: Held,
    /// Its attributes at that time.
    pub(crate) attr: Attr,
}

impl Mutator {
    /// open(2) with `O_CREAT`: opens the file `at`, and makes it if it is not there.
    pub(crate) fn create(
        &self,
        caller: &Caller,
        at: Place<'_>,
        flags: u32,
        mode: u32,
        changes: &mut Changes,
    ) -> Result<(Entry, Opened), Failure> {
        name::check_new(&self.handles, at.dir, at.name)?;
        let dir = self.handles.directory(at.dir)?;
        let flags = OFlags::from_bits_retain(flags);
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let new = (flags & FLAGS_PASSED)
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        let _turn = self.turns.of(at.dir);
        for _ in 0..TRIES_MAX {
            match as_caller(caller, || openat(&dir.fd, at.name, new, mode)) {
                Ok(fd) => {
                    changes.name(*at.dir, at.name);
                    let entry = self.handles.entry_of(&dir, at.name, fd.as_fd());
                    return self.opened(entry.map_err(failure)?, fd);
                }
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                Err(error) => return Err(self.failed_in(&dir, error)),
            }
            match self.open_known(caller, &dir, at.name, flags, changes) {
                Err(failure) if failure.status == Status::NotFound => {}
                opened => return opened,
            }
        }
        Err(Failure::new(Status::Busy, "the name comes and goes"))
    }

    /// open(2) with `O_TMPFILE`: a file without a name, made where `dir` lies. `link` may give it
    /// one, unless it is made with `O_EXCL`.
    pub(crate) fn tmpfile(
        &self,
        caller: &Caller,
        dir: &Handle,
        flags: u32,
        mode: u32,
    ) -> Result<(Entry, Opened), Failure> {
        let dir = self.handles.directory(dir)?;
        let flags = OFlags::from_bits_retain(flags);
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let new = (flags & FLAGS_PASSED) | OFlags::TMPFILE | OFlags::CLOEXEC;
        let fd = as_caller(caller, || openat(&dir.fd, c".", new, mode))
            .map_err(|error| self.failed_in(&dir, error))?;
        let examined = stat(fd.as_fd());
        let handle = examined.and_then(|stat| self.handles.handle_of(fd.as_fd(), &stat));
        let handle = handle.map_err(failure)?;
        let may_be_linked = !flags.contains(OFlags::EXCL);
        let held = self.orphans.adopt_temporary(fd.as_fd(), &handle, may_be_linked);
        let held = held.map_err(failure)?;
        let stat = stat(fd.as_fd()).map_err(failure)?;
        let attr = self.orphans.told(&handle, stat.attr());
        let entry = Entry { handle, attr: Some(attr), kind: stat.kind(), target: None };
        Ok((entry, self.as_opened(fd, held, attr)))
    }

    /// open(2) of a regular file by its handle, as the brick: the caller's kernel has checked
    /// what the caller may do.
    pub(crate) fn open(&self, handle: &Handle, flags: u32) -> Result<Opened, Failure> {
        let flags = OFlags::from_bits_retain(flags);
        let held = self.orphans.hold(handle);
        let object = self.handles.object(handle)?;
        Self::check_openable(object.stat.kind())?;
        let fd = self.open_file(object.fd.as_fd(), flags & FLAGS_PASSED).map_err(failure)?;
        let attr = self.orphans.told(handle, stat(fd.as_fd()).map_err(failure)?.attr());
        Ok(self.as_opened(fd, held, attr))
    }

    /// Opens what is there already, as the caller: its kernel did not know the file, and has
    /// checked nothing.
    fn open_known(
        &self,
        caller: &Caller,
        dir: &Directory,
        name: &[u8],
        flags: OFlags,
        changes: &mut Changes,
    ) -> Result<(Entry, Opened), Failure> {
        let export = self.handles.export();
        let path = export.open_name(dir.fd.as_fd(), name).map_err(failure)?;
        let known = stat(path.as_fd()).map_err(failure)?;
        if export.crosses(&known) {
            return Err(Status::CrossDevice.into());
        }
        Self::check_openable(known.kind())?;
        let entry = self.handles.entry_of(dir, name, path.as_fd()).map_err(failure)?;
        let held = self.orphans.hold(&entry.handle);
        let passed = flags & (FLAGS_PASSED | OFlags::TRUNC);
        if flags.contains(OFlags::TRUNC) {
            changes.attr(entry.handle);
        }
        let fd = as_caller(caller, || self.open_file(path.as_fd(), passed)).map_err(failure)?;
        let attr = stat(fd.as_fd()).map_err(failure)?.attr();
        let attr = self.handles.told(&entry.handle, attr);
        Ok((Entry { attr: Some(attr), ..entry }, self.as_opened(fd, held, attr)))
    }

    /// A descriptor of `file`, which the caller knows to be a regular file.
    fn open_file(&self, file: BorrowedFd<'_>, flags: OFlags) -> IoResult<OwnedFd> {
        self.handles.export().open_file(file, flags)
    }

    fn opened(&self, entry: Entry, fd: OwnedFd) -> Result<(Entry, Opened), Failure> {
        let held = self.orphans.hold(&entry.handle);
        let attr = entry.attr.ok_or(Status::Io)?;
        Ok((entry, self.as_opened(fd, held, attr)))
    }

    fn as_opened(&self, fd: OwnedFd, held: Held, attr: Attr) -> Opened {
        let fd = Arc::new(fd);
        self.handles.opened(held.handle(), &fd);
        Opened { fd, held, attr }
    }
}
