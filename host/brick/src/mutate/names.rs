//! What names stand for: made, given, taken and moved.

use std::os::fd::AsFd;

use portcullis_core::limits::LINK_TARGET_LEN_MAX;
use portcullis_core::{Entry, FileKind, Handle, Status};
use portcullis_wire::message::{Caller, Failure};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, linkat, mkdirat, mknodat, renameat_with, symlinkat,
    unlinkat,
};
use rustix::io::{Errno, Result as IoResult};

use super::{Changes, Mutator};
use crate::caller::as_caller;
use crate::error::failure;
use crate::export::proc_path;
use crate::handles::Directory;
use crate::name;

/// A name in a directory, by the directory's handle.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub(crate) dir: &'a Handle,
    /// The name.
    pub(crate) name: &'a [u8],
}

impl Mutator {
    /// mkdir(2).
    pub(crate) fn mkdir(
        &self,
        caller: &Caller,
        at: Place<'_>,
        mode: u32,
        changes: &mut Changes,
    ) -> Result<Entry, Failure> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.make(caller, at, changes, |dir| mkdirat(&dir.fd, at.name, mode))
    }

    /// mknod(2): a regular file, FIFO, socket or device, by the type in `mode`.
    pub(crate) fn mknod(
        &self,
        caller: &Caller,
        at: Place<'_>,
        mode: u32,
        rdev: u64,
        changes: &mut Changes,
    ) -> Result<Entry, Failure> {
        let kind = match FileKind::of_mode(mode) {
            FileKind::Unknown if mode & libc::S_IFMT == 0 => FileType::RegularFile,
            FileKind::Unknown | FileKind::Symlink => return Err(Status::InvalidArgument.into()),
            FileKind::Directory => return Err(Status::NotPermitted.into()),
            _ => FileType::from_raw_mode(mode),
        };
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.make(caller, at, changes, |dir| mknodat(&dir.fd, at.name, kind, mode, rdev))
    }

    /// symlink(2).
    pub(crate) fn symlink(
        &self,
        caller: &Caller,
        at: Place<'_>,
        target: &[u8],
        changes: &mut Changes,
    ) -> Result<Entry, Failure> {
        if target.len() > LINK_TARGET_LEN_MAX {
            return Err(Status::NameTooLong.into());
        }
        if target.contains(&0) {
            return Err(Failure::new(Status::InvalidArgument, "a target has no NUL byte"));
        }
        self.make(caller, at, changes, |dir| symlinkat(target, &dir.fd, at.name))
    }

    /// link(2): another name for a file that is no directory.
    pub(crate) fn link(
        &self,
        caller: &Caller,
        file: &Handle,
        at: Place<'_>,
        changes: &mut Changes,
    ) -> Result<Entry, Failure> {
        let object = self.handles.object(file)?;
        // A link is linked itself: so does the path in /proc lead to it.
        let path = proc_path(object.fd.as_fd());
        let link = |dir: &Directory| {
            let link = || {
                as_caller(caller, || linkat(CWD, &path, &dir.fd, at.name, AtFlags::SYMLINK_FOLLOW))
            };
            self.orphans.linking(file, link)
        };
        let entry = self.make_by(at, changes, link)?;
        changes.attr(*file);
        Ok(entry)
    }

    /// unlink(2).
    pub(crate) fn unlink(
        &self,
        caller: &Caller,
        at: Place<'_>,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        let dir = self.known(at)?;
        let _turn = self.turns.of(at.dir);
        let file = self.entry(&dir, at.name)?;
        let unlink = || as_caller(caller, || unlinkat(&dir.fd, at.name, AtFlags::empty()));
        // Even where it failed the file may have had another name for a moment.
        changes.attr(file.handle);
        self.removing(&file, unlink).map_err(|error| self.failed_in(&dir, error))?;
        changes.name(*at.dir, at.name);
        Ok(())
    }

    /// rmdir(2).
    pub(crate) fn rmdir(
        &self,
        caller: &Caller,
        at: Place<'_>,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        let dir = self.known(at)?;
        let _turn = self.turns.of(at.dir);
        let removed = self.entry(&dir, at.name)?;
        let rmdir = || as_caller(caller, || unlinkat(&dir.fd, at.name, AtFlags::REMOVEDIR));
        let done = self.handles.removing(&removed.handle, rmdir);
        done.map_err(|error| self.failed_in(&dir, error))?;
        changes.name(*at.dir, at.name);
        changes.removed_dir(removed.handle);
        Ok(())
    }

    /// renameat2(2) with no flag, `RENAME_NOREPLACE` or `RENAME_EXCHANGE`.
    pub(crate) fn rename(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        flags: u32,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        let flags = RenameFlags::from_bits_retain(flags);
        let is_exchange = flags == RenameFlags::EXCHANGE;
        if !flags.is_empty() && !is_exchange && flags != RenameFlags::NOREPLACE {
            let detail = "of the flags of a rename only NOREPLACE and EXCHANGE are taken";
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        let from_dir = self.known(from)?;
        name::check_new(&self.handles, to.dir, to.name)?;
        let to_dir = self.handles.directory(to.dir)?;
        let _turn = self.turns.of_both(from.dir, to.dir);
        let moved = self.entry(&from_dir, from.name)?;
        let other = match self.handles.entry(&to_dir, to.name) {
            Ok(other) => Some(other).filter(|other| other.handle != moved.handle),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(failure(error)),
        };
        let rename = || {
            as_caller(caller, || renameat_with(&from_dir.fd, from.name, &to_dir.fd, to.name, flags))
        };
        let renamed = match &other {
            Some(victim) if flags.is_empty() => {
                changes.attr(victim.handle);
                self.removing(victim, rename)
            }
            _ => rename(),
        };
        renamed.map_err(|error| match error {
            Errno::NOENT => self.failed_in(&from_dir, error),
            _ => failure(error),
        })?;
        changes.name(*from.dir, from.name);
        changes.name(*to.dir, to.name);
        changes.attr(moved.handle);
        self.handles.moved(&to_dir, to.name, &moved.handle, moved.kind);
        match other {
            Some(other) if is_exchange => {
                changes.attr(other.handle);
                self.handles.moved(&from_dir, from.name, &other.handle, other.kind);
            }
            Some(victim) if victim.kind == FileKind::Directory => {
                changes.removed_dir(victim.handle);
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes something new as its caller.
    fn make(
        &self,
        caller: &Caller,
        at: Place<'_>,
        changes: &mut Changes,
        make: impl FnOnce(&Directory) -> IoResult<()>,
    ) -> Result<Entry, Failure> {
        self.make_by(at, changes, |dir| as_caller(caller, || make(dir)))
    }

    fn make_by(
        &self,
        at: Place<'_>,
        changes: &mut Changes,
        make: impl FnOnce(&Directory) -> IoResult<()>,
    ) -> Result<Entry, Failure> {
        name::check_new(&self.handles, at.dir, at.name)?;
        let dir = self.handles.directory(at.dir)?;
        let _turn = self.turns.of(at.dir);
        make(&dir).map_err(|error| self.failed_in(&dir, error))?;
        changes.name(*at.dir, at.name);
        self.entry(&dir, at.name)
    }

    /// The directory of a name that is to be there.
    fn known(&self, at: Place<'_>) -> Result<Directory, Failure> {
        name::check_known(&self.handles, at.dir, at.name)?;
        self.handles.directory(at.dir)
    }

    /// Takes a name from `victim`, and keeps it where it is held.
    pub(crate) fn removing(
        &self,
        victim: &Entry,
        remove: impl FnOnce() -> IoResult<()>,
    ) -> IoResult<()> {
        if victim.kind != FileKind::Regular {
            return self.handles.removing(&victim.handle, remove);
        }
        let kept = self.handles.keep(&victim.handle);
        self.orphans.removing(&victim.handle, remove)?;
        kept.into_iter().for_each(|file| self.lately.keep(file));
        Ok(())
    }
}
