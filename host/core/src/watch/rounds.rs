//! Rounds: everyone who has to acknowledge a change before whoever made it is answered.

use std::collections::HashMap;

/// Names a round within its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RoundId(u64);

/// The rounds under way. `W` is whoever waits for the end of one.
#[derive(Debug)]
pub(super) struct Rounds<W> {
    under_way: HashMap<RoundId, (usize, W)>,
    next: u64,
}

impl<W> Rounds<W> {
    pub(super) fn new() -> Self {
        Self { under_way: HashMap::new(), next: 0 }
    }

    /// The id of the next round.
    pub(super) fn next_id(&mut self) -> RoundId {
        self.next += 1;
        RoundId(self.next)
    }

    /// Begins a round that waits for `sessions` sessions or others, one at least.
    pub(super) fn begin(&mut self, id: RoundId, sessions: usize, waiter: W) {
        debug_assert!(sessions > 0);
        self.under_way.insert(id, (sessions, waiter));
    }

    /// One session less to wait for; answers the waiter of a round that is over.
    pub(super) fn release(&mut self, id: RoundId) -> Option<W> {
        let (sessions, _) = self.under_way.get_mut(&id)?;
        *sessions -= 1;
        if *sessions > 0 {
            return None;
        }
        self.under_way.remove(&id).map(|(_, waiter)| waiter)
    }

    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }
}
