//! A file that is open.
//!
//! The id by which the gateway knows an open file belongs to one connection. After that is lost,
//! the next request opens the file again by its handle, then takes its locks again before anything
//! else is done with it; a file that is gone by then is `Stale`, and one whose lock somebody else
//! has taken meanwhile fails from then on. A file with locks is opened again at once, so that
//! nobody takes them in between.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::limits::{READ_LEN_BYTES_MAX, WRITE_LEN_BYTES_MAX};
use portcullis_core::{Attr, Entry, Handle, Status};
use portcullis_transport::CallError;
use portcullis_transport::call::misplaced;
use portcullis_wire::message::{Caller, Failure, Lock, LockOwner, Mutated, Mutation, SetAttr};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

use crate::closing::release;
use crate::error::ClientError;
use crate::link::Link;
use crate::mutate::{Ask, Changed, given_up};
use crate::releases::{Closed, Releases};
use crate::session::Session;

/// How long a lock that somebody else seems to hold is tried to be taken again: that may be
/// ourselves, by the connection that was lost, which a server notices late.
const LOCKS_AGAIN_MS: u64 = 8_000;
/// open(2): for reading, for writing, or both.
const O_ACCMODE: u32 = 0o3;
/// open(2): each write goes to the end.
const O_APPEND: u32 = 0o2000;

/// An open file. Requests may run side by side. Dropping it releases it in the background.
#[derive(Debug)]
pub struct OpenFile {
    opening: Arc<Opening>,
    attr: Attr,
}

/// What all requests of an open file share; the file is released with the last of them.
#[derive(Debug)]
pub(crate) struct Opening {
    link: Arc<Link>,
    handle: Handle,
    flags: u32,
    id: tokio::sync::Mutex<Id>,
    /// A lock could not be taken again.
    lock_lost: AtomicBool,
    released: AtomicBool,
    /// Whose flock(2) ends with the file.
    flock_owner: Mutex<Option<LockOwner>>,
}

/// What the gateway calls the file on the connection `epoch`; 0 where it is to be opened again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id {
    pub(crate) file: u64,
    pub(crate) epoch: u64,
}

impl OpenFile {
    pub(crate) async fn open(
        link: Arc<Link>,
        handle: Handle,
        flags: u32,
    ) -> Result<Self, ClientError> {
        let flags = flags & (O_ACCMODE | O_APPEND);
        let (told, opened) = oneshot::channel();
        tokio::spawn(open_to_its_end(link.clone(), handle, flags, told));
        link.within(async { opened.await.unwrap_or_else(|_| Err(given_up())) }).await
    }

    /// A file that was opened when it was made.
    pub(crate) fn created(
        link: Arc<Link>,
        entry: &Entry,
        flags: u32,
        file: u64,
        epoch: u64,
    ) -> Self {
        let flags = flags & (O_ACCMODE | O_APPEND);
        let opening = Opening::new(link, entry.handle, flags, Id { file, epoch });
        Self { opening, attr: entry.attr.unwrap_or_default() }
    }

    /// Its attributes when it was opened.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The file.
    pub fn handle(&self) -> &Handle {
        &self.opening.handle
    }

    /// Whether each write goes to the end.
    pub fn appends(&self) -> bool {
        self.opening.flags & O_APPEND != 0
    }

    /// Host and port of the gateway, as errors name it.
    pub(crate) fn gateway(&self) -> &str {
        self.opening.link.gateway()
    }

    /// Reads `len_bytes` from `offset_bytes` on; fewer come back only at the end of the file, or
    /// where more than [`READ_LEN_BYTES_MAX`] are asked for. They come in pieces, as they arrived.
    ///
    /// # Errors
    /// `Stale` where the file is gone; `Io` where a lock on it was lost, so for all below.
    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<Vec<Bytes>, ClientError> {
        let len_bytes = len_bytes.min(READ_LEN_BYTES_MAX);
        let read = |session: Arc<Session>, file| async move {
            read_on(&session, Request::Read { file, offset_bytes, len_bytes }).await
        };
        self.opening.ask(read).await
    }

    /// Writes at `offset_bytes`, or to the end of a file opened with `O_APPEND`; answers how many
    /// bytes, at most [`WRITE_LEN_BYTES_MAX`]. `kill_set_id`: the caller may not keep set-user-id
    /// and set-group-id.
    ///
    /// # Errors
    /// It is not open for writing, or there is no room.
    pub async fn write(
        &self,
        caller: Caller,
        offset_bytes: u64,
        data: Bytes,
        kill_set_id: bool,
    ) -> Result<Changed<u64>, ClientError> {
        let len_bytes = data.len().min(WRITE_LEN_BYTES_MAX as usize);
        let len = len_bytes as u32;
        let mutation = Mutation::Write { file: 0, offset_bytes, len_bytes: len, kill_set_id };
        let ask = Ask {
            body: vec![data.slice(..len_bytes)],
            file: Some(self.opening.clone()),
            ..Ask::new(caller, mutation)
        };
        self.written(ask).await
    }

    /// Allocates or frees space, fallocate(2).
    ///
    /// # Errors
    /// `NotSupported` where the file system cannot.
    pub async fn fallocate(
        &self,
        caller: Caller,
        mode: u32,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<Changed<()>, ClientError> {
        let mutation = Mutation::Fallocate { file: 0, mode, offset_bytes, len_bytes };
        let ask = Ask { file: Some(self.opening.clone()), ..Ask::new(caller, mutation) };
        Ok(self.opening.link.mutate(ask).await?.whole().map(drop))
    }

    /// Copies to another open file, copy_file_range(2); answers how many bytes.
    ///
    /// # Errors
    /// The ranges overlap in one file, or there is no room.
    pub async fn copy_to(
        &self,
        caller: Caller,
        offset_bytes: u64,
        to: &OpenFile,
        to_offset_bytes: u64,
        len_bytes: u64,
    ) -> Result<Changed<u64>, ClientError> {
        let mutation = Mutation::CopyFileRange {
            file: 0,
            offset_bytes,
            to_file: 0,
            to_offset_bytes,
            len_bytes,
        };
        let ask = Ask {
            file: Some(self.opening.clone()),
            to_file: Some(to.opening.clone()),
            ..Ask::new(caller, mutation)
        };
        self.written(ask).await
    }

    /// Sets attributes through the open file: what may be written may be truncated.
    ///
    /// # Errors
    /// The caller may not.
    pub async fn setattr(
        &self,
        caller: Caller,
        set: SetAttr,
    ) -> Result<Changed<Attr>, ClientError> {
        let mutation = Mutation::Setattr { handle: self.opening.handle, file: 0, set };
        let ask = Ask { file: Some(self.opening.clone()), ..Ask::new(caller, mutation) };
        let changed = self.opening.link.mutate(ask).await?.whole();
        match changed.value {
            Mutated::Attr(attr) => {
                Ok(Changed { value: attr, changes: changed.changes, dirs: changed.dirs })
            }
            other => Err(self.opening.unexpected(other, changed.changes)),
        }
    }

    async fn written(&self, ask: Ask) -> Result<Changed<u64>, ClientError> {
        let changed = self.opening.link.mutate(ask).await?.whole();
        match changed.value {
            Mutated::Written { len_bytes } => {
                Ok(Changed { value: len_bytes, changes: changed.changes, dirs: changed.dirs })
            }
            other => Err(self.opening.unexpected(other, changed.changes)),
        }
    }

    /// Waits until what was written is on stable storage.
    ///
    /// # Errors
    /// It is not.
    pub async fn fsync(&self, data_only: bool) -> Result<(), ClientError> {
        self.opening.done(|file| Request::Fsync { file, data_only }).await
    }

    /// Whether `owner` may hold POSIX locks on the file, through whichever open file of it.
    pub fn may_hold(&self, owner: u64) -> bool {
        self.opening.link.locks.may_hold(self.handle(), &self.opening.owner(owner))
    }

    /// A program closes a descriptor: the POSIX locks of `owner` on the file end.
    ///
    /// # Errors
    /// The gateway did not answer.
    pub async fn flush(&self, owner: u64) -> Result<(), ClientError> {
        let owner = self.opening.owner(owner);
        let locks = &self.opening.link.locks;
        if !locks.may_hold(self.handle(), &owner) {
            return Ok(());
        }
        let flushed = self.opening.done(|file| Request::Flush { file, owner }).await;
        locks.flushed(self.handle(), &owner);
        flushed
    }

    /// Where data, or a hole, begins at or after `offset_bytes`.
    ///
    /// # Errors
    /// `NoDevice` (ENXIO) beyond the end.
    pub async fn lseek(&self, offset_bytes: u64, hole: bool) -> Result<u64, ClientError> {
        let reply = self.opening.call(|file| Request::Lseek { file, offset_bytes, hole }).await?;
        match reply {
            Reply::Offset { offset_bytes } => Ok(offset_bytes),
            other => Err(self.opening.link.misplaced(&ReplyFrame::Reply(other))),
        }
    }

    /// The lock that stands in the way of `lock`, whose owner's client is ours.
    ///
    /// # Errors
    /// The gateway did not answer.
    pub async fn getlk(&self, mut lock: Lock) -> Result<Option<Lock>, ClientError> {
        lock.owner = self.opening.owner(lock.owner.owner);
        match self.opening.call(|file| Request::Getlk { file, lock }).await? {
            Reply::Lock(lock) => Ok(lock),
            other => Err(self.opening.link.misplaced(&ReplyFrame::Reply(other))),
        }
    }

    /// Takes a lock or gives it back. With `wait`, it is waited for as long as it takes; whoever
    /// drops that has to call [`OpenFile::undo_setlk`], for it may have been taken meanwhile.
    ///
    /// # Errors
    /// `Busy` where somebody else holds it and it is not waited for; `NoLocks` where there are too
    /// many.
    pub async fn setlk(&self, mut lock: Lock, wait: bool) -> Result<(), ClientError> {
        lock.owner = self.opening.owner(lock.owner.owner);
        let link = &self.opening.link;
        if !link.locks.asking(self.handle(), &lock) {
            return Err(Failure::from(Status::NoLocks).into());
        }
        let request = |file| Request::Setlk { file, lock, wait };
        if wait {
            let ask = |session: Arc<Session>, file| async move {
                session.connection.call(&request(file)).await
            };
            done(link, self.opening.ask_on_any(ask).await?)?;
        } else {
            self.opening.done(request).await?;
        }
        link.locks.granted(&self.opening, lock);
        Ok(())
    }

    /// Puts the bytes of a lock that was waited for in vain back to what is held of them.
    ///
    /// # Errors
    /// The gateway did not answer.
    pub async fn undo_setlk(&self, mut lock: Lock) -> Result<(), ClientError> {
        lock.owner = self.opening.owner(lock.owner.owner);
        for lock in self.opening.link.locks.as_held(self.handle(), &lock) {
            self.opening.done(|file| Request::Setlk { file, lock, wait: false }).await?;
        }
        Ok(())
    }

    /// Whose flock(2) ends with the file, once it is dropped.
    pub fn ends_flock(&self, flock_owner: Option<u64>) {
        *self.opening.flock_owner.lock() = flock_owner.map(|owner| self.opening.owner(owner));
    }

    /// Closes the file and waits until the gateway has done so.
    ///
    /// # Errors
    /// The gateway did not answer; the file is closed all the same once the connection ends.
    pub async fn release(self) -> Result<(), ClientError> {
        let opening = &self.opening;
        opening.released.store(true, Ordering::Relaxed);
        let id = *opening.id.lock().await;
        let locks = opening.link.locks.closed(&opening.handle, Arc::as_ptr(opening));
        let link = &opening.link;
        link.within(release(link, opening.closed(id), &locks, None)).await
    }
}

/// Opens a file for `told`. Where nobody waits any more it goes on until it is known that the
/// gateway does not have it open: what is opened then is dropped, and so closed.
async fn open_to_its_end(
    link: Arc<Link>,
    handle: Handle,
    flags: u32,
    mut told: oneshot::Sender<Result<OpenFile, ClientError>>,
) {
    let (unheard, unsure) = (AtomicBool::new(false), AtomicBool::new(false));
    let opened = {
        let request = &Request::Open { handle, flags };
        let (unheard, unsure) = (&unheard, &unsure);
        let open = |session: Arc<Session>| async move {
            if unheard.load(Ordering::Relaxed) && !unsure.load(Ordering::Relaxed) {
                return Err(Failure::from(Status::Interrupted).into());
            }
            unsure.store(true, Ordering::Relaxed);
            let answer = session.connection.call(request).await;
            unsure.store(matches!(answer, Err(CallError::Lost(_))), Ordering::Relaxed);
            Ok((answer?, session.epoch))
        };
        let gone = async {
            told.closed().await;
            unheard.store(true, Ordering::Relaxed);
            if unsure.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            opened = link.mended(open) => opened,
            () = gone => return,
        }
    };
    let opened = opened.and_then(|answer| match answer {
        (Reply::Opened { file, attr }, epoch) => {
            let opening = Opening::new(link.clone(), handle, flags, Id { file, epoch });
            Ok(OpenFile { opening, attr })
        }
        (other, _) => Err(link.misplaced(&ReplyFrame::Reply(other))),
    });
    // Whoever no longer waits needs no word.
    let _ = told.send(opened);
}

impl Opening {
    fn new(link: Arc<Link>, handle: Handle, flags: u32, id: Id) -> Arc<Self> {
        Arc::new(Self {
            link,
            handle,
            flags,
            id: tokio::sync::Mutex::new(id),
            lock_lost: AtomicBool::new(false),
            released: AtomicBool::new(false),
            flock_owner: Mutex::default(),
        })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    fn closed(&self, id: Id) -> Closed {
        Closed { id, handle: self.handle, flags: self.flags }
    }

    /// What the gateway calls the file on the connection of `session`, where it is opened again
    /// if need be.
    pub(crate) async fn id_on(self: &Arc<Self>, session: &Arc<Session>) -> Result<u64, CallError> {
        let id = *self.id.lock().await;
        if id.epoch == session.epoch {
            self.check_locks()?;
            return Ok(id.file);
        }
        // To its end: nobody would close what is opened for a request that is given up meanwhile.
        let (opening, session) = (self.clone(), session.clone());
        let opened = tokio::spawn(async move { opening.open_again(&session).await }).await;
        opened.unwrap_or_else(|_| Err(Failure::from(Status::Io).into()))
    }

    async fn open_again(&self, session: &Session) -> Result<u64, CallError> {
        let mut id = self.id.lock().await;
        if id.epoch > session.epoch {
            return Err(CallError::Lost("another connection has taken its place".into()));
        }
        if id.epoch < session.epoch {
            let request = Request::Open { handle: self.handle, flags: self.flags };
            let file = match session.connection.call(&request).await? {
                Reply::Opened { file, .. } => file,
                other => return Err(CallError::Protocol(misplaced(&ReplyFrame::Reply(other)))),
            };
            self.take_locks_again(session, file).await?;
            *id = Id { file, epoch: session.epoch };
        }
        self.check_locks()?;
        Ok(id.file)
    }

    fn check_locks(&self) -> Result<(), CallError> {
        if self.lock_lost.load(Ordering::Relaxed) {
            let lost = "a lock on this file was lost with the connection; close it";
            return Err(Failure::new(Status::Io, lost).into());
        }
        Ok(())
    }

    /// The file is opened again before it is used again.
    pub(crate) async fn forget_id(&self) {
        self.id.lock().await.epoch = 0;
    }

    async fn take_locks_again(&self, session: &Session, file: u64) -> Result<(), CallError> {
        let until = Instant::now() + Duration::from_millis(LOCKS_AGAIN_MS);
        for lock in self.link.locks.through(&self.handle, self) {
            let request = Request::Setlk { file, lock, wait: false };
            let taken = loop {
                match session.connection.call(&request).await {
                    Err(CallError::Failed(failure))
                        if failure.status == Status::Busy && Instant::now() < until =>
                    {
                        self.link.pause().await;
                    }
                    taken => break taken,
                }
            };
            match taken {
                Ok(_) => {}
                Err(error @ CallError::Lost(_)) => return Err(error),
                Err(error) => {
                    self.lock_lost.store(true, Ordering::Relaxed);
                    warn!(
                        handle = ?self.handle, pid = lock.pid, %error,
                        "a lock was lost with the connection: every further use of that open file fails"
                    );
                }
            }
        }
        Ok(())
    }

    fn owner(&self, owner: u64) -> LockOwner {
        LockOwner { client: self.link.operations.client(), owner }
    }

    /// Asks something of the open file within the deadline, again where a connection is lost.
    async fn ask<T, F>(
        self: &Arc<Self>,
        ask: impl Fn(Arc<Session>, u64) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        self.link.within(self.ask_on_any(ask)).await
    }

    /// As [`Opening::ask`], without a deadline.
    async fn ask_on_any<T, F>(
        self: &Arc<Self>,
        ask: impl Fn(Arc<Session>, u64) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        self.link.mended(|session| self.ask_on(session, &ask)).await
    }

    async fn ask_on<T, F>(
        self: &Arc<Self>,
        session: Arc<Session>,
        ask: &impl Fn(Arc<Session>, u64) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let file = self.id_on(&session).await?;
        match ask(session.clone(), file).await {
            // An id that the gateway does not know (any more) has gone the way of its connection.
            Err(CallError::Failed(failure)) if failure.status == Status::BadFile => {
                self.forget_id().await;
                let file = self.id_on(&session).await?;
                ask(session, file).await
            }
            result => result,
        }
    }

    async fn call(
        self: &Arc<Self>,
        request: impl Fn(u64) -> Request,
    ) -> Result<Reply, ClientError> {
        let request = &request;
        let call = |session: Arc<Session>, file| async move {
            session.connection.call(&request(file)).await
        };
        self.ask(call).await
    }

    async fn done(self: &Arc<Self>, request: impl Fn(u64) -> Request) -> Result<(), ClientError> {
        done(&self.link, self.call(request).await?)
    }

    fn unexpected(
        &self,
        result: Mutated,
        changes: Vec<portcullis_core::watch::Change>,
    ) -> ClientError {
        self.link.misplaced(&ReplyFrame::Reply(Reply::Mutated {
            result,
            changes,
            dirs: Vec::new(),
        }))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let locks = self.link.locks.closed(&self.handle, self);
        if self.released.load(Ordering::Relaxed) {
            return;
        }
        // Not the runtime of this thread: a thread of a mount's session has none.
        if let Some(runtime) = self.link.runtime.clone() {
            let id = *self.id.get_mut();
            let (link, closed) = (self.link.clone(), self.closed(id));
            let unlock = *self.flock_owner.get_mut();
            if unlock.is_none() && locks.is_empty() {
                return Releases::add(&link, &runtime, closed);
            }
            runtime.spawn(async move { release(&link, closed, &locks, unlock).await });
        }
    }
}

/// Of an answer that has nothing to tell.
pub(crate) fn done(link: &Link, reply: Reply) -> Result<(), ClientError> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(link.misplaced(&ReplyFrame::Reply(other))),
    }
}

async fn read_on(session: &Session, request: Request) -> Result<Vec<Bytes>, CallError> {
    let Request::Read { len_bytes, .. } = request else {
        return Err(Failure::from(Status::InvalidArgument).into());
    };
    let mut stream = session.connection.stream(&request).await?;
    let mut pieces = Vec::new();
    let mut left_bytes = len_bytes as usize;
    loop {
        match stream.next().await? {
            ReplyFrame::Data(data) if data.len() <= left_bytes => {
                left_bytes -= data.len();
                pieces.push(data);
            }
            ReplyFrame::End { .. } => return Ok(pieces),
            ReplyFrame::Failure(failure) => return Err(CallError::Failed(failure)),
            other => return Err(CallError::Protocol(misplaced(&other))),
        }
    }
}
