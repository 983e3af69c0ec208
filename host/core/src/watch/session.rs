//! One session as the answering side keeps it: what waits to be told, what is told and not yet
//! acknowledged, and how long its lease is held.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::change::{Change, Key};
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
    /// What is told and not acknowledged: what each change concerned, and the last of each.
    owed: VecDeque<(u64, Key)>,
    owed_last: HashMap<Key, u64>,
    /// Everything is told with this change.
    owed_all: u64,
    /// What waits for acknowledgements, in order.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// How many changes have to be acknowledged.
    up_to: u64,
    round: RoundId,
    /// Of a renewal: until when the lease is held once it is answered.
    renews_until_ms: Option<u64>,
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
            owed: VecDeque::new(),
            owed_last: HashMap::new(),
            owed_all: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Queues a change that concerns `key`. Too many at once become one: everything.
    pub(super) fn queue(&mut self, change: Change, key: Option<Key>) {
        self.queued += 1;
        if self.queue.len() >= CHANGES_QUEUED_MAX || change == Change::All {
            self.queue.clear();
            self.queue.push(Change::All);
            self.watched.clear();
            self.owed_all = self.queued;
            self.owed.clear();
            self.owed_last.clear();
        } else if self.queue.first() == Some(&Change::All) {
            self.owed_all = self.queued;
        } else if let Some(key) = key {
            self.queue.push(change);
            self.owed.push_back((self.queued, key));
            self.owed_last.insert(key, self.queued);
        }
    }

    /// Whether what `key` stands for was told and is not acknowledged: the session does not watch it
    /// any more, and may know it still.
    pub(super) fn owes_of(&self, key: Option<Key>) -> bool {
        let owes_it = |key| self.owed_last.contains_key(&key);
        self.owes() && (self.owed_all > self.acknowledged || key.is_none_or(owes_it))
    }

    /// Whether something is queued or not acknowledged.
    pub(super) fn owes(&self) -> bool {
        self.acknowledged < self.queued
    }

    /// Lets a round wait until all that is queued now is acknowledged.
    pub(super) fn wait(&mut self, round: RoundId) {
        self.push(round, None);
    }

    /// As [`Session::wait`], for a renewal: the lease is held until `until_ms` from then on, and not
    /// earlier, or a session that renews but never acknowledges would be waited for without end.
    pub(super) fn wait_to_renew(&mut self, round: RoundId, until_ms: u64) {
        self.push(round, Some(until_ms));
    }

    fn push(&mut self, round: RoundId, renews_until_ms: Option<u64>) {
        self.waiting.push_back(Waiting { up_to: self.queued, round, renews_until_ms });
    }

    /// The lease is held until then at least.
    pub(super) fn hold(&mut self, until_ms: u64) {
        self.held_until_ms = self.held_until_ms.max(until_ms);
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
        let acknowledged = self.acknowledged;
        while let Some((number, key)) = self.owed.pop_front_if(|(n, _)| *n <= acknowledged) {
            if self.owed_last.get(&key) == Some(&number) {
                self.owed_last.remove(&key);
            }
        }
        let mut over = Vec::new();
        while let Some(waiting) = self.waiting.pop_front_if(|w| w.up_to <= self.acknowledged) {
            self.hold(waiting.renews_until_ms.unwrap_or(0));
            over.push(waiting.round);
        }
        over
    }

    /// All rounds that wait for this session, which is over.
    pub(super) fn into_waiting(self) -> impl Iterator<Item = RoundId> {
        self.waiting.into_iter().map(|waiting| waiting.round)
    }
}
