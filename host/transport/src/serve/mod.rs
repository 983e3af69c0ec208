//! The server's side of a connection: who asks, and each request's way through.
//!
//! - [`request`]: the request as it comes in, and its body.
//! - [`reply`]: the answer as it goes out.
//! - [`recall`]: telling a client of changes, and its acknowledgement.

mod recall;
mod reply;
mod request;

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use portcullis_core::Status;
use portcullis_core::limits::CONNECTIONS_MAX;
use portcullis_wire::Request;
use portcullis_wire::message::Failure;
use quinn::{Incoming, RecvStream, SendStream, VarInt};
use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::endpoint::Server;
use crate::identity::Role;

pub use recall::Recaller;
pub use reply::{PeerGone, ReplySink};
pub use request::{Body, BodyError};
use request::{Unreadable, read_request};

/// How long requests under way may take to finish once a server was told to stop.
pub const DRAIN_MS_MAX: u64 = 10_000;
/// How long a stopping server leaves its connections open after the last request, so that an
/// answer of one frame that was just written gets out.
const LINGER_MS: u64 = 100;

/// A peer whose certificate was verified.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// What it proved to be.
    pub role: Role,
    /// Where it is.
    pub address: SocketAddr,
}

/// What a server does. Its two implementations are the brick and the gateway.
///
/// The caller guarantees: `open_session` once a connection, before its first request; `serve` for
/// each request, many at once; `close_session` once, after no further request will come.
///
/// The implementor must answer every request through its sink, and never block the thread.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps for one connection; dropped when it is gone and idle.
    type Session: Send + Sync + 'static;

    /// Admits a peer, which can be told of changes by `recaller`.
    ///
    /// # Errors
    /// Why this role has no business here; the peer is told.
    fn open_session(&self, peer: Peer, recaller: Recaller) -> Result<Self::Session, Failure>;

    /// The connection is lost or closed. Requests may still be under way.
    fn close_session(&self, session: &Arc<Self::Session>);

    /// Answers one request; `body` has what follows it.
    fn serve(
        &self,
        session: &Arc<Self::Session>,
        request: Request,
        body: Body,
        reply: ReplySink,
    ) -> impl Future<Output = Result<(), PeerGone>> + Send;
}

/// What a server counts of its connections.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections now, those whose handshake is under way among them.
    pub connections: AtomicUsize,
    /// Connections refused: no certificate of our CA, a wrong role, or too many.
    pub refused: AtomicU64,
    /// Frames that could not be read.
    pub bad_frames: AtomicU64,
}

impl Counters {
    /// Counts a refused connection. Anybody can cause these, so only the 1st, 2nd, 4th, 8th ... is
    /// logged for an administrator to see.
    fn refuse(&self, peer: SocketAddr, reason: &dyn std::fmt::Display) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if refused.is_power_of_two() {
            warn!(%peer, %reason, refused, "connection refused");
        } else {
            debug!(%peer, %reason, refused, "connection refused");
        }
    }
}

impl Server {
    /// Serves until `stop` resolves, then finishes what is under way and returns.
    pub async fn serve<S: Service>(
        self,
        service: Arc<S>,
        counters: Arc<Counters>,
        stop: impl Future<Output = ()>,
    ) {
        let stopping = Arc::new(CancellationToken::new());
        let tasks = TaskTracker::new();
        tokio::pin!(stop);
        loop {
            let incoming = tokio::select! {
                () = &mut stop => break,
                incoming = self.endpoint.accept() => incoming,
            };
            let Some(incoming) = incoming else { break };
            // Counted before the handshake, so that stalled ones count, too.
            let place = Place::take(&counters);
            if counters.connections.load(Ordering::Relaxed) > CONNECTIONS_MAX {
                let reason = format!("over {CONNECTIONS_MAX} connections");
                counters.refuse(incoming.remote_address(), &reason);
                incoming.refuse();
                continue;
            }
            let connection = Serving {
                _place: place,
                service: service.clone(),
                counters: counters.clone(),
                stopping: stopping.clone(),
                tasks: tasks.clone(),
                role: self.role,
            };
            tokio::spawn(connection.run(incoming));
        }
        stopping.cancel();
        tasks.close();
        let limit = Duration::from_millis(DRAIN_MS_MAX);
        if tokio::time::timeout(limit, tasks.wait()).await.is_err() {
            warn!(requests = tasks.len(), "stopped with requests still under way");
        }
        tokio::time::sleep(Duration::from_millis(LINGER_MS)).await;
        self.endpoint.close(VarInt::from_u32(0), b"the server is shutting down");
        // Peers that are there acknowledge at once; those that are not are not waited for.
        let _ = tokio::time::timeout(Duration::from_millis(500), self.endpoint.wait_idle()).await;
    }
}

/// A connection that counts, until it is dropped.
struct Place(Arc<Counters>);

impl Place {
    fn take(counters: &Arc<Counters>) -> Self {
        counters.connections.fetch_add(1, Ordering::Relaxed);
        Self(counters.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection being served.
struct Serving<S> {
    _place: Place,
    service: Arc<S>,
    counters: Arc<Counters>,
    stopping: Arc<CancellationToken>,
    tasks: TaskTracker,
    role: Role,
}

impl<S: Service> Serving<S> {
    async fn run(self, incoming: Incoming) {
        let address = incoming.remote_address();
        let connection = match incoming.await {
            Ok(connection) => connection,
            Err(error) => return self.counters.refuse(address, &error),
        };
        let admitted = peer_role(&connection)
            .ok_or_else(|| Failure::new(Status::WrongRole, "the certificate names no known role"))
            .and_then(|role| {
                let recaller = Recaller::new(connection.clone());
                let session = self.service.open_session(Peer { role, address }, recaller)?;
                Ok((role, Arc::new(session)))
            });
        let (role, session) = match admitted {
            Ok(admitted) => admitted,
            Err(failure) => {
                self.counters.refuse(address, &failure);
                connection.close(VarInt::from_u32(1), failure.to_string().as_bytes());
                return;
            }
        };
        info!(peer = %address, %role, serving = %self.role, "connected");
        let requests = Requests {
            service: self.service.clone(),
            session: session.clone(),
            counters: self.counters.clone(),
            stopping: self.stopping.clone(),
            address,
            warned: AtomicBool::new(false),
        };
        self.accept(&connection, &Arc::new(requests)).await;
        self.service.close_session(&session);
        info!(peer = %address, "disconnected");
    }

    async fn accept(&self, connection: &quinn::Connection, requests: &Arc<Requests<S>>) {
        loop {
            let stream = tokio::select! {
                () = self.stopping.cancelled() => {
                    // The streams under way keep the connection; `Server::serve` closes it.
                    connection.closed().await;
                    return;
                }
                stream = connection.accept_bi() => stream,
            };
            let Ok((send, recv)) = stream else { return };
            let answer = requests.clone().answer(send, recv);
            let mut answer = Box::pin(self.tasks.track_future(answer));
            // What is answered without waiting, as from a cache, needs no task of its own.
            let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
            if first.is_pending() {
                tokio::spawn(answer);
            }
        }
    }
}

/// What the requests of one connection share.
struct Requests<S: Service> {
    service: Arc<S>,
    session: Arc<S::Session>,
    counters: Arc<Counters>,
    stopping: Arc<CancellationToken>,
    address: SocketAddr,
    /// The first bad request of a connection is logged.
    warned: AtomicBool,
}

impl<S: Service> Requests<S> {
    async fn answer(self: Arc<Self>, send: SendStream, recv: RecvStream) {
        let request = read_request(recv).await;
        let reply = ReplySink::new(send, self.stopping.clone());
        match request {
            Ok((request, body)) => {
                let verb = request.verb();
                if self.service.serve(&self.session, request, body, reply).await.is_err() {
                    debug!(peer = %self.address, ?verb, "the peer did not wait for its answer");
                }
            }
            Err(Unreadable::Gone) => {}
            Err(Unreadable::Bad(error)) => {
                self.counters.bad_frames.fetch_add(1, Ordering::Relaxed);
                if !self.warned.swap(true, Ordering::Relaxed) {
                    warn!(peer = %self.address, %error, "bad request; further ones of this connection are only counted");
                }
                let failure = Failure::new(Status::BadFrame, error.to_string());
                let _ = reply.fail(failure).await;
            }
        }
    }
}

fn peer_role(connection: &quinn::Connection) -> Option<Role> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast_ref::<Vec<CertificateDer<'static>>>()?;
    Role::of(chain.first()?)
}
