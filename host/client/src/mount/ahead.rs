//! Directories that are listed at the gateway before the kernel asks for their names.
//!
//! Each listing of the kernel is told to the [`Prefetcher`], and what it chooses is listed into the
//! mount's memory, where the kernel's own listing finds it, as it finds any other: watched, and
//! forgotten when it changes. One that is still on its way is taken over: a [`Reader`] has its chunks
//! as they come, and from then on it goes no faster than they are read.
//!
//! What must hold: nobody is given names of a listing that was asked for before they changed; a
//! listing ahead that nobody reads ends by itself, in the memory or by its budget, so it holds up
//! nothing else on the connection.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use portcullis_core::cache::ListedChunk;
use portcullis_core::cache::ListingStamp;
use portcullis_core::limits::{PREFETCH_CACHE_SHARE, PREFETCH_ENTRIES_MAX, PREFETCH_REQUESTS_MAX};
use portcullis_core::prefetch::{
    Budget, Loss, Meeting, Order, PrefetchChoice, PrefetchCounters, PrefetchPolicy, Prefetcher,
};
use portcullis_core::scan::{Scan, Step};
use portcullis_core::watch::Change;
use portcullis_core::{Chunk, Handle};
use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::contents::Contents;
use super::fence::{Fence, Stamp};
use super::memory::{Learning, Memory};
use crate::Client;

/// Chunks of a listing kept behind its fastest reader, for another one.
const KEEP_CHUNKS: usize = 8;

/// Whom listings ahead are asked of, and where they go.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) client: &'a Client,
    pub(super) memory: &'a Arc<Memory>,
    pub(super) contents: &'a Arc<Contents>,
    pub(super) fence: &'a Arc<Fence>,
}

/// See the module.
pub(super) struct Ahead(Option<Arc<Inner>>);

struct Inner {
    client: Client,
    memory: Arc<Memory>,
    contents: Arc<Contents>,
    fence: Arc<Fence>,
    runtime: runtime::Handle,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    policy: Box<dyn PrefetchPolicy>,
    prefetcher: Prefetcher,
    under_way: HashMap<Handle, UnderWay>,
    begun: u64,
}

/// A listing under way, and its task.
struct UnderWay {
    /// Counts listings, so that one is not taken for another of the same directory.
    number: u64,
    flight: Arc<Flight>,
    task: AbortHandle,
}

/// A listing between its task and its readers.
struct Flight {
    chunks: Mutex<Scan<()>>,
    /// Wakes readers: there is a chunk, or the end.
    pushed: Notify,
    /// Wakes the task: a reader has moved, or left.
    moved: Notify,
    readers: AtomicUsize,
    /// When it was asked for, as the fence counts, the memory, and by which connection.
    stamp: Stamp,
    asked: ListingStamp,
    epoch: u64,
}

/// A listing that was taken over. Dropping it gives the rest up, unless another one reads it.
pub(super) struct Reader {
    flight: Arc<Flight>,
    index: usize,
}

/// How a directory is found that is to be listed from its start.
pub(super) enum Found {
    /// All of it is in the memory.
    Known(Vec<ListedChunk>),
    /// It is on its way, asked for at a moment.
    OnItsWay(Reader, Stamp),
    /// It has to be asked for.
    Unknown,
}

impl Ahead {
    /// Lists ahead into the memory what `choice` chooses; nothing where that has no room.
    pub(super) fn new(choice: PrefetchChoice, cache_bytes: u64, asked: Asked<'_>) -> Self {
        if choice == PrefetchChoice::Nothing || cache_bytes == 0 {
            return Self(None);
        }
        let budget = Budget {
            requests: PREFETCH_REQUESTS_MAX,
            bytes: cache_bytes / PREFETCH_CACHE_SHARE,
            entries: PREFETCH_ENTRIES_MAX,
        };
        let seed = RandomState::new().hash_one(cache_bytes);
        let (policy, prefetcher) = (choice.policy(), Prefetcher::new(budget, seed));
        Self(Some(Arc::new(Inner {
            client: asked.client.clone(),
            memory: asked.memory.clone(),
            contents: asked.contents.clone(),
            fence: asked.fence.clone(),
            runtime: runtime::Handle::current(),
            started: Instant::now(),
            state: Mutex::new(State { policy, prefetcher, under_way: HashMap::new(), begun: 0 }),
        })))
    }

    /// The kernel lists a directory from its start. `look` looks into the memory.
    pub(super) fn enter(
        &self,
        dir: &Handle,
        look: impl FnOnce() -> Option<Vec<ListedChunk>>,
    ) -> Found {
        let Some(inner) = &self.0 else {
            return look().map_or(Found::Unknown, Found::Known);
        };
        let mut state = inner.state.lock();
        // Looked at under the lock: a listing that has just ended filled the memory before it left.
        let known = look();
        let meeting = state.prefetcher.entered(dir, known.is_some());
        let found = match (known, meeting) {
            (Some(chunks), _) => {
                chunks.iter().for_each(|listed| state.prefetcher.told(dir, &listed.chunk));
                state.prefetcher.ended(dir);
                Found::Known(chunks)
            }
            (None, Meeting::UnderWay) => state.take_over(inner, dir),
            (None, Meeting::Alone) => Found::Unknown,
        };
        inner.take(&mut state);
        found
    }

    /// A chunk of a listing that the kernel asked for.
    pub(super) fn told(&self, dir: &Handle, chunk: &Chunk) {
        if let Some(inner) = &self.0 {
            let mut state = inner.state.lock();
            state.prefetcher.told(dir, chunk);
            inner.take(&mut state);
        }
    }

    /// Such a listing is over.
    pub(super) fn ended(&self, dir: &Handle) {
        if let Some(inner) = &self.0 {
            let mut state = inner.state.lock();
            state.prefetcher.ended(dir);
            inner.take(&mut state);
        }
    }

    /// What is no longer true was forgotten.
    pub(super) fn forgotten(&self, changes: &[Change]) {
        if let Some(inner) = &self.0 {
            inner.state.lock().prefetcher.forgotten(changes);
        }
    }

    /// Time goes by: what is not wanted any more is given up.
    pub(super) fn tick(&self) {
        if let Some(inner) = &self.0 {
            inner.take(&mut inner.state.lock());
        }
    }

    pub(super) fn counters(&self) -> PrefetchCounters {
        let inner = self.0.as_ref();
        inner.map_or_else(PrefetchCounters::default, |inner| {
            inner.state.lock().prefetcher.counters()
        })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(inner) = &self.0 {
            inner.state.lock().under_way.drain().for_each(|(_, under_way)| under_way.task.abort());
        }
    }
}

impl State {
    fn take_over(&self, inner: &Inner, dir: &Handle) -> Found {
        let Some(UnderWay { flight, .. }) = self.under_way.get(dir) else { return Found::Unknown };
        let holds = inner.client.recalling_epoch() == Some(flight.epoch)
            && inner.memory.names_hold(flight.asked, dir);
        if holds {
            Found::OnItsWay(Reader::new(flight.clone()), flight.stamp)
        } else {
            Found::Unknown
        }
    }
}

impl Inner {
    /// Carries out what the policy wants now.
    fn take(self: &Arc<Self>, state: &mut State) {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let State { policy, prefetcher, .. } = state;
        for order in prefetcher.take(&mut **policy, now_ms) {
            match order {
                Order::List(dir) => {
                    if let Err(loss) = self.begin(state, dir) {
                        state.prefetcher.ended_ahead(&dir, Err(loss));
                    }
                }
                Order::Stop(dir) => {
                    if let Some(UnderWay { flight, task, .. }) = state.under_way.remove(&dir) {
                        task.abort();
                        flight.finish(Err(()));
                    }
                }
            }
        }
    }

    fn begin(self: &Arc<Self>, state: &mut State, dir: Handle) -> Result<(), Loss> {
        if self.memory.has_listing(&self.client, &dir) {
            return Err(Loss::Known);
        }
        let stamp = self.fence.stamp();
        let learning = self.memory.begin_listing_ahead(&self.client, &dir).ok_or(Loss::Failed)?;
        let (asked, epoch) = learning.asked().ok_or(Loss::Failed)?;
        let flight = Arc::new(Flight {
            chunks: Mutex::new(Scan::new(KEEP_CHUNKS)),
            pushed: Notify::new(),
            moved: Notify::new(),
            readers: AtomicUsize::new(0),
            stamp,
            asked,
            epoch,
        });
        state.begun += 1;
        let number = state.begun;
        let listing = self.clone().list(dir, number, flight.clone(), learning);
        let task = self.runtime.spawn(listing).abort_handle();
        state.under_way.insert(dir, UnderWay { number, flight, task });
        Ok(())
    }

    /// The task of a listing.
    async fn list(
        self: Arc<Self>,
        dir: Handle,
        number: u64,
        flight: Arc<Flight>,
        learning: Learning,
    ) {
        let outcome = self.pass_on(&dir, &flight, learning).await;
        let mut state = self.state.lock();
        // It was stopped where it is not there any more.
        if state.under_way.get(&dir).is_some_and(|under_way| under_way.number == number) {
            state.under_way.remove(&dir);
            flight.finish(outcome.map_err(|_| ()));
            let outcome = outcome.and_then(|complete| complete.then_some(()).ok_or(Loss::Failed));
            state.prefetcher.ended_ahead(&dir, outcome);
            self.take(&mut state);
        }
    }

    /// Reads the listing to its end; answers whether it was complete.
    async fn pass_on(
        self: &Arc<Self>,
        dir: &Handle,
        flight: &Flight,
        mut learning: Learning,
    ) -> Result<bool, Loss> {
        let bringing = self.contents.begin(&self.client, dir);
        let listing = self.client.list(dir, Vec::new()).await;
        let mut listing = listing.map_err(|_| Loss::Failed)?;
        let mut was_taken_over = false;
        while let Some(chunk) = listing.next().await.map_err(|_| Loss::Failed)? {
            let came = listing.take_contents();
            self.contents.take_in(&self.client, bringing.as_ref(), &chunk, came);
            self.memory.fill_chunk(&mut learning, &chunk);
            let fits = {
                let mut state = self.state.lock();
                let fits = state.prefetcher.told_ahead(dir, &chunk);
                self.take(&mut state);
                fits
            };
            flight.push(chunk.detached());
            was_taken_over |= flight.readers.load(Ordering::SeqCst) > 0;
            let goes_on = if was_taken_over { flight.room().await } else { fits };
            if !goes_on {
                return Err(Loss::Dropped);
            }
        }
        let complete = listing.complete();
        self.memory.finish_listing(&self.client, learning, complete);
        Ok(complete)
    }
}

impl Flight {
    fn push(&self, chunk: Chunk) {
        self.chunks.lock().push(chunk);
        self.pushed.notify_waiters();
    }

    fn finish(&self, end: Result<bool, ()>) {
        self.chunks.lock().finish(end);
        self.pushed.notify_waiters();
    }

    /// Waits until there is room for a chunk; `false` where there is none, and no reader.
    async fn room(&self) -> bool {
        loop {
            if self.chunks.lock().may_push() {
                return true;
            }
            if self.readers.load(Ordering::SeqCst) == 0 {
                return false;
            }
            self.moved.notified().await;
        }
    }
}

impl Reader {
    fn new(flight: Arc<Flight>) -> Self {
        flight.readers.fetch_add(1, Ordering::SeqCst);
        Self { flight, index: 0 }
    }

    /// The next chunk, or the end with whether the listing was complete, waited for; `None` where it
    /// goes no further here, and has to be asked for.
    pub(super) async fn next(&mut self) -> Option<Result<Chunk, bool>> {
        loop {
            let pushed = self.flight.pushed.notified();
            tokio::pin!(pushed);
            // Registered before the look, so that nothing pushed after it is missed.
            pushed.as_mut().enable();
            let step = self.flight.chunks.lock().read(self.index);
            match step {
                Step::Chunk(chunk) => {
                    self.index += 1;
                    self.flight.moved.notify_one();
                    return Some(Ok(chunk));
                }
                Step::Wait => pushed.await,
                Step::End(Ok(complete)) => return Some(Err(complete)),
                Step::End(Err(())) | Step::Passed => return None,
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.flight.readers.fetch_sub(1, Ordering::SeqCst);
        self.flight.moved.notify_one();
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
