//! One listing on its way to a walk, read by a task of its own.
//!
//! A feed takes room from the walk's budget for each chunk before it hands it over. Where there
//! is none it waits, and its stream with it; but unread streams fill the connection's window and
//! would in the end stop the one that is needed, so only [`STALLED_MAX`] may wait. A further one
//! pauses: it gives up its stream, and a later feed goes on at its position. A chunk that the
//! walk is waiting for is handed over without room, so a full budget cannot hold up the walk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use portcullis_core::{Chunk, FileKind, Handle};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::WalkLimits;
use super::plan::DirId;
use crate::client::Client;
use crate::error::ClientError;

/// Listings that may wait for room with their stream open.
pub(super) const STALLED_MAX: usize = 4;
/// Arrivals that the walk has yet to take in.
const ARRIVALS_MAX: usize = 1024;
/// What the walk keeps for a directory that it has yet to enter.
const DIR_BYTES: usize = 256;

/// A chunk, and the room it takes: `None` where it was handed over without.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) chunk: Chunk,
    pub(super) room: Option<Room>,
}

/// Given back when dropped.
#[derive(Debug)]
pub(super) struct Room {
    _of_dir: OwnedSemaphorePermit,
    _of_walk: OwnedSemaphorePermit,
}

/// What a feed brings.
#[derive(Debug)]
pub(super) enum Brought {
    Chunk(Held),
    /// It gave way; go on at its position when there is room.
    Paused,
    /// The end: whether the listing is complete.
    Ended(Result<bool, ClientError>),
}

/// Which directory a feed is for; its number tells old feeds of a directory from its last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) dir: DirId,
    pub(super) feed: u64,
}

/// What a feed brings.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) from: Source,
    pub(super) brought: Brought,
}

/// What the feeds of a walk have in common.
#[derive(Debug)]
pub(super) struct Feeds {
    client: Client,
    limits: WalkLimits,
    room: Arc<Semaphore>,
    running: AtomicUsize,
    stalled: AtomicUsize,
    arrivals: mpsc::Sender<Arrival>,
}

/// A feed at work. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) number: u64,
    task: AbortHandle,
    signal: Arc<Signal>,
}

#[derive(Debug, Default)]
struct Signal {
    /// The walk waits for a chunk.
    wanted: Notify,
    /// The walk is in this directory itself.
    entered: AtomicBool,
}

impl Feeds {
    pub(super) fn new(client: Client, limits: WalkLimits) -> (Arc<Self>, mpsc::Receiver<Arrival>) {
        let (arrivals, receiver) = mpsc::channel(ARRIVALS_MAX);
        let feeds = Self {
            client,
            limits,
            room: Arc::new(Semaphore::new(limits.held_bytes_max)),
            running: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
            arrivals,
        };
        (Arc::new(feeds), receiver)
    }

    /// Listings under way.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Whether there is room enough to fetch ahead.
    pub(super) fn has_room(&self) -> bool {
        self.room.available_permits() >= self.limits.held_bytes_max / 4
            && self.stalled.load(Ordering::Relaxed) < STALLED_MAX
    }

    /// Whether more listings wait for room than may.
    pub(super) fn is_jammed(&self) -> bool {
        self.stalled.load(Ordering::Relaxed) > STALLED_MAX
    }

    pub(super) fn start(
        self: &Arc<Self>,
        number: u64,
        dir: DirId,
        handle: Handle,
        after: Vec<u64>,
    ) -> Feed {
        let signal = Arc::new(Signal::default());
        let running = Counted::new(self.clone(), |feeds| &feeds.running);
        let (feeds, of_feed) = (self.clone(), signal.clone());
        let task = tokio::spawn(async move {
            let from = Source { dir, feed: number };
            let end = feeds.feed(from, &handle, after, &of_feed).await;
            drop(running);
            feeds.send(from, end.unwrap_or_else(|error| Brought::Ended(Err(error)))).await;
        });
        Feed { number, task: task.abort_handle(), signal }
    }

    async fn feed(
        self: &Arc<Self>,
        from: Source,
        handle: &Handle,
        after: Vec<u64>,
        signal: &Signal,
    ) -> Result<Brought, ClientError> {
        let of_dir = Arc::new(Semaphore::new(self.limits.held_bytes_max / 4));
        let mut listing = self.client.list(handle, after).await?;
        while let Some(chunk) = listing.next().await? {
            let cost = cost(&chunk);
            let room = match self.try_room(&of_dir, cost) {
                Some(room) => Some(room),
                None => {
                    let stalled = Counted::new(self.clone(), |feeds| &feeds.stalled);
                    if stalled.before >= STALLED_MAX && !signal.entered.load(Ordering::Acquire) {
                        return Ok(Brought::Paused);
                    }
                    tokio::select! {
                        biased;
                        room = self.room(&of_dir, cost) => room,
                        () = signal.wanted.notified() => None,
                    }
                }
            };
            self.send(from, Brought::Chunk(Held { chunk, room })).await;
        }
        Ok(Brought::Ended(Ok(listing.complete())))
    }

    /// Waits only for a walk that is not asked for its next step, for that takes in all there is.
    async fn send(&self, from: Source, brought: Brought) {
        // Fails where the walk is gone, and this task will be too.
        let _ = self.arrivals.send(Arrival { from, brought }).await;
    }

    fn try_room(&self, of_dir: &Arc<Semaphore>, cost: u32) -> Option<Room> {
        let of_dir = of_dir.clone().try_acquire_many_owned(cost).ok()?;
        let of_walk = self.room.clone().try_acquire_many_owned(cost).ok()?;
        Some(Room { _of_dir: of_dir, _of_walk: of_walk })
    }

    async fn room(&self, of_dir: &Arc<Semaphore>, cost: u32) -> Option<Room> {
        let of_dir = of_dir.clone().acquire_many_owned(cost).await.ok()?;
        let of_walk = self.room.clone().acquire_many_owned(cost).await.ok()?;
        Some(Room { _of_dir: of_dir, _of_walk: of_walk })
    }
}

impl Feed {
    /// Tells the feed that the walk waits for its next chunk.
    pub(super) fn want(&self) {
        self.signal.wanted.notify_one();
    }

    /// Tells the feed whether the walk is in its directory.
    pub(super) fn set_entered(&self, entered: bool) {
        self.signal.entered.store(entered, Ordering::Release);
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One more of something, until dropped.
struct Counted {
    feeds: Arc<Feeds>,
    counter: fn(&Feeds) -> &AtomicUsize,
    before: usize,
}

impl Counted {
    fn new(feeds: Arc<Feeds>, counter: fn(&Feeds) -> &AtomicUsize) -> Self {
        let before = counter(&feeds).fetch_add(1, Ordering::Relaxed);
        Self { feeds, counter, before }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.counter)(&self.feeds).fetch_sub(1, Ordering::Relaxed);
    }
}

fn cost(chunk: &Chunk) -> u32 {
    let dirs = (0..chunk.count()).filter(|&index| chunk.kind(index) == FileKind::Directory).count();
    (chunk.bytes().len() + dirs * DIR_BYTES) as u32
}
