//! The connection to the brick: made and remade in the background, every request with a deadline.
//!
//! [`BrickLink::keep_connected`] is the one task that connects; so however many requests wait,
//! there is one attempt at a time, with pauses between that grow up to a bound. A request takes the
//! session there is, or waits for the next one until its deadline; once an outage has lasted
//! longer than that, requests fail at once while attempts go on. `brick_call` has the requests.
//!
//! What must hold: when a session is lost, `on_lost` runs before the next one exists, so nothing
//! that the lost session told outlives it in the cache.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::{Entry, Status};
use portcullis_transport::{CallError, Connection, Connector, Identity, Role, TransportError};
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::stats::BrickStats;
use portcullis_wire::{Reply, Request};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{info, warn};

/// How long one attempt to connect may take. Several fit into the default deadline of a request.
const CONNECT_MS_MAX: u64 = 2_000;
/// The pause after the first failed attempt; it doubles with each further one.
const PAUSE_MS_MIN: u64 = 100;
/// The longest pause between attempts.
const PAUSE_MS_MAX: u64 = 1_000;
/// A session shorter than this counts as a failed attempt when pauses are chosen.
const SESSION_MS_MIN: u64 = 1_000;

/// What is done when a session is lost.
pub(crate) type OnLost = Arc<dyn Fn() + Send + Sync>;

/// The way to one brick.
#[derive(Debug)]
pub(crate) struct BrickLink {
    pub(crate) address: SocketAddr,
    /// How long the brick may take for an answer, or for the next frame of one.
    pub(crate) timeout: Duration,
    connector: Connector,
    state: watch::Sender<State>,
    /// Tells `keep_connected` that a request waits.
    wanted: Notify,
    connects: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    requests: [AtomicU64; Verb::ALL.len()],
    last_error: Mutex<String>,
}

#[derive(Clone, Debug)]
enum State {
    Up(Arc<BrickSession>),
    Down { since: Instant, reason: Arc<str> },
}

/// One connection to the brick, from its first answer to its loss.
#[derive(Debug)]
pub(crate) struct BrickSession {
    /// Counts the connections of one link, from 1.
    pub(crate) epoch: u64,
    /// The root directory, as the brick gave it on this connection.
    pub(crate) root: Entry,
    pub(crate) connection: Connection,
}

impl BrickLink {
    /// The way to the brick at `address`; nothing is sent yet.
    pub(crate) fn new(
        identity: &Identity,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, TransportError> {
        let reason = Arc::from("not connected yet");
        Ok(Self {
            address,
            connector: Connector::new(identity, address)?,
            timeout,
            state: watch::Sender::new(State::Down { since: Instant::now(), reason }),
            wanted: Notify::new(),
            connects: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            requests: Default::default(),
            last_error: Mutex::default(),
        })
    }

    /// Connects, and again whenever the session is lost; `on_lost` may block. Never returns; drop
    /// it to stop.
    pub(crate) async fn keep_connected(self: Arc<Self>, on_lost: OnLost) {
        let mut failures = 0u32;
        loop {
            match self.connect().await {
                Ok((connection, root)) => {
                    info!(brick = %self.address, "connected to the brick");
                    let since = Instant::now();
                    let reason = self.stay_connected(connection, root, &on_lost).await;
                    warn!(brick = %self.address, reason, "lost the connection to the brick");
                    let short = since.elapsed() < Duration::from_millis(SESSION_MS_MIN);
                    failures = if short { failures.saturating_add(1) } else { 0 };
                }
                Err(reason) => {
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() {
                        warn!(brick = %self.address, reason, failures, "the brick cannot be reached");
                    }
                    *self.last_error.lock() = reason.clone();
                    self.state.send_modify(|state| {
                        if let State::Down { reason: last, .. } = state {
                            *last = reason.into();
                        }
                    });
                }
            }
            self.pause(failures).await;
        }
    }

    /// One attempt: a connection counts when the brick has answered on it.
    async fn connect(&self) -> Result<(Connection, Entry), String> {
        let limit = Duration::from_millis(CONNECT_MS_MAX);
        let connection = timeout(limit, self.connector.connect(self.address, Role::Brick))
            .await
            .map_err(|_| format!("no answer in {CONNECT_MS_MAX} ms"))?
            .map_err(|error| match error {
                TransportError::Connect { reason, .. } => reason,
                other => other.to_string(),
            })?;
        self.count(Verb::Attach);
        match timeout(self.timeout, connection.call(&Request::Attach)).await {
            Ok(Ok(Reply::Attached { root })) => Ok((connection, root)),
            Ok(Ok(_)) => Err("it answers an attach with something else".to_owned()),
            Ok(Err(CallError::Lost(_))) if connection.is_closed() => Err(connection.closed().await),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer to an attach in {} ms", self.timeout.as_millis())),
        }
    }

    /// Offers the session until it is lost; answers why it was.
    async fn stay_connected(
        &self,
        connection: Connection,
        root: Entry,
        on_lost: &OnLost,
    ) -> String {
        let epoch = self.connects.fetch_add(1, Ordering::Relaxed) + 1;
        let session = BrickSession { epoch, root, connection: connection.clone() };
        self.state.send_replace(State::Up(Arc::new(session)));
        let reason = format!("connection lost: {}", connection.closed().await);
        self.last_error.lock().clone_from(&reason);
        let down = State::Down { since: Instant::now(), reason: reason.as_str().into() };
        self.state.send_replace(down);
        let on_lost = on_lost.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || on_lost()).await
            && error.is_panic()
        {
            // What is cached may be out of date, so no further session may begin.
            std::panic::resume_unwind(error.into_panic());
        }
        reason
    }

    /// Waits before the next attempt; a waiting request shortens the pause to its minimum.
    async fn pause(&self, failures: u32) {
        if failures == 0 {
            return;
        }
        let pause_ms = (PAUSE_MS_MIN << (failures - 1).min(16)).min(PAUSE_MS_MAX);
        let wanted = async {
            sleep(Duration::from_millis(PAUSE_MS_MIN)).await;
            self.wanted.notified().await;
        };
        let _ = timeout(Duration::from_millis(pause_ms), wanted).await;
    }

    /// When a request that is asked now must have its answer.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Whether there is a session, or since when not and why.
    pub(crate) fn ready(&self) -> Result<(), Failure> {
        match &*self.state.borrow() {
            State::Up(_) => Ok(()),
            State::Down { since, reason } => Err(self.unreachable(*since, reason)),
        }
    }

    /// The session of this epoch, if it is still the current one.
    pub(crate) fn current(&self, epoch: u64) -> Option<Arc<BrickSession>> {
        match &*self.state.borrow() {
            State::Up(session) if session.epoch == epoch => Some(session.clone()),
            _ => None,
        }
    }

    /// A session with an epoch above `newer_than`, waited for until the deadline.
    pub(crate) async fn session(
        &self,
        newer_than: u64,
        deadline: Instant,
    ) -> Result<Arc<BrickSession>, Failure> {
        if let State::Up(session) = &*self.state.borrow()
            && session.epoch > newer_than
        {
            return Ok(session.clone());
        }
        let mut state = self.state.subscribe();
        loop {
            let (wait_until, failure) = match &*state.borrow_and_update() {
                State::Up(session) if session.epoch > newer_than => return Ok(session.clone()),
                // Lost, which the task that connects is about to notice.
                State::Up(_) => {
                    let failure = self.unreachable(Instant::now(), "connection lost");
                    (deadline, failure)
                }
                State::Down { since, reason } => {
                    (deadline.min(*since + self.timeout), self.unreachable(*since, reason))
                }
            };
            self.wanted.notify_one();
            if timeout_at(wait_until, state.changed()).await.is_err() {
                return Err(failure);
            }
        }
    }

    fn unreachable(&self, since: Instant, reason: &str) -> Failure {
        let (address, secs) = (self.address, since.elapsed().as_secs_f32());
        Failure::new(
            Status::Unavailable,
            format!("the brick at {address} has not been reachable for {secs:.1} s: {reason}"),
        )
    }

    /// Counts a request that is sent to the brick.
    pub(crate) fn count(&self, verb: Verb) {
        self.requests[verb as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What is told of the brick in the gateway's statistics.
    pub(crate) fn stats(&self) -> BrickStats {
        let requests = Verb::ALL
            .iter()
            .map(|&verb| (verb, self.requests[verb as usize].load(Ordering::Relaxed)))
            .filter(|&(_, count)| count > 0)
            .map(|(verb, count)| (verb.name().to_owned(), count));
        BrickStats {
            address: self.address.to_string(),
            connected: matches!(&*self.state.borrow(), State::Up(_)),
            connects: self.connects.load(Ordering::Relaxed),
            last_error: self.last_error.lock().clone(),
            requests: requests.collect(),
            received_bytes: self.received_bytes.load(Ordering::Relaxed),
        }
    }

    /// Ends the session and waits, for a bounded time, until the brick knows.
    pub(crate) async fn close(&self) {
        let state = self.state.borrow().clone();
        if let State::Up(session) = state {
            session.connection.close("the gateway is shutting down");
            self.connector.wait_idle().await;
        }
    }
}
