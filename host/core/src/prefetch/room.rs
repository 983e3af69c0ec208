//! How much may be ahead of a client and not be used: the budget, or less where memory has less room.
//!
//! A budget says what a host would spend at most. Whether that much lasts in its cache until it is used,
//! the host does not know: others use the cache too, and what nobody has used leaves it first. So the room is
//! found out, as a sender finds out what a network carries (Jacobson 1988): it is halved when something
//! was evicted before its client came, and grows again by what is used, by one listing each time that as much as it
//! holds was.
//!
//! What must hold: the room is never more than the budget; losses of what was begun before the room was
//! halved count once; where not even one listing lasts, one is tried again only after the client has
//! entered more directories, twice as many each time.

use super::dirs::Held;
use super::prefetcher::Budget;

/// What a listing is taken to bring before any was seen.
const LISTING_BYTES: u64 = 512;
/// Directories that the client enters, at most, before one is tried again.
const PAUSE_MAX: u32 = 1 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Room {
    budget: Held,
    now: Held,
    /// Bytes that a listing brings, as of late.
    listing_bytes: u64,
    /// Listings begun so far.
    begun: u64,
    /// How many were, when the room was halved last.
    halved_at: u64,
    /// Directories that the client has to enter before anything is begun.
    pause: u32,
    /// What `pause` was last.
    last_pause: u32,
}

impl Room {
    pub(super) fn new(budget: &Budget) -> Self {
        let budget = Held { bytes: budget.bytes, entries: budget.entries };
        Self {
            budget,
            now: budget,
            listing_bytes: LISTING_BYTES,
            begun: 0,
            halved_at: 0,
            pause: 0,
            last_pause: 0,
        }
    }

    /// How many listings may be begun, beside `held` and those `under_way`.
    pub(super) fn listings(&self, held: Held, under_way: usize) -> usize {
        if self.pause > 0 || held.bytes >= self.now.bytes || held.entries >= self.now.entries {
            return 0;
        }
        let fit = (self.now.bytes - held.bytes).div_ceil(self.listing_bytes.max(1));
        usize::try_from(fit).unwrap_or(usize::MAX).saturating_sub(under_way)
    }

    /// A listing is begun; its number.
    pub(super) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// A listing brought so much.
    pub(super) fn brought(&mut self, held: Held) {
        self.listing_bytes = (7 * self.listing_bytes + held.bytes) / 8;
    }

    /// What a listing brought was used.
    pub(super) fn used(&mut self, held: Held) {
        (self.pause, self.last_pause) = (0, 0);
        let grown = |now: u64, used: u64| now + used.min((used * used / now.max(1)).max(1));
        self.now.bytes = self.budget.bytes.min(grown(self.now.bytes, held.bytes));
        self.now.entries = self.budget.entries.min(grown(self.now.entries, held.entries));
    }

    /// What the listing `number` brought was evicted before it was used, while `held` was ahead.
    pub(super) fn lost(&mut self, number: u64, held: Held) {
        if number <= self.halved_at {
            return;
        }
        self.halved_at = self.begun;
        self.now.bytes = (self.now.bytes.min(held.bytes) / 2).max(1);
        self.now.entries = (self.now.entries.min(held.entries) / 2).max(1);
        if self.now.bytes < self.listing_bytes {
            self.last_pause = (2 * self.last_pause).clamp(8, PAUSE_MAX);
            self.pause = self.last_pause;
        }
    }

    /// The client entered a directory.
    pub(super) fn entered(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget { requests: 64, bytes: 64_000, entries: 6_400 };
    const NOTHING: Held = Held { bytes: 0, entries: 0 };
    const LISTING: Held = Held { bytes: 1_000, entries: 100 };

    fn times(count: u64) -> Held {
        Held { bytes: count * LISTING.bytes, entries: count * LISTING.entries }
    }

    /// One that has seen many listings.
    fn room() -> Room {
        let mut room = Room::new(&BUDGET);
        for _ in 0..100 {
            room.begin();
            room.brought(LISTING);
        }
        room
    }

    #[test]
    fn the_budget_is_the_room_until_something_is_lost() {
        let room = room();
        let fit = room.listings(NOTHING, 0);
        assert!((64..=66).contains(&fit), "{fit}");
        assert_eq!(room.listings(times(10), 10), fit - 20, "what is under way counts");
        assert_eq!(room.listings(times(64), 0), 0);
    }

    #[test]
    fn a_loss_halves_the_room_once_for_all_that_was_begun_before() {
        let mut room = room();
        room.lost(90, times(32));
        let fit = room.listings(NOTHING, 0);
        assert!((16..=18).contains(&fit), "{fit}");
        for number in 91..=100 {
            room.lost(number, times(16));
        }
        assert_eq!(room.listings(NOTHING, 0), fit, "begun before");
        let number = room.begin();
        room.lost(number, times(16));
        let fit = room.listings(NOTHING, 0);
        assert!((8..=9).contains(&fit), "{fit}");
    }

    #[test]
    fn the_room_grows_by_what_is_used_up_to_the_budget() {
        let mut room = room();
        room.lost(100, times(8));
        let fit = room.listings(NOTHING, 0);
        (0..fit).for_each(|_| room.used(LISTING));
        assert_eq!(room.listings(NOTHING, 0), fit + 1, "as much as it holds was used");
        (0..4_000).for_each(|_| room.used(LISTING));
        let fit = room.listings(NOTHING, 0);
        assert!((64..=66).contains(&fit), "all of the budget: {fit}");
        assert_eq!(room.listings(times(64), 0), 0);
    }

    #[test]
    fn where_nothing_lasts_one_is_tried_now_and_then() {
        let mut room = room();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let number = room.begin();
            room.lost(number, LISTING);
            let mut pause = 0;
            while room.listings(NOTHING, 0) == 0 {
                room.entered();
                pause += 1;
            }
            assert_eq!(room.listings(NOTHING, 0), 1);
            pauses.push(pause);
        }
        assert_eq!(pauses[..3], [8, 16, 32]);
        assert_eq!(pauses[11], PAUSE_MAX);
        room.used(LISTING);
        let number = room.begin();
        room.lost(number, LISTING);
        assert_eq!(room.pause, 8, "it lasted meanwhile");
    }
}
