//! What a session is told is watched for it.
//!
//! A watch is registered before what it is on is read. Where that cannot be, because only the
//! answer says which file it is about, the answer is read again if the file changed meanwhile. The
//! changes of other programs are looked for in the same places ([`crate::direct`]).

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use portcullis_core::{Attr, Entry, Handle, Status};
use portcullis_transport::{WatchSession, Watching};
use portcullis_wire::message::{Failure, Notices};
use rustix::io::Errno;

use crate::attr::{Stat, stat};
use crate::direct::Direct;
use crate::error::failure;
use crate::handles::{Directory, Handles, Object};

/// How often an answer is read again before it is given without its attributes, which may be
/// stale by then.
const TRIES_MAX: usize = 8;

/// The watches of one session that caches what it is told.
#[derive(Clone)]
pub(crate) struct Watcher {
    watching: Arc<Watching>,
    session: WatchSession,
    direct: Arc<Direct>,
}

impl Watcher {
    pub(crate) fn new(watching: Arc<Watching>, session: WatchSession, direct: Arc<Direct>) -> Self {
        Self { watching, session, direct }
    }

    /// Its session.
    pub(crate) fn session(&self) -> &WatchSession {
        &self.session
    }

    /// How the brick notices changes of other programs.
    pub(crate) fn notices(&self) -> Notices {
        self.direct.notices()
    }

    /// Call it before names of `dir` are read.
    pub(crate) fn names(&self, dir: &Directory) {
        self.direct.watch_names(dir);
        self.session.watched.watch_names(&dir.handle);
    }

    /// Call it before attributes or content of a file are read, of which `fd` is a descriptor and
    /// `stat` tells what it was until now.
    pub(crate) fn attr(&self, handle: &Handle, fd: BorrowedFd<'_>, stat: &Stat) {
        self.direct.watch_file(handle, fd, stat);
        self.session.watched.watch_attr(handle);
    }

    /// As [`Watcher::attr`], and examines the file once more.
    pub(crate) fn object(&self, handle: &Handle, object: Object) -> Result<Object, Failure> {
        self.attr(handle, object.fd.as_fd(), &object.stat);
        let stat = stat(object.fd.as_fd()).map_err(failure)?;
        Ok(Object { stat, ..object })
    }

    /// The entry `name` of a directory with watched names. `quick` is the fast way to read it,
    /// where it works.
    pub(crate) fn entry(
        &self,
        handles: &Handles,
        dir: &Directory,
        name: &[u8],
        quick: impl Fn() -> Option<Entry>,
    ) -> Result<Entry, Errno> {
        for tried in 1.. {
            let grantor = self.watching.grantor();
            let reading = grantor.read();
            let mut entry = match quick() {
                Some(entry) => entry,
                None => handles.entry(dir, name)?,
            };
            if self.direct.needs_watch(&entry) {
                entry = handles.entry_with(dir, name, |handle, fd| {
                    // Which may be another file by now.
                    if let Ok(stat) = stat(fd)
                        && !handles.export().crosses(&stat)
                        && let Ok(handle) =
                            handle.map_or_else(|| handles.handle_of(fd, &stat), |known| Ok(*known))
                    {
                        self.direct.watch_file(&handle, fd, &stat);
                    }
                })?;
            }
            self.direct.watch_child(&entry);
            self.session.watched.watch_attr(&entry.handle);
            if !grantor.attr_changed_since(reading, &entry.handle) {
                return Ok(entry);
            }
            if tried == TRIES_MAX {
                return Ok(Entry { attr: None, ..entry });
            }
        }
        Err(Errno::AGAIN)
    }

    /// What an operation of this session left behind, as it is told to it.
    pub(crate) fn own(&self, handles: &Handles, entry: Entry) -> Entry {
        self.direct.watch_child(&entry);
        let handle = entry.handle;
        // Examined again, now that it is watched.
        let examined = handles.object(&handle).and_then(|object| self.object(&handle, object));
        let told = |object: Object| handles.told_with_acl(&handle, &object);
        Entry { attr: examined.ok().map(told), ..entry }
    }
}

/// A directory whose names are about to be read, watched if there is somebody to be told; `None` where
/// this member of a volume has no copy of it, and so no names.
pub(crate) fn directory(
    watcher: Option<&Watcher>,
    handles: &Handles,
    handle: &Handle,
) -> Result<Option<Directory>, Failure> {
    let no_copy = |found: &Result<Directory, Failure>| {
        found.as_ref().is_err_and(|failure| failure.status == Status::NoCopy)
    };
    let mut found = handles.directory(handle);
    if no_copy(&found) {
        if let Some(watcher) = watcher {
            watcher.session.watched.watch_names(handle);
            // One that was made just before was told to others only.
            found = handles.directory(handle);
        }
        if no_copy(&found) {
            return Ok(None);
        }
    }
    let dir = found?;
    if let Some(watcher) = watcher {
        watcher.names(&dir);
    }
    Ok(Some(dir))
}

/// An entry of a directory whose names are watched, if there is somebody to be told.
pub(crate) fn entry(
    watcher: Option<&Watcher>,
    handles: &Handles,
    dir: &Directory,
    name: &[u8],
) -> Result<Entry, Errno> {
    match watcher {
        Some(watcher) => watcher.entry(handles, dir, name, || None),
        None => handles.entry(dir, name),
    }
}

/// A file by its handle, watched if there is somebody to be told.
pub(crate) fn object(
    watcher: Option<&Watcher>,
    handles: &Handles,
    handle: &Handle,
) -> Result<Object, Failure> {
    let object = handles.object(handle)?;
    match watcher {
        Some(watcher) => watcher.object(handle, object),
        None => Ok(object),
    }
}

/// The attributes of a file, edges included.
pub(crate) fn attr(
    watcher: Option<&Watcher>,
    handles: &Handles,
    handle: &Handle,
) -> Result<Attr, Failure> {
    match object(watcher, handles, handle) {
        Ok(object) => Ok(handles.told_with_acl(handle, &object)),
        Err(failure) if failure.status == Status::CrossDevice => {
            handles.stat(handle).map(|stat| handles.told(handle, stat.attr()))
        }
        Err(failure) => Err(failure),
    }
}
