//! A server of the least kind: it keeps what it is sent, and watches what it is asked for.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::{Handle, Status};
use portcullis_transport::serve::{Counters, PeerGone};
use portcullis_transport::{
    Body, Connection, Connector, IdentitySet, Peer, Recaller, ReplySink, Role, Server, Service,
    WatchSession, Watching,
};
use portcullis_wire::message::{Failure, Mutated, Mutation, Notices};
use portcullis_wire::{Reply, Request};
use tokio::sync::oneshot;

/// What a test looks at, and the server itself until it is dropped.
pub(crate) struct Site {
    pub(crate) set: IdentitySet,
    pub(crate) address: SocketAddr,
    pub(crate) keeper: Arc<Keeper>,
    _stop: oneshot::Sender<()>,
}

/// The service.
pub(crate) struct Keeper {
    pub(crate) watching: Arc<Watching>,
    /// Bodies received.
    pub(crate) bodies: Mutex<Vec<Vec<u8>>>,
    /// Connections that were closed.
    pub(crate) closed: Mutex<usize>,
}

pub(crate) struct Session {
    watch: WatchSession,
}

impl Site {
    pub(crate) fn start() -> Self {
        let set = IdentitySet::generate().expect("identities");
        let identity = set.identity(Role::Gateway).expect("a gateway");
        let server = Server::bind(([127, 0, 0, 1], 0).into(), &identity).expect("it listens");
        let address = server.local_addr().expect("an address");
        let keeper = Arc::new(Keeper {
            watching: Watching::start(),
            bodies: Mutex::default(),
            closed: Mutex::default(),
        });
        let (stop, stopped) = oneshot::channel::<()>();
        let stop_on_drop = async move { _ = stopped.await };
        let counters = Arc::new(Counters::default());
        tokio::spawn(server.serve(keeper.clone(), counters, stop_on_drop));
        Self { set, address, keeper, _stop: stop }
    }

    pub(crate) async fn connect(&self) -> Connection {
        let identity = self.set.identity(Role::Client).expect("a client");
        let connector = Connector::new(&identity, self.address).expect("a connector");
        connector.connect(self.address, Role::Gateway).await.expect("a connection")
    }
}

pub(crate) fn handle(number: u64) -> Handle {
    Handle::new(&number.to_le_bytes()).expect("8 bytes")
}

impl Service for Keeper {
    type Session = Session;

    fn open_session(&self, _peer: Peer, recaller: Recaller) -> Result<Session, Failure> {
        Ok(Session { watch: self.watching.open(recaller) })
    }

    fn close_session(&self, _session: &Arc<Session>) {
        *self.closed.lock() += 1;
    }

    async fn serve(
        &self,
        session: &Arc<Session>,
        request: Request,
        mut body: Body,
        reply: ReplySink,
    ) -> Result<(), PeerGone> {
        match request {
            Request::Renew => match self.watching.renew(session.watch.id).await {
                true => reply.reply(Reply::Renewed { lease_ms: 4000, life: 1 }).await,
                false => reply.fail(Status::Unavailable).await,
            },
            Request::Detach => {
                self.watching.end(session.watch.id);
                reply.reply(Reply::Done).await
            }
            Request::Getattr { handle } => {
                session.watch.watched.watch_attr(&handle);
                reply.reply(Reply::Done).await
            }
            Request::Fsyncdir { .. } => {
                // Stands for a request that takes its time.
                let mut reply = reply;
                reply.gone().await;
                *self.closed.lock() += 100;
                Err(PeerGone)
            }
            Request::Mutate { mutation: Mutation::Write { offset_bytes: 1, .. }, .. } => {
                reply.fail(Failure::new(Status::NoSpace, "refused unread")).await
            }
            Request::Mutate { mutation, .. } => {
                let mut whole = Vec::new();
                loop {
                    match body.next().await {
                        Ok(Some(piece)) => whole.extend_from_slice(&piece),
                        Ok(None) => break,
                        Err(error) => return reply.fail(error).await,
                    }
                }
                let len_bytes = u64::from(mutation.body_len_bytes());
                self.bodies.lock().push(whole);
                let result = Mutated::Written { len_bytes };
                reply.reply(Reply::Mutated { result, changes: Vec::new(), dirs: Vec::new() }).await
            }
            Request::Attach { .. } => {
                let notices = Notices::None;
                let root = portcullis_core::Entry {
                    handle: handle(0),
                    attr: None,
                    kind: portcullis_core::FileKind::Directory,
                    target: None,
                };
                let session = session.watch.id.0;
                reply
                    .reply(Reply::Attached { root, session, lease_ms: 4000, life: 1, notices })
                    .await
            }
            _ => reply.fail(Status::NotSupported).await,
        }
    }
}

/// `len` bytes that tell their place.
pub(crate) fn pattern(len: usize) -> Bytes {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect::<Vec<_>>().into()
}
