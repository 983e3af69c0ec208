//! One session as the answering side keeps it: what waits to be told, what is told and not yet
//! acknowledged, and how long its lease is held.

use std::collections::VecDeque;
use std::sync::Arc;

use super::change::Change;
use super::rounds::RoundId;
use super::watched::Watched;
use crate::limits::{CHANGES_QUEUED_MAX, CHANGES_TOLD_MAX, TELLS_IN_FLIGHT_MAX};

/// Changes to be told to one session in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// What the acknowledgement names.
    pub number: u64,
    /// The changes.
    pub changes: Vec<Change>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) watched: Arc<Watched>,
    /// When the lease is over unless it is renewed.
    pub(super) held_until_ms: u64,
    queue: Vec<Change>,
    in_flight: VecDeque<InFlight>,
    next_tell: u64,
    /// Changes queued so far, and how many of them are acknowledged.
    queued: u64,
    acknowledged: u64,
    /// Rounds that wait until so many are acknowledged, in order.
    waiting: VecDeque<(u64, RoundId)>,
}

#[derive(Debug)]
struct InFlight {
    number: u64,
    /// What is acknowledged with it.
    up_to: u64,
    acknowledged: bool,
}

impl Session {
    pub(super) fn new(watched: Arc<Watched>, held_until_ms: u64) -> Self {
        Self {
            watched,
            held_until_ms,
            queue: Vec::new(),
            in_flight: VecDeque::new(),
            next_tell: 1,
            queued: 0,
            acknowledged: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Queues a change. Too many at once become one: everything.
    pub(super) fn queue(&mut self, change: Change) {
        self.queued += 1;
        if self.queue.len() >= CHANGES_QUEUED_MAX || change == Change::All {
            self.queue.clear();
            self.queue.push(Change::All);
            self.watched.clear();
        } else if self.queue.first() != Some(&Change::All) {
            self.queue.push(change);
        }
    }

    /// Whether something is queued or not acknowledged.
    pub(super) fn owes(&self) -> bool {
        self.acknowledged < self.queued
    }

    /// Lets a round wait until all that is queued now is acknowledged.
    pub(super) fn wait(&mut self, round: RoundId) {
        self.waiting.push_back((self.queued, round));
    }

    /// The next message, unless nothing is queued or enough are under way.
    pub(super) fn next_tell(&mut self) -> Option<Tell> {
        if self.queue.is_empty() || self.in_flight.len() >= TELLS_IN_FLIGHT_MAX {
            return None;
        }
        let rest = self.queue.split_off(self.queue.len().min(CHANGES_TOLD_MAX));
        let changes = std::mem::replace(&mut self.queue, rest);
        let number = self.next_tell;
        self.next_tell += 1;
        // Changes that became one are all told with it.
        let up_to = self.queued - self.queue.len() as u64;
        self.in_flight.push_back(InFlight { number, up_to, acknowledged: false });
        Some(Tell { number, changes })
    }

    /// Notes an acknowledgement; answers the rounds that need not wait for this session any more.
    pub(super) fn acknowledge(&mut self, number: u64) -> Vec<RoundId> {
        if let Some(tell) = self.in_flight.iter_mut().find(|tell| tell.number == number) {
            tell.acknowledged = true;
        }
        while let Some(tell) = self.in_flight.pop_front_if(|tell| tell.acknowledged) {
            self.acknowledged = tell.up_to;
        }
        let mut over = Vec::new();
        while let Some((_, round)) = self.waiting.pop_front_if(|(n, _)| *n <= self.acknowledged) {
            over.push(round);
        }
        over
    }

    /// All rounds that wait for this session, which is over.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = RoundId> {
        self.waiting.into_iter().map(|(_, round)| round)
    }
}
