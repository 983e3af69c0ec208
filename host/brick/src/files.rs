//! The files one session holds open, and reading them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::limits::{READ_FRAME_LEN_BYTES, READ_LEN_BYTES_MAX};
use portcullis_core::{Handle, Status};
use portcullis_wire::message::Failure;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::{Errno, pread};

use crate::descriptors::{Descriptors, Taken};
use crate::error::failure;
use crate::mutate::{Content, Opened};
use crate::orphans::Held;

/// The open files of one session, by the ids it was given.
pub(crate) struct OpenFiles {
    descriptors: Arc<Descriptors>,
    table: Mutex<Table>,
}

/// A place for a file that is about to be opened.
pub(crate) struct Place(Taken);

#[derive(Default)]
struct Table {
    files: HashMap<u64, Arc<OpenFile>>,
    last_id: u64,
}

/// One of them.
pub(crate) struct OpenFile {
    fd: Arc<OwnedFd>,
    held: Held,
    _descriptor: Taken,
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
    /// None yet; each takes one of `descriptors`.
    pub(crate) fn new(descriptors: Arc<Descriptors>) -> Self {
        Self { descriptors, table: Mutex::default() }
    }

    /// Keeps a place for a file, before it is opened.
    pub(crate) fn reserve(&self) -> Result<Place, Failure> {
        self.descriptors.take().map(Place).ok_or_else(|| {
            let max = self.descriptors.max();
            let detail = format!("clients hold {max} files and locks at this brick; its limit of open files allows no more");
            Failure::new(Status::TooManyOpen, detail)
        })
    }

    /// Takes in a file that was opened with `flags`; answers its id.
    pub(crate) fn insert(&self, place: Place, opened: Opened, flags: u32) -> u64 {
        let is_append = OFlags::from_bits_retain(flags).contains(OFlags::APPEND);
        let (fd, held) = (opened.fd, opened.held);
        let file = OpenFile { fd, held, _descriptor: place.0, is_append };
        let mut table = self.table.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.files.insert(id, Arc::new(file));
        id
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
    use portcullis_core::limits::OPEN_FILES_MAX;

    use super::*;
    use crate::HandleChoice;
    use crate::mutate::Mutator;
    use crate::orphans::Orphans;
    use crate::testing::handles_of;

    #[test]
    fn open_files_of_all_sessions_are_bounded_and_a_release_makes_room() {
        const MAX: usize = OPEN_FILES_MAX + 10;
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("file"), b"content").expect("written");
        let handles = handles_of(dir.path(), HandleChoice::Auto);
        let root = handles.directory(handles.root()).expect("the root");
        let file = handles.entry(&root, b"file").expect("there").handle;
        let orphans = Orphans::new(handles.clone());
        let opened = Mutator::new(handles, orphans.clone()).open(&file, 0).expect("opened");
        let descriptors = Descriptors::up_to(MAX);
        let [one, other] = [(); 2].map(|()| OpenFiles::new(descriptors.clone()));
        let open = |files: &OpenFiles| {
            let place = files.reserve()?;
            // The same descriptor each time: this process may have fewer.
            let again =
                Opened { fd: opened.fd.clone(), held: orphans.hold(&file), attr: opened.attr };
            Ok(files.insert(place, again, 0))
        };
        let is_full = |files| {
            open(files).map_err(|failure: Failure| failure.status) == Err(Status::TooManyOpen)
        };
        for count in 1..MAX {
            assert_eq!(open(&one).expect("more than one client may hold"), count as u64);
        }
        assert_eq!(open(&other).expect("another session has its own ids"), 1);
        assert!(is_full(&one) && is_full(&other));
        drop(one.release(1).expect("released"));
        assert_eq!(open(&other).expect("there is room"), 2);
        assert!(is_full(&one) && is_full(&other));
        drop(other.lose_all());
        assert_eq!(open(&one).expect("there is room") as usize, MAX, "no id is given twice");
    }
}
