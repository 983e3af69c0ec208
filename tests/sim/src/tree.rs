//! The model tree: a few directories whose names come and go, and files that change.
//!
//! A file's version is its size, and each file that is made has a handle of its own, so that an
//! answer says which state of which file it saw.

use std::collections::BTreeMap;

use portcullis_core::watch::Change;
use portcullis_core::{Attr, ChunkBuilder, Entry, EntryRef, FileKind, Handle, Status};
use portcullis_wire::message::{Mutated, Mutation};
use portcullis_wire::{Reply, ReplyFrame, Request};

/// Directories of the tree.
pub const DIRS: usize = 3;
/// Names that a directory can have.
pub const NAMES: usize = 8;
/// Entries of one listing frame: small, so that a listing has several.
const FRAME_ENTRIES: usize = 3;

/// Which file a name stands for, and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Tells files apart that had the same name.
    pub file: u64,
    /// Its content.
    pub version: u64,
}

/// What a name stands for, or that there is none.
pub type State = Option<File>;

/// A name: directory and name.
pub type Place = (usize, usize);

/// The tree.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<Place, File>,
    last_file: u64,
}

/// The handle of directory `dir`.
pub fn dir_handle(dir: usize) -> Handle {
    Handle::new(&[b'd', dir as u8]).expect("2 bytes")
}

/// The handle of the file `file`, made at `place`.
pub fn file_handle(place: Place, file: u64) -> Handle {
    let [a, b, c, d, e, f, g, h] = file.to_le_bytes();
    Handle::new(&[b'f', place.0 as u8, place.1 as u8, a, b, c, d, e, f, g, h]).expect("11 bytes")
}

/// Where a file was made, and which it is.
pub fn file_of(handle: &Handle) -> Option<(Place, u64)> {
    let [b'f', dir, name, file @ ..] = handle.as_bytes() else { return None };
    Some(((usize::from(*dir), usize::from(*name)), u64::from_le_bytes(file.try_into().ok()?)))
}

/// The `name`-th name.
pub fn name_of(name: usize) -> Vec<u8> {
    format!("name-{name}").into_bytes()
}

/// The place that a directory and a name are.
pub fn place_of(dir: &Handle, name: &[u8]) -> Option<Place> {
    let dir = (0..DIRS).find(|&index| dir_handle(index) == *dir)?;
    Some((dir, (0..NAMES).find(|&index| name_of(index) == name)?))
}

impl Tree {
    /// What a name stands for.
    pub fn state(&self, place: Place) -> State {
        self.files.get(&place).copied()
    }

    /// Applies a mutation: where it is done and what the name stands for then, what came of it, and
    /// what is no longer true.
    ///
    /// # Errors
    /// As a file system would answer.
    pub fn apply(&mut self, mutation: &Mutation) -> Result<(Place, Mutated, Vec<Change>), Status> {
        match mutation {
            Mutation::Mknod { dir, name, rdev, .. } => {
                let place = place_of(dir, name).ok_or(Status::NotFound)?;
                if self.files.contains_key(&place) {
                    return Err(Status::Exists);
                }
                self.last_file += 1;
                let file = File { file: self.last_file, version: *rdev };
                self.files.insert(place, file);
                let changes = vec![Change::Name { dir: *dir, name: name.clone() }];
                Ok((place, Mutated::Entry(entry(place, file)), changes))
            }
            Mutation::Unlink { dir, name } => {
                let place = place_of(dir, name).ok_or(Status::NotFound)?;
                let file = self.files.remove(&place).ok_or(Status::NotFound)?;
                let changes = vec![
                    Change::Name { dir: *dir, name: name.clone() },
                    Change::Attr { handle: file_handle(place, file.file) },
                ];
                Ok((place, Mutated::Done, changes))
            }
            Mutation::Setattr { handle, set, .. } => {
                let (place, file) = file_of(handle).ok_or(Status::BadHandle)?;
                let is_same = |found: &&mut File| found.file == file;
                let found = self.files.get_mut(&place).filter(is_same).ok_or(Status::Stale)?;
                found.version = set.size_bytes.unwrap_or(found.version);
                let changes = vec![Change::Attr { handle: *handle }];
                Ok((place, Mutated::Attr(attr(*found)), changes))
            }
            _ => Err(Status::NotSupported),
        }
    }

    /// Answers a request that changes nothing, as of now.
    pub fn answer(&self, request: &Request) -> Vec<ReplyFrame> {
        match request {
            Request::Lookup { dir, name } => {
                let found = place_of(dir, name).and_then(|place| Some((place, self.state(place)?)));
                vec![match found {
                    Some((place, file)) => ReplyFrame::Reply(Reply::Entry(entry(place, file))),
                    None => ReplyFrame::Failure(Status::NotFound.into()),
                }]
            }
            Request::Getattr { handle } => {
                let wanted = file_of(handle);
                let found = wanted
                    .and_then(|(place, file)| self.state(place).filter(|found| found.file == file));
                vec![match found {
                    Some(file) => ReplyFrame::Reply(Reply::Attr(attr(file))),
                    None => ReplyFrame::Failure(Status::Stale.into()),
                }]
            }
            Request::List { dir, .. } => self.list(dir),
            _ => vec![ReplyFrame::Failure(Status::NotSupported.into())],
        }
    }

    fn list(&self, dir: &Handle) -> Vec<ReplyFrame> {
        let mut builder = ChunkBuilder::default();
        let mut frames = Vec::new();
        for (&place, &file) in self.files.iter().filter(|((at, _), _)| dir_handle(*at) == *dir) {
            let (entry, name) = (entry(place, file), name_of(place.1));
            assert!(
                builder.push(&EntryRef { cookie: place.1 as u64 + 1, ..entry.as_ref(&name, 0) })
            );
            if builder.count() == FRAME_ENTRIES {
                frames.extend(builder.finish(0).map(ReplyFrame::Chunk));
            }
        }
        frames.extend(builder.finish(0).map(ReplyFrame::Chunk));
        frames.push(ReplyFrame::End { complete: true });
        frames
    }
}

fn attr(file: File) -> Attr {
    Attr { ino: file.file, size_bytes: file.version, mode: 0o100_644, nlink: 1, ..Attr::default() }
}

fn entry(place: Place, file: File) -> Entry {
    Entry {
        handle: file_handle(place, file.file),
        attr: Some(attr(file)),
        kind: FileKind::Regular,
        target: None,
    }
}
