//! The files one session holds open, and reading them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::limits::{OPEN_FILES_MAX, READ_FRAME_LEN_BYTES, READ_LEN_BYTES_MAX};
use portcullis_core::{Attr, FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::buffer::spare_capacity;
use rustix::io::{Errno, pread};

use crate::attr::stat;
use crate::error::failure;
use crate::handles::Handles;

/// The open files of one session, by the ids it was given.
#[derive(Default)]
pub(crate) struct OpenFiles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    files: HashMap<u64, Arc<OwnedFd>>,
    last_id: u64,
}

impl OpenFiles {
    /// Opens the regular file of `handle` for reading.
    ///
    /// Its type is known before it is opened: opening a FIFO waits for a writer, and opening a
    /// device can do anything.
    pub(crate) fn open(&self, handles: &Handles, handle: &Handle) -> Result<(u64, Attr), Failure> {
        if self.table.lock().files.len() >= OPEN_FILES_MAX {
            return Err(too_many());
        }
        let object = handles.object(handle)?;
        match object.stat.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::IsDirectory.into()),
            FileKind::Symlink => return Err(Status::Loop.into()),
            _ => {
                let detail = "a fifo, socket or device; those are not opened through a brick";
                return Err(Failure::new(Status::NoDevice, detail));
            }
        }
        let file = handles.export().open_for_read(object.fd.as_fd()).map_err(failure)?;
        let attr = stat(file.as_fd()).map_err(failure)?.attr();
        let mut table = self.table.lock();
        if table.files.len() >= OPEN_FILES_MAX {
            return Err(too_many());
        }
        table.last_id += 1;
        let id = table.last_id;
        table.files.insert(id, Arc::new(file));
        Ok((id, attr))
    }

    /// The open file of this id. It stays open while it is held, released or not.
    pub(crate) fn get(&self, id: u64) -> Result<Arc<OwnedFd>, Failure> {
        self.table.lock().files.get(&id).cloned().ok_or_else(|| Status::BadFile.into())
    }

    /// Forgets an open file.
    pub(crate) fn release(&self, id: u64) -> Result<(), Failure> {
        let released = self.table.lock().files.remove(&id);
        released.map(drop).ok_or_else(|| Status::BadFile.into())
    }

    /// Forgets all; the caller drops them where it may block.
    pub(crate) fn take_all(&self) -> impl Send + use<> {
        std::mem::take(&mut self.table.lock().files)
    }
}

fn too_many() -> Failure {
    let detail = format!("this connection holds {OPEN_FILES_MAX} files open; release some");
    Failure::new(Status::TooManyOpen, detail)
}

/// A read on its way, answered piece by piece.
pub(crate) struct ReadPieces {
    file: Arc<OwnedFd>,
    offset: u64,
    left: usize,
}

impl ReadPieces {
    /// A read of `len_bytes` from `offset_bytes` on.
    pub(crate) fn new(
        file: Arc<OwnedFd>,
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
            match pread(&self.file, spare_capacity(&mut piece), self.offset) {
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
    use crate::export::Export;

    #[test]
    fn open_files_are_bounded_and_a_release_makes_room() {
        crate::raise_open_file_limit();
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("file"), b"content").expect("written");
        let export = Export::open(dir.path()).expect("it opens");
        let handles = Handles::new(export, &[1; 32], HandleChoice::Auto).expect("handles");
        let root = handles.root_entry().expect("a root").handle;
        let root = handles.directory(&root).expect("the root");
        let file = handles.entry(&root, b"file").expect("there").handle;
        let files = OpenFiles::default();
        let mut last = Ok((0, Attr::default()));
        let mut count = 0;
        while last.is_ok() {
            last = files.open(&handles, &file);
            count += usize::from(last.is_ok());
        }
        // Where the process may not open so many, the answer is the same.
        assert_eq!(last.map_err(|failure| failure.status), Err(Status::TooManyOpen));
        assert!(count <= OPEN_FILES_MAX);
        files.release(1).expect("released");
        let (id, _) = files.open(&handles, &file).expect("there is room");
        assert_eq!(id as usize, count + 1, "no id is given twice");
    }
}
