//! Watches and leases over real connections: drives a [`Grantor`] with tasks and a clock.
//!
//! Bricks and gateways have one each. A change is made first, then handed to
//! [`Watching::change`], which returns when every session that watches it has acknowledged, or is
//! over. A session whose connection is lost is not over: its client may still answer from what it
//! was told, until its lease ends.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::watch::{Change, Grantor, Round, SessionId, Watched};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{debug, info};

use crate::serve::Recaller;

/// How often leases that are over are looked for.
const TICK_MS: u64 = 100;

/// Whoever waits for the end of a round.
type Waiter = oneshot::Sender<()>;

/// See the module.
#[derive(Debug)]
pub struct Watching {
    grantor: Grantor<Waiter>,
    started: Instant,
    recallers: Mutex<HashMap<SessionId, Recaller>>,
    me: Weak<Watching>,
}

/// A session that watches.
#[derive(Clone, Debug)]
pub struct WatchSession {
    /// Its id.
    pub id: SessionId,
    /// What it watches.
    pub watched: Arc<Watched>,
}

impl Watching {
    /// A tier without sessions. Call it within a tokio runtime; it runs until it is dropped.
    pub fn start() -> Arc<Self> {
        let seed = RandomState::new().hash_one(0);
        // Half of all numbers, so that counting on from it never wraps; an id of an earlier life is
        // met by a chance of one in 2^63.
        let last_session = RandomState::new().hash_one(1) >> 1;
        let watching = Arc::new_cyclic(|me| Self {
            grantor: Grantor::new(seed, last_session),
            started: Instant::now(),
            recallers: Mutex::default(),
            me: me.clone(),
        });
        tokio::spawn(expire(Arc::downgrade(&watching)));
        watching
    }

    /// The state machine, for registering watches and noticing changes while something is read.
    pub fn grantor(&self) -> &Grantor<impl Sized + use<>> {
        &self.grantor
    }

    /// An earlier life of this tier may have had sessions whose leases are not over: all changes
    /// wait until they are. Call it before anything is served.
    pub fn wait_for_earlier_life(&self) {
        self.grantor.wait_for_earlier_life(self.now_ms());
    }

    /// This tier's own lease lasts for another `left_ms`, and so does no lease that it gives
    /// ([`Grantor::bound_leases`]). Call it each time that its own is renewed.
    pub fn bound_leases(&self, left_ms: u64) {
        self.grantor.bound_leases(self.now_ms() + left_ms);
    }

    /// Begins a session with a lease.
    pub fn open(&self, recaller: Recaller) -> WatchSession {
        let (id, watched) = self.grantor.open(self.now_ms());
        self.recallers.lock().insert(id, recaller);
        WatchSession { id, watched }
    }

    /// Ends a session whose client caches nothing any more.
    pub fn end(&self, id: SessionId) {
        self.recallers.lock().remove(&id);
        wake(self.grantor.end(id));
    }

    /// Tells everyone who watches that something was changed, but not `origin`, and waits until
    /// they have forgotten it.
    pub async fn change(&self, origin: Option<SessionId>, changes: &[Change]) {
        if let Some(over) = self.begin_change(origin, changes) {
            let _ = over.await;
        }
    }

    /// As [`Watching::change`], without waiting: `None` where nobody has to be told, else what
    /// resolves when they have forgotten it.
    pub fn begin_change(
        &self,
        origin: Option<SessionId>,
        changes: &[Change],
    ) -> Option<oneshot::Receiver<()>> {
        let mut over = None;
        let round = self.grantor.change(origin, changes, || {
            let (waiter, ended) = oneshot::channel();
            over = Some(ended);
            waiter
        });
        if let Round::UnderWay(sessions) = round {
            sessions.into_iter().for_each(|id| self.deliver(id));
        }
        over
    }

    /// Renews the lease of a session: answers when it may grow, `false` where it is over.
    pub async fn renew(&self, id: SessionId) -> bool {
        let mut over = None;
        let renewed = self.grantor.renew(self.now_ms(), id, || {
            let (waiter, ended) = oneshot::channel();
            over = Some(ended);
            waiter
        });
        if let Some(over) = over {
            let _ = over.await;
        }
        renewed.is_some() && self.grantor.is_open(id)
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Sends what waits for a session.
    fn deliver(&self, id: SessionId) {
        let Some(me) = self.me.upgrade() else { return };
        let Some(recaller) = self.recallers.lock().get(&id).cloned() else { return };
        while let Some(tell) = self.grantor.next_tell(id) {
            let (me, recaller) = (me.clone(), recaller.clone());
            tokio::spawn(async move {
                match recaller.tell(&tell).await {
                    Ok(()) => {
                        wake(me.grantor.told(id, tell.number));
                        me.deliver(id);
                    }
                    // It may still answer from what it knows: its lease decides.
                    Err(_) => debug!(?id, "a client cannot be told of changes"),
                }
            });
        }
    }
}

fn wake(waiters: Vec<Waiter>) {
    for waiter in waiters {
        // Whoever no longer waits needs no word.
        let _ = waiter.send(());
    }
}

async fn expire(watching: Weak<Watching>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(watching) = watching.upgrade() else { return };
        let (over, waiters) = watching.grantor.expire(watching.now_ms());
        for id in over {
            info!(?id, "the lease of a client is over");
            let recaller = watching.recallers.lock().remove(&id);
            if let Some(recaller) = recaller {
                recaller.close("the lease is over");
            }
        }
        wake(waiters);
    }
}
