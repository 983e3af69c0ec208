//! The files that one client has open, by the ids that it knows them by.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use portcullis_core::limits::{OPEN_FILES_MAX, RELEASES_MAX};
use portcullis_core::{Handle, Status};
use portcullis_wire::message::{Failure, LockOwner, LockSort, Verb};
use portcullis_wire::{Reply, Request};
use tracing::debug;

use crate::brick_link::BrickLink;
use crate::open_file::{AtBrick, OpenFile};
use crate::session::Session;
use crate::volume::Volume;

/// open(2): for reading, for writing, or both; 0 is for reading.
const O_ACCMODE: u32 = 0o3;

/// Open files by id.
#[derive(Default)]
pub(crate) struct Files {
    opened: u64,
    open: HashMap<u64, Arc<OpenFile>>,
    /// Files that are being opened.
    reserved: usize,
    /// The client is gone for good.
    closed: bool,
}

/// A place for a file that is about to be opened.
pub(crate) struct Place<'a>(&'a Arc<Session>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.files.lock().reserved -= 1;
    }
}

impl Session {
    /// Keeps a place for one more open file.
    pub(crate) fn reserve(self: &Arc<Self>) -> Result<Place<'_>, Failure> {
        let mut files = self.files.lock();
        if files.open.len() + files.reserved >= OPEN_FILES_MAX {
            let detail = format!("this connection has {OPEN_FILES_MAX} files open; close some");
            return Err(Failure::new(Status::TooManyOpen, detail));
        }
        files.reserved += 1;
        Ok(Place(self))
    }

    /// Opens a file at the brick and gives it an id on this connection.
    pub(crate) async fn open(
        self: &Arc<Self>,
        handle: Handle,
        flags: u32,
    ) -> Result<Reply, Failure> {
        let place = self.reserve()?;
        let volume = &self.volume;
        self.watch_attr(&handle);
        let request = Request::Open { handle, flags };
        let link = volume.bricks.of(&handle);
        let began = Instant::now();
        let opened = link.call_any(&request, link.deadline()).await;
        let (reply, brick) = opened.inspect_err(|failure| volume.note(&request, failure))?;
        let Reply::Opened { file, attr } = reply else {
            return Err(link.nonsense(Verb::Open));
        };
        if flags & O_ACCMODE == 0 {
            let (client, took) = (self.client().unwrap_or_default(), began.elapsed());
            volume.inlining.opened(client, &handle, took.as_micros() as u64);
        }
        if self.is_gone() || self.is_superseded() {
            // Its client does not learn of it, and asks again where it goes on: nobody would close it.
            release_at_brick(link, brick.epoch, &[file]).await;
            return Err(Failure::new(Status::Unavailable, "the connection is lost"));
        }
        let open = OpenFile::new(handle, flags, AtBrick { epoch: brick.epoch, file });
        Ok(Reply::Opened { file: self.register(place, open), attr })
    }

    /// Gives an open file an id on this connection.
    pub(crate) fn register(self: &Arc<Self>, place: Place<'_>, open: OpenFile) -> u64 {
        let open = Arc::new(open);
        self.volume.clients.enter(self);
        let (file, closed) = {
            let mut files = self.files.lock();
            files.opened += 1;
            let file = files.opened;
            files.open.insert(file, open.clone());
            (file, files.closed)
        };
        drop(place);
        if self.resumes() {
            self.take_place(&open);
        }
        if closed {
            // Its client left while it was being opened.
            let session = self.clone();
            tokio::spawn(async move { session.close_files().await });
        }
        file
    }

    /// A client that lost a connection opens its files again: each takes the place of the one that
    /// it had open there, and goes on to hold its locks.
    fn take_place(&self, open: &Arc<OpenFile>) {
        let earlier = self.volume.clients.earlier(self);
        let Some(old) = earlier.iter().find_map(|earlier| earlier.take_like(open)) else { return };
        let locks = old.held.lock().all().to_vec();
        if !locks.is_empty() {
            self.volume.lockers.enter(open);
            let mut held = open.held.lock();
            locks.iter().for_each(|lock| held.set(lock));
        }
        let volume = self.volume.clone();
        tokio::spawn(async move { close(&volume, &old, None).await });
    }

    /// Takes out a file that was opened in the same way.
    fn take_like(&self, open: &OpenFile) -> Option<Arc<OpenFile>> {
        let mut files = self.files.lock();
        let (&id, _) = files.open.iter().find(|(_, other)| other.is_like(open))?;
        files.open.remove(&id)
    }

    /// The open file of an id.
    pub(crate) fn file(&self, file: u64) -> Result<Arc<OpenFile>, Failure> {
        self.files.lock().open.get(&file).cloned().ok_or_else(|| bad_file(file))
    }

    /// All open files.
    pub(crate) fn open_files(&self) -> Vec<Arc<OpenFile>> {
        self.files.lock().open.values().cloned().collect()
    }

    /// From now on this client is told when a file changes, if it caches.
    pub(crate) fn watch_attr(&self, handle: &Handle) {
        if let Some(watched) = self.watched() {
            watched.watch_attr(handle);
        }
    }

    /// Closes a file. The client is answered at once, but where locks end with it: nothing can go
    /// wrong at the brick that it could act on.
    pub(crate) async fn release(
        &self,
        file: u64,
        unlock: Option<LockOwner>,
    ) -> Result<Reply, Failure> {
        let open = self.files.lock().open.remove(&file).ok_or_else(|| bad_file(file))?;
        let volume = self.volume.clone();
        let locked = unlock.is_some() || !open.held.lock().is_empty();
        let closing = tokio::spawn(async move { close(&volume, &open, unlock).await });
        if locked {
            // It fails only where it panicked, which is logged.
            let _ = closing.await;
        }
        Ok(Reply::Done)
    }

    /// Closes files with which no lock ends. The client is answered at once.
    pub(crate) fn release_many(&self, files: &[u64]) -> Result<Reply, Failure> {
        let closing: Vec<_> = {
            let mut table = self.files.lock();
            files.iter().filter_map(|file| table.open.remove(file)).collect()
        };
        let volume = self.volume.clone();
        tokio::spawn(async move { close_all(&volume, closing).await });
        Ok(Reply::Done)
    }

    /// Closes everything: the client is gone.
    pub(crate) async fn close_files(&self) {
        let open = {
            let mut files = self.files.lock();
            files.closed = true;
            std::mem::take(&mut files.open)
        };
        close_all(&self.volume, open.into_values()).await;
    }
}

/// Closes files at the brick: those with nothing to wait for in as few requests as there can be,
/// then the others.
async fn close_all(volume: &Volume, files: impl IntoIterator<Item = Arc<OpenFile>>) {
    let mut ready: BTreeMap<(usize, u64), Vec<u64>> = BTreeMap::new();
    let mut others = Vec::new();
    for open in files {
        match open.at_brick_now().filter(|_| open.held.lock().is_empty()) {
            Some(AtBrick { epoch, file }) => {
                volume.lockers.leave(&open);
                let brick = volume.bricks.of(&open.handle).number;
                ready.entry((brick, epoch)).or_default().push(file);
            }
            None => others.push(open),
        }
    }
    for ((brick, epoch), files) in ready {
        release_at_brick(&volume.bricks.all()[brick], epoch, &files).await;
    }
    for open in others {
        close(volume, &open, None).await;
    }
}

/// Closes a file at the brick, and releases the locks that would otherwise outlive it: those of a
/// client that is gone. `unlock`: whose flock ends in any case.
async fn close(volume: &Volume, open: &Arc<OpenFile>, unlock: Option<LockOwner>) {
    let mut unlock = unlock;
    // Whoever came back may have taken them again on another connection.
    let mut leftover = open.held.lock().owners();
    leftover.retain(|(sort, owner)| !volume.lockers.holds(&open.handle, *sort, *owner, Some(open)));
    volume.lockers.leave(open);
    for (sort, owner) in leftover {
        match sort {
            LockSort::Flock => unlock = unlock.or(Some(owner)),
            LockSort::Posix => {
                let flush = |file| Request::Flush { file, owner };
                if let Err(failure) = volume.file_call(open, volume.bricks.deadline(), flush).await
                {
                    debug!(%failure, "locks of a file could not be released");
                }
            }
        }
    }
    if unlock.is_some() {
        let release = |file| Request::Release { file, unlock };
        if let Err(failure) = volume.file_call(open, volume.bricks.deadline(), release).await {
            debug!(%failure, "a file could not be closed at the brick");
        }
        return;
    }
    // A request for the same file that is still under way may be opening it again.
    let AtBrick { epoch, file } = open.last_at_brick().await;
    release_at_brick(volume.bricks.of(&open.handle), epoch, &[file]).await;
}

/// Closes files at the brick, where their session is still the one there is: with it the brick
/// closes the files of it.
pub(crate) async fn release_at_brick(brick: &Arc<BrickLink>, epoch: u64, files: &[u64]) {
    for files in files.chunks(RELEASES_MAX) {
        let Some(session) = brick.current(epoch) else { return };
        let request = Request::ReleaseMany { files: files.to_vec() };
        if let Err(fault) = brick.call_on(&session, &request, brick.deadline()).await {
            debug!(?fault, "files could not be closed at the brick");
        }
    }
}

fn bad_file(file: u64) -> Failure {
    Failure::new(Status::BadFile, format!("{file} is not a file that this connection has open"))
}
