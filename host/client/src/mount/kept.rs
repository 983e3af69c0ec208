//! What the kernel may have cached of the listings of directories, and whether that is still true.
//!
//! The kernel fills its cache of a directory (fs/fuse/readdir.c) with what it is told from offset 0
//! on, by one reader or by several that follow one another, and uses it once one of them was told
//! the end. From then on readers find it, those of an earlier opening and those that are half way as
//! well. It starts anew where one of its pages is gone when it is used. (It also does where it
//! changed the directory itself, but only for readers at offset 0.) So:
//! - a change drops the pages, once the end was told;
//! - before that nothing is dropped, since a cache that loses a page while it fills never gets
//!   whole. Where something that it was filled with is older than the last change, its pages are
//!   dropped just before the end is told;
//! - who opens the directory keeps the cache (`FOPEN_KEEP_CACHE`), unless the names in it are not
//!   to be believed much longer: without it the kernel asks for all of them together once more,
//!   with it for each alone.
//!
//! What it was told it enters at any time until it asks for more through the same opening, so names
//! that are on their way are as old as what they came from, whatever was dropped meanwhile.
//!
//! All openings of a directory number its entries by the same [`Positions`], since an offset that
//! one of them was told comes back from another that read it in the kernel's cache.
//!
//! What must hold: no reader that begins after a change was acknowledged is given names from before;
//! what is known is bounded, and of what was given up the kernel keeps nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::limits::{
    MOUNT_DIR_POSITIONS_MAX, MOUNT_KEPT_DIRS_MAX, MOUNT_KEPT_POSITIONS_MAX,
};
use tokio::time::Instant;

use super::positions::Positions;

/// Numbers of the entries of one directory, for all its openings.
pub(super) type SharedPositions = Arc<Mutex<Positions>>;

/// Directories of which the kernel may have a listing.
#[derive(Default)]
pub(super) struct Kept(Mutex<Dirs>);

#[derive(Default)]
struct Dirs {
    by_nodeid: HashMap<u64, Dir>,
    /// Those that nobody has open, the one closed first in front.
    closed: BTreeMap<u64, u64>,
    closings: u64,
    /// Positions of those.
    positions: usize,
}

/// See [`Dir::since`].
const NOTHING: u64 = u64::MAX;

struct Dir {
    positions: SharedPositions,
    openings: u32,
    /// When it was closed, and how many positions it had then.
    closed: Option<(u64, usize)>,
    /// Counts its changes.
    generation: u64,
    /// What can come to be read in the kernel's cache, with what it may still enter, is from then on;
    /// [`NOTHING`] where that is nothing.
    since: u64,
    /// What it may still enter: the opening, and the generation of its pass.
    on_their_way: Vec<(u64, u64)>,
    last_opening: u64,
    /// The kernel may have been told the end.
    is_complete: bool,
    /// The opening that has the kernel drop what it has; it has done so when it asks for names
    /// through it.
    dropping: Option<u64>,
    /// How long what came with the names is to be believed.
    valid: Option<Validity>,
}

/// What the names of a listing were told with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    /// They are believed until then.
    pub(super) until: Instant,
    /// As long as the kernel was not told to look all up again.
    pub(super) names_epoch: u64,
    /// The connection.
    pub(super) session: u64,
}

/// A reading of a directory by one of its openings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// Numbers the openings of a directory.
    opening: u64,
    /// Of the directory, before anything that is told was looked at.
    generation: u64,
    /// `None` where something that was told is not to be believed.
    pub(super) valid: Option<Validity>,
}

/// An opening of a directory.
pub(super) struct Opening {
    pub(super) positions: SharedPositions,
    pub(super) pass: Pass,
    /// The kernel keeps what it has.
    pub(super) keep: bool,
}

/// The moment of an opening.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// The time.
    pub(super) now: Instant,
    /// How long names are believed that are told now.
    pub(super) ttl: Duration,
    /// See [`Validity`].
    pub(super) names_epoch: u64,
    /// See [`Validity`].
    pub(super) session: u64,
}

impl Kept {
    /// A directory is opened; `now` is `None` where the kernel is to keep nothing.
    pub(super) fn opened(&self, nodeid: u64, now: Option<&Now>) -> Opening {
        let mut dirs = self.0.lock();
        let dirs = &mut *dirs;
        let is_known = dirs.by_nodeid.contains_key(&nodeid);
        let dir = dirs.by_nodeid.entry(nodeid).or_insert_with(Dir::new);
        if let Some((at, positions)) = dir.closed.take() {
            dirs.closed.remove(&at);
            dirs.positions -= positions;
        }
        dir.openings += 1;
        dir.last_opening += 1;
        let keep = now.is_some_and(|now| {
            let is_fresh = dir.valid.is_some_and(|valid| valid.is_fresh(now));
            // Of what is not complete nothing is read.
            is_known && (!dir.is_complete || is_fresh)
        });
        if !keep {
            dir.dropping = Some(dir.last_opening);
        }
        Opening { positions: dir.positions.clone(), pass: dir.pass(dir.last_opening), keep }
    }

    /// An opening ends.
    pub(super) fn closed(&self, nodeid: u64, pass: &Pass) {
        let mut dirs = self.0.lock();
        let dirs = &mut *dirs;
        let Some(dir) = dirs.by_nodeid.get_mut(&nodeid) else { return };
        dir.entered(pass.opening);
        dir.openings = dir.openings.saturating_sub(1);
        if dir.openings == 0 {
            let positions = dir.positions.lock().len();
            dirs.closings += 1;
            dir.closed = Some((dirs.closings, positions));
            dirs.closed.insert(dirs.closings, nodeid);
            dirs.positions += positions;
            dirs.give_up();
        }
    }

    /// The kernel asks for names: it has entered what it was told before. From the start it asks
    /// where it has nothing, or not all; then a new pass begins. (Another reader may be about to take
    /// note of the end.) Call it before the names are looked at.
    pub(super) fn asked(&self, nodeid: u64, pass: &mut Pass, from_start: bool) {
        let mut dirs = self.0.lock();
        let Some(dir) = dirs.by_nodeid.get_mut(&nodeid) else { return };
        dir.entered(pass.opening);
        if dir.dropping == Some(pass.opening) {
            (dir.dropping, dir.is_complete) = (None, false);
        }
        if from_start {
            *pass = dir.pass(pass.opening);
        }
    }

    /// The kernel is about to be told names.
    pub(super) fn told(&self, nodeid: u64, pass: &Pass) {
        if let Some(dir) = self.0.lock().by_nodeid.get_mut(&nodeid) {
            dir.since = dir.since.min(pass.generation);
            dir.on_their_way.push((pass.opening, pass.generation));
        }
    }

    /// The kernel is about to be told the end. Where the answer is `false` it has to drop what it
    /// has before.
    pub(super) fn ended(&self, nodeid: u64, pass: &Pass) -> bool {
        let mut dirs = self.0.lock();
        let Some(dir) = dirs.by_nodeid.get_mut(&nodeid) else { return false };
        dir.since = dir.since.min(pass.generation);
        if dir.since == dir.generation {
            (dir.is_complete, dir.valid, dir.dropping) = (true, pass.valid, None);
        } else {
            dir.drop_pages();
        }
        dir.is_complete
    }

    /// Names of a directory changed, by whomever. Answers whether it has to drop
    /// what it has; `None` where that is not known.
    pub(super) fn changed(&self, nodeid: u64) -> Option<bool> {
        let mut dirs = self.0.lock();
        let dir = dirs.by_nodeid.get_mut(&nodeid)?;
        dir.generation += 1;
        let was_complete = dir.is_complete;
        if was_complete {
            dir.drop_pages();
        }
        Some(was_complete)
    }
}

impl Dir {
    fn new() -> Self {
        Self {
            positions: Arc::new(Mutex::new(Positions::new(MOUNT_DIR_POSITIONS_MAX))),
            openings: 0,
            closed: None,
            generation: 0,
            since: NOTHING,
            on_their_way: Vec::new(),
            last_opening: 0,
            // What the kernel has is not known; the first opening has it dropped.
            is_complete: true,
            dropping: None,
            valid: None,
        }
    }

    fn pass(&self, opening: u64) -> Pass {
        Pass { opening, generation: self.generation, valid: None }
    }

    /// The kernel drops what it has, but not what it has yet to enter.
    fn drop_pages(&mut self) {
        self.is_complete = false;
        let on_their_way = self.on_their_way.iter().map(|&(_, generation)| generation);
        self.since = on_their_way.min().unwrap_or(NOTHING);
    }

    fn entered(&mut self, opening: u64) {
        self.on_their_way.retain(|&(other, _)| other != opening);
    }
}

impl Dirs {
    /// Forgets directories that are closed, while there are more than are to be remembered.
    fn give_up(&mut self) {
        while self.closed.len() > MOUNT_KEPT_DIRS_MAX || self.positions > MOUNT_KEPT_POSITIONS_MAX {
            let Some((_, nodeid)) = self.closed.pop_first() else { return };
            let dir = self.by_nodeid.remove(&nodeid);
            self.positions -= dir.and_then(|dir| dir.closed).map_or(0, |(_, positions)| positions);
        }
    }
}

impl Validity {
    /// Whether half of the time or more is left for which names that are told now are believed.
    fn is_fresh(&self, now: &Now) -> bool {
        let left = self.until.saturating_duration_since(now.now);
        let same = (self.names_epoch, self.session) == (now.names_epoch, now.session);
        same && !left.is_zero() && left >= now.ttl / 2
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
