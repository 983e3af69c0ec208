//! What a brick answers: one session a gateway, one function a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portcullis_core::limits::{BRICK_STREAMS_PER_CONNECTION_MAX, NAME_LEN_MAX};
use portcullis_core::{Chunk, Entry, FileKind, Handle, Status, entry::is_valid_name};
use portcullis_transport::serve::{Counters, PeerGone};
use portcullis_transport::{Peer, ReplySink, Role, Service};
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{Reply, Request};
use rustix::fs::readlinkat;
use rustix::io::Errno;
use std::os::fd::AsFd;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::error::failure;
use crate::files::{OpenFiles, ReadPieces};
use crate::handles::Handles;
use crate::scan::{Scan, Step};
use crate::workers::Workers;
use crate::xattr;

/// What a brick counts since it started.
#[derive(Debug, Default)]
pub struct BrickCounters {
    /// Connections, refusals and unreadable frames.
    pub connections: Arc<Counters>,
    /// Requests received; index with a [`Verb`].
    pub requests: [AtomicU64; Verb::ALL.len()],
    /// Requests that failed, "no such file" not among them.
    pub failures: AtomicU64,
    /// Handles that this brick did not make.
    pub bad_handles: AtomicU64,
}

/// Serves one export to gateways.
pub(crate) struct BrickService {
    handles: Arc<Handles>,
    workers: Workers,
    counters: Arc<BrickCounters>,
}

/// One gateway's connection.
pub(crate) struct Session {
    peer: Peer,
    files: Arc<OpenFiles>,
    /// Listings and reads that may still begin.
    streams: Semaphore,
    warned: AtomicBool,
}

impl Drop for Session {
    fn drop(&mut self) {
        let files = self.files.take_all();
        // Closing may block, and sessions end on threads that must not.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || drop(files));
        }
    }
}

impl BrickService {
    pub(crate) fn new(handles: Handles, counters: Arc<BrickCounters>) -> Self {
        Self { handles: Arc::new(handles), workers: Workers::default(), counters }
    }
}

impl Service for BrickService {
    type Session = Session;

    fn open_session(&self, peer: Peer) -> Result<Session, Failure> {
        if peer.role != Role::Gateway {
            let detail =
                format!("a brick serves gateways only, and this is a {}; ask a gateway", peer.role);
            return Err(Failure::new(Status::WrongRole, detail));
        }
        Ok(Session {
            peer,
            files: Arc::default(),
            streams: Semaphore::new(BRICK_STREAMS_PER_CONNECTION_MAX),
            warned: AtomicBool::new(false),
        })
    }

    async fn serve(
        &self,
        session: &Arc<Session>,
        request: Request,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        self.counters.requests[request.verb() as usize].fetch_add(1, Ordering::Relaxed);
        let result = match request {
            Request::List { dir, after } => self.list(session, dir, after, &mut reply).await?,
            Request::Read { file, offset_bytes, len_bytes } => {
                self.read(session, file, offset_bytes, len_bytes, &mut reply).await?
            }
            request => {
                let handles = self.handles.clone();
                let files = session.files.clone();
                let answer = self.workers.run(move || answer(&handles, &files, request)).await;
                self.count(session, answer.as_ref().err());
                return reply.result(answer).await;
            }
        };
        self.count(session, result.as_ref().err());
        match result {
            Ok(()) => reply.end(true).await,
            Err(failure) => reply.fail(failure).await,
        }
    }
}

impl BrickService {
    /// Sends the entries of a directory; the next ones are examined while these are sent.
    async fn list(
        &self,
        session: &Session,
        dir: Handle,
        after: Vec<u64>,
        reply: &mut ReplySink,
    ) -> Result<Result<(), Failure>, PeerGone> {
        let Ok(_turn) = session.streams.acquire().await else { return Err(PeerGone) };
        let handles = self.handles.clone();
        let begun = self.workers.run(move || {
            let mut scan = Scan::begin(handles, &dir, &after)?;
            scan.step().map(|step| (scan, step))
        });
        let mut at = match begun.await {
            Ok(at) => at,
            Err(failure) => return Ok(Err(failure)),
        };
        loop {
            let (mut scan, Step { chunks, is_last }) = at;
            if is_last {
                send_chunks(reply, &chunks).await?;
                return Ok(Ok(()));
            }
            let next = self.workers.run(move || scan.step().map(|step| (scan, step)));
            let (sent, next) = tokio::join!(send_chunks(reply, &chunks), next);
            sent?;
            at = match next {
                Ok(at) => at,
                Err(failure) => return Ok(Err(failure)),
            };
        }
    }

    /// Sends the bytes of an open file; the next ones are read while these are sent.
    async fn read(
        &self,
        session: &Session,
        file: u64,
        offset_bytes: u64,
        len_bytes: u32,
        reply: &mut ReplySink,
    ) -> Result<Result<(), Failure>, PeerGone> {
        let Ok(_turn) = session.streams.acquire().await else { return Err(PeerGone) };
        let begun = session.files.get(file);
        let mut pieces = match begun.and_then(|file| ReadPieces::new(file, offset_bytes, len_bytes))
        {
            Ok(pieces) => pieces,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut piece = bytes::Bytes::new();
        loop {
            let is_over = pieces.is_over();
            let send = async { if piece.is_empty() { Ok(()) } else { reply.data(piece).await } };
            if is_over {
                send.await?;
                return Ok(Ok(()));
            }
            let next = self.workers.run(move || pieces.next().map(|piece| (pieces, piece)));
            let (sent, next) = tokio::join!(send, next);
            sent?;
            (pieces, piece) = match next {
                Ok(next) => next,
                Err(failure) => return Ok(Err(failure)),
            };
        }
    }

    fn count(&self, session: &Session, failure: Option<&Failure>) {
        let Some(failure) = failure else { return };
        if failure.status == Status::NotFound {
            return;
        }
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        if failure.status == Status::BadHandle {
            self.counters.bad_handles.fetch_add(1, Ordering::Relaxed);
            if !session.warned.swap(true, Ordering::Relaxed) {
                warn!(peer = %session.peer.address, "a handle that this brick did not make; further ones of this connection are only counted");
            }
        }
    }
}

async fn send_chunks(reply: &mut ReplySink, chunks: &[Chunk]) -> Result<(), PeerGone> {
    for chunk in chunks {
        reply.chunk(chunk).await?;
    }
    Ok(())
}

/// The answer to a request that has one message. Blocks.
fn answer(handles: &Handles, files: &OpenFiles, request: Request) -> Result<Reply, Failure> {
    match request {
        Request::Attach => handles.root_entry().map(|root| Reply::Attached { root }),
        Request::Lookup { dir, name } => lookup(handles, &dir, &name).map(Reply::Entry),
        Request::Getattr { handle } => handles.stat(&handle).map(|stat| Reply::Attr(stat.attr())),
        Request::Readlink { handle } => readlink(handles, &handle).map(Reply::Target),
        Request::Open { handle } => {
            files.open(handles, &handle).map(|(file, attr)| Reply::Opened { file, attr })
        }
        Request::Release { file } => files.release(file).map(|()| Reply::Released),
        Request::Statfs { handle } => {
            handles.object(&handle)?;
            handles.export().statfs().map(Reply::Statfs).map_err(failure)
        }
        Request::Getxattr { handle, name } => {
            let object = handles.object(&handle).map_err(|failure| match failure.status {
                // `ls -l` asks each name, and knows what this answer means.
                Status::CrossDevice => Status::NotSupported.into(),
                _ => failure,
            })?;
            xattr::getxattr(object.fd.as_fd(), &name).map(Reply::Xattr)
        }
        Request::Listxattr { handle } => match handles.object(&handle) {
            Ok(object) => xattr::listxattr(object.fd.as_fd()).map(Reply::Xattr),
            Err(failure) if failure.status == Status::CrossDevice => Ok(Reply::Xattr(Vec::new())),
            Err(failure) => Err(failure),
        },
        Request::List { .. } | Request::Read { .. } | Request::Stats => {
            Err(Failure::new(Status::NotSupported, "a gateway tells statistics, a brick does not"))
        }
    }
}

fn lookup(handles: &Handles, dir: &Handle, name: &[u8]) -> Result<Entry, Failure> {
    if name.len() > NAME_LEN_MAX {
        return Err(Status::NameTooLong.into());
    }
    if !is_valid_name(name) {
        let detail =
            "a name is one component: not empty, not . or .., without a slash or a NUL byte";
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    let dir = handles.directory(dir)?;
    handles.entry(&dir, name).map_err(|error| match error {
        Errno::NOENT if handles.export().is_removed(dir.fd.as_fd()) => Status::Stale.into(),
        _ => failure(error),
    })
}

fn readlink(handles: &Handles, handle: &Handle) -> Result<Vec<u8>, Failure> {
    let object = handles.object(handle)?;
    if object.stat.kind() != FileKind::Symlink {
        return Err(Failure::new(Status::InvalidArgument, "not a symbolic link"));
    }
    Ok(readlinkat(&object.fd, c"", Vec::new()).map_err(failure)?.into_bytes())
}
