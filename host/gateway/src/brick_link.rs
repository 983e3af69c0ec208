//! The way to the brick: the session there is, or why there is none, and how long to wait for one.
//!
//! A request takes the session there is, or waits for the next one until its deadline; once an
//! outage has lasted longer than that, requests fail at once while attempts go on. `brick_session`
//! connects, `brick_call` has the requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::Status;
use portcullis_transport::{Connector, Identity, TransportError};
use portcullis_wire::Request;
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::stats::BrickStats;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::brick_session::BrickSession;
use crate::clock::Clock;

/// The pause after the first failed attempt; it doubles with each further one.
const PAUSE_MS_MIN: u64 = 100;
/// The longest pause between attempts.
const PAUSE_MS_MAX: u64 = 1_000;
/// How long an ending gateway waits for the brick to know.
const DETACH_MS_MAX: u64 = 1_000;
/// How long what may take long at the brick is given at least: stable storage, space, copies.
const LONG_MS_MIN: u64 = 60_000;

/// The way to one brick.
#[derive(Debug)]
pub(crate) struct BrickLink {
    /// Its number among the bricks of the volume.
    pub(crate) number: usize,
    pub(crate) address: SocketAddr,
    /// What it is called in messages.
    pub(crate) name: String,
    /// How long the brick may take for an answer, or for the next frame of one.
    pub(crate) timeout: Duration,
    /// Names this gateway to the brick.
    pub(crate) client: u128,
    pub(crate) clock: Clock,
    pub(crate) connector: Connector,
    state: watch::Sender<State>,
    /// Tells `keep_connected` that a request waits.
    wanted: Notify,
    connects: AtomicU64,
    last_life: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    requests: [AtomicU64; Verb::ALL.len()],
    last_error: Mutex<String>,
}

#[derive(Clone, Debug)]
enum State {
    Up(Arc<BrickSession>),
    Down { since: Instant, reason: Arc<str> },
}

impl BrickLink {
    /// The way to the brick at `address`, `number` of `count`; nothing is sent yet.
    pub(crate) fn new(
        identity: &Identity,
        (number, count): (usize, usize),
        address: SocketAddr,
        timeout: Duration,
        client: u128,
        clock: Clock,
    ) -> Result<Self, TransportError> {
        let reason = Arc::from("not connected yet");
        let name = match count {
            1 => format!("the brick at {address}"),
            _ => format!("brick {number} at {address}"),
        };
        Ok(Self {
            number,
            address,
            name,
            client,
            clock,
            connector: Connector::new(identity, address)?,
            timeout,
            state: watch::Sender::new(State::Down { since: Instant::now(), reason }),
            wanted: Notify::new(),
            connects: AtomicU64::new(0),
            last_life: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            requests: [const { AtomicU64::new(0) }; Verb::ALL.len()],
            last_error: Mutex::default(),
        })
    }

    /// The number of the next session.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.connects.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A session begins.
    pub(crate) fn up(&self, session: Arc<BrickSession>) {
        self.last_life.store(session.life, Ordering::SeqCst);
        self.state.send_replace(State::Up(session));
    }

    /// The session is lost.
    pub(crate) fn down(&self, reason: &str) {
        reason.clone_into(&mut self.last_error.lock());
        self.state.send_replace(State::Down { since: Instant::now(), reason: reason.into() });
    }

    /// An attempt to connect failed.
    pub(crate) fn unreached(&self, reason: String) {
        self.last_error.lock().clone_from(&reason);
        self.state.send_modify(|state| {
            if let State::Down { reason: last, .. } = state {
                *last = reason.into();
            }
        });
    }

    /// Waits before the next attempt; a waiting request shortens the pause to its minimum.
    pub(crate) async fn pause(&self, failures: u32) {
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

    /// The same for what may take long.
    pub(crate) fn long_deadline(&self) -> Instant {
        Instant::now() + self.timeout.max(Duration::from_millis(LONG_MS_MIN))
    }

    /// The life of the brick in the session that there is or was last; 0 before the first.
    pub(crate) fn last_life(&self) -> u64 {
        self.last_life.load(Ordering::SeqCst)
    }

    /// The session there is.
    pub(crate) fn any(&self) -> Option<Arc<BrickSession>> {
        match &*self.state.borrow() {
            State::Up(session) => Some(session.clone()),
            State::Down { .. } => None,
        }
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
        let (name, secs) = (&self.name, since.elapsed().as_secs_f32());
        Failure::new(
            Status::Unavailable,
            format!("{name} has not been reachable for {secs:.1} s: {reason}"),
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

    /// Ends the session and waits, for a bounded time, until the brick knows. `forgotten`: no client
    /// answers from what it was told any more.
    pub(crate) async fn close(&self, forgotten: bool) {
        if let Some(session) = self.any() {
            if forgotten {
                self.count(Verb::Detach);
                let detach = session.connection.call(&Request::Detach);
                // Without an answer the brick waits for the end of the lease.
                let _ = timeout(Duration::from_millis(DETACH_MS_MAX), detach).await;
            }
            session.connection.close("the gateway is shutting down");
            self.connector.wait_idle().await;
        }
    }
}
