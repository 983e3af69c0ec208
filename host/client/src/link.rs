//! The way to the gateway: a session that is made anew when it is lost, by one task for all that
//! wait.
//!
//! A request that only reads and was under way when the connection broke is sent again over a new
//! one; how a mutation is asked again is [`mutate`](crate::mutate)'s business. Every request has a
//! deadline that covers connecting too. A client that watches (a mount) tries until that deadline;
//! one that does not (a command) says at once that a gateway is down.
//!
//! What must hold: no request waits longer than its deadline, where it has one; a gateway that is
//! down is dialled by one task at a time, whose failure all those who waited for it share.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::contents::ContentError;
use portcullis_core::limits::INLINE_BYTES_MAX;
use portcullis_core::watch::Change;
use portcullis_core::{Entry, Status};
use portcullis_transport::call::misplaced;
use portcullis_transport::{CallError, Connection, Identity, ReplyStream, Role};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use crate::address::Address;
use crate::client::ClientOptions;
use crate::dial::Dialer;
use crate::error::ClientError;
use crate::locks::Locks;
use crate::operations::Operations;
use crate::releases::Releases;
use crate::session::{Forgetting, Session};

/// How long one of many attempts to connect may take.
const CONNECT_MS: u64 = 2_000;
/// How long a gateway may take to answer the first request of a connection.
const ATTACH_MS: u64 = 10_000;
/// How long a new session waits for all to be forgotten that the last one told.
const FORGET_MS: u64 = 1_000;
/// How long a gateway may take to hear that the session ends.
const DETACH_MS: u64 = 1_000;
/// Pause before what failed for want of a server is tried again.
const RETRY_MS: u64 = 100;
/// What may wait to be forgotten; what comes beyond waits for its place.
const FORGETTINGS_MAX: usize = 64;

/// How a link behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOptions {
    pub(crate) client: ClientOptions,
    /// Connections begin with a session; without one a gateway tells only of itself.
    pub(crate) attach: bool,
    /// Whom it connects to.
    pub(crate) server: Role,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    gateway: String,
    options: LinkOptions,
    started: Instant,
    pub(crate) operations: Operations,
    pub(crate) locks: Locks,
    live: Mutex<Option<Arc<Session>>>,
    /// Held while connecting.
    dial: tokio::sync::Mutex<Dial>,
    /// Attempts to connect that have ended.
    dials: AtomicU64,
    /// Whether connecting is tried again and again.
    persists: AtomicBool,
    /// Who caches what is told, if anybody does.
    keeper: Mutex<Option<mpsc::Sender<Forgetting>>>,
    /// Files that are to be closed along with others.
    pub(crate) releases: Releases,
    /// Where files are closed that are dropped anywhere.
    pub(crate) runtime: Option<runtime::Handle>,
    me: Weak<Link>,
}

#[derive(Debug)]
struct Dial {
    dialer: Dialer,
    failure: Option<ClientError>,
    /// The root directory, as the gateway told it last.
    root: Option<Entry>,
}

impl Link {
    /// A link whose first connection is still to be made; `client` names this client.
    pub(crate) fn new(
        address: Address,
        identity: Identity,
        options: LinkOptions,
        client: u128,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            gateway: address.authority(),
            options,
            started: Instant::now(),
            operations: Operations::new(client),
            locks: Locks::default(),
            live: Mutex::default(),
            dial: tokio::sync::Mutex::new(Dial {
                dialer: Dialer::new(address, identity, options.server),
                failure: None,
                root: None,
            }),
            dials: AtomicU64::new(0),
            persists: AtomicBool::new(false),
            keeper: Mutex::default(),
            releases: Releases::default(),
            runtime: runtime::Handle::try_current().ok(),
            me: me.clone(),
        })
    }

    /// Makes the first connection; answers the root directory.
    pub(crate) async fn attach(&self) -> Result<Entry, ClientError> {
        self.within(self.live()).await?;
        self.persists.store(self.options.client.watch, Ordering::Relaxed);
        let root = self.dial.lock().await.root.clone();
        root.ok_or_else(|| self.protocol("it told no root"))
    }

    /// Sends a request that is answered by one message.
    pub(crate) async fn call(&self, request: &Request) -> Result<Reply, ClientError> {
        let call = |session: Arc<Session>| async move { session.connection.call(request).await };
        self.within(self.mended(call)).await
    }

    /// Sends a request with what follows it, once.
    pub(crate) async fn call_once(
        &self,
        request: &Request,
        body: &[Bytes],
    ) -> Result<Reply, ClientError> {
        let call = async {
            let (session, _) = self.live().await?;
            let called = session.connection.call_with(request, body).await;
            called.map_err(|error| self.explain(error))
        };
        self.within(call).await
    }

    /// Sends a request that is answered by a series of frames.
    pub(crate) async fn stream(&self, request: &Request) -> Result<ReplyStream, ClientError> {
        let stream =
            |session: Arc<Session>| async move { session.connection.stream(request).await };
        self.within(self.mended(stream)).await
    }

    /// The next frame of an answer.
    pub(crate) async fn next(&self, stream: &mut ReplyStream) -> Result<ReplyFrame, ClientError> {
        self.within(async {
            match stream.next().await {
                Ok(ReplyFrame::Failure(failure)) => Err(ClientError::Failed(failure)),
                Ok(frame) => Ok(frame),
                Err(error) => Err(self.explain(error)),
            }
        })
        .await
    }

    /// Host and port of the gateway, as errors name it.
    pub(crate) fn gateway(&self) -> &str {
        &self.gateway
    }

    /// Milliseconds on this client's own clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// How long a request may take; `None` where it is waited for as long as it takes.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let timeout_ms = self.options.client.request_timeout_ms;
        (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms))
    }

    /// The error for a reply that answers something else than was asked.
    pub(crate) fn misplaced(&self, frame: &ReplyFrame) -> ClientError {
        self.explain(CallError::Protocol(misplaced(frame)))
    }

    /// The error for contents that do not belong where they came.
    pub(crate) fn malformed(&self, error: ContentError) -> ClientError {
        self.explain(CallError::Protocol(error.into()))
    }

    /// Whoever caches what this client is told takes what is no longer true from here.
    pub(crate) fn forgettings(&self) -> mpsc::Receiver<Forgetting> {
        let (keeper, forgettings) = mpsc::channel(FORGETTINGS_MAX);
        *self.keeper.lock() = Some(keeper);
        forgettings
    }

    /// Has something forgotten by whoever caches it; `false` where some of it may remain.
    pub(crate) async fn forget(&self, changes: Vec<Change>) -> bool {
        let keeper = self.keeper.lock().clone();
        let Some(keeper) = keeper else { return true };
        let (forgetting, forgotten) = Forgetting::new(changes);
        match keeper.send(forgetting).await {
            Ok(()) => forgotten.await.unwrap_or(false),
            // It is gone, and with it all that it cached.
            Err(_) => true,
        }
    }

    /// Milliseconds for which what is told now may be cached; 0 without a lease.
    pub(crate) fn lease_left_ms(&self) -> u64 {
        self.current().map_or(0, |session| session.lease.left_ms(self.now_ms()))
    }

    /// The session there is, if its connection works.
    pub(crate) fn current(&self) -> Option<Arc<Session>> {
        self.live.lock().clone().filter(|session| !session.connection.is_closed())
    }

    /// Ends the session, then the connection, so that the gateway need not find out by itself.
    /// What was told must not be answered any more.
    pub(crate) async fn close(&self) {
        self.persists.store(false, Ordering::Relaxed);
        let live = self.live.lock().take();
        let Some(session) = live else { return };
        if session.id != 0 && !session.connection.is_closed() {
            let detach = session.connection.call(&Request::Detach);
            // The lease ends by itself where the gateway does not hear of this.
            let _ = timeout(Duration::from_millis(DETACH_MS), detach).await;
        }
        session.connection.close("done");
        // Nobody waits for somebody who is just connecting.
        if let Ok(dial) = self.dial.try_lock() {
            dial.dialer.linger().await;
        }
    }

    /// Runs `ask`, again where the connection had broken before or meanwhile.
    pub(crate) async fn mended<T, F>(
        &self,
        ask: impl Fn(Arc<Session>) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        loop {
            let (session, fresh) = self.live().await?;
            match ask(session).await {
                Err(CallError::Lost(_)) if !fresh => {}
                Err(error) if self.persists() && is_away(&error) => self.pause().await,
                result => return result.map_err(|error| self.explain(error)),
            }
        }
    }

    /// A session that works, and whether it was made just now.
    pub(crate) async fn live(&self) -> Result<(Arc<Session>, bool), ClientError> {
        loop {
            match self.live_once().await {
                Err(_) if self.persists() => self.pause().await,
                result => return result,
            }
        }
    }

    /// Whether listings are to tell which files have no access control lists.
    pub(crate) fn wants_acl(&self) -> bool {
        self.options.client.acl
    }

    /// Up to which size listings may bring contents along.
    pub(crate) fn wants_contents(&self) -> Option<u32> {
        self.options.client.contents.then_some(INLINE_BYTES_MAX as u32)
    }

    /// Whether the gateway keeps what this client has open when a connection is lost.
    pub(crate) fn watches(&self) -> bool {
        self.options.client.watch
    }

    /// The session on which files are closed; `None` where they are closed already, or are once
    /// the client is gone.
    pub(crate) async fn session_for_closing(&self) -> Result<Option<Arc<Session>>, ClientError> {
        if self.persists() { Ok(Some(self.live().await?.0)) } else { Ok(self.current()) }
    }

    /// Sends a request on the connection of this very session, and waits as long as that lasts.
    pub(crate) async fn call_on(
        &self,
        session: &Session,
        request: &Request,
    ) -> Result<Reply, ClientError> {
        session.connection.call(request).await.map_err(|error| self.explain(error))
    }

    /// Whether connecting is tried again and again.
    pub(crate) fn persists(&self) -> bool {
        self.persists.load(Ordering::Relaxed)
    }

    pub(crate) async fn pause(&self) {
        sleep(Duration::from_millis(RETRY_MS)).await;
    }

    async fn live_once(&self) -> Result<(Arc<Session>, bool), ClientError> {
        if let Some(session) = self.current() {
            return Ok((session, false));
        }
        let seen = self.dials.load(Ordering::Acquire);
        let mut dial = self.dial.lock().await;
        if let Some(session) = self.current() {
            return Ok((session, true));
        }
        if self.dials.load(Ordering::Acquire) != seen
            && let Some(failure) = &dial.failure
        {
            return Err(failure.clone());
        }
        let begun = self.begin_session(&mut dial).await;
        self.dials.fetch_add(1, Ordering::AcqRel);
        match begun {
            Ok(session) => {
                dial.failure = None;
                Ok((session, true))
            }
            Err(error) => {
                dial.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn begin_session(&self, dial: &mut Dial) -> Result<Arc<Session>, ClientError> {
        let last = self.live.lock().clone();
        let connection = if self.persists() {
            // It is tried again, with better luck than the packets that went to nobody.
            let limit = Duration::from_millis(CONNECT_MS);
            let connected = timeout(limit, dial.dialer.connect()).await;
            connected.unwrap_or_else(|_| Err(self.timed_out(CONNECT_MS)))?
        } else {
            dial.dialer.connect().await?
        };
        let epoch = self.dials.load(Ordering::Acquire) + 1;
        if epoch > 1 {
            info!(gateway = self.gateway, "connected again");
        }
        let session = if self.options.attach {
            let ended = match &last {
                Some(last) if last.id != 0 => last.ended(Duration::from_millis(FORGET_MS)).await,
                _ => 0,
            };
            let (session, root) = self.attach_on(connection, epoch, ended).await?;
            dial.root = Some(root);
            session
        } else {
            Session::new(connection, epoch, 0, 0, Default::default())
        };
        let session = Arc::new(session);
        *self.live.lock() = Some(session.clone());
        if session.id != 0 {
            tokio::spawn(session.clone().keep(self.me.clone()));
        }
        self.take_locks_again(&session);
        Ok(session)
    }

    /// Opens every file again that had locks on an earlier connection, before somebody else takes
    /// them.
    fn take_locks_again(&self, session: &Arc<Session>) {
        for opening in self.locks.openings() {
            let session = session.clone();
            // Whoever uses the file next learns what came of it.
            tokio::spawn(async move { opening.id_on(&session).await.map(drop) });
        }
    }

    async fn attach_on(
        &self,
        connection: Connection,
        epoch: u64,
        ended: u64,
    ) -> Result<(Session, Entry), ClientError> {
        let (watch, client) = (self.options.client.watch, self.operations.client());
        let sent_ms = self.now_ms();
        let attach = Request::Attach { watch, client, ended };
        let limit = Duration::from_millis(ATTACH_MS);
        let reply = match timeout(limit, connection.call(&attach)).await {
            Ok(reply) => reply.map_err(|error| self.explain(error)),
            Err(_) => Err(self.timed_out(ATTACH_MS)),
        };
        let reply = reply.inspect_err(|_| connection.close("it could not attach"))?;
        let Reply::Attached { root, session: id, lease_ms, life, notices } = reply else {
            return Err(self.misplaced(&ReplyFrame::Reply(reply)));
        };
        let session = Session::new(connection, epoch, id, life, notices);
        session.lease.renewed(sent_ms, lease_ms);
        Ok((session, root))
    }

    /// Bounds a request by the deadline of this client.
    pub(crate) async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let Some(limit) = self.timeout() else { return request.await };
        match timeout(limit, request).await {
            Ok(result) => result,
            Err(_) => Err(self.timed_out(self.options.client.request_timeout_ms)),
        }
    }

    pub(crate) fn explain(&self, error: CallError) -> ClientError {
        match error {
            CallError::Failed(failure) => ClientError::Failed(failure),
            CallError::Lost(reason) => ClientError::Lost { gateway: self.gateway.clone(), reason },
            CallError::Protocol(error) => self.protocol(&error.to_string()),
        }
    }

    fn protocol(&self, reason: &str) -> ClientError {
        ClientError::Protocol { gateway: self.gateway.clone(), reason: reason.to_owned() }
    }

    fn timed_out(&self, timeout_ms: u64) -> ClientError {
        ClientError::Timeout { gateway: self.gateway.clone(), timeout_ms }
    }
}

/// Whether it is for want of a server that something failed.
pub(crate) fn is_away(error: &CallError) -> bool {
    match error {
        CallError::Lost(_) => true,
        CallError::Failed(failure) => failure.status == Status::Unavailable,
        CallError::Protocol(_) => false,
    }
}
