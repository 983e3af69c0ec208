//! Changes on their way through the gateway: the cache forgets, clients are told and waited for.
//!
//! What must hold: the cache forgets before clients are told, so that what they ask for afterwards
//! is answered from the changed state; and whoever told the gateway of a change, or made one
//! through it, hears back only when all other clients have forgotten it or their leases are over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::watch::{Change, SessionId};
use portcullis_wire::stats::WatchStats;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::volume::{Cache, Volume};

/// How long clients may take to forget what a lost session had told, before the next one begins;
/// and to acknowledge anything while there is no lease.
const FORGET_MS_MAX: u64 = 1_000;

/// What is counted of changes.
#[derive(Debug, Default)]
pub(crate) struct WatchCounters {
    /// Changes that bricks told.
    recalled: AtomicU64,
    /// Changes that some client was told.
    told: AtomicU64,
    /// No client's lease reaches further; it only grows.
    bound_ms: Mutex<u64>,
}

impl Volume {
    /// A brick tells of changes: resolves when nobody on this side knows anything else any more.
    pub(crate) async fn recalled(self: &Arc<Self>, changes: &[Change]) {
        self.counters.recalled.fetch_add(changes.len() as u64, Ordering::Relaxed);
        if changes.contains(&Change::All) {
            self.forget_all().await;
        } else {
            self.forget(changes);
        }
        self.tell(None, changes).await;
    }

    /// The cache, and the contents beside it, forget what is no longer true.
    pub(crate) fn forget(&self, changes: &[Change]) {
        self.inlining.contents.forget(changes);
        self.cache.forget(changes);
    }

    /// Tells every client that watches but `origin`, and waits until they have forgotten it.
    pub(crate) async fn tell(&self, origin: Option<SessionId>, changes: &[Change]) {
        if let Some(over) = self.begin_tell(origin, changes) {
            // It never fails: a round ends when its last session does.
            let _ = over.await;
        }
    }

    /// As [`Volume::tell`], without waiting: it resolves when they have forgotten it.
    fn begin_tell(
        &self,
        origin: Option<SessionId>,
        changes: &[Change],
    ) -> Option<oneshot::Receiver<()>> {
        if changes.is_empty() {
            return None;
        }
        if !self.may_cache() {
            // Long after the last lease clients still get the time that an answer takes.
            self.bound_leases(self.now_ms() + FORGET_MS_MAX);
        }
        let over = self.watching.begin_change(origin, changes)?;
        self.counters.told.fetch_add(changes.len() as u64, Ordering::Relaxed);
        Some(over)
    }

    /// No client's lease reaches beyond `until_ms`. One that does not acknowledge is not waited for
    /// longer than that.
    pub(crate) fn bound_leases(&self, until_ms: u64) {
        let mut bound_ms = self.counters.bound_ms.lock();
        *bound_ms = (*bound_ms).max(until_ms);
        self.watching.bound_leases(bound_ms.saturating_sub(self.now_ms()));
    }

    /// Until when leases of clients may reach that were given so far.
    pub(crate) fn bound_ms(&self) -> u64 {
        *self.counters.bound_ms.lock()
    }

    /// The session with a brick is lost, and with it what it had told. Answers whether nobody on this
    /// side knows any of it any more. The cache keeps what other bricks told; clients forget that too,
    /// and are answered from the cache when they ask again.
    pub(crate) async fn session_lost(self: &Arc<Self>, brick: usize) -> bool {
        self.inlining.contents.forget_all();
        if self.bricks.are_several() {
            self.forgetting(move |cache| cache.forget_member(brick as u8)).await;
        } else {
            self.forget_all().await;
        }
        let told = self.begin_tell(None, &[Change::All]);
        // Not before: a client that was not told must not get a longer lease.
        self.leases.away(brick, |until_ms| self.bound_leases(until_ms));
        let Some(told) = told else { return true };
        timeout(Duration::from_millis(FORGET_MS_MAX), told).await.is_ok()
    }

    async fn forget_all(self: &Arc<Self>) {
        self.inlining.contents.forget_all();
        self.forgetting(|cache| cache.invalidate_all()).await;
    }

    /// A cache may be large, so this has a thread of its own.
    async fn forgetting(self: &Arc<Self>, forget: impl FnOnce(&Cache) + Send + 'static) {
        let cache = self.cache.clone();
        let forgotten = tokio::task::spawn_blocking(move || forget(&cache)).await;
        if let Err(error) = forgotten
            && error.is_panic()
        {
            // What is cached may be out of date, so nothing may go on.
            std::panic::resume_unwind(error.into_panic());
        }
    }

    /// What is told of it in the gateway's statistics.
    pub(crate) fn watch_stats(&self) -> WatchStats {
        let grantor = self.watching.grantor();
        WatchStats {
            sessions: grantor.sessions() as u64,
            rounds: grantor.rounds() as u64,
            told: self.counters.told.load(Ordering::Relaxed),
            recalled: self.counters.recalled.load(Ordering::Relaxed),
            lease_left_ms: self.leases.left_ms(self.now_ms()),
            notices: self.bricks.notices(),
        }
    }
}
