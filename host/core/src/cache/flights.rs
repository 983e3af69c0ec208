//! Fills on their way, and who waits for them: one request to a brick however many ask.
//!
//! A flight belongs to the shard of its key and is looked at under the same lock as the cached
//! data, which makes single flight exact. A flight that was asked before any invalidation is not
//! joined any more, since which file it will bring is not known yet: who asks after the
//! invalidation gets a flight of its own, and the older one still answers those who asked before.

use std::collections::HashMap;

use super::fence::Asked;
use crate::handle::Handle;
use crate::limits::{FILL_WAITERS_MAX, FILLS_PER_SHARD_MAX};

/// What a flight is to bring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum FillKey {
    /// An entry of a directory.
    Lookup(Handle, Box<[u8]>),
    /// Attributes.
    Getattr(Handle),
    /// A link target.
    Readlink(Handle),
}

impl FillKey {
    /// The file whose shard the flight belongs to.
    pub(super) fn handle(&self) -> &Handle {
        match self {
            FillKey::Lookup(handle, _) | FillKey::Getattr(handle) | FillKey::Readlink(handle) => {
                handle
            }
        }
    }
}

/// The leader's duty: whoever holds it asks the brick and calls `DentryCache::fill` with it.
#[derive(Debug)]
#[must_use = "a flight without its fill leaves its waiters waiting"]
pub struct Ticket {
    pub(super) key: FillKey,
    pub(super) number: u64,
    pub(super) asked: Asked,
}

struct Flight<W> {
    number: u64,
    asked: Asked,
    waiters: Vec<W>,
}

/// The flights of one shard.
pub(super) struct Flights<W> {
    current: HashMap<FillKey, Flight<W>>,
    /// Older flights by number: their waiters still want an answer.
    detached: HashMap<u64, Vec<W>>,
    next: u64,
}

/// How a request takes part in a flight.
pub(super) enum Role {
    Joined,
    Lead(Ticket),
    /// A limit is reached.
    Busy,
}

impl<W> Flights<W> {
    pub(super) fn new() -> Self {
        Self { current: HashMap::new(), detached: HashMap::new(), next: 1 }
    }

    /// Joins the flight for `key`, or leads a new one asked at `asked` where there is none or the
    /// one on its way was asked at another generation.
    pub(super) fn enter(&mut self, key: FillKey, asked: Asked, waiter: impl FnOnce() -> W) -> Role {
        if let Some(flight) = self.current.get_mut(&key)
            && flight.asked == asked
        {
            if flight.waiters.len() >= FILL_WAITERS_MAX {
                return Role::Busy;
            }
            flight.waiters.push(waiter());
            return Role::Joined;
        }
        if self.current.len() + self.detached.len() >= FILLS_PER_SHARD_MAX {
            return Role::Busy;
        }
        let number = self.next;
        self.next += 1;
        let flight = Flight { number, asked, waiters: vec![waiter()] };
        if let Some(older) = self.current.insert(key.clone(), flight) {
            self.detached.insert(older.number, older.waiters);
        }
        Role::Lead(Ticket { key, number, asked })
    }

    /// Ends a flight and gives its waiters back, the leader's among them.
    pub(super) fn leave(&mut self, ticket: &Ticket) -> Vec<W> {
        match self.current.get(&ticket.key) {
            Some(flight) if flight.number == ticket.number => {
                self.current.remove(&ticket.key).map_or_else(Vec::new, |flight| flight.waiters)
            }
            _ => self.detached.remove(&ticket.number).unwrap_or_default(),
        }
    }
}
