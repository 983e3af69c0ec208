//! The connection to the gateway: made anew when it is lost, by one task for all that wait.
//!
//! All requests only read, so one that was under way when the connection broke is sent once more
//! over a new one. Every request has a deadline that covers connecting too. What must hold: no
//! request waits longer than its deadline, and a gateway that is down is dialled by one task at a
//! time, whose failure all those who waited for it share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_transport::call::misplaced;
use portcullis_transport::{
    CallError, Connection, Connector, Identity, ReplyStream, Role, TransportError,
};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tracing::info;

use crate::address::Address;
use crate::error::ClientError;

/// Addresses of one host name that are tried.
const ADDRESSES_MAX: usize = 8;

/// What a connection that ends is left to tell the gateway so.
const CLOSE_MS: u64 = 5;

/// A connection, and which one it is: ids of open files are worth nothing on another.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) connection: Connection,
    pub(crate) epoch: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    address: Address,
    gateway: String,
    identity: Identity,
    timeout_ms: u64,
    live: Mutex<Option<Live>>,
    /// Held while connecting.
    dial: tokio::sync::Mutex<Dial>,
    /// Attempts to connect that have ended.
    dials: AtomicU64,
}

#[derive(Debug, Default)]
struct Dial {
    v4: Option<Connector>,
    v6: Option<Connector>,
    failure: Option<ClientError>,
}

impl Link {
    pub(crate) fn new(address: Address, identity: Identity, timeout_ms: u64) -> Self {
        Self {
            gateway: address.authority(),
            address,
            identity,
            timeout_ms,
            live: Mutex::default(),
            dial: tokio::sync::Mutex::default(),
            dials: AtomicU64::new(0),
        }
    }

    /// Sends a request that is answered by one message.
    pub(crate) async fn call(&self, request: &Request) -> Result<Reply, ClientError> {
        self.call_on(request).await.map(|(reply, _)| reply)
    }

    /// As [`Link::call`], and tells which connection the answer came over.
    pub(crate) async fn call_on(&self, request: &Request) -> Result<(Reply, u64), ClientError> {
        let call = |live: Live| async move {
            live.connection.call(request).await.map(|reply| (reply, live.epoch))
        };
        self.within(self.mended(call)).await
    }

    /// Sends a request that is answered by a series of frames.
    pub(crate) async fn stream(&self, request: &Request) -> Result<ReplyStream, ClientError> {
        let stream = |live: Live| async move { live.connection.stream(request).await };
        self.within(self.mended(stream)).await
    }

    /// Sends a request that makes sense only on the connection `epoch`; `None` where that is gone.
    pub(crate) async fn stream_on(
        &self,
        epoch: u64,
        request: &Request,
    ) -> Result<Option<ReplyStream>, ClientError> {
        let Some(live) = self.current().filter(|live| live.epoch == epoch) else {
            return Ok(None);
        };
        self.within(async {
            match live.connection.stream(request).await {
                Ok(stream) => Ok(Some(stream)),
                Err(CallError::Lost(_)) => Ok(None),
                Err(error) => Err(self.explain(error)),
            }
        })
        .await
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

    /// The error for a reply that answers something else than was asked.
    pub(crate) fn misplaced(&self, frame: &ReplyFrame) -> ClientError {
        self.explain(CallError::Protocol(misplaced(frame)))
    }

    /// Ends the connection and leaves it a moment to tell the gateway. Waiting for the transport to
    /// be done with it would take three times its retransmission timeout, some 80 ms; a gateway
    /// that misses the word finds out by itself.
    pub(crate) async fn close(&self) {
        let live = self.live.lock().take();
        if let Some(live) = live {
            live.connection.close("done");
            let dial = self.dial.lock().await;
            let idle = async {
                for connector in [&dial.v4, &dial.v6].into_iter().flatten() {
                    connector.wait_idle().await;
                }
            };
            // Either way there is nothing left to do.
            let _ = tokio::time::timeout(Duration::from_millis(CLOSE_MS), idle).await;
        }
    }

    /// The connection there is, if it works.
    pub(crate) fn current(&self) -> Option<Live> {
        self.live.lock().clone().filter(|live| !live.connection.is_closed())
    }

    /// Runs `ask`, a second time where the connection had broken before or meanwhile.
    async fn mended<T, F>(&self, ask: impl Fn(Live) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let (live, fresh) = self.live().await?;
        match ask(live).await {
            Err(CallError::Lost(_)) if !fresh => {
                let (live, _) = self.live().await?;
                ask(live).await.map_err(|error| self.explain(error))
            }
            result => result.map_err(|error| self.explain(error)),
        }
    }

    /// A connection that works, and whether it was made just now.
    async fn live(&self) -> Result<(Live, bool), ClientError> {
        if let Some(live) = self.current() {
            return Ok((live, false));
        }
        let seen = self.dials.load(Ordering::Acquire);
        let mut dial = self.dial.lock().await;
        if let Some(live) = self.current() {
            return Ok((live, true));
        }
        if self.dials.load(Ordering::Acquire) != seen
            && let Some(failure) = &dial.failure
        {
            return Err(failure.clone());
        }
        let connected = self.connect(&mut dial).await;
        let epoch = self.dials.fetch_add(1, Ordering::AcqRel) + 1;
        match connected {
            Ok(connection) => {
                if epoch > 1 {
                    info!(gateway = self.gateway, "connected again");
                }
                let live = Live { connection, epoch };
                *self.live.lock() = Some(live.clone());
                dial.failure = None;
                Ok((live, true))
            }
            Err(error) => {
                dial.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn connect(&self, dial: &mut Dial) -> Result<Connection, ClientError> {
        let mut failure = None;
        for peer in self.resolve().await? {
            match self.connect_to(dial, peer).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.map_or_else(|| self.unresolved("it has no address"), ClientError::from))
    }

    async fn connect_to(
        &self,
        dial: &mut Dial,
        peer: SocketAddr,
    ) -> Result<Connection, TransportError> {
        let connector = if peer.is_ipv4() { &mut dial.v4 } else { &mut dial.v6 };
        let connector = match connector {
            Some(connector) => connector,
            None => connector.insert(Connector::new(&self.identity, peer)?),
        };
        connector.connect(peer, Role::Gateway).await
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, ClientError> {
        let host = (self.address.host(), self.address.port());
        let found = tokio::net::lookup_host(host)
            .await
            .map_err(|error| self.unresolved(&error.to_string()))?;
        Ok(found.take(ADDRESSES_MAX).collect())
    }

    fn unresolved(&self, reason: &str) -> ClientError {
        ClientError::Resolve { gateway: self.gateway.clone(), reason: reason.to_owned() }
    }

    async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let timeout_ms = self.timeout_ms;
        match tokio::time::timeout(Duration::from_millis(timeout_ms), request).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::Timeout { gateway: self.gateway.clone(), timeout_ms }),
        }
    }

    fn explain(&self, error: CallError) -> ClientError {
        let gateway = self.gateway.clone();
        match error {
            CallError::Failed(failure) => ClientError::Failed(failure),
            CallError::Lost(reason) => ClientError::Lost { gateway, reason },
            CallError::Protocol(error) => {
                ClientError::Protocol { gateway, reason: error.to_string() }
            }
        }
    }
}
