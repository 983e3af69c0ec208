//! One session with a brick after another: the lease renewed, changes taken in, the loss told.
//!
//! [`Volume::keep_connected`] is the one task that connects to a brick; so however many requests wait,
//! there is one attempt at a time, with pauses between that grow up to a bound.
//!
//! What must hold: answers come from the cache only while the leases of the sessions hold through
//! which it was filled (`leases`). A change is acknowledged to the brick when the cache and all clients have
//! forgotten it. When a session is lost, the cache has forgotten what that brick told before the next one
//! exists; and the brick is told that the old one is over only where the clients have forgotten
//! everything, too. Otherwise it waits until the lease is over, and so are theirs by then.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Entry;
use portcullis_core::cache::{Learnt, MutationStamp};
use portcullis_core::limits::{LEASE_HELD_MS, LEASE_MS, LEASE_RENEW_MS};
use portcullis_core::watch::Lease;
use portcullis_transport::{CallError, Connection, Role, TransportError};
use portcullis_wire::message::{Notices, Verb};
use portcullis_wire::{Reply, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::brick_link::BrickLink;
use crate::bricks::Bricks;
use crate::volume::Volume;

/// How long one attempt to connect may take. Several fit into the default deadline of a request.
const CONNECT_MS_MAX: u64 = 2_000;
/// A session shorter than this counts as a failed attempt when pauses are chosen.
const SESSION_MS_MIN: u64 = 1_000;
/// Renewals without an answer: one waits while clients are told of changes.
const RENEWALS_MAX: usize = 8;

/// One session with a brick, from its first answer to the loss of its connection.
#[derive(Debug)]
pub(crate) struct BrickSession {
    /// Counts the sessions of one link, from 1.
    pub(crate) epoch: u64,
    /// What the brick calls it.
    id: u64,
    /// The root directory, as the brick gave it on this connection.
    pub(crate) root: Entry,
    /// The life of the brick.
    pub(crate) life: u64,
    pub(crate) notices: Notices,
    pub(crate) lease: Lease,
    pub(crate) connection: Connection,
}

impl Volume {
    /// Connects to a brick, and again whenever the session is lost. Never returns; drop it to stop.
    pub(crate) async fn keep_connected(self: Arc<Self>, link: Arc<BrickLink>) {
        let address = link.address;
        let mut failures = 0u32;
        let mut ended = 0;
        loop {
            let stamp = self.cache.begin_mutation();
            match link.connect(&self.bricks, ended).await {
                Ok(session) => {
                    info!(brick = %address, "connected to the brick");
                    let (since, id) = (Instant::now(), session.id);
                    let reason = self.stay_connected(&link, session, stamp).await;
                    warn!(brick = %address, reason, "lost the connection to the brick");
                    ended = if self.session_lost(link.number).await { id } else { 0 };
                    let short = since.elapsed() < Duration::from_millis(SESSION_MS_MIN);
                    failures = if short { failures.saturating_add(1) } else { 0 };
                }
                Err(reason) => {
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() {
                        warn!(brick = %address, reason, failures, "the brick cannot be reached");
                    }
                    link.unreached(reason);
                }
            }
            link.pause(failures).await;
        }
    }

    /// Offers the session until it is lost; answers why it was.
    async fn stay_connected(
        self: &Arc<Self>,
        link: &Arc<BrickLink>,
        session: BrickSession,
        stamp: MutationStamp,
    ) -> String {
        let session = Arc::new(session);
        let until_ms = self.now_ms() + session.lease.left_ms(self.now_ms());
        self.leases.joins(link.number, until_ms, |until_ms| self.bound_leases(until_ms));
        if self.outlast_clients(link.number, &session).await {
            self.learn_root(link, &session.root, stamp);
            link.up(session.clone());
        } else {
            session.connection.close("its lease is too short");
        }
        let renewing = self.clone().keep_lease(link.number, session.clone());
        let renewing = AbortOnDropHandle::new(tokio::spawn(renewing));
        let recalls = AbortOnDropHandle::new(tokio::spawn(self.clone().recalls(session.clone())));
        let reopening = (session.epoch > 1)
            .then(|| AbortOnDropHandle::new(tokio::spawn(self.clone().reopen_files(link.clone()))));
        let finishing = self.bricks.are_several().then(|| {
            tokio::spawn(self.clone().touch_owed(link.clone()));
            let finishing = self.clone().keep_finishing(link.clone(), session.clone());
            AbortOnDropHandle::new(tokio::spawn(finishing))
        });
        let reason = format!("connection lost: {}", session.connection.closed().await);
        link.down(&reason);
        self.leases.lost(link.number);
        drop((renewing, recalls, reopening, finishing));
        reason
    }

    /// The brick told the attributes of its root, which this session watches: the first client need not
    /// wait until they are asked for once more.
    fn learn_root(&self, link: &BrickLink, root: &Entry, stamp: MutationStamp) {
        let Entry { handle, attr: Some(attr), .. } = *root else { return };
        if self.may_cache() && self.bricks.of(&handle).number == link.number {
            self.cache.learn(self.now_ms(), stamp, &[], &[Learnt::Attr { handle, attr }]);
        }
    }

    /// Makes the lease of a new session reach as far as those that clients have, which other bricks
    /// allowed: with what this one tells them next they would answer for as long. Only a lease that was
    /// long on its way falls short, and one renewal makes up for it.
    async fn outlast_clients(self: &Arc<Self>, brick: usize, session: &Arc<BrickSession>) -> bool {
        let reaches = || self.now_ms() + session.lease.left_ms(self.now_ms()) >= self.bound_ms();
        reaches() || (self.clone().renew(brick, session.clone()).await && reaches())
    }

    /// Renews the lease for as long as the session lasts. A renewal that is not answered yet does not
    /// keep the next one back: the brick may be waiting for clients that do not acknowledge.
    async fn keep_lease(self: Arc<Self>, brick: usize, session: Arc<BrickSession>) {
        let mut ticks = tokio::time::interval(Duration::from_millis(LEASE_RENEW_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    if under_way.len() < RENEWALS_MAX {
                        under_way.spawn(self.clone().renew(brick, session.clone()));
                    }
                }
                Some(renewed) = under_way.join_next() => {
                    if matches!(renewed, Ok(false)) {
                        session.connection.close("the session is over");
                        return;
                    }
                }
            }
        }
    }

    /// One renewal; `false` where the brick says that the session is over. It is not counted as a
    /// request: there is one each second, whatever clients do.
    async fn renew(self: Arc<Self>, brick: usize, session: Arc<BrickSession>) -> bool {
        let sent_ms = self.now_ms();
        let limit = Duration::from_millis(LEASE_HELD_MS);
        match timeout(limit, session.connection.call(&Request::Renew)).await {
            Ok(Ok(Reply::Renewed { lease_ms, .. })) => {
                session.lease.renewed(sent_ms, lease_ms);
                let until_ms = sent_ms + u64::from(lease_ms).min(LEASE_MS);
                self.leases.renewed(brick, until_ms, |until_ms| self.bound_leases(until_ms));
                true
            }
            Ok(Ok(_) | Err(CallError::Failed(_) | CallError::Protocol(_))) => false,
            // A lost connection ends the session by itself.
            Ok(Err(CallError::Lost(_))) | Err(_) => true,
        }
    }

    /// Takes in the changes that the brick tells, many at once.
    async fn recalls(self: Arc<Self>, session: Arc<BrickSession>) {
        while let Ok(recall) = session.connection.next_recall().await {
            let volume = self.clone();
            tokio::spawn(async move {
                volume.recalled(recall.changes()).await;
                recall.acknowledge().await;
            });
        }
    }
}

impl BrickLink {
    /// One attempt: a connection counts when the brick has answered on it. `ended`: an earlier
    /// session through which nothing is cached any more, 0 for none.
    async fn connect(&self, bricks: &Bricks, ended: u64) -> Result<BrickSession, String> {
        let limit = Duration::from_millis(CONNECT_MS_MAX);
        let connection = timeout(limit, self.connector.connect(self.address, Role::Brick))
            .await
            .map_err(|_| format!("no answer in {CONNECT_MS_MAX} ms"))?
            .map_err(|error| match error {
                TransportError::Connect { reason, .. } => reason,
                other => other.to_string(),
            })?;
        let joining = timeout(self.timeout, bricks.join(self.number, &connection)).await;
        joining
            .map_err(|_| format!("no answer to a join in {} ms", self.timeout.as_millis()))??;
        self.count(Verb::Attach);
        let attach = Request::Attach { watch: true, client: self.client, ended };
        let sent_ms = self.clock.now_ms();
        match timeout(self.timeout, connection.call(&attach)).await {
            Ok(Ok(Reply::Attached { root, session: id, lease_ms, life, notices })) => {
                let lease = Lease::default();
                lease.renewed(sent_ms, lease_ms);
                let epoch = self.next_epoch();
                Ok(BrickSession { epoch, id, root, life, notices, lease, connection })
            }
            Ok(Ok(_)) => Err("it answers an attach with something else".to_owned()),
            Ok(Err(CallError::Lost(_))) if connection.is_closed() => Err(connection.closed().await),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer to an attach in {} ms", self.timeout.as_millis())),
        }
    }
}
