//! Changing the export: one function a verb, each run on a worker as its caller.
//!
//! - `names`: mkdir, mknod, symlink, link, unlink, rmdir, rename.
//! - `create`: create, tmpfile, and opening what is there.
//! - `attributes`: setattr, setxattr, removexattr.
//! - `content`: write, fallocate, copy_file_range, fsync, lseek.
//! - `lately`: what was just removed can still be opened for a moment.
//! - `turns`: operations on the names of one directory take turns; `changes`: what each made
//!   untrue.
//!
//! The file system below decides what is allowed and what an operation comes to; nothing is
//! checked here that it checks itself. What must hold: a name is never followed and never leads
//! out of the export; what was changed is told, also where an operation failed half way; a file
//! that is held keeps existing ([`crate::orphans`]).

mod attributes;
mod changes;
mod content;
mod create;
mod lately;
mod names;
mod turns;

use std::sync::Arc;
use std::time::Instant;

use portcullis_core::{Entry, FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::io::Errno;
use std::os::fd::AsFd;

use crate::error::failure;
use crate::handles::{Directory, Handles};
use crate::orphans::Orphans;
use lately::Lately;
use turns::Turns;

pub(crate) use changes::Changes;
pub(crate) use content::{Content, allocate, copy_file_range, fsync, lseek, write};
pub(crate) use create::Opened;
pub(crate) use names::Place;

/// Changes one export.
pub(crate) struct Mutator {
    handles: Arc<Handles>,
    orphans: Arc<Orphans>,
    lately: Lately,
    turns: Turns,
}

impl Mutator {
    /// Changes the export of `handles`.
    pub(crate) fn new(handles: Arc<Handles>, orphans: Arc<Orphans>) -> Self {
        Self { handles, orphans, lately: Lately::default(), turns: Turns::default() }
    }

    /// Lets go of what was kept for long enough, as of `now`. Blocks.
    pub(crate) fn sweep(&self, now: Instant) {
        self.lately.sweep(now);
    }

    /// Writes back what is cached of a directory. Blocks.
    pub(crate) fn fsyncdir(&self, dir: &Handle) -> Result<(), Failure> {
        let dir = self.handles.directory(dir)?;
        let list = self.handles.export().open_for_list(dir.fd.as_fd()).map_err(failure)?;
        rustix::fs::fsync(&list).map_err(failure)
    }

    /// The entry that an operation left behind.
    fn entry(&self, dir: &Directory, name: &[u8]) -> Result<Entry, Failure> {
        self.handles.entry(dir, name).map_err(|error| self.failed_in(dir, error))
    }

    /// What is answered where an operation on a name of `dir` failed.
    pub(crate) fn failed_in(&self, dir: &Directory, error: Errno) -> Failure {
        match error {
            Errno::NOENT if self.handles.export().is_removed(dir.fd.as_fd()) => {
                Status::Stale.into()
            }
            _ => failure(error),
        }
    }

    /// The status of opening a file of this kind for its content, where that is refused.
    fn check_openable(kind: FileKind) -> Result<(), Failure> {
        match kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Status::IsDirectory.into()),
            FileKind::Symlink => Err(Status::Loop.into()),
            _ => {
                let detail = "a fifo, socket or device; those are not opened through a brick";
                Err(Failure::new(Status::NoDevice, detail))
            }
        }
    }
}

#[cfg(test)]
mod tests;
