//! A policy that is about to work and still learns what is resident.
//!
//! It is told everything that was resident when it came, in small pieces between which the active
//! policy works, and then what happened meanwhile. What must hold: when it has learnt all, it knows
//! exactly what the active policy knows.

use std::sync::mpsc::SyncSender;

use portcullis_core::eviction::Event;
use portcullis_core::limits::{
    POLICY_BACKLOG_EVENTS_MAX, POLICY_EVENTS_MAX, POLICY_LESSON_EVENTS, POLICY_SWAP_MS_MAX,
};

use crate::error::{Fault, PolicyError};
use crate::seat::Seat;
use crate::status::Board;

/// Events of the backlog told in one turn: more than come in while the active policy works once.
const CATCH_UP_EVENTS: usize = 64 * POLICY_EVENTS_MAX;

/// What a policy is to work for.
pub(crate) enum Purpose {
    /// Somebody asked for it, and waits.
    Swap(SyncSender<Result<(), PolicyError>>),
    /// It failed, and is tried once more.
    Rebuild,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learnt {
    Some,
    All,
    /// It is too slow.
    TooLate,
}

/// See the module.
pub(crate) struct Trial {
    pub(crate) seat: Seat,
    pub(crate) purpose: Purpose,
    residents: Vec<Event>,
    /// How many of those it was told.
    told: usize,
    /// What happened since.
    backlog: Vec<Event>,
    began_ms: u64,
}

impl Trial {
    /// A policy that has to learn `residents`; `hits` are those just drained.
    pub(crate) fn new(
        seat: Seat,
        purpose: Purpose,
        residents: Vec<Event>,
        hits: &[Event],
        now_ms: u64,
    ) -> Self {
        let is_hit = |event: &&Event| matches!(event, Event::Hit { .. });
        let backlog = hits.iter().filter(is_hit).copied().collect();
        Self { seat, purpose, residents, told: 0, backlog, began_ms: now_ms }
    }

    /// Notes what the active policy is told.
    pub(crate) fn follow(&mut self, events: &[Event]) {
        self.backlog.extend_from_slice(events);
    }

    /// The next piece.
    pub(crate) fn lesson(&mut self, board: &Board, now_ms: u64) -> Result<Learnt, Fault> {
        let late = now_ms.saturating_sub(self.began_ms) > POLICY_SWAP_MS_MAX;
        if late || self.backlog.len() > POLICY_BACKLOG_EVENTS_MAX {
            return Ok(Learnt::TooLate);
        }
        if self.told < self.residents.len() {
            let end = self.residents.len().min(self.told + POLICY_LESSON_EVENTS);
            self.seat.tell(board, now_ms, &self.residents[self.told..end])?;
            self.told = end;
            if self.told == self.residents.len() {
                self.residents = Vec::new();
                self.told = 0;
            }
            return Ok(Learnt::Some);
        }
        let end = self.backlog.len().min(CATCH_UP_EVENTS);
        self.seat.tell(board, now_ms, &self.backlog[..end])?;
        self.backlog.drain(..end);
        Ok(if self.backlog.is_empty() { Learnt::All } else { Learnt::Some })
    }
}
