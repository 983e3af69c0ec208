//! How far a listing has come, and the names that are listed before the brick's own order.
//!
//! A position is a vector of cookies, one a brick: that of the last entry received from it. Where a
//! brick puts a name that was just made, only a listing can tell. A tier that knows a directory
//! whole and learns of a new name therefore lists that name *first*, in a chunk of its own, under
//! one of the highest brick numbers ([`LEARNT_BRICKS`]) and with a hash of the name as its cookie. So
//! a position tells, without anybody's having to know what a position is, which such names were
//! delivered ([`Delivered`]), and whoever goes on with the listing, from wherever, leaves them out.
//!
//! What must hold: of the entries that exist throughout a listing each is delivered exactly once,
//! also where the listing goes on elsewhere: those listed first were all delivered before any
//! other, so one that was not is new, or was listed in the order of the brick.

use std::ops::Range;

use crate::chunk::Chunk;
use crate::limits::{LEARNT_NAMES_MAX, POSITION_COOKIES_MAX};

/// Brick numbers of names that are listed first; no brick of a volume has one of these.
pub const LEARNT_BRICKS: Range<u16> =
    (POSITION_COOKIES_MAX - LEARNT_NAMES_MAX) as u16..POSITION_COOKIES_MAX as u16;

/// The cookie of a name that is listed first: the same in every version, on every host. Never 0.
pub fn learnt_cookie(name: &[u8]) -> u64 {
    // FNV-1a. Two names that collide cost one of them its place in a listing that was interrupted
    // after the other was made.
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.max(1)
}

/// Whether a position is the start of a listing.
pub fn is_start(position: &[u64]) -> bool {
    position.iter().all(|&cookie| cookie == 0)
}

/// The part of a position that bricks understand, without zeros at its end.
pub fn of_bricks(position: &[u64]) -> &[u64] {
    let bricks = &position[..position.len().min(LEARNT_BRICKS.start as usize)];
    let len = bricks.iter().rposition(|&cookie| cookie != 0).map_or(0, |last| last + 1);
    &bricks[..len]
}

/// Moves a position to just after entry `index` of a chunk.
pub fn advance(position: &mut Vec<u64>, chunk: &Chunk, index: usize) {
    let brick = usize::from(chunk.brick());
    if position.len() <= brick {
        position.resize(brick + 1, 0);
    }
    position[brick] = chunk.cookie(index);
}

/// The names that were delivered first, as a position tells.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    cookies: Vec<u64>,
}

impl Delivered {
    /// Those of a position.
    pub fn of(position: &[u64]) -> Self {
        let learnt = position.get(LEARNT_BRICKS.start as usize..).unwrap_or_default();
        Self { cookies: learnt.iter().copied().filter(|&cookie| cookie != 0).collect() }
    }

    /// Whether there are none, which is mostly so.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    /// Whether `name` was delivered first.
    pub fn has(&self, name: &[u8]) -> bool {
        !self.is_empty() && self.cookies.contains(&learnt_cookie(name))
    }

    /// Entries of a chunk that were delivered first, a bit each.
    pub fn among(&self, chunk: &Chunk) -> u128 {
        if self.is_empty() {
            return 0;
        }
        (0..chunk.count()).fold(0, |had, at| had | u128::from(self.has(chunk.name(at))) << at)
    }

    /// A chunk without those entries; `None` where it has no others.
    pub fn leave_out(&self, chunk: Chunk) -> Option<Chunk> {
        match self.among(&chunk) {
            0 => Some(chunk),
            had => chunk.without(had, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkBuilder;
    use crate::testing::entry_ref;

    fn chunk(brick: u16, entries: &[(&str, u64)]) -> Chunk {
        let mut builder = ChunkBuilder::default();
        assert!(
            entries.iter().all(|(name, cookie)| builder.push(&entry_ref(name.as_bytes(), *cookie)))
        );
        builder.finish(brick).expect("entries")
    }

    fn names(chunk: &Chunk) -> Vec<&[u8]> {
        chunk.entries().map(|entry| entry.name).collect()
    }

    #[test]
    fn a_position_tells_what_was_delivered_first_and_bricks_do_not_see_it() {
        let mut position = Vec::new();
        assert!(is_start(&position) && Delivered::of(&position).is_empty());
        for (brick, name) in [(LEARNT_BRICKS.start, "a"), (LEARNT_BRICKS.end - 1, "b")] {
            advance(&mut position, &chunk(brick, &[(name, learnt_cookie(name.as_bytes()))]), 0);
        }
        assert!(!is_start(&position));
        assert!(of_bricks(&position).is_empty());
        advance(&mut position, &chunk(0, &[("x", 7), ("y", u64::MAX)]), 1);
        assert_eq!(of_bricks(&position), [u64::MAX]);
        let delivered = Delivered::of(&position);
        assert!(delivered.has(b"a") && delivered.has(b"b") && !delivered.has(b"x"));
        let left = delivered.leave_out(chunk(0, &[("a", 8), ("z", 9), ("b", 10)]));
        assert_eq!(left.as_ref().map(names), Some(vec![&b"z"[..]]));
        assert!(delivered.leave_out(chunk(0, &[("b", 11)])).is_none());
        assert_eq!(
            Delivered::default().leave_out(chunk(0, &[("b", 11)])).map(|c| c.count()),
            Some(1)
        );
    }

    /// Positions outlive versions: these values are part of the protocol.
    #[test]
    fn the_cookie_of_a_name_never_changes() {
        assert_eq!(learnt_cookie(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(learnt_cookie(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
