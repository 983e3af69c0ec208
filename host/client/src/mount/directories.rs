//! Open directories: a listing each, consumed chunk by chunk as the kernel reads on.
//!
//! A directory keeps its last few chunks, the running listing if there is one, and its positions.
//! Reading on where the listing stands takes the next chunk from it; reading from anywhere else
//! that is not in memory starts a listing there; offset 0 always starts a new one, so that a rewind
//! sees what changed. One from the start comes from the mount's memory where that knows all of it,
//! or from a listing that was begun ahead, and enters the memory where not.
//!
//! A listing nobody reads on holds bytes of the connection's receive window, and enough of them
//! would stop every other answer. So one that was left alone for [`LISTING_IDLE_MS`] is given up,
//! and started again where it stood when somebody does read on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::cache::ListedChunk;
use portcullis_core::limits::{MOUNT_DIR_CHUNKS_MAX, MOUNT_OPEN_DIRS_MAX};
use portcullis_core::{Chunk, Handle};
use portcullis_fuse::Errno;
use tokio::time::Instant;

use super::ahead::{Ahead, Found, Reader};
use super::attr::errno_of_handle;
use super::contents::{Bringing, Contents};
use super::counters::Counters;
use super::fence::{Fence, Stamp};
use super::inodes::Inode;
use super::kept::{Opening, Pass, SharedPositions};
use super::memory::{Learning, Memory};
use super::positions::Position;
use super::under_way::Listed;
use crate::{Client, Listing};

/// A listing that nobody read on for this long is given up.
pub(super) const LISTING_IDLE_MS: u64 = 1000;
/// Offsets after `.` and `..`; entry `n` is followed by `DOTS + n`.
const DOTS: u64 = 2;

/// One open directory.
pub(super) struct Directory {
    pub(super) inode: Inode,
    pub(super) nodeid: u64,
    /// What the kernel was given last and may still be entering into its cache.
    pub(super) listed: Mutex<Option<Listed>>,
    /// The reading that is under way.
    pub(super) pass: Mutex<Pass>,
    /// Readers of one open directory take turns.
    stream: tokio::sync::Mutex<Stream>,
}

struct Stream {
    positions: SharedPositions,
    /// The last chunks received; each follows the one before it.
    window: VecDeque<Loaded>,
    /// The last entry received: the running listing, if any, goes on after it.
    tail: u64,
    /// The running listing, and when it was asked for.
    listing: Option<(Source, Stamp)>,
    /// Set once the listing has ended after `tail`: whether it was complete.
    end: Option<bool>,
    touched: Instant,
}

/// Where chunks come from.
enum Source {
    /// A listing that was begun before it was asked for.
    Ahead(Reader),
    /// The mount's memory.
    Known(std::vec::IntoIter<ListedChunk>),
    /// The gateway. What it tells enters the memory, and contents that come along are kept.
    Told(Box<Listing>, Option<Learning>, Option<Bringing>),
}

/// Whom a directory asks.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) client: &'a Client,
    pub(super) memory: &'a Memory,
    pub(super) contents: &'a Contents,
    pub(super) fence: &'a Fence,
    pub(super) counters: &'a Counters,
    pub(super) ahead: &'a Ahead,
}

/// A chunk in memory.
struct Loaded {
    /// The entry before its first.
    previous: u64,
    first: u64,
    chunk: Chunk,
    /// When its listing was asked for.
    stamp: Stamp,
}

/// What takes the entries.
pub(super) trait Sink {
    /// Takes `.` or `..` with the offset after it; `false` where there is no room.
    fn dot(&mut self, offset: u64, dot: Dot) -> bool;

    /// Takes entries from the front of a run; answers how many there was room for.
    fn run(&mut self, run: &Run<'_>) -> usize;

    /// Whether it took none.
    fn is_empty(&self) -> bool;
}

/// What every directory begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dot {
    /// `.`
    Here,
    /// `..`
    Above,
}

/// Entries that follow one another.
pub(super) struct Run<'a> {
    pub(super) chunk: &'a Chunk,
    /// The first of them in the chunk; the run ends with the chunk.
    pub(super) index: usize,
    /// The offset after that one.
    pub(super) offset: u64,
    /// When they were asked for.
    pub(super) stamp: Stamp,
}

impl Directory {
    pub(super) fn new(inode: Inode, nodeid: u64, opening: Opening) -> Self {
        let stream = Stream {
            positions: opening.positions,
            window: VecDeque::new(),
            tail: 0,
            listing: None,
            end: None,
            touched: Instant::now(),
        };
        Self {
            inode,
            nodeid,
            listed: Mutex::default(),
            pass: Mutex::new(opening.pass),
            stream: tokio::sync::Mutex::new(stream),
        }
    }

    /// Fills `sink` with the entries after `offset`. At the end of a listing that is not complete
    /// there is an error, after all entries that are known: nobody takes a part for the whole.
    pub(super) async fn read(
        &self,
        origin: Origin<'_>,
        mut offset: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Errno> {
        let mut stream = self.stream.lock().await;
        stream.touched = Instant::now();
        if offset == 0 {
            stream.restart_at(0);
            if !sink.dot(1, Dot::Here) {
                return Ok(());
            }
            offset = 1;
        }
        if offset == 1 {
            if !sink.dot(DOTS, Dot::Above) {
                return Ok(());
            }
            offset = DOTS;
        }
        let read = stream.read(origin, &self.inode, offset - DOTS, sink).await;
        stream.touched = Instant::now();
        match read {
            // What was packed goes out first; asked to go on, the directory fails again.
            Err(_) if !sink.is_empty() => Ok(()),
            other => other,
        }
    }

    /// Gives up a listing that nobody reads on.
    fn give_up_idle(&self, now: Instant) {
        if let Ok(mut stream) = self.stream.try_lock()
            && stream.listing.is_some()
            && now.duration_since(stream.touched) >= Duration::from_millis(LISTING_IDLE_MS)
        {
            stream.listing = None;
        }
    }
}

impl Stream {
    async fn read(
        &mut self,
        origin: Origin<'_>,
        dir: &Inode,
        mut number: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Errno> {
        loop {
            if let Some((at, index)) = self.find(number) {
                let Loaded { first, ref chunk, stamp, .. } = self.window[at];
                let here = first + index as u64;
                let taken = sink.run(&Run { chunk, index, offset: DOTS + here, stamp });
                if index + taken < chunk.count() {
                    return Ok(());
                }
                number = first + chunk.count() as u64 - 1;
                continue;
            }
            if number != self.tail {
                let (after, last) = self.look_up(number);
                match after {
                    Position::After(_) => {
                        self.restart_at(number);
                        continue;
                    }
                    Position::GivenUp => return Err(Errno::INVAL),
                    // An offset of another opening, as a stateless server sends it: count.
                    Position::Ahead if self.tail != last => {
                        self.restart_at(last);
                        continue;
                    }
                    Position::Ahead => {}
                }
            }
            if !self.receive(origin, dir).await? {
                return self.ended();
            }
        }
    }

    /// What is known of a number, and the greatest one there is.
    fn look_up(&self, number: u64) -> (Position, u64) {
        let positions = self.positions.lock();
        (positions.after(number), positions.last())
    }

    /// Where the entry after `number` is in memory.
    fn find(&self, number: u64) -> Option<(usize, usize)> {
        self.window.iter().enumerate().find_map(|(at, loaded)| {
            if loaded.previous == number {
                return Some((at, 0));
            }
            let index = number.checked_sub(loaded.first)? as usize + 1;
            (index < loaded.chunk.count()).then_some((at, index))
        })
    }

    /// Forgets what is in memory; the next chunk will be the one after `number`.
    fn restart_at(&mut self, number: u64) {
        self.window.clear();
        self.listing = None;
        self.end = None;
        self.tail = number;
    }

    /// Takes the next chunk; `false` at the end.
    async fn receive(&mut self, origin: Origin<'_>, dir: &Inode) -> Result<bool, Errno> {
        if self.end.is_some() {
            return Ok(false);
        }
        // Taken out, so that a reader who gives up half way leaves no half-read listing behind.
        let (mut source, stamp) = match self.listing.take() {
            Some(listing) => listing,
            None => self.begin(origin, dir).await?,
        };
        match source.next(origin, &dir.handle).await? {
            Next::Elsewhere => Box::pin(self.receive(origin, dir)).await,
            Next::End { complete } => {
                self.end = Some(complete);
                Ok(false)
            }
            Next::Chunk(chunk) => {
                let previous = self.tail;
                let first = self.positions.lock().record(previous, &chunk);
                self.tail = first + chunk.count() as u64 - 1;
                if self.window.len() == MOUNT_DIR_CHUNKS_MAX {
                    self.window.pop_front();
                }
                self.window.push_back(Loaded { previous, first, chunk, stamp });
                self.listing = Some((source, stamp));
                Ok(true)
            }
        }
    }

    /// Begins a listing after `tail`.
    async fn begin(&self, origin: Origin<'_>, dir: &Inode) -> Result<(Source, Stamp), Errno> {
        let Origin { client, memory, contents, fence, counters, ahead } = origin;
        // Before the memory is looked at, which forgets first what is then told to be forgotten.
        let stamp = fence.stamp();
        let mut learning = None;
        if self.tail == 0 {
            match ahead.enter(&dir.handle, || memory.list(client, &dir.handle)) {
                Found::Known(chunks) => {
                    counters.remembered.add(1);
                    return Ok((Source::Known(chunks.into_iter()), stamp));
                }
                Found::OnItsWay(reader, asked) => return Ok((Source::Ahead(reader), asked)),
                Found::Unknown => {}
            }
            learning = memory.begin_listing(client, &dir.handle);
        }
        let (Position::After(after), _) = self.look_up(self.tail) else {
            return Err(Errno::INVAL);
        };
        counters.asked.add(1);
        let bringing = contents.begin(client, &dir.handle);
        let listing = client.list(&dir.handle, after).await;
        let listing = listing.map_err(|error| errno_of_handle(&error))?;
        Ok((Source::Told(Box::new(listing), learning, bringing), stamp))
    }

    fn ended(&self) -> Result<(), Errno> {
        if self.end == Some(true) { Ok(()) } else { Err(Errno::IO) }
    }
}

/// What comes of a source.
enum Next {
    Chunk(Chunk),
    End {
        complete: bool,
    },
    /// This source goes no further, the listing does.
    Elsewhere,
}

impl Source {
    async fn next(&mut self, origin: Origin<'_>, dir: &Handle) -> Result<Next, Errno> {
        let (listing, learning, bringing) = match self {
            Source::Ahead(reader) => {
                return Ok(match reader.next().await {
                    Some(Ok(chunk)) => Next::Chunk(chunk),
                    Some(Err(complete)) => Next::End { complete },
                    None => Next::Elsewhere,
                });
            }
            Source::Known(chunks) => {
                let next = chunks.next().map(|listed| Next::Chunk(listed.chunk));
                return Ok(next.unwrap_or(Next::End { complete: true }));
            }
            Source::Told(listing, learning, bringing) => (listing, learning, bringing.as_ref()),
        };
        let Some(chunk) = listing.next().await.map_err(|error| errno_of_handle(&error))? else {
            let complete = listing.complete();
            if let Some(learning) = learning.take() {
                origin.memory.finish_listing(origin.client, learning, complete);
                origin.ahead.ended(dir);
            }
            return Ok(Next::End { complete });
        };
        // In place before the kernel hears of the file.
        let came = listing.take_contents();
        origin.contents.take_in(origin.client, bringing, &chunk, came);
        if let Some(learning) = learning {
            origin.memory.fill_chunk(learning, &chunk);
            origin.ahead.told(dir, &chunk);
        }
        Ok(Next::Chunk(chunk.detached()))
    }
}

/// The open directories by their number.
#[derive(Default)]
pub(super) struct Directories {
    open: Mutex<HashMap<u64, Arc<Directory>>>,
    next: AtomicU64,
}

impl Directories {
    /// Adds one; `None` where there are too many.
    pub(super) fn insert(&self, directory: Directory) -> Option<u64> {
        let mut open = self.open.lock();
        if open.len() >= MOUNT_OPEN_DIRS_MAX {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number, Arc::new(directory));
        Some(number)
    }

    pub(super) fn get(&self, number: u64) -> Option<Arc<Directory>> {
        self.open.lock().get(&number).cloned()
    }

    pub(super) fn remove(&self, number: u64) -> Option<Arc<Directory>> {
        self.open.lock().remove(&number)
    }

    /// Gives up the listings that nobody reads on.
    pub(super) fn give_up_idle(&self) {
        let open: Vec<_> = self.open.lock().values().cloned().collect();
        let now = Instant::now();
        open.iter().for_each(|directory| directory.give_up_idle(now));
    }
}

#[cfg(test)]
#[path = "directories_tests.rs"]
mod tests;
