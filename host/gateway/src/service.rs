//! The gateway's side of a request: admits a peer, counts, and answers each verb.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use portcullis_core::Status;
use portcullis_transport::serve::PeerGone;
use portcullis_transport::{Body, Peer, Recaller, ReplySink, Role, Service};
use portcullis_wire::message::{Failure, TraceNames};
use portcullis_wire::{Reply, Request};

use crate::compare::Comparisons;
use crate::inlining::Taker;
use crate::outflow::Interrupt;
use crate::policies::Policies;
use crate::reads;
use crate::recording::record;
use crate::session::Session;
use crate::stats::Observer;
use crate::volume::Volume;

/// Serves clients from one volume.
pub(crate) struct GatewayService {
    pub(crate) volume: Arc<Volume>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) policies: Policies,
    pub(crate) comparisons: Arc<Comparisons>,
}

impl Service for GatewayService {
    type Session = Session;

    fn open_session(&self, peer: Peer, recaller: Recaller) -> Result<Session, Failure> {
        match peer.role {
            Role::Client | Role::Admin => {
                Ok(Session::new(peer.role, self.volume.clone(), recaller))
            }
            Role::Brick | Role::Gateway => {
                let detail = format!("a gateway serves clients and admins, not a {}", peer.role);
                Err(Failure::new(Status::WrongRole, detail))
            }
        }
    }

    fn close_session(&self, session: &Arc<Session>) {
        session.closed();
    }

    async fn serve(
        &self,
        session: &Arc<Session>,
        request: Request,
        body: Body,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        self.observer.count_request(request.verb());
        let watched = session.watched();
        let result = match request {
            // Cached verbs stay in this future: a hit allocates nothing beyond its reply.
            Request::Lookup { dir, name } => self.volume.lookup(watched, dir, name).await,
            Request::Getattr { handle } => self.volume.getattr(watched, handle).await,
            Request::Readlink { handle } => self.volume.readlink(handle).await,
            // The others have large futures, which would make each request's task as large.
            Request::List { dir, after, acl, contents } => {
                if acl {
                    self.volume.wants_acl.store(true, Ordering::Relaxed);
                }
                let taker = contents.and_then(|size| session.taker(size));
                return Box::pin(self.list(session, dir, after, taker, reply)).await;
            }
            Request::Read { file, offset_bytes, len_bytes } => {
                return Box::pin(self.read(session, file, offset_bytes, len_bytes, reply)).await;
            }
            Request::Trace { names, for_ms } => {
                return Box::pin(self.record(session, names, for_ms, reply)).await;
            }
            Request::Compare(compare) => match for_admins(session, "comparisons are") {
                Ok(()) => Box::pin(self.comparisons.compare(compare, body)).await,
                Err(failure) => Err(failure),
            },
            Request::Mutate { op, caller, mutation } => {
                let result = session.mutate(op, caller, mutation, body);
                return self.mutated(session, Box::pin(result).await, reply).await;
            }
            Request::Setlk { file, lock, wait } => {
                let count = |status| self.observer.count_failure(status);
                return Box::pin(session.setlk(file, lock, wait, reply, count)).await;
            }
            Request::Policy { kind, command } => {
                Box::pin(self.policies.answer(session.role, kind, command, body)).await
            }
            other => Box::pin(self.answer(session, other)).await,
        };
        self.result(result, reply).await
    }
}

impl GatewayService {
    async fn answer(&self, session: &Arc<Session>, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Attach { watch, client, ended } => session.attach(watch, client, ended).await,
            Request::Renew => session.renew().await,
            Request::Detach => Ok(session.detach()),
            Request::Open { handle, flags } => session.open(handle, flags).await,
            Request::Flush { file, owner } => session.flush(file, owner).await,
            Request::Release { file, unlock } => session.release(file, unlock).await,
            Request::ReleaseMany { files } => session.release_many(&files),
            Request::Fsync { file, data_only } => session.fsync(file, data_only).await,
            Request::Fsyncdir { dir } => session.fsyncdir(dir).await,
            Request::Lseek { file, offset_bytes, hole } => {
                session.lseek(file, offset_bytes, hole).await
            }
            Request::Getlk { file, lock } => session.getlk(file, lock).await,
            Request::ReadInPlace { dirs } => {
                let client = session.client().unwrap_or_default();
                self.volume.inlining.read_in_place(client, &dirs)
            }
            Request::Statfs { handle } => self.volume.statfs(handle).await,
            Request::Stats => {
                for_admins(session, "stats are")?;
                Ok(Reply::Stats(Box::new(self.observer.stats())))
            }
            Request::Getxattr { handle, .. } | Request::Listxattr { handle } => {
                // Access control lists are cached.
                session.watch_attr(&handle);
                self.volume.ask(&request).await
            }
            other => {
                let verb = other.verb().name();
                let detail = format!("a {verb} is not for clients to ask");
                Err(Failure::new(Status::WrongRole, detail))
            }
        }
    }

    /// Answers a mutation. A client that no longer waits for the answer does not learn from it what
    /// was changed, so it is told as the others are.
    async fn mutated(
        &self,
        session: &Arc<Session>,
        result: Result<Reply, Failure>,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let changes = match &result {
            Ok(Reply::Mutated { changes, .. }) if session.id().is_some() => changes.clone(),
            _ => Vec::new(),
        };
        let answered = self.result(result, reply).await;
        if answered.is_err() {
            self.volume.tell(None, &changes).await;
        }
        answered
    }

    async fn result(
        &self,
        result: Result<Reply, Failure>,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        if let Err(failure) = &result {
            self.observer.count_failure(failure.status);
        }
        reply.result(result).await
    }

    async fn list(
        &self,
        session: &Session,
        dir: portcullis_core::Handle,
        after: Vec<u64>,
        taker: Option<Taker>,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let (watched, ahead) = (session.watched(), (&session.ahead, taker));
        let listed = self.volume.list(watched, dir, after, ahead, &mut reply).await;
        self.end(listed, reply).await
    }

    async fn read(
        &self,
        session: &Session,
        file: u64,
        offset_bytes: u64,
        len_bytes: u32,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let volume = &self.volume;
        let read = reads::read(volume, session, file, offset_bytes, len_bytes, &mut reply).await;
        self.end(read.map(|()| true), reply).await
    }

    async fn record(
        &self,
        session: &Session,
        names: TraceNames,
        for_ms: u64,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let recorded = match for_admins(session, "recordings are") {
            Ok(()) => record(&self.volume, &self.observer, names, for_ms, &mut reply).await,
            Err(failure) => Err(failure.into()),
        };
        self.end(recorded.map(|()| true), reply).await
    }

    /// The last frame of a series.
    async fn end(&self, ended: Result<bool, Interrupt>, reply: ReplySink) -> Result<(), PeerGone> {
        match ended {
            Ok(complete) => reply.end(complete).await,
            Err(Interrupt::Failed(failure)) => {
                self.observer.count_failure(failure.status);
                reply.fail(failure).await
            }
            Err(Interrupt::PeerGone) => Err(PeerGone),
        }
    }
}

/// Refuses everybody else. `what` is the beginning of the sentence that says so.
fn for_admins(session: &Session, what: &str) -> Result<(), Failure> {
    match session.role {
        Role::Admin => Ok(()),
        role => {
            let detail = format!("{what} for the admin role, this is a {role}");
            Err(Failure::new(Status::WrongRole, detail))
        }
    }
}
