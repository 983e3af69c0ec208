//! Directories that are listed at the brick before a client asks for them: one engine a client.
//!
//! What a client lists is told to its [`Prefetcher`], and what that chooses becomes a scan like any
//! other, with a reader that lets everything pass: it fills the cache, and the client joins it if it
//! comes before the end. Such scans have turns of their own, so they take none from those who wait.
//!
//! What must hold: at most [`PREFETCH_SCANS_MAX`] of them are under way for all clients together; those
//! of a client that leaves are cancelled, but for what others read too.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use portcullis_core::limits::{PREFETCH_CLIENT_SHARE, PREFETCH_ENTRIES_MAX, PREFETCH_SCANS_MAX};
use portcullis_core::prefetch::{
    Budget, Loss, Order, PrefetchChoice, PrefetchCounters, Prefetcher,
};
use portcullis_core::scan::Step;
use portcullis_core::{Chunk, Handle};
use portcullis_wire::stats::PrefetchStats;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::scans::Joined;
use crate::volume::Volume;

/// What the engines of all clients share.
#[derive(Debug)]
pub(crate) struct AheadShared {
    choice: PrefetchChoice,
    turns: Semaphore,
    /// Of all clients that there were and are.
    counters: Mutex<PrefetchCounters>,
    seed: u64,
}

/// The engine of one client; see the module.
pub(crate) struct Ahead {
    volume: Weak<Volume>,
    state: Mutex<State>,
}

struct State {
    prefetcher: Prefetcher,
    under_way: HashMap<Handle, UnderWay>,
    begun: u64,
    /// What was counted and is in the shared counters.
    counted: PrefetchCounters,
    is_closed: bool,
}

struct UnderWay {
    /// Counts scans, so that one is not taken for another of the same directory.
    number: u64,
    task: AbortHandle,
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
    pub(crate) fn new(choice: PrefetchChoice, seed: u64) -> Self {
        let (turns, counters) = (Semaphore::new(PREFETCH_SCANS_MAX), Mutex::default());
        Self { choice, turns, counters, seed }
    }

    pub(crate) fn stats(&self) -> PrefetchStats {
        let counters = *self.counters.lock();
        PrefetchStats {
            name: self.choice.name().to_owned(),
            begun: counters.begun,
            used: counters.used,
            late: counters.late,
            wasted: counters.wasted,
            cancelled: counters.cancelled,
            failed: counters.failed,
        }
    }
}

impl Ahead {
    /// The engine of a client that has just come; `None` where nothing is fetched ahead.
    pub(crate) fn new(volume: &Arc<Volume>) -> Option<Arc<Self>> {
        let AheadShared { choice, seed, .. } = &volume.ahead;
        if *choice == PrefetchChoice::Nothing {
            return None;
        }
        let budget = Budget {
            requests: PREFETCH_SCANS_MAX,
            bytes: volume.capacity_bytes / PREFETCH_CLIENT_SHARE,
            entries: PREFETCH_ENTRIES_MAX,
        };
        let prefetcher = Prefetcher::new(choice.policy(), budget, *seed);
        let state = State {
            prefetcher,
            under_way: HashMap::new(),
            begun: 0,
            counted: PrefetchCounters::default(),
            is_closed: false,
        };
        Some(Arc::new(Self { volume: Arc::downgrade(volume), state: Mutex::new(state) }))
    }

    /// The client lists a directory from its start; `is_cached` where the cache knows all of it.
    pub(crate) fn enter(self: &Arc<Self>, dir: Handle, is_cached: bool) -> Entered<'_> {
        // Whether a scan of it is under way, the scans know.
        _ = self.then_take(|prefetcher| prefetcher.entered(&dir, is_cached));
        Entered { ahead: self, dir }
    }

    /// The client is gone.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let State { under_way, prefetcher, .. } = &mut *state;
        under_way.drain().for_each(|(_, under_way)| under_way.task.abort());
        prefetcher.close();
        self.count(&mut state);
    }

    fn then_take<T>(self: &Arc<Self>, tell: impl FnOnce(&mut Prefetcher) -> T) -> T {
        let mut state = self.state.lock();
        let told = tell(&mut state.prefetcher);
        self.take(&mut state);
        told
    }

    /// Carries out what the policy wants now.
    fn take(self: &Arc<Self>, state: &mut State) {
        let Some(volume) = self.volume.upgrade().filter(|_| !state.is_closed) else { return };
        for order in state.prefetcher.take(volume.now_ms()) {
            match order {
                Order::List(dir) => {
                    state.begun += 1;
                    let scan = self.clone().scan(volume.clone(), dir, state.begun);
                    let task = tokio::spawn(scan).abort_handle();
                    state.under_way.insert(dir, UnderWay { number: state.begun, task });
                }
                Order::Stop(dir) => {
                    if let Some(under_way) = state.under_way.remove(&dir) {
                        under_way.task.abort();
                    }
                }
            }
        }
        self.count(state);
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
        let tell = |chunk: &Chunk| self.then_take(|prefetcher| prefetcher.told_ahead(dir, chunk));
        let mut reader = match volume.join_scan_ahead(*dir) {
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
