//! The server's side of a request: who asks, and how the answer goes out.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portcullis_core::limits::{CONNECTIONS_MAX, REQUEST_LEN_BYTES_MAX};
use portcullis_core::{Chunk, Status};
use portcullis_wire::frame::HEADER_LEN;
use portcullis_wire::message::Failure;
use portcullis_wire::{CodecError, Reply, ReplyFrame, Request, codec};
use quinn::{Incoming, RecvStream, SendStream, VarInt};
use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::endpoint::Server;
use crate::identity::Role;

/// How long a request may take to arrive whole: it is one small frame.
const REQUEST_ARRIVAL_MS_MAX: u64 = 10_000;
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
/// each request, many at once.
///
/// The implementor must answer every request through its sink, and never block the thread.
pub trait Service: Send + Sync + 'static {
    /// What the service keeps for one connection; dropped when it is gone and idle.
    type Session: Send + Sync + 'static;

    /// Admits a peer.
    ///
    /// # Errors
    /// Why this role has no business here; the peer is told.
    fn open_session(&self, peer: Peer) -> Result<Self::Session, Failure>;

    /// Answers one request.
    fn serve(
        &self,
        session: &Arc<Self::Session>,
        request: Request,
        reply: ReplySink,
    ) -> impl Future<Output = Result<(), PeerGone>> + Send;
}

/// The peer no longer wants the answer, or is lost. Nobody is left to tell.
#[derive(Debug)]
pub struct PeerGone;

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

/// Where the answer of one request goes.
#[derive(Debug)]
pub struct ReplySink {
    send: SendStream,
    /// Whether chunks or data were sent.
    is_series: bool,
}

impl ReplySink {
    fn new(send: SendStream) -> Self {
        Self { send, is_series: false }
    }

    /// Answers with one message.
    ///
    /// # Errors
    /// The peer is gone; so for all below.
    pub async fn reply(self, reply: Reply) -> Result<(), PeerGone> {
        self.last(&ReplyFrame::Reply(reply)).await
    }

    /// Answers that the request failed; also in place of an end, after chunks or data.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn fail(self, failure: impl Into<Failure>) -> Result<(), PeerGone> {
        self.last(&ReplyFrame::Failure(failure.into())).await
    }

    /// Answers with a message, or that the request failed.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn result(self, result: Result<Reply, Failure>) -> Result<(), PeerGone> {
        match result {
            Ok(reply) => self.reply(reply).await,
            Err(failure) => self.fail(failure).await,
        }
    }

    /// Sends a chunk of a listing; waits while the peer does not keep up.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn chunk(&mut self, chunk: &Chunk) -> Result<(), PeerGone> {
        self.is_series = true;
        let header = Bytes::copy_from_slice(&codec::chunk_header(chunk));
        self.write(&mut [header, chunk.bytes().clone()]).await
    }

    /// Sends bytes of a file; waits while the peer does not keep up.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn data(&mut self, data: Bytes) -> Result<(), PeerGone> {
        self.is_series = true;
        let header = Bytes::copy_from_slice(&codec::data_header(data.len()));
        self.write(&mut [header, data]).await
    }

    /// Ends a listing or a read.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn end(self, complete: bool) -> Result<(), PeerGone> {
        self.last(&ReplyFrame::End { complete }).await
    }

    /// Sends the last frame. A series counts as under way until the peer has all of it: megabytes
    /// may wait in its windows, and a server that stops would take them back.
    async fn last(mut self, frame: &ReplyFrame) -> Result<(), PeerGone> {
        let bytes = codec::encode_reply(frame).or_else(|error| {
            warn!(%error, "an answer does not fit its frame");
            let failure = Failure::new(Status::Overflow, error.to_string());
            codec::encode_reply(&ReplyFrame::Failure(failure))
        });
        let Ok(bytes) = bytes else { return Err(PeerGone) };
        self.write(&mut [bytes]).await?;
        self.send.finish().map_err(|_| PeerGone)?;
        match self.is_series {
            true => self.send.stopped().await.map(drop).map_err(|_| PeerGone),
            false => Ok(()),
        }
    }

    async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), PeerGone> {
        self.send.write_all_chunks(parts).await.map_err(|_| PeerGone)
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
        let stopping = CancellationToken::new();
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
    stopping: CancellationToken,
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
                let session = self.service.open_session(Peer { role, address })?;
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
        self.requests(&connection, address, &session).await;
        info!(peer = %address, "disconnected");
    }

    async fn requests(
        &self,
        connection: &quinn::Connection,
        address: SocketAddr,
        session: &Arc<S::Session>,
    ) {
        let warned = Arc::new(AtomicUsize::new(0));
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
            let service = self.service.clone();
            let counters = self.counters.clone();
            let session = session.clone();
            let warned = warned.clone();
            self.tasks.spawn(async move {
                match read_request(recv).await {
                    Ok(request) => {
                        let verb = request.verb();
                        if service.serve(&session, request, ReplySink::new(send)).await.is_err() {
                            debug!(peer = %address, ?verb, "the peer did not wait for its answer");
                        }
                    }
                    Err(Unreadable::Gone) => {}
                    Err(Unreadable::Bad(error)) => {
                        counters.bad_frames.fetch_add(1, Ordering::Relaxed);
                        if warned.fetch_add(1, Ordering::Relaxed) == 0 {
                            warn!(peer = %address, %error, "bad request; further ones of this connection are only counted");
                        }
                        let failure = Failure::new(Status::BadFrame, error.to_string());
                        let _ = ReplySink::new(send).fail(failure).await;
                    }
                }
            });
        }
    }
}

enum Unreadable {
    /// The peer is gone.
    Gone,
    /// The peer sent nonsense.
    Bad(CodecError),
}

async fn read_request(mut recv: RecvStream) -> Result<Request, Unreadable> {
    use quinn::ReadToEndError;
    let max_bytes = HEADER_LEN + REQUEST_LEN_BYTES_MAX;
    let limit = Duration::from_millis(REQUEST_ARRIVAL_MS_MAX);
    match tokio::time::timeout(limit, recv.read_to_end(max_bytes)).await {
        Ok(Ok(bytes)) => codec::decode_request(Bytes::from(bytes)).map_err(Unreadable::Bad),
        Ok(Err(ReadToEndError::TooLong)) => {
            Err(Unreadable::Bad(CodecError::TooLong { len_bytes: max_bytes + 1, max_bytes }))
        }
        Ok(Err(ReadToEndError::Read(_))) => Err(Unreadable::Gone),
        Err(_) => Err(Unreadable::Bad(CodecError::Truncated)),
    }
}

fn peer_role(connection: &quinn::Connection) -> Option<Role> {
    let identity = connection.peer_identity()?;
    let chain = identity.downcast_ref::<Vec<CertificateDer<'static>>>()?;
    Role::of(chain.first()?)
}
