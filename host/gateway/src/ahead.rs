//! Directories that are listed at the brick before a client asks for them: one engine a client.
//!
//! What a client lists is told to its [`Prefetcher`], and what a policy chooses becomes a scan like any
//! other, with a reader that lets everything pass: it fills the cache, and the client joins it if it
//! comes before the end. Such scans have turns of their own, so they take none from those who wait. A
//! native policy is the engine's own and is asked at once; a component works on the thread of the
//! [`PrefetchDriver`], for all clients, and what it wants comes when it comes.
//!
//! What must hold: at most [`PREFETCH_SCANS_MAX`] of them are under way for all clients together; those
//! of a client that leaves are cancelled, but for what others read too; no client waits for a
//! component, and what waits to be told to it is bounded.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use portcullis_core::limits::{
    PREFETCH_CLIENT_SHARE, PREFETCH_ENTRIES_MAX, PREFETCH_EVENTS_MAX, PREFETCH_SCANS_MAX,
};
use portcullis_core::prefetch::{
    Answer, Answered, Budget, Event, Loss, Order, PrefetchChoice, PrefetchCounters, PrefetchHost,
    PrefetchPolicy, Prefetcher,
};
use portcullis_core::scan::Step;
use portcullis_core::{Chunk, Handle};
use portcullis_policy::{PrefetchClient, PrefetchDriver};
use portcullis_wire::stats::PrefetchStats;
use tokio::runtime;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::inlining::Taker;
use crate::scans::Joined;
use crate::volume::Volume;

/// What the engines of all clients share.
pub(crate) struct AheadShared {
    driver: Arc<PrefetchDriver>,
    turns: Semaphore,
    /// Of all clients that there were and are.
    counters: Mutex<PrefetchCounters>,
    seed: u64,
}

/// The engine of one client; see the module.
pub(crate) struct Ahead {
    volume: Weak<Volume>,
    runtime: runtime::Handle,
    /// Its place among the clients of the driver.
    client: OnceLock<PrefetchClient>,
    /// Which contents the client takes.
    taker: Mutex<Option<Taker>>,
    state: Mutex<State>,
}

struct State {
    worker: Worker,
    prefetcher: Prefetcher,
    /// What the driver's policy was told of this client is void, and it does not know yet.
    is_anew: bool,
    under_way: HashMap<Handle, UnderWay>,
    begun: u64,
    /// What was counted and is in the shared counters.
    counted: PrefetchCounters,
    is_closed: bool,
}

/// Who chooses.
enum Worker {
    /// Nobody: nothing is fetched ahead.
    Nobody,
    /// A native policy of this engine.
    Native(Box<dyn PrefetchPolicy>),
    /// The component of the driver.
    Driver,
}

struct UnderWay {
    /// Counts scans, so that one is not taken for another of the same directory.
    number: u64,
    task: AbortHandle,
}

impl State {
    /// Gives up all that is listed ahead, and forgets what was.
    fn restart(&mut self) {
        self.under_way.drain().for_each(|(_, under_way)| under_way.task.abort());
        self.prefetcher.restart();
    }
}

/// A listing of the client. Dropping it ends it, whole or not.
pub(crate) struct Entered<'a> {
    ahead: &'a Arc<Ahead>,
    dir: Handle,
}

impl Entered<'_> {
    /// The next chunk of it.
    pub(crate) fn told(&self, chunk: &Chunk) {
        self.ahead.then_take(|prefetcher| prefetcher.told(&self.dir, chunk));
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.ahead.then_take(|prefetcher| prefetcher.ended(&self.dir));
    }
}

impl AheadShared {
    pub(crate) fn new(driver: Arc<PrefetchDriver>, seed: u64) -> Self {
        let (turns, counters) = (Semaphore::new(PREFETCH_SCANS_MAX), Mutex::default());
        Self { driver, turns, counters, seed }
    }

    /// The driver of components.
    pub(crate) fn driver(&self) -> &PrefetchDriver {
        &self.driver
    }

    pub(crate) fn stats(&self) -> PrefetchStats {
        let counters = *self.counters.lock();
        let status = self.driver.status();
        PrefetchStats {
            name: status.name,
            kind: status.kind.as_str().to_owned(),
            digest: status.digest,
            fallback_reason: status.fallback_reason,
            begun: counters.begun,
            used: counters.used,
            late: counters.late,
            wasted: counters.wasted,
            cancelled: counters.cancelled,
            failed: counters.failed,
            calls: status.calls,
            events: status.events,
            batches: status.batches,
            accepted: status.accepted,
            stale: status.stale,
            repeated: status.repeated,
            foreign: status.foreign,
            excess: status.excess,
            overflows: status.overflows,
            cpu_ms: status.cpu_ms,
        }
    }
}

/// Bytes that may be there ahead for one client of a cache of `capacity_bytes` and not be used.
pub(crate) fn budget_bytes(capacity_bytes: u64) -> u64 {
    capacity_bytes / PREFETCH_CLIENT_SHARE
}

impl Ahead {
    /// The engine of a client that has just come. Call it within a tokio runtime.
    pub(crate) fn new(volume: &Arc<Volume>) -> Arc<Self> {
        let AheadShared { driver, seed, .. } = &volume.ahead;
        let budget = Budget {
            requests: PREFETCH_SCANS_MAX,
            bytes: budget_bytes(volume.capacity_bytes),
            entries: PREFETCH_ENTRIES_MAX,
        };
        let state = State {
            worker: Worker::Nobody,
            prefetcher: Prefetcher::new(budget, *seed),
            is_anew: false,
            under_way: HashMap::new(),
            begun: 0,
            counted: PrefetchCounters::default(),
            is_closed: false,
        };
        let ahead = Arc::new(Self {
            volume: Arc::downgrade(volume),
            runtime: runtime::Handle::current(),
            client: OnceLock::new(),
            taker: Mutex::default(),
            state: Mutex::new(state),
        });
        let host: Arc<dyn PrefetchHost> = ahead.clone();
        // Set once, here.
        let _ = ahead.client.set(driver.join(&host));
        ahead
    }

    /// The client lists a directory from its start; `is_cached` where the cache knows all of it.
    /// What is listed ahead of it brings the contents along that it would take.
    pub(crate) fn enter(
        self: &Arc<Self>,
        dir: Handle,
        is_cached: bool,
        taker: Option<Taker>,
    ) -> Entered<'_> {
        *self.taker.lock() = taker;
        // Whether a scan of it is under way, the scans know.
        self.then_take(|prefetcher| _ = prefetcher.entered(&dir, is_cached));
        Entered { ahead: self, dir }
    }

    /// The client is gone.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.restart();
        self.count(&mut state);
    }

    fn then_take<T: Default>(self: &Arc<Self>, tell: impl FnOnce(&mut Prefetcher) -> T) -> T {
        let mut state = self.state.lock();
        if matches!(state.worker, Worker::Nobody) {
            return T::default();
        }
        let told = tell(&mut state.prefetcher);
        self.take(&mut state);
        told
    }

    /// Carries out what the policy wants now, or has it asked.
    fn take(self: &Arc<Self>, state: &mut State) {
        let Some(volume) = self.volume.upgrade().filter(|_| !state.is_closed) else { return };
        match &mut state.worker {
            Worker::Nobody => {}
            Worker::Native(policy) => {
                let orders = state.prefetcher.take(&mut **policy, volume.now_ms());
                self.obey(state, &volume, orders);
            }
            Worker::Driver => {
                if state.prefetcher.pending() > PREFETCH_EVENTS_MAX {
                    state.restart();
                    state.is_anew = true;
                }
                if let Some(client) = self.client.get() {
                    client.ring();
                }
            }
        }
        self.count(state);
    }

    fn obey(self: &Arc<Self>, state: &mut State, volume: &Arc<Volume>, orders: Vec<Order>) {
        for order in orders {
            match order {
                Order::List(dir) => {
                    state.begun += 1;
                    let scan = self.clone().scan(volume.clone(), dir, state.begun);
                    let task = self.runtime.spawn(scan).abort_handle();
                    state.under_way.insert(dir, UnderWay { number: state.begun, task });
                }
                Order::Stop(dir) => {
                    if let Some(under_way) = state.under_way.remove(&dir) {
                        under_way.task.abort();
                    }
                }
            }
        }
    }

    fn count(&self, state: &mut State) {
        let now = state.prefetcher.counters();
        if let Some(volume) = self.volume.upgrade().filter(|_| now != state.counted) {
            volume.ahead.counters.lock().advance(&state.counted, &now);
            state.counted = now;
        }
    }

    /// The task of a scan.
    async fn scan(self: Arc<Self>, volume: Arc<Volume>, dir: Handle, number: u64) {
        let outcome = self.pass(&volume, &dir).await;
        let mut state = self.state.lock();
        if state.under_way.get(&dir).is_some_and(|under_way| under_way.number == number) {
            state.under_way.remove(&dir);
            state.prefetcher.ended_ahead(&dir, outcome);
            self.take(&mut state);
        }
    }

    /// Lets a scan pass by.
    async fn pass(self: &Arc<Self>, volume: &Arc<Volume>, dir: &Handle) -> Result<(), Loss> {
        let _turn = volume.ahead.turns.acquire().await.map_err(|_| Loss::Failed)?;
        if !volume.may_cache() {
            return Err(Loss::Failed);
        }
        let tell = |chunk: &Chunk| {
            self.then_take(|prefetcher| Some(prefetcher.told_ahead(dir, chunk))).unwrap_or(true)
        };
        let along = volume.inlining.along(dir, *self.taker.lock());
        let mut reader = match volume.join_scan_ahead(*dir, along.and_then(|along| along.wanted)) {
            Joined::Cached(chunks) => {
                // Its subdirectories may be another matter.
                chunks.iter().for_each(|listed| _ = tell(&listed.chunk));
                return Err(Loss::Known);
            }
            Joined::Scan(reader) => reader,
        };
        loop {
            match reader.next().await {
                Step::Chunk(chunk) if tell(&chunk) => {}
                Step::Chunk(_) => return Err(Loss::Dropped),
                Step::End(Ok(true)) => return Ok(()),
                Step::End(_) | Step::Passed | Step::Wait => return Err(Loss::Failed),
            }
        }
    }
}

impl PrefetchHost for Ahead {
    fn drain(&self, events: &mut Vec<Event>) -> Option<usize> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.is_anew) {
            return None;
        }
        Some(state.prefetcher.drain(events))
    }

    fn answer(self: Arc<Self>, want: usize, answers: &[Answer]) -> Answered {
        let mut state = self.state.lock();
        let Some(volume) = self.volume.upgrade().filter(|_| !state.is_closed) else {
            return Answered::default();
        };
        let (orders, answered) = state.prefetcher.answer(want, answers);
        self.obey(&mut state, &volume, orders);
        self.count(&mut state);
        answered
    }

    fn restart(self: Arc<Self>, native: Option<PrefetchChoice>) {
        let mut state = self.state.lock();
        state.worker = match native {
            Some(PrefetchChoice::Nothing) => Worker::Nobody,
            Some(choice) => Worker::Native(choice.policy()),
            None => Worker::Driver,
        };
        state.is_anew = false;
        state.restart();
        self.count(&mut state);
    }
}
