//! One client's connection: who it is, what it watches, and its lease.
//!
//! A client that caches attaches with `watch`. Its session outlives the connection until its lease
//! is over, or until it says that it caches nothing any more. `session_files` has what it has open.
//!
//! What must hold: a client's lease never reaches beyond the gateway's own at the bricks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use portcullis_core::Status;
use portcullis_core::watch::{SessionId, Watched};
use portcullis_transport::{Recaller, Role, WatchSession};
use portcullis_wire::Reply;
use portcullis_wire::message::Failure;

use crate::ahead::Ahead;
use crate::clients::close_later;
use crate::inlining::Taker;
use crate::session_files::Files;
use crate::volume::Volume;

/// A client's connection.
pub(crate) struct Session {
    pub(crate) role: Role,
    pub(crate) volume: Arc<Volume>,
    /// Counts connections.
    pub(crate) number: u64,
    pub(crate) files: Mutex<Files>,
    /// What is listed before it asks; `None` where nothing is.
    pub(crate) ahead: Arc<Ahead>,
    recaller: Recaller,
    /// Which client it is, as far as it said.
    client: OnceLock<u128>,
    watching: OnceLock<WatchSession>,
    detached: AtomicBool,
    superseded: AtomicBool,
    /// The client was here on an earlier connection.
    resumes: AtomicBool,
    gone: AtomicBool,
}

impl Session {
    /// A connection without open files.
    pub(crate) fn new(role: Role, volume: Arc<Volume>, recaller: Recaller) -> Self {
        let (number, ahead) = (volume.clients.number(), Ahead::new(&volume));
        Self {
            role,
            volume,
            number,
            files: Mutex::default(),
            ahead,
            recaller,
            client: OnceLock::new(),
            watching: OnceLock::new(),
            detached: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            resumes: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Which client it is, where it said.
    pub(crate) fn client(&self) -> Option<u128> {
        self.client.get().copied().filter(|client| *client != 0)
    }

    /// Whether the client may have files open on an earlier connection.
    pub(crate) fn resumes(&self) -> bool {
        self.resumes.load(Ordering::Relaxed)
    }

    /// Whether the connection is lost or closed.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// The client goes on on another connection.
    pub(crate) fn supersede(&self) {
        self.superseded.store(true, Ordering::SeqCst);
    }

    /// Whether it does: nothing that was asked here may be sent for the first time any more.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::SeqCst)
    }

    /// Where this client's watches are noted; `None` where it caches nothing.
    pub(crate) fn watched(&self) -> Option<&Watched> {
        self.watching.get().map(|session| &*session.watched)
    }

    /// Names its session, where it has one.
    pub(crate) fn id(&self) -> Option<SessionId> {
        self.watching.get().map(|session| session.id)
    }

    /// The client as one that takes contents of so many bytes along with listings, where that is decided
    /// for it.
    pub(crate) fn taker(&self, size_bytes_max: u32) -> Option<Taker> {
        let client = self.client().filter(|_| self.volume.inlining.is_on())?;
        Some(Taker { client, size_bytes_max, line: self.recaller.line() })
    }

    /// The root directory, and a session where the client wants to cache.
    pub(crate) async fn attach(
        self: &Arc<Self>,
        watch: bool,
        client: u128,
        ended: u64,
    ) -> Result<Reply, Failure> {
        let volume = &self.volume;
        volume.bricks.formation.check()?;
        if *self.client.get_or_init(|| client) != client {
            let detail = "this connection is another client's";
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        volume.clients.enter(self);
        if volume.clients.supersede(self) {
            self.resumes.store(true, Ordering::Relaxed);
        }
        if ended != 0 {
            volume.end_session(SessionId(ended), client);
        }
        let first = volume.bricks.first();
        let brick = first.session(0, first.deadline()).await?;
        let generation = volume.leases.generation();
        let session = if watch { self.begin(client).await?.0 } else { 0 };
        let root = volume.root(self.watched(), brick.root.handle).await?;
        let left_ms = volume.leases.left_since(generation, volume.now_ms());
        let lease_ms = if watch { left_ms as u32 } else { 0 };
        let (life, notices) = (volume.bricks.life(), volume.bricks.notices());
        Ok(Reply::Attached { root, session, lease_ms, life, notices })
    }

    /// Begins the session, or renews it where it has begun: an attach may be asked again.
    async fn begin(&self, client: u128) -> Result<SessionId, Failure> {
        let watching = &self.volume.watching;
        let mut is_new = false;
        let session = self.watching.get_or_init(|| {
            is_new = true;
            watching.open(self.recaller.clone())
        });
        if is_new {
            self.volume.attached(session.id, client);
        } else if !watching.renew(session.id).await {
            return Err(over());
        }
        Ok(session.id)
    }

    /// Renews the client's lease: what is left of the gateway's own, if no session with a brick was
    /// lost since the client knew everything.
    pub(crate) async fn renew(&self) -> Result<Reply, Failure> {
        let Some(id) = self.id() else {
            let detail = "this connection did not attach to be told of changes";
            return Err(Failure::new(Status::InvalidArgument, detail));
        };
        let Volume { leases, watching, bricks, .. } = &*self.volume;
        bricks.formation.check()?;
        let (generation, life) = (leases.generation(), bricks.life());
        if !watching.renew(id).await {
            return Err(over());
        }
        let left_ms = leases.left_since(generation, self.volume.now_ms());
        Ok(Reply::Renewed { lease_ms: left_ms as u32, life })
    }

    /// The client caches nothing any more and is about to leave.
    pub(crate) fn detach(&self) -> Reply {
        self.detached.store(true, Ordering::SeqCst);
        if let (Some(id), Some(client)) = (self.id(), self.client()) {
            self.volume.end_session(id, client);
        }
        Reply::Done
    }

    /// The connection is gone. Whoever may come back finds its files open for a while.
    pub(crate) fn closed(self: &Arc<Self>) {
        self.gone.store(true, Ordering::SeqCst);
        self.ahead.close();
        if self.id().is_some() && !self.detached.load(Ordering::SeqCst) {
            return close_later(self.clone());
        }
        let session = self.clone();
        tokio::spawn(async move { session.close_files().await });
    }
}

fn over() -> Failure {
    Failure::new(Status::Unavailable, "the session is over: attach again on a new connection")
}
