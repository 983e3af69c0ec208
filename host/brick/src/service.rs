//! What a brick answers: one session a connection, and each request's way to a worker.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use portcullis_core::contents::Listed;
use portcullis_core::limits::{BRICK_STREAMS_PER_CONNECTION_MAX, LEASE_MS};
use portcullis_core::watch::SessionId;
use portcullis_core::{Handle, Status};
use portcullis_transport::serve::{Counters, PeerGone};
use portcullis_transport::{Body, Peer, Recaller, ReplySink, Role, Service};
use portcullis_wire::message::{Failure, Lock, LockKind, Verb};
use portcullis_wire::{Reply, Request};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::answers::{self, Asker};
use crate::direct::{DirectCounters, own};
use crate::files::{OpenFile, OpenFiles, ReadPieces};
use crate::mutations;
use crate::scan::{Scan, Step, Wanted};
use crate::tree::Tree;
use crate::volume::joining;
use crate::watcher::Watcher;

/// What a brick counts since it started.
#[derive(Debug)]
pub struct BrickCounters {
    /// Connections, refusals and unreadable frames.
    pub connections: Arc<Counters>,
    /// Requests received; index with a [`Verb`].
    pub requests: [AtomicU64; Verb::ALL.len()],
    /// Requests that failed, "no such file" not among them.
    pub failures: AtomicU64,
    /// Handles that this brick did not make.
    pub bad_handles: AtomicU64,
    /// Mutations that were asked again and had been applied.
    pub replays: AtomicU64,
    /// Names that lie where another member of the volume arbitrates them: another program made
    /// them, and nobody is told of them. Each is counted whenever it is met.
    pub strays: AtomicU64,
    /// Changes that other programs make.
    pub direct: Arc<DirectCounters>,
}

impl Default for BrickCounters {
    fn default() -> Self {
        Self {
            connections: Arc::default(),
            requests: std::array::from_fn(|_| AtomicU64::new(0)),
            failures: AtomicU64::new(0),
            bad_handles: AtomicU64::new(0),
            replays: AtomicU64::new(0),
            strays: AtomicU64::new(0),
            direct: Arc::default(),
        }
    }
}

/// Serves one export.
pub(crate) struct BrickService {
    pub(crate) tree: Arc<Tree>,
    pub(crate) counters: Arc<BrickCounters>,
    last_session: AtomicU64,
}

/// One connection.
pub(crate) struct Session {
    /// Names it within this life of the brick.
    pub(crate) number: u64,
    peer: Peer,
    recaller: Recaller,
    pub(crate) files: Arc<OpenFiles>,
    /// The watches, where the peer caches what it is told.
    watcher: OnceLock<Watcher>,
    /// How many members the volume has that the brick is part of, as far as the peer knows; 0 where it
    /// does not know of one.
    joined: AtomicU8,
    /// Listings and reads that may still begin.
    streams: Semaphore,
    warned: AtomicBool,
    is_closed: Arc<AtomicBool>,
}

impl Session {
    /// Whom an answer is for.
    pub(crate) fn asker(&self) -> Asker {
        Asker {
            session: self.number,
            is_closed: self.is_closed.clone(),
            files: self.files.clone(),
            watcher: self.watcher.get().cloned(),
        }
    }

    /// The session's name to the grantor, where it watches.
    pub(crate) fn id(&self) -> Option<SessionId> {
        self.watcher.get().map(|watcher| watcher.session().id)
    }

    /// Lets go of the files. Closing may block, and sessions end on threads that must not.
    fn lose_files(&self) {
        let files = self.files.lose_all();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn_blocking(move || {
                own::enter();
                drop(files);
            });
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.lose_files();
    }
}

impl BrickService {
    pub(crate) fn new(tree: Arc<Tree>, counters: Arc<BrickCounters>) -> Self {
        Self { tree, counters, last_session: AtomicU64::new(0) }
    }
}

impl Service for BrickService {
    type Session = Session;

    fn open_session(&self, peer: Peer, recaller: Recaller) -> Result<Session, Failure> {
        if peer.role != Role::Gateway {
            let detail =
                format!("a brick serves gateways only, and this is a {}; ask a gateway", peer.role);
            return Err(Failure::new(Status::WrongRole, detail));
        }
        Ok(Session {
            number: self.last_session.fetch_add(1, Ordering::Relaxed) + 1,
            peer,
            recaller,
            files: Arc::new(OpenFiles::new(self.tree.descriptors.clone())),
            watcher: OnceLock::new(),
            joined: AtomicU8::new(0),
            streams: Semaphore::new(BRICK_STREAMS_PER_CONNECTION_MAX),
            warned: AtomicBool::new(false),
            is_closed: Arc::default(),
        })
    }

    fn close_session(&self, session: &Arc<Session>) {
        // Its lease goes on: the peer may still answer from what it was told.
        session.is_closed.store(true, Ordering::SeqCst);
        session.lose_files();
        self.tree.locks.lose(session.number);
        if let Some(member) = self.tree.handles.member() {
            member.holds().lose(session.number);
        }
    }

    async fn serve(
        &self,
        session: &Arc<Session>,
        request: Request,
        body: Body,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        self.counters.requests[request.verb() as usize].fetch_add(1, Ordering::Relaxed);
        if let Err(failure) = self.check_outgrown(session, &request) {
            self.count(session, Some(&failure));
            return reply.result(Err(failure)).await;
        }
        let answer = match request {
            Request::List { dir, after, acl, contents } => {
                if acl {
                    self.tree.handles.access_lists().tell();
                }
                let listed = self.list(session, dir, after, contents, &mut reply).await?;
                return self.end(session, listed, reply).await;
            }
            Request::Read { file, offset_bytes, len_bytes } => {
                let read = self.read(session, file, offset_bytes, len_bytes, &mut reply).await?;
                return self.end(session, read, reply).await;
            }
            Request::Attach { watch, client, ended } => {
                self.attach(session, watch, client, SessionId(ended)).await
            }
            Request::Renew => self.renew(session).await,
            Request::Join { membership } => {
                let tree = self.tree.clone();
                let joined = move || joining::join(&tree, membership);
                let joined = self.tree.workers.run(joined).await;
                let count = match &joined {
                    Ok(Reply::Joined { membership: Some(membership), .. }) => membership.count,
                    _ => 0,
                };
                session.joined.store(count, Ordering::Relaxed);
                joined
            }
            Request::Detach => {
                session.id().into_iter().for_each(|id| self.tree.watching.end(id));
                Ok(Reply::Done)
            }
            Request::Setlk { file, lock, wait: true } => {
                let taken = self.set_waiting(session, file, lock, &mut reply).await;
                self.count(session, taken.as_ref().err());
                if taken.as_ref().is_err_and(|failure| failure.status == Status::Interrupted) {
                    // Nobody waits for an answer; or the brick is stopping, and the next one is
                    // asked.
                    return Err(PeerGone);
                }
                let is_taken = taken.is_ok();
                let replied = reply.result(taken).await;
                if is_taken && replied.is_err() {
                    self.give_back(session, file, lock).await;
                }
                return replied;
            }
            Request::Mutate { op, caller, mutation } => {
                mutations::mutate(self, session, op, caller, mutation, body).await
            }
            request => {
                let (tree, asker) = (self.tree.clone(), session.asker());
                let answer = move || answers::answer(&tree, &asker, request);
                self.tree.workers.run(answer).await
            }
        };
        self.count(session, answer.as_ref().err());
        reply.result(answer).await
    }
}

impl BrickService {
    /// The root, and a session where the peer caches what it is told.
    async fn attach(
        &self,
        session: &Arc<Session>,
        watch: bool,
        client: u128,
        ended: SessionId,
    ) -> Result<Reply, Failure> {
        let tree = &self.tree;
        if let Some(member) = tree.handles.member()
            && session.joined.load(Ordering::Relaxed) == 0
        {
            return Err(joining::not_joined(member));
        }
        tree.end_earlier(ended, client);
        if watch && session.watcher.get().is_none() {
            let (at, recaller) = (tree.clone(), session.recaller.clone());
            let begun = tree.workers.run(move || Ok(at.begin(recaller, client))).await?;
            let watcher = Watcher::new(tree.watching.clone(), begun.clone(), tree.direct.clone());
            if session.watcher.set(watcher).is_err() {
                // Attached twice at once: one session is enough.
                tree.watching.end(begun.id);
            }
        }
        let (asked, asker) = (tree.clone(), session.asker());
        let root = tree.workers.run(move || answers::root(&asked, &asker)).await?;
        let id = session.id();
        Ok(Reply::Attached {
            root,
            session: id.map_or(0, |id| id.0),
            lease_ms: if id.is_some() { LEASE_MS as u32 } else { 0 },
            life: tree.life(),
            notices: tree.direct.notices(),
        })
    }

    /// Refuses a gateway that attached before the volume had all the members that it has now: it would
    /// take names that they have for absent. It has to connect again, and is told so by a join.
    fn check_outgrown(&self, session: &Session, request: &Request) -> Result<(), Failure> {
        if session.id().is_none() || matches!(request, Request::Join { .. } | Request::Detach) {
            return Ok(());
        }
        match self.tree.handles.member() {
            Some(member) if session.joined.load(Ordering::Relaxed) < member.membership().count => {
                Err(joining::outgrown(member))
            }
            _ => Ok(()),
        }
    }

    async fn renew(&self, session: &Arc<Session>) -> Result<Reply, Failure> {
        let Some(id) = session.id() else {
            let detail = "there is no lease without a session; attach first, to watch";
            return Err(Failure::new(Status::InvalidArgument, detail));
        };
        if self.tree.watching.renew(id).await {
            return Ok(Reply::Renewed { lease_ms: LEASE_MS as u32, life: self.tree.life() });
        }
        Err(Failure::new(Status::Unavailable, "the lease is over; connect again"))
    }

    /// Waits for a lock, unless the peer gives up.
    async fn set_waiting(
        &self,
        session: &Arc<Session>,
        file: u64,
        lock: Lock,
        reply: &mut ReplySink,
    ) -> Result<Reply, Failure> {
        let file = session.files.get(file)?;
        let tree = &self.tree;
        let handle = *file.handle();
        let set = tree.locks.set_waiting(&tree.workers, handle, lock, reply.gone());
        set.await?;
        session.asker().has_taken(tree, &handle, &lock);
        Ok(Reply::Done)
    }

    /// Releases a lock whose asker no longer waited for it when it was taken.
    async fn give_back(&self, session: &Session, file: u64, lock: Lock) {
        let Ok(file) = session.files.get(file) else { return };
        let (locks, lock) = (self.tree.locks.clone(), Lock { kind: LockKind::Unlock, ..lock });
        // Where it cannot be released, it is when the session is lost.
        let _ = self.tree.workers.run(move || locks.set(file.handle(), &lock)).await;
    }

    /// Sends the entries of a directory; the next ones are examined while these are sent.
    async fn list(
        &self,
        session: &Session,
        dir: Handle,
        after: Vec<u64>,
        contents: Wanted,
        reply: &mut ReplySink,
    ) -> Result<Result<(), Failure>, PeerGone> {
        let Ok(_turn) = session.streams.acquire().await else { return Err(PeerGone) };
        let handles = self.tree.handles.clone();
        let watcher = session.watcher.get().cloned();
        let counters = self.counters.clone();
        let begun = self.tree.workers.run(move || {
            let Some(mut scan) = Scan::begin(handles, &dir, &after, watcher, contents, counters)?
            else {
                return Ok(None);
            };
            scan.step().map(|step| Some((scan, step)))
        });
        let mut at = match begun.await {
            Ok(Some(at)) => at,
            // This member has no copy of the directory, so no name either.
            Ok(None) => return Ok(Ok(())),
            Err(failure) => return Ok(Err(failure)),
        };
        loop {
            let (mut scan, Step { listed, is_last }) = at;
            if is_last {
                send(reply, &listed).await?;
                return Ok(Ok(()));
            }
            let next = self.tree.workers.run(move || scan.step().map(|step| (scan, step)));
            let (sent, next) = tokio::join!(send(reply, &listed), next);
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
        let watcher = session.watcher.get().cloned();
        let begun = session.files.get(file).and_then(|file| {
            let pieces = ReadPieces::new(file.clone(), offset_bytes, len_bytes)?;
            Ok((pieces, file))
        });
        let (mut pieces, file) = match begun {
            Ok(begun) => begun,
            Err(failure) => return Ok(Err(failure)),
        };
        // What the peer keeps of the content, it is told when it changes.
        let mut watched = watcher.map(|watcher| (watcher, file));
        let mut piece = bytes::Bytes::new();
        loop {
            let is_over = pieces.is_over();
            let send =
                async { if piece.is_empty() { Ok(()) } else { reply.data(vec![piece]).await } };
            if is_over {
                send.await?;
                return Ok(Ok(()));
            }
            let watch = watched.take();
            let next = self.tree.workers.run(move || {
                if let Some((watcher, file)) = watch {
                    watch_content(&watcher, &file)?;
                }
                pieces.next().map(|piece| (pieces, piece))
            });
            let (sent, next) = tokio::join!(send, next);
            sent?;
            (pieces, piece) = match next {
                Ok(next) => next,
                Err(failure) => return Ok(Err(failure)),
            };
        }
    }

    async fn end(
        &self,
        session: &Session,
        result: Result<(), Failure>,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        self.count(session, result.as_ref().err());
        match result {
            Ok(()) => reply.end(true).await,
            Err(failure) => reply.fail(failure).await,
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

fn watch_content(watcher: &Watcher, file: &OpenFile) -> Result<(), Failure> {
    let content = file.content();
    let fd = content.fd;
    let stat = crate::attr::stat(fd).map_err(crate::error::failure)?;
    watcher.attr(file.handle(), fd, &stat);
    Ok(())
}

async fn send(reply: &mut ReplySink, listed: &[Listed]) -> Result<(), PeerGone> {
    for Listed { contents, chunk } in listed {
        for run in contents {
            reply.contents(run).await?;
        }
        reply.chunk(chunk).await?;
    }
    Ok(())
}
