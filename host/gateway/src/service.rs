//! The gateway's side of a request: admits a peer, counts, and answers each verb.

use std::sync::Arc;

use portcullis_core::Status;
use portcullis_transport::serve::PeerGone;
use portcullis_transport::{Peer, ReplySink, Role, Service};
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, Request};

use crate::outflow::Interrupt;
use crate::reads;
use crate::session::Session;
use crate::stats::Observer;
use crate::volume::Volume;

/// Serves clients from one volume.
pub(crate) struct GatewayService {
    pub(crate) volume: Arc<Volume>,
    pub(crate) observer: Arc<Observer>,
}

impl Service for GatewayService {
    type Session = Session;

    fn open_session(&self, peer: Peer) -> Result<Session, Failure> {
        match peer.role {
            Role::Client | Role::Admin => Ok(Session::new(peer.role, self.volume.clone())),
            Role::Brick | Role::Gateway => {
                let detail = format!("a gateway serves clients and admins, not a {}", peer.role);
                Err(Failure::new(Status::WrongRole, detail))
            }
        }
    }

    async fn serve(
        &self,
        session: &Arc<Session>,
        request: Request,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        self.observer.count_request(request.verb());
        let result = match request {
            // Cached verbs stay in this future: a hit allocates nothing beyond its reply.
            Request::Lookup { dir, name } => self.volume.lookup(dir, name).await,
            Request::Getattr { handle } => self.volume.getattr(handle).await,
            Request::Readlink { handle } => self.volume.readlink(handle).await,
            // The others have large futures, which would make each request's task as large.
            Request::List { dir, after } => {
                return Box::pin(self.list(dir, after, reply)).await;
            }
            Request::Read { file, offset_bytes, len_bytes } => {
                return Box::pin(self.read(session, file, offset_bytes, len_bytes, reply)).await;
            }
            other => Box::pin(self.answer(session, other)).await,
        };
        if let Err(failure) = &result {
            self.observer.count_failure(failure.status);
        }
        reply.result(result).await
    }
}

impl GatewayService {
    async fn answer(&self, session: &Arc<Session>, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Attach => self.volume.attach().await,
            Request::Open { handle } => session.open(handle).await,
            Request::Release { file } => session.release(file),
            Request::Stats => match session.role {
                Role::Admin => Ok(Reply::Stats(Box::new(self.observer.stats()))),
                role => {
                    let detail = format!("stats are for the admin role, this is a {role}");
                    Err(Failure::new(Status::WrongRole, detail))
                }
            },
            passed_through => self.volume.ask(&passed_through).await,
        }
    }

    async fn list(
        &self,
        dir: portcullis_core::Handle,
        after: Vec<u64>,
        mut reply: ReplySink,
    ) -> Result<(), PeerGone> {
        let listed = self.volume.list(dir, after, &mut reply).await;
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
