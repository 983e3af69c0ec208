//! Files that are open, by their handles: for handles that only a place leads to.
//!
//! A file that lost its place (its name was removed, or is not known any more) is still found as
//! long as somebody has it open.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use portcullis_core::Handle;
use rustix::io::Result;

use crate::export::reopen_as_path;

/// Entries after which those of closed files are looked for.
const PRUNE_AT: usize = 1024;

/// One descriptor for each open file. As many as there are open files, and as many again.
#[derive(Default)]
pub(super) struct Descriptors(Mutex<Table>);

#[derive(Default)]
struct Table {
    files: HashMap<Handle, Weak<OwnedFd>>,
    /// How many were left when closed ones were taken out.
    live: usize,
}

impl Descriptors {
    /// A file was opened.
    pub(super) fn opened(&self, handle: &Handle, fd: &Arc<OwnedFd>) {
        let mut table = self.0.lock();
        table.files.insert(*handle, Arc::downgrade(fd));
        if table.files.len() >= PRUNE_AT.max(2 * table.live) {
            table.files.retain(|_, fd| fd.strong_count() > 0);
            table.live = table.files.len();
        }
    }

    /// An `O_PATH` descriptor of a file that is open.
    pub(super) fn find(&self, handle: &Handle) -> Option<Result<OwnedFd>> {
        let fd = self.0.lock().files.get(handle)?.upgrade()?;
        Some(reopen_as_path(fd.as_fd()))
    }
}
