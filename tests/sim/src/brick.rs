//! The model brick: a few directories whose names come, go and change.
//!
//! A file's version is its size, so that a client's answer says which version it saw. Every
//! change tells its directory and the file (`Invalidate`) before it counts as acknowledged.

use std::collections::BTreeMap;

use bytes::Bytes;
use portcullis_core::{Attr, ChunkBuilder, Entry, EntryRef, FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, ReplyFrame, Request, codec};

/// Directories of the tree.
pub const DIRS: usize = 4;
/// Names that a directory can have.
pub const NAMES: usize = 12;
/// Entries of one listing frame: small, so that a listing has several.
const FRAME_ENTRIES: usize = 4;

/// The tree. `files[dir][name]` is the version, missing where there is no such name.
#[derive(Debug, Default)]
pub struct Brick {
    files: [BTreeMap<usize, u64>; DIRS],
}

/// The handle of directory `dir`.
pub fn dir_handle(dir: usize) -> Handle {
    Handle::new(&[b'd', dir as u8]).expect("2 bytes")
}

/// The handle of file `name` of directory `dir`.
pub fn file_handle(dir: usize, name: usize) -> Handle {
    Handle::new(&[b'f', dir as u8, name as u8]).expect("3 bytes")
}

/// The `name`-th name.
pub fn name_of(name: usize) -> Vec<u8> {
    format!("name-{name}").into_bytes()
}

/// Which of [`name_of`] this is.
pub fn name_index(name: &[u8]) -> Option<usize> {
    (0..NAMES).find(|&index| name_of(index) == name)
}

impl Brick {
    /// Puts a version under a name, or takes the name away.
    pub fn change(&mut self, dir: usize, name: usize, version: Option<u64>) {
        match version {
            Some(version) => self.files[dir].insert(name, version),
            None => self.files[dir].remove(&name),
        };
    }

    /// Whether the name exists.
    pub fn has(&self, dir: usize, name: usize) -> bool {
        self.files[dir].contains_key(&name)
    }

    /// Answers a request frame as of now with reply frames.
    pub fn answer(&self, frame: Bytes) -> Vec<Bytes> {
        let replies = match codec::decode_request(frame) {
            Ok(Request::Lookup { dir, name }) => vec![self.lookup(&dir, &name)],
            Ok(Request::Getattr { handle }) => vec![self.getattr(&handle)],
            Ok(Request::List { dir, after }) if after.is_empty() => self.list(&dir),
            Ok(other) => vec![fail(Status::NotSupported, &format!("{:?}", other.verb()))],
            Err(error) => vec![fail(Status::BadFrame, &error.to_string())],
        };
        replies.iter().map(|reply| codec::encode_reply(reply).expect("a small reply")).collect()
    }

    fn lookup(&self, dir: &Handle, name: &[u8]) -> ReplyFrame {
        let (Some(dir), Some(name)) = (index_of(dir), name_index(name)) else {
            return fail(Status::NotFound, "");
        };
        match self.files[dir].get(&name) {
            Some(&version) => ReplyFrame::Reply(Reply::Entry(entry(dir, name, version))),
            None => fail(Status::NotFound, ""),
        }
    }

    fn getattr(&self, handle: &Handle) -> ReplyFrame {
        let &[b'f', dir, name] = handle.as_bytes() else { return fail(Status::Stale, "") };
        match self.files[dir as usize].get(&(name as usize)) {
            Some(&version) => ReplyFrame::Reply(Reply::Attr(attr(version))),
            None => fail(Status::Stale, ""),
        }
    }

    fn list(&self, dir: &Handle) -> Vec<ReplyFrame> {
        let Some(dir) = index_of(dir) else { return vec![fail(Status::Stale, "")] };
        let mut builder = ChunkBuilder::default();
        let mut frames = Vec::new();
        for (&name, &version) in &self.files[dir] {
            let entry = entry(dir, name, version);
            let bytes = name_of(name);
            assert!(builder.push(&EntryRef { cookie: name as u64 + 1, ..entry.as_ref(&bytes, 0) }));
            if builder.count() == FRAME_ENTRIES {
                frames.extend(builder.finish(0).map(ReplyFrame::Chunk));
            }
        }
        frames.extend(builder.finish(0).map(ReplyFrame::Chunk));
        frames.push(ReplyFrame::End { complete: true });
        frames
    }
}

fn index_of(dir: &Handle) -> Option<usize> {
    (0..DIRS).find(|&index| dir_handle(index) == *dir)
}

fn attr(version: u64) -> Attr {
    Attr { ino: 1, size_bytes: version, mode: 0o100_644, nlink: 1, ..Attr::default() }
}

fn entry(dir: usize, name: usize, version: u64) -> Entry {
    Entry {
        handle: file_handle(dir, name),
        attr: Some(attr(version)),
        kind: FileKind::Regular,
        target: None,
    }
}

fn fail(status: Status, detail: &str) -> ReplyFrame {
    ReplyFrame::Failure(Failure::new(status, detail))
}
