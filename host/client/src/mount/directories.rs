//! Open directories: a listing each, consumed chunk by chunk as the kernel reads on.
//!
//! A directory keeps its last few chunks, the running listing if there is one, and its
//! [`Positions`]. Reading on where the listing stands takes the next chunk from it; reading from
//! anywhere else that is not in memory starts a listing there; offset 0 always starts a new one, so
//! that a rewind sees what changed.
//!
//! A listing nobody reads on holds bytes of the connection's receive window, and enough of them
//! would stop every other answer. So one that was left alone for [`LISTING_IDLE_MS`] is given up,
//! and started again where it stood when somebody does read on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::limits::{MOUNT_DIR_CHUNKS_MAX, MOUNT_DIR_POSITIONS_MAX, MOUNT_OPEN_DIRS_MAX};
use portcullis_core::{Chunk, EntryRef};
use portcullis_fuse::Errno;
use tokio::time::Instant;

use super::attr::errno_of_handle;
use super::fence::{Fence, Stamp};
use super::inodes::Inode;
use super::positions::{Position, Positions};
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
    /// Readers of one open directory take turns.
    stream: tokio::sync::Mutex<Stream>,
}

struct Stream {
    positions: Positions,
    /// The last chunks received; each follows the one before it.
    window: VecDeque<Loaded>,
    /// The last entry received: the running listing, if any, goes on after it.
    tail: u64,
    /// The running listing, and when it was asked for.
    listing: Option<(Listing, Stamp)>,
    /// Set once the listing has ended after `tail`: whether it was complete.
    end: Option<bool>,
    touched: Instant,
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
    /// Takes one entry with the offset after it; `false` where there is no room.
    fn push(&mut self, offset: u64, entry: Item<'_>) -> bool;

    /// Whether it took none.
    fn is_empty(&self) -> bool;
}

/// An entry as the kernel sees it.
pub(super) enum Item<'a> {
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// One of the directory's own, and when it was asked for.
    Entry(&'a EntryRef<'a>, Stamp),
}

impl Directory {
    pub(super) fn new(inode: Inode, nodeid: u64) -> Self {
        let stream = Stream {
            positions: Positions::new(MOUNT_DIR_POSITIONS_MAX),
            window: VecDeque::new(),
            tail: 0,
            listing: None,
            end: None,
            touched: Instant::now(),
        };
        Self { inode, nodeid, listed: Mutex::default(), stream: tokio::sync::Mutex::new(stream) }
    }

    /// Fills `sink` with the entries after `offset`. At the end of a listing that is not complete
    /// there is an error, after all entries that are known: nobody takes a part for the whole.
    pub(super) async fn read(
        &self,
        client: &Client,
        fence: &Fence,
        mut offset: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Errno> {
        let mut stream = self.stream.lock().await;
        stream.touched = Instant::now();
        if offset == 0 {
            stream.restart_at(0);
            if !sink.push(1, Item::Dot) {
                return Ok(());
            }
            offset = 1;
        }
        if offset == 1 {
            if !sink.push(DOTS, Item::DotDot) {
                return Ok(());
            }
            offset = DOTS;
        }
        let read = stream.read(client, fence, &self.inode, offset - DOTS, sink).await;
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
        client: &Client,
        fence: &Fence,
        dir: &Inode,
        mut number: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Errno> {
        loop {
            if let Some((at, index)) = self.find(number) {
                let loaded = &self.window[at];
                for index in index..loaded.chunk.count() {
                    let here = loaded.first + index as u64;
                    let entry = loaded.chunk.entry(index);
                    if !sink.push(DOTS + here, Item::Entry(&entry, loaded.stamp)) {
                        return Ok(());
                    }
                    number = here;
                }
            } else if number != self.tail {
                match self.positions.after(number) {
                    Position::After(_) => self.restart_at(number),
                    Position::GivenUp => return Err(Errno::INVAL),
                    // An offset of another opening, as a stateless server sends it: count.
                    Position::Ahead if self.tail != self.positions.last() => {
                        self.restart_at(self.positions.last());
                    }
                    Position::Ahead => {
                        if !self.receive(client, fence, dir).await? {
                            return self.ended();
                        }
                    }
                }
            } else if !self.receive(client, fence, dir).await? {
                return self.ended();
            }
        }
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
    async fn receive(
        &mut self,
        client: &Client,
        fence: &Fence,
        dir: &Inode,
    ) -> Result<bool, Errno> {
        if self.end.is_some() {
            return Ok(false);
        }
        // Taken out, so that a reader who gives up half way leaves no half-read listing behind.
        let (mut listing, stamp) = match self.listing.take() {
            Some(listing) => listing,
            None => {
                let Position::After(after) = self.positions.after(self.tail) else {
                    return Err(Errno::INVAL);
                };
                let stamp = fence.stamp();
                let listing = client.list(&dir.handle, after).await;
                (listing.map_err(|error| errno_of_handle(&error))?, stamp)
            }
        };
        match listing.next().await.map_err(|error| errno_of_handle(&error))? {
            None => {
                self.end = Some(listing.complete());
                Ok(false)
            }
            Some(chunk) => {
                let first = self.positions.record(self.tail, &chunk);
                let previous = self.tail;
                self.tail = first + chunk.count() as u64 - 1;
                if self.window.len() == MOUNT_DIR_CHUNKS_MAX {
                    self.window.pop_front();
                }
                self.window.push_back(Loaded { previous, first, chunk: chunk.detached(), stamp });
                self.listing = Some((listing, stamp));
                Ok(true)
            }
        }
    }

    fn ended(&self) -> Result<(), Errno> {
        if self.end == Some(true) { Ok(()) } else { Err(Errno::IO) }
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

    pub(super) fn remove(&self, number: u64) {
        let removed = self.open.lock().remove(&number);
        // A listing is let go without the lock.
        drop(removed);
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
