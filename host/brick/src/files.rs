//! The files one session holds open, and reading them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::limits::{OPEN_FILES_MAX, READ_FRAME_LEN_BYTES, READ_LEN_BYTES_MAX};
use portcullis_core::{Handle, Status};
use portcullis_wire::message::Failure;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::{Errno, pread};

use crate::error::failure;
use crate::mutate::{Content, Opened};
use crate::orphans::Held;

/// The open files of one session, by the ids it was given.
#[derive(Default)]
pub(crate) struct OpenFiles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Arc<OpenFile>>,
    last_id: u64,
}

/// One of them.
pub(crate) struct OpenFile {
    fd: Arc<OwnedFd>,
    held: Held,
    /// Every write goes to the end.
    pub(crate) is_append: bool,
}

impl OpenFile {
    /// Its descriptor, and which file it is.
    pub(crate) fn content(&self) -> Content<'_> {
        Content { fd: self.fd.as_fd(), handle: self.held.handle() }
    }

    /// Which file it is.
    pub(crate) fn handle(&self) -> &Handle {
        self.held.handle()
    }
}

impl OpenFiles {
    /// Whether there is room for another file. Ask before it is opened.
    pub(crate) fn check_room(&self) -> Result<(), Failure> {
        if self.table.lock().files.len() >= OPEN_FILES_MAX { Err(too_many()) } else { Ok(()) }
    }

    /// Takes in a file that was opened with `flags`; answers its id.
    pub(crate) fn insert(&self, opened: Opened, flags: u32) -> Result<u64, Failure> {
        let is_append = OFlags::from_bits_retain(flags).contains(OFlags::APPEND);
        let file = OpenFile { fd: opened.fd, held: opened.held, is_append };
        let mut table = self.table.lock();
        if table.files.len() >= OPEN_FILES_MAX {
            // Closing it may block.
            drop(table);
            return Err(too_many());
        }
        table.last_id += 1;
        let id = table.last_id;
        table.files.insert(id, Arc::new(file));
        Ok(id)
    }

    /// The open file of this id. It stays open while it is held, released or not.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<OpenFile>, Failure> {
        self.table.lock().files.get(&id).cloned().ok_or_else(|| Status::BadFile.into())
    }

    /// Forgets an open file; whoever drops it last closes it, which may block.
    pub(crate) fn release(&self, id: u64) -> Result<Arc<OpenFile>, Failure> {
        self.table.lock().files.remove(&id).ok_or_else(|| Status::BadFile.into())
    }

    /// Forgets all, since the connection is lost: each is kept for a while, because its client may
    /// come back to it. The caller drops them where it may block.
    pub(crate) fn lose_all(&self) -> impl Send + use<> {
        let files = std::mem::take(&mut self.table.lock().files);
        files.values().for_each(|file| file.held.lose());
        files
    }
}

fn too_many() -> Failure {
    let detail = format!("this connection holds {OPEN_FILES_MAX} files open; release some");
    Failure::new(Status::TooManyOpen, detail)
}

/// A read on its way, answered piece by piece.
pub(crate) struct ReadPieces {
    file: Arc<OpenFile>,
    offset: u64,
    left: usize,
}

impl ReadPieces {
    /// A read of `len_bytes` from `offset_bytes` on.
    pub(crate) fn new(
        file: Arc<OpenFile>,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<Self, Failure> {
        if len_bytes > READ_LEN_BYTES_MAX {
            let detail = format!("a read of {len_bytes} bytes; at most {READ_LEN_BYTES_MAX}");
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        if i64::try_from(offset_bytes).is_err() {
            return Err(Failure::new(Status::InvalidArgument, "an offset over 2^63-1"));
        }
        // No file reaches beyond the greatest offset.
        let left = (i64::MAX as u64 - offset_bytes).min(u64::from(len_bytes)) as usize;
        Ok(Self { file, offset: offset_bytes, left })
    }

    /// The next piece: `READ_FRAME_LEN_BYTES` unless the read or the file ends before; empty when
    /// nothing is left.
    pub(crate) fn next(&mut self) -> Result<Bytes, Failure> {
        let wanted = self.left.min(READ_FRAME_LEN_BYTES);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let mut piece = Vec::with_capacity(wanted);
        while piece.len() < wanted {
            let room = wanted - piece.len();
            match pread(&self.file.fd, spare_capacity(&mut piece), self.offset) {
                Ok(0) => break,
                // The allocation may be larger than was asked for.
                Ok(read) => {
                    let read = read.min(room);
                    piece.truncate(wanted);
                    self.offset += read as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(failure(error)),
            }
        }
        self.left = if piece.len() < wanted { 0 } else { self.left - wanted };
        if piece.len() < wanted / 2 {
            // It is kept until the peer has acknowledged it.
            piece.shrink_to_fit();
        }
        Ok(piece.into())
    }

    /// Whether nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandleChoice;
    use crate::mutate::Mutator;
    use crate::orphans::Orphans;
    use crate::testing::handles_of;

    #[test]
    fn open_files_are_bounded_and_a_release_makes_room() {
        crate::raise_open_file_limit();
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("file"), b"content").expect("written");
        let handles = handles_of(dir.path(), HandleChoice::Auto);
        let root = handles.directory(handles.root()).expect("the root");
        let file = handles.entry(&root, b"file").expect("there").handle;
        let mutator = Mutator::new(handles.clone(), Orphans::new(handles));
        let files = OpenFiles::default();
        let open = || {
            files.check_room()?;
            files.insert(mutator.open(&file, 0)?, 0)
        };
        let mut last = Ok(0);
        let mut count = 0;
        while last.is_ok() {
            last = open();
            count += usize::from(last.is_ok());
        }
        // Where the process may not open so many, the answer is the same.
        assert_eq!(last.map_err(|failure| failure.status), Err(Status::TooManyOpen));
        assert!(count <= OPEN_FILES_MAX);
        drop(files.release(1).expect("released"));
        assert_eq!(open().expect("there is room") as usize, count + 1, "no id is given twice");
    }
}
