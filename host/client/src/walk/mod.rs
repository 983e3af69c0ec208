//! A whole tree in the order of `find`: each directory before its entries, depth first, in the
//! order in which directories are listed. Symbolic links are not followed.
//!
//! One listing costs a round trip, so a walk that asked for one directory after another would
//! take a round trip each. Instead the next directories of the walk, as far as they are known
//! ([`plan`]), are listed side by side ahead of it, each by a task ([`feed`]), the next one first.
//!
//! What must hold: the order is the same as without fetching ahead; memory is bounded by
//! [`WalkLimits`], however wide, deep or nested the tree is; a directory that cannot be listed is
//! told and the walk goes on. Where the room for listings is used up, a directory that the walk
//! has left for one of its subdirectories is let go and listed again from its position later.

mod feed;
mod plan;

use std::collections::VecDeque;
use std::sync::Arc;

use portcullis_core::entry::EntryRef;
use portcullis_core::position::advance;
use portcullis_core::{Entry, FileKind, Status};
use portcullis_wire::message::Failure;
use tokio::sync::mpsc;

use self::feed::{Arrival, Brought, Feed, Feeds, Held, Source};
use self::plan::{DirId, Plan};
use crate::client::Client;
use crate::error::ClientError;

/// How far a walk reaches ahead.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimits {
    /// Listings under way at once.
    pub listings_max: usize,
    /// Directories that are listed, or about to be, before the walk enters them.
    pub ahead_max: usize,
    /// Bytes of listings held.
    pub held_bytes_max: usize,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self { listings_max: 64, ahead_max: 256, held_bytes_max: 32 * 1024 * 1024 }
    }
}

/// A tree, step by step.
#[derive(Debug)]
pub struct Walk {
    limits: WalkLimits,
    feeds: Arc<Feeds>,
    arrivals: mpsc::Receiver<Arrival>,
    feeds_started: u64,
    plan: Plan<Dir>,
    /// The directories from the start to the one the walk is in.
    frames: Vec<Frame>,
    path: Vec<u8>,
    start_len: usize,
    /// The start, until it was told.
    start: Entry,
    started: bool,
    /// The entry told last is a directory, to be entered next.
    descend: bool,
}

/// What is known of a directory that the walk has yet to enter, or is in.
#[derive(Debug, Default)]
struct Dir {
    listing: Listing,
    /// Chunks that the walk has yet to come to.
    chunks: VecDeque<Held>,
    /// The position after them.
    after: Vec<u64>,
}

#[derive(Debug, Default)]
enum Listing {
    /// Not asked for, or only up to a position.
    #[default]
    Idle,
    Running(Feed),
    Ended(Result<bool, ClientError>),
}

/// A directory that the walk is in, itself or below it.
#[derive(Debug)]
struct Frame {
    dir: DirId,
    current: Option<Held>,
    /// The entry of `current` that comes next.
    index: usize,
    /// The position before `current`.
    after: Vec<u64>,
    path_len: usize,
}

/// What a walk tells.
#[derive(Debug)]
pub enum Step<'a> {
    /// An entry of the tree; the first one is the start itself.
    Visit(Visit<'a>),
    /// A directory, told before as an entry, that cannot be listed or not to its end.
    Failed {
        /// Its path.
        path: &'a [u8],
        /// Why.
        error: ClientError,
    },
}

/// An entry of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The path: that of the start, and the names below it.
    pub path: &'a [u8],
    /// How many bytes of the path are the start's.
    pub start_len: usize,
    /// 0 for the start, 1 for its entries.
    pub depth: usize,
    /// The entry; its name is empty for the start.
    pub entry: EntryRef<'a>,
}

impl<'a> Visit<'a> {
    /// The path below the start, without a slash in front; empty for the start.
    pub fn relative(&self) -> &'a [u8] {
        let below = &self.path[self.start_len..];
        below.strip_prefix(b"/").unwrap_or(below)
    }
}

/// What `Walk::advance` found; the borrows are taken afterwards.
enum Found {
    Start,
    Entry,
    Failed(ClientError),
}

impl Walk {
    /// A walk of the tree at `start`, whose path is to be told as `path`.
    pub fn new(client: Client, start: Entry, path: &[u8], limits: WalkLimits) -> Self {
        let (feeds, arrivals) = Feeds::new(client, limits);
        Self {
            limits,
            feeds,
            arrivals,
            feeds_started: 0,
            plan: Plan::new(),
            frames: Vec::new(),
            path: path.to_vec(),
            start_len: path.len(),
            start,
            started: false,
            descend: false,
        }
    }

    /// The next entry or failure, `None` at the end.
    pub async fn next(&mut self) -> Option<Step<'_>> {
        let found = self.advance().await?;
        let entry = match found {
            Found::Failed(error) => return Some(Step::Failed { path: &self.path, error }),
            Found::Start => EntryRef {
                name: b"",
                handle: self.start.handle,
                attr: self.start.attr,
                kind: self.start.kind,
                target: self.start.target.as_deref(),
                cookie: 0,
            },
            Found::Entry => {
                let frame = self.frames.last()?;
                let entry = frame.current.as_ref()?.chunk.entry(frame.index - 1);
                self.path.truncate(frame.path_len);
                if self.path.last() != Some(&b'/') {
                    self.path.push(b'/');
                }
                self.path.extend_from_slice(entry.name);
                entry
            }
        };
        self.descend = entry.kind == FileKind::Directory;
        let (path, depth) = (&self.path[..], self.frames.len());
        Some(Step::Visit(Visit { path, start_len: self.start_len, depth, entry }))
    }

    async fn advance(&mut self) -> Option<Found> {
        if !self.started {
            self.started = true;
            if self.start.kind == FileKind::Directory {
                self.plan.add(None, self.start.handle, Dir::default());
            }
            return Some(Found::Start);
        }
        if std::mem::take(&mut self.descend) {
            self.enter();
        }
        loop {
            let frame = self.frames.last_mut()?;
            if let Some(held) = &frame.current {
                if frame.index < held.chunk.count() {
                    frame.index += 1;
                    return Some(Found::Entry);
                }
                advance(&mut frame.after, &held.chunk, frame.index - 1);
                frame.current = None;
            }
            let dir = frame.dir;
            self.absorb();
            if self.take_chunk(dir) {
                self.prefetch();
                continue;
            }
            match &self.plan.get(dir)?.listing {
                Listing::Ended(_) => match self.leave() {
                    Some(error) => return Some(Found::Failed(error)),
                    None => continue,
                },
                Listing::Running(_) => {}
                Listing::Idle => self.list(dir),
            }
            if let Listing::Running(feed) = &self.plan.get(dir)?.listing {
                feed.set_entered(true);
                feed.want();
            }
            self.prefetch();
            let arrival = self.arrivals.recv().await?;
            self.arrive(arrival);
        }
    }

    /// Goes into the directory that was told last.
    fn enter(&mut self) {
        self.park();
        let Some(dir) = self.plan.enter() else {
            debug_assert!(false, "a directory was told that is not next in the plan");
            return;
        };
        let path_len = self.path.len();
        self.frames.push(Frame { dir, current: None, index: 0, after: Vec::new(), path_len });
        if let Some(Dir { listing: Listing::Running(feed), .. }) = self.plan.get(dir) {
            feed.set_entered(true);
        }
    }

    /// Lets go of the rest of the present directory, but for the subdirectory about to be
    /// entered, where it takes more than its room.
    fn park(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(dir) = self.plan.get_mut(frame.dir) else { return };
        if let Listing::Running(feed) = &dir.listing {
            feed.set_entered(false);
        }
        let over = frame.current.iter().chain(&dir.chunks).any(|held| held.room.is_none());
        let jam = matches!(dir.listing, Listing::Running(_)) && self.feeds.is_jammed();
        let Some(held) = frame.current.as_ref().filter(|_| over || jam) else { return };
        let next = held.chunk.entry(frame.index - 1).handle;
        advance(&mut frame.after, &held.chunk, frame.index - 1);
        frame.current = None;
        let after = frame.after.clone();
        *dir = Dir { after, ..Dir::default() };
        let dir = frame.dir;
        self.plan.drop_rest(dir);
        self.plan.add(Some(dir), next, Dir::default());
    }

    /// Goes out of the present directory, whose listing has ended; tells if it ended badly.
    fn leave(&mut self) -> Option<ClientError> {
        let frame = self.frames.pop()?;
        self.path.truncate(frame.path_len);
        match self.plan.leave(frame.dir)?.listing {
            Listing::Ended(Err(error)) => Some(error),
            Listing::Ended(Ok(false)) => {
                let detail = "entries are missing, because a brick is down";
                Some(Failure::new(Status::Unavailable, detail).into())
            }
            _ => None,
        }
    }

    /// Makes the next chunk of the present directory the current one, if it is there.
    fn take_chunk(&mut self, dir: DirId) -> bool {
        let held = self.plan.get_mut(dir).and_then(|dir| dir.chunks.pop_front());
        if let (Some(frame), Some(held)) = (self.frames.last_mut(), held) {
            frame.current = Some(held);
            frame.index = 0;
            return true;
        }
        false
    }

    /// Takes in all that has arrived.
    fn absorb(&mut self) {
        while let Ok(arrival) = self.arrivals.try_recv() {
            self.arrive(arrival);
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Source { dir: of, feed: number } = arrival.from;
        let Some(dir) = self.plan.get_mut(of) else { return };
        if !matches!(&dir.listing, Listing::Running(feed) if feed.number == number) {
            return;
        }
        match arrival.brought {
            Brought::Paused => dir.listing = Listing::Idle,
            Brought::Ended(end) => dir.listing = Listing::Ended(end),
            Brought::Chunk(held) => {
                let chunk = held.chunk.clone();
                advance(&mut dir.after, &chunk, chunk.count() - 1);
                dir.chunks.push_back(held);
                for index in 0..chunk.count() {
                    if chunk.kind(index) == FileKind::Directory {
                        let handle = chunk.entry(index).handle;
                        self.plan.add(Some(of), handle, Dir::default());
                    }
                }
            }
        }
    }

    /// Asks for the listings of the next directories, as far as the limits allow.
    fn prefetch(&mut self) {
        // By half windows, so that the plan is not searched for each directory.
        let running = self.feeds.running();
        if running > self.limits.listings_max / 2 || !self.feeds.has_room() {
            return;
        }
        let idle = |dir: &DirId| matches!(self.plan.get(*dir), Some(Dir { listing: Listing::Idle, after, .. }) if after.is_empty());
        let next: Vec<DirId> = self
            .plan
            .ahead(4 * self.limits.ahead_max)
            .take(self.limits.ahead_max)
            .filter(idle)
            .take(self.limits.listings_max - running)
            .collect();
        for dir in next {
            self.list(dir);
        }
    }

    /// Starts to list a directory, from where it stopped.
    fn list(&mut self, dir: DirId) {
        let Some(&handle) = self.plan.handle(dir) else { return };
        self.feeds_started += 1;
        if let Some(of_walk) = self.plan.get_mut(dir) {
            let after = of_walk.after.clone();
            let feed = self.feeds.start(self.feeds_started, dir, handle, after);
            of_walk.listing = Listing::Running(feed);
        }
    }
}

#[cfg(test)]
mod tests;
