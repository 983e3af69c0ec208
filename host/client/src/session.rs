//! A session with the gateway: one connection that has attached.
//!
//! A session that watches has a lease, which a task of its own renews; while it holds, answers may
//! be cached, by a kernel above all. What changed elsewhere is told to the session as recalls:
//! each is handed to whoever caches ([`Forgetting`]) and acknowledged once it has forgotten. When
//! the lease runs out, and when the session is lost, all is to be forgotten.
//!
//! What must hold: nothing is acknowledged that is not forgotten; a later session names an earlier
//! one as ended only once everything that was told through it is forgotten.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use portcullis_core::limits::{LEASE_MS, LEASE_RENEW_MS};
use portcullis_core::watch::{Change, Lease};
use portcullis_transport::{CallError, Connection};
use portcullis_wire::message::Notices;
use portcullis_wire::{Reply, Request};
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, warn};

use crate::link::Link;

/// One connection that has attached; ids of open files are worth nothing on another.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// Counts the connections of this client, from 1.
    pub(crate) epoch: u64,
    /// What the gateway calls it; 0 where nothing is watched.
    pub(crate) id: u64,
    /// The life of the brick, as told last.
    life: AtomicU64,
    pub(crate) notices: Notices,
    pub(crate) lease: Lease,
    /// Set once the session is lost: whether all that was told through it is forgotten.
    forgotten: watch::Sender<Option<bool>>,
}

/// Something that is no longer true, for whoever caches what the client was told.
#[derive(Debug)]
pub struct Forgetting {
    changes: Vec<Change>,
    done: oneshot::Sender<bool>,
}

impl Forgetting {
    pub(crate) fn new(changes: Vec<Change>) -> (Self, oneshot::Receiver<bool>) {
        let (done, forgotten) = oneshot::channel();
        (Self { changes, done }, forgotten)
    }

    /// What is no longer true.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Says that it is forgotten, or `false` that something may remain.
    pub fn forgotten(self, whole: bool) {
        // Whoever no longer waits needs no word.
        let _ = self.done.send(whole);
    }
}

impl Session {
    pub(crate) fn new(
        connection: Connection,
        epoch: u64,
        id: u64,
        life: u64,
        notices: Notices,
    ) -> Self {
        let (forgotten, _) = watch::channel(None);
        let life = AtomicU64::new(life);
        Self { connection, epoch, id, life, notices, lease: Lease::default(), forgotten }
    }

    /// The life of the brick, by which a mutation that is asked for now is first sent.
    pub(crate) fn life(&self) -> u64 {
        self.life.load(Ordering::Relaxed)
    }

    /// The id to tell as ended to the next session: 0 where something may still be cached.
    pub(crate) async fn ended(&self, limit: Duration) -> u64 {
        let mut forgotten = self.forgotten.subscribe();
        let whole = match timeout(limit, forgotten.wait_for(Option::is_some)).await {
            Ok(Ok(whole)) => *whole == Some(true),
            Ok(Err(_)) | Err(_) => false,
        };
        if whole { self.id } else { 0 }
    }

    /// Keeps a session that watches until its connection is lost, and has all forgotten then. (Its
    /// type is named because a session that is kept may begin the next one.)
    pub(crate) fn keep(
        self: Arc<Self>,
        link: Weak<Link>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            tokio::select! {
                reason = self.take_recalls(&link) => debug!(reason, "the session is lost"),
                () = self.renew(&link) => {}
                () = self.watch_lease(&link) => {}
            }
            self.connection.close("the session is over");
            let Some(link) = link.upgrade() else { return };
            let whole = link.forget(vec![Change::All]).await;
            self.forgotten.send_replace(Some(whole));
            // Locks are to be taken again before somebody else takes them.
            if link.persists() && link.locks.are_held() {
                let _ = link.live().await;
            }
        })
    }

    /// Takes what the gateway tells, until the connection is lost.
    async fn take_recalls(&self, link: &Weak<Link>) -> String {
        loop {
            let recall = match self.connection.next_recall().await {
                Ok(recall) => recall,
                Err(error) => return error.to_string(),
            };
            let link = link.clone();
            tokio::spawn(async move {
                let whole = match link.upgrade() {
                    Some(link) => link.forget(recall.changes().to_vec()).await,
                    None => true,
                };
                if whole {
                    recall.acknowledge().await;
                } else {
                    warn!("something that changed could not be forgotten in time");
                }
            });
        }
    }

    /// Renews the lease until that makes no sense any more.
    async fn renew(&self, link: &Weak<Link>) {
        let mut ticks = interval(Duration::from_millis(LEASE_RENEW_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            ticks.tick().await;
            let Some(sent_ms) = link.upgrade().map(|link| link.now_ms()) else { return };
            let call = self.connection.call(&Request::Renew);
            match timeout(Duration::from_millis(LEASE_MS), call).await {
                Ok(Ok(Reply::Renewed { lease_ms, life })) => {
                    if life != 0 {
                        self.life.store(life, Ordering::Relaxed);
                    }
                    self.lease.renewed(sent_ms, lease_ms);
                }
                // Not in time: the next one may be.
                Err(_) => {}
                Ok(Err(CallError::Lost(_))) => return,
                Ok(other) => {
                    debug!(?other, "the gateway does not renew the lease");
                    return;
                }
            }
        }
    }

    /// Has all forgotten each time the lease runs out. Never returns while the client lives.
    async fn watch_lease(&self, link: &Weak<Link>) {
        let mut held = true;
        loop {
            let Some(now_ms) = link.upgrade().map(|link| link.now_ms()) else { return };
            match self.lease.left_ms(now_ms) {
                0 if held => {
                    held = false;
                    let Some(link) = link.upgrade() else { return };
                    link.forget(vec![Change::All]).await;
                }
                0 => sleep(Duration::from_millis(LEASE_RENEW_MS / 4)).await,
                left_ms => {
                    held = true;
                    sleep(Duration::from_millis(left_ms)).await;
                }
            }
        }
    }
}
