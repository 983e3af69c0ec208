//! A listing from memory: all of it, or what is left of it after a position.
//!
//! Names that were learnt after the directory was listed come first, each in a chunk of its own
//! ([`crate::position`]), then the runs in their order. What is no longer there is left out;
//! attributes that are not known are left out too, and told to be missing, so that whoever lists
//! asks for them. Where many are missing, listing the directory again is cheaper, and nothing is
//! answered.
//!
//! What must hold: an answer goes on exactly after the position, whatever came and went since, or
//! there is none.

use super::common::Common;
use super::dir::Dir;
use super::shard::Shard;
use super::slot::{Content, Slot};
use super::{DentryCache, ListedChunk};
use crate::chunk::Chunk;
use crate::handle::Handle;
use crate::limits::{LISTING_MISSING_MAX, LISTING_MISSING_SHARE};
use crate::position::{Delivered, LEARNT_BRICKS, of_bricks};
use crate::trace::{Operation, What};

impl<W> DentryCache<W> {
    /// The listing of `dir` after a position, which is empty for its start; `None` where it is not
    /// known, or where so many attributes are missing that it is better asked for.
    pub fn list(&self, now_ms: u64, dir: &Handle, after: &[u64]) -> Option<Vec<ListedChunk>> {
        let lock = self.shard(dir);
        let listing = lock.read().listing(&self.common, now_ms, dir, after);
        match listing {
            Some(_) => super::counters::count(&self.common.hits().list),
            None => {
                let mut shard = lock.write();
                shard.counters.list_misses += 1;
                if self.common.is_observed() {
                    self.common.tap.set_now(now_ms);
                    self.common.saw(shard.number, What::Missed, Operation::List, dir, None);
                }
            }
        }
        listing
    }
}

impl<W> Shard<W> {
    fn listing(
        &self,
        common: &Common,
        now_ms: u64,
        dir: &Handle,
        after: &[u64],
    ) -> Option<Vec<ListedChunk>> {
        let dir = self.dir(self.dir_number(common, dir)?)?;
        if !dir.is_listed() || !common.is_fresh(now_ms, dir.completed_at_ms) {
            return None;
        }
        let pieces = pieces(dir);
        if !pieces.iter().all(|piece| common.is_fresh(now_ms, piece.slot.filled_at_ms)) {
            return None;
        }
        let (names, missing) = pieces.iter().fold((0, 0), |(names, missing), piece| {
            (names + piece.slot.names(), missing + piece.slot.stale().count_ones() as usize)
        });
        if missing > LISTING_MISSING_MAX.min(16 + names / LISTING_MISSING_SHARE) {
            return None;
        }
        let listed = rest_of(&pieces, after)?;
        let mut begins = true;
        for (_, slot) in dir.slots.iter().filter(|(_, slot)| slot.is_of_listing()) {
            self.ledger.touch(common, slot.object);
            if slot.attrs_object() != slot.object {
                self.ledger.touch(common, slot.attrs_object());
            }
            if common.is_observed() {
                common.tap.set_now(now_ms);
                common.saw_hit(self.number, Operation::List, begins, dir, slot, None);
                begins = false;
            }
        }
        Some(listed)
    }
}

/// A part of a listing.
struct Piece<'a> {
    /// Its place: what was learnt, then runs by rank.
    rank: Option<u16>,
    chunk: &'a Chunk,
    slot: &'a Slot,
}

impl Piece<'_> {
    /// Whether it is a name that comes before those in the order of the brick.
    fn is_learnt(&self) -> bool {
        LEARNT_BRICKS.contains(&self.chunk.brick())
    }

    /// The chunk without the entries of `omit`, a bit each, and those that are gone.
    fn listed(&self, omit: u128) -> Option<ListedChunk> {
        let (omit, stale) = (omit | self.slot.gone(), self.slot.stale());
        if omit == 0 && stale == 0 {
            return Some(ListedChunk { chunk: self.chunk.clone(), missing: 0 });
        }
        let kept = (0..self.chunk.count()).filter(|entry| omit >> entry & 1 == 0);
        let missing =
            kept.enumerate().fold(0, |missing, (at, entry)| missing | (stale >> entry & 1) << at);
        Some(ListedChunk { chunk: self.chunk.without(omit, stale)?, missing })
    }
}

/// The parts of a listing in their order.
fn pieces(dir: &Dir) -> Vec<Piece<'_>> {
    let mut pieces: Vec<_> = dir
        .slots
        .iter()
        .filter_map(|(_, slot)| match &slot.content {
            Content::Run { chunk, rank, .. } => Some(Piece { rank: Some(*rank), chunk, slot }),
            Content::Single(chunk) => Some(Piece { rank: None, chunk, slot }),
            Content::Negative(_) | Content::Own(_) | Content::Empty => None,
        })
        .collect();
    pieces.sort_by_key(|piece| piece.rank);
    pieces
}

/// What is left after a position; `None` where that is not a position of this listing.
fn rest_of(pieces: &[Piece<'_>], after: &[u64]) -> Option<Vec<ListedChunk>> {
    let delivered = Delivered::of(after);
    let bricks = of_bricks(after);
    // Whoever has had names in the order of a brick had all that were learnt before: one that it
    // did not have is new, or was among those. And no number may stand for two names in a position.
    let is_in_turn = |piece: &Piece<'_>| {
        let cookie = after.get(usize::from(piece.chunk.brick())).copied().unwrap_or(0);
        delivered.has(piece.chunk.name(0)) || (bricks.is_empty() && cookie == 0)
    };
    if !pieces.iter().filter(|piece| piece.is_learnt()).all(is_in_turn) {
        return None;
    }
    // Of each brick how many pieces were had, and how many entries of the next.
    let mut starts = Vec::with_capacity(bricks.len());
    for (brick, &cookie) in bricks.iter().enumerate() {
        let of_brick = |piece: &Piece<'_>| usize::from(piece.chunk.brick()) == brick;
        starts.push(if cookie == 0 { (0, 0) } else { find_cookie(pieces, of_brick, cookie)? });
    }
    let rest = pieces.iter().enumerate().filter_map(|(at, piece)| {
        let start = starts.get(usize::from(piece.chunk.brick())).copied().unwrap_or_default();
        let first = match at.cmp(&start.0) {
            std::cmp::Ordering::Less => return None,
            std::cmp::Ordering::Equal => start.1,
            std::cmp::Ordering::Greater => 0,
        };
        let had = 1_u128.checked_shl(first as u32).map_or(u128::MAX, |bit| bit - 1);
        piece.listed(had | delivered.among(piece.chunk))
    });
    Some(rest.collect())
}

/// Where a listing goes on after the entry of a brick with a cookie: the piece, and its entry.
fn find_cookie(
    pieces: &[Piece<'_>],
    of_brick: impl Fn(&Piece<'_>) -> bool,
    cookie: u64,
) -> Option<(usize, usize)> {
    let last = |piece: &Piece<'_>| piece.chunk.count() - 1;
    let of_brick = || pieces.iter().enumerate().filter(|(_, piece)| of_brick(piece));
    // Nearly always a position is the end of a chunk.
    let at_end = of_brick().find(|(_, piece)| piece.chunk.cookie(last(piece)) == cookie);
    if let Some((at, _)) = at_end {
        return Some((at + 1, 0));
    }
    of_brick().find_map(|(at, piece)| {
        let entry = (0..piece.chunk.count()).find(|&entry| piece.chunk.cookie(entry) == cookie)?;
        Some((at, entry + 1))
    })
}
