//! Listings on their way from the bricks, each shared by all clients that list that directory.
//!
//! A scan is a task that reads one listing from the bricks (`merged`), fills the cache from its
//! chunks as they pass, and hands them to its readers through a [`Scan`]. It stays at most a bounded number of
//! chunks ahead of its fastest reader, so flow control reaches back to the bricks.
//!
//! A reader whose client does not keep up lets go of the scan (`listing`). When all readers are
//! gone because they were slow, the scan runs on alone into the cache, up to a share of it, so the
//! bricks' connections are never clogged by a stalled listing; when they are gone because their
//! clients are, it is cancelled.
//!
//! A scan that was asked for before something was invalidated is not joined any more, since it may
//! bring what is no longer true: a new one takes its place in the map.
//!
//! What must hold: `complete` is noted only on an end that all bricks said; a scan leaves the map
//! before its readers are told the end, so who lists after that finds the cache filled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use portcullis_core::cache::{ListedChunk, ListingStamp, ListingTicket};
use portcullis_core::scan::{Scan, Step};
use portcullis_core::{Chunk, Handle, Status};
use portcullis_wire::Request;
use portcullis_wire::message::{Failure, Verb};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout_at;

use crate::merged::{Merged, Piece};
use crate::volume::Volume;

/// Chunks kept behind the fastest reader, for those who came later or are slower.
const KEEP_CHUNKS: usize = 64;
/// Scans that read from bricks at once; further ones wait for their turn.
const SCANS_MAX: usize = 64;
/// A scan without readers runs on into the cache while it brings at most this share of its bytes.
const RUN_ON_SHARE: u64 = 4;

/// The scans under way.
pub(crate) struct Scans {
    under_way: Mutex<HashMap<Handle, Arc<SharedScan>>>,
    turns: Semaphore,
}

struct SharedScan {
    /// `None` once the scan runs on without readers.
    chunks: Mutex<Option<Scan<Failure>>>,
    /// Wakes readers: there is a chunk, or the end.
    pushed: Notify,
    /// Wakes the task: a reader has moved or left.
    moved: Notify,
    readers: AtomicUsize,
    /// A reader left because its client is slow, not because it is gone.
    let_go: AtomicBool,
    /// When the bricks were asked; `None` while the scan waits for its turn.
    stamp: Mutex<Option<ListingStamp>>,
}

/// Where a listing comes from.
pub(crate) enum Joined {
    /// The cache knows it whole.
    Cached(Vec<ListedChunk>),
    /// A scan brings it.
    Scan(Reader),
}

/// One reader of a scan.
pub(crate) struct Reader {
    scan: Arc<SharedScan>,
    /// How many chunks it has had.
    index: usize,
}

impl Scans {
    pub(crate) fn new() -> Self {
        Self { under_way: Mutex::default(), turns: Semaphore::new(SCANS_MAX) }
    }
}

impl Volume {
    /// The listing of `dir` from its start: cached, or joined on its way, or begun.
    /// `contents` of files of at most so many bytes are to be kept then.
    pub(crate) fn join_scan(self: &Arc<Self>, dir: Handle, contents: Option<u32>) -> Joined {
        self.join_scan_for(dir, contents, false)
    }

    /// As [`Volume::join_scan`], where nobody has asked for it; who calls this has a turn already.
    pub(crate) fn join_scan_ahead(self: &Arc<Self>, dir: Handle, contents: Option<u32>) -> Joined {
        self.join_scan_for(dir, contents, true)
    }

    fn join_scan_for(
        self: &Arc<Self>,
        dir: Handle,
        contents: Option<u32>,
        is_ahead: bool,
    ) -> Joined {
        let mut under_way = self.scans.under_way.lock();
        if let Some(scan) = under_way.get(&dir)
            && scan.stamp.lock().is_none_or(|stamp| self.cache.may_join(stamp))
        {
            return Joined::Scan(Reader::new(scan.clone()));
        }
        // Looked at under the lock: a scan that has just ended filled the cache before it left.
        let covers = |size| self.inlining.contents.covers(self.now_ms(), &dir, size);
        if contents.is_none_or(covers)
            && let Some(chunks) = self.cache.list(self.now_ms(), &dir, &[])
        {
            return Joined::Cached(chunks);
        }
        let scan = Arc::new(SharedScan {
            chunks: Mutex::new(Some(Scan::new(KEEP_CHUNKS))),
            pushed: Notify::new(),
            moved: Notify::new(),
            readers: AtomicUsize::new(0),
            let_go: AtomicBool::new(false),
            stamp: Mutex::new(None),
        });
        let reader = Reader::new(scan.clone());
        under_way.insert(dir, scan.clone());
        let volume = self.clone();
        let producer = Producer { volume, dir, contents, is_ahead, scan, ticket: None, end: None };
        tokio::spawn(producer.run());
        Joined::Scan(reader)
    }
}

impl Reader {
    /// The caller holds the lock of `Scans::under_way`, so that a scan is not cancelled meanwhile.
    fn new(scan: Arc<SharedScan>) -> Self {
        scan.readers.fetch_add(1, Ordering::SeqCst);
        Self { scan, index: 0 }
    }

    /// The next chunk or the end, waited for; [`Step::Passed`] where the reader has to go on alone.
    pub(crate) async fn next(&mut self) -> Step<Failure> {
        loop {
            let pushed = self.scan.pushed.notified();
            tokio::pin!(pushed);
            // Registered before the look, so that nothing pushed after it is missed.
            pushed.as_mut().enable();
            let step = match &mut *self.scan.chunks.lock() {
                Some(chunks) => chunks.read(self.index),
                None => Step::Passed,
            };
            match step {
                Step::Wait => pushed.await,
                Step::Chunk(_) => {
                    self.index += 1;
                    self.scan.moved.notify_one();
                    return step;
                }
                Step::End(_) | Step::Passed => return step,
            }
        }
    }

    /// Leaves because the client is slow: the scan need not stop for that.
    pub(crate) fn let_go(self) {
        self.scan.let_go.store(true, Ordering::SeqCst);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.scan.readers.fetch_sub(1, Ordering::SeqCst);
        self.scan.moved.notify_one();
    }
}

impl SharedScan {
    /// Resolves when no reader is left.
    async fn deserted(&self) {
        while self.readers.load(Ordering::SeqCst) > 0 {
            self.moved.notified().await;
        }
    }

    /// Resolves when there is room for a chunk, or no reader is left.
    async fn room(&self) {
        while self.readers.load(Ordering::SeqCst) > 0
            && !self.chunks.lock().as_ref().is_none_or(Scan::may_push)
        {
            self.moved.notified().await;
        }
    }

    fn push(&self, chunk: Chunk) {
        if let Some(chunks) = &mut *self.chunks.lock() {
            chunks.push(chunk);
        }
        self.pushed.notify_waiters();
    }

    fn finish(&self, end: Result<bool, Failure>) {
        if let Some(chunks) = &mut *self.chunks.lock() {
            chunks.finish(end);
        }
        self.pushed.notify_waiters();
    }
}

/// The task that reads one listing from the bricks. Dropped in any way, it ends the scan.
struct Producer {
    volume: Arc<Volume>,
    dir: Handle,
    /// Contents of files of at most so many bytes are to be kept.
    contents: Option<u32>,
    /// Nobody had asked for it when it began.
    is_ahead: bool,
    scan: Arc<SharedScan>,
    ticket: Option<ListingTicket>,
    end: Option<Result<bool, Failure>>,
}

/// What the task does when no reader is left.
enum Deserted {
    /// A reader came after all.
    Joined,
    /// They were slow: go on without them.
    RunOn,
    /// Their clients are gone.
    Cancelled,
}

impl Producer {
    async fn run(mut self) {
        self.end = Some(self.produce().await);
    }

    async fn produce(&mut self) -> Result<bool, Failure> {
        let volume = self.volume.clone();
        let mut turn = None;
        if !self.is_ahead {
            let next = timeout_at(volume.bricks.deadline(), volume.scans.turns.acquire());
            let late = |_| volume.bricks.of(&self.dir).late(Verb::List);
            turn = Some(next.await.map_err(late)?);
        }
        let request =
            Request::List { dir: self.dir, after: Vec::new(), acl: false, contents: None };
        let ticket = if self.is_ahead {
            volume.cache.begin_listing_ahead(&self.dir)
        } else {
            volume.cache.begin_listing(&self.dir)
        };
        *self.scan.stamp.lock() = Some(ticket.stamp());
        self.ticket = Some(ticket);
        let kept = &volume.inlining.contents;
        let contents = self.contents.map(|size| Arc::new(kept.ask(&self.dir, size)));
        contents.iter().for_each(|ticket| kept.begin(volume.now_ms(), ticket));
        let result = self.pass_on(Merged::new(&volume, self.dir, &[], contents.as_ref())).await;
        if result.is_err() {
            contents.iter().for_each(|ticket| kept.abandon(ticket));
        }
        if let Err(failure) = &result {
            volume.note(&request, failure);
        }
        drop(turn);
        result
    }

    async fn pass_on(&mut self, mut merged: Merged) -> Result<bool, Failure> {
        let scan = self.scan.clone();
        let mut run_on_bytes = None;
        loop {
            let piece = match &mut run_on_bytes {
                Some(_) => merged.next().await,
                None => {
                    scan.room().await;
                    tokio::select! {
                        biased;
                        () = scan.deserted() => {
                            match self.deserted() {
                                Deserted::Joined => {}
                                Deserted::RunOn => run_on_bytes = Some(0),
                                Deserted::Cancelled => return Err(given_up()),
                            }
                            continue;
                        }
                        piece = merged.next() => piece,
                    }
                }
            };
            match piece? {
                Piece::Chunk(chunk) => {
                    self.fill_chunk(&chunk);
                    match &mut run_on_bytes {
                        Some(bytes) => {
                            *bytes += chunk.bytes().len() as u64;
                            if *bytes > self.volume.capacity_bytes / RUN_ON_SHARE {
                                return Err(given_up());
                            }
                        }
                        None => scan.push(chunk),
                    }
                }
                Piece::End { complete } => {
                    if let Some(ticket) = self.ticket.take() {
                        self.volume.cache.finish_listing(self.volume.now_ms(), ticket, complete);
                    }
                    return Ok(complete);
                }
            }
        }
    }

    fn fill_chunk(&mut self, chunk: &Chunk) {
        if let Some(ticket) = &mut self.ticket {
            self.volume.cache.fill_chunk(self.volume.now_ms(), ticket, chunk);
        }
    }

    /// Decides under the lock that readers join under.
    fn deserted(&self) -> Deserted {
        let mut under_way = self.volume.scans.under_way.lock();
        if self.scan.readers.load(Ordering::SeqCst) > 0 {
            Deserted::Joined
        } else if self.scan.let_go.load(Ordering::SeqCst) {
            *self.scan.chunks.lock() = None;
            Deserted::RunOn
        } else {
            self.leave(&mut under_way);
            Deserted::Cancelled
        }
    }

    /// Takes the scan out of the map, unless another has taken its place.
    fn leave(&self, under_way: &mut HashMap<Handle, Arc<SharedScan>>) {
        if under_way.get(&self.dir).is_some_and(|scan| Arc::ptr_eq(scan, &self.scan)) {
            under_way.remove(&self.dir);
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.volume.cache.abandon_listing(ticket);
        }
        self.leave(&mut self.volume.scans.under_way.lock());
        self.scan.finish(self.end.take().unwrap_or_else(|| Err(given_up())));
    }
}

fn given_up() -> Failure {
    Failure::new(Status::Unavailable, "the listing was given up; ask again")
}
