//! The answering side: all sessions, what they watch, and who waits for their acknowledgements.
//!
//! Its driver (`host/transport/src/watching.rs`, or the simulator) sends what [`Grantor::next_tell`]
//! gives for every session that [`Grantor::change`] or [`Grantor::told`] names, hands in
//! acknowledgements and renewals, and calls [`Grantor::expire`] at least every few hundred
//! milliseconds. Waiters are handed back when their round is over; the caller wakes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::change::{Change, Keys};
use super::recent::Recent;
use super::rounds::{RoundId, Rounds};
use super::session::{Session, Tell};
use super::watched::Watched;
use crate::handle::Handle;
use crate::limits::{LEASE_HELD_MS, LEASE_MARGIN_MS};

/// Names a session within its tier; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The moment at which something is about to be read.
#[derive(Clone, Copy, Debug)]
pub struct Reading(u64);

/// How a change goes on.
#[derive(Debug)]
pub enum Round {
    /// Nobody has to be told.
    Over,
    /// These sessions have something to be told; the waiter comes back when all acknowledged, and
    /// when the leases of an earlier life are over ([`Grantor::wait_for_earlier_life`]).
    UnderWay(Vec<SessionId>),
}

/// See the module. `W` is whoever waits for the end of a round.
#[derive(Debug)]
pub struct Grantor<W> {
    keys: Keys,
    recent: Recent,
    watches: Arc<AtomicUsize>,
    /// No lease that was given reaches further.
    bound_ms: AtomicU64,
    table: Mutex<Table<W>>,
}

#[derive(Debug)]
struct Table<W> {
    sessions: BTreeMap<SessionId, Session>,
    earlier: Option<Earlier>,
    rounds: Rounds<W>,
    last_session: u64,
}

/// Sessions of an earlier life, of which nothing else is known.
#[derive(Debug)]
struct Earlier {
    held_until_ms: u64,
    waiting: Vec<RoundId>,
}

impl<W> Grantor<W> {
    /// A tier without sessions. `seed` keeps peers from choosing handles whose hashes collide; the
    /// ids of sessions begin after `last_session`, so that none is of an earlier life.
    pub fn new(seed: u64, last_session: u64) -> Self {
        Self {
            keys: Keys::new(seed),
            recent: Recent::default(),
            watches: Arc::default(),
            bound_ms: AtomicU64::new(u64::MAX),
            table: Mutex::new(Table {
                sessions: BTreeMap::new(),
                earlier: None,
                rounds: Rounds::new(),
                last_session,
            }),
        }
    }

    /// There may be sessions of an earlier life of this tier whose leases are not over: all changes
    /// wait until they are. Call it before the first one.
    pub fn wait_for_earlier_life(&self, now_ms: u64) {
        let held_until_ms = now_ms + LEASE_HELD_MS;
        self.table.lock().earlier = Some(Earlier { held_until_ms, waiting: Vec::new() });
    }

    /// No lease that this tier gave, or gives before the next call, reaches beyond `until_ms`: that
    /// is where its own lease ends, if it has one. A session that owes an acknowledgement is not
    /// waited for longer, so that this tier keeps its own session when one of its clients is gone.
    pub fn bound_leases(&self, until_ms: u64) {
        self.bound_ms.store(until_ms, Ordering::SeqCst);
    }

    /// Begins a session; its lease is held from now on.
    pub fn open(&self, now_ms: u64) -> (SessionId, Arc<Watched>) {
        let watched = Arc::new(Watched::new(self.keys.clone(), self.watches.clone()));
        let mut table = self.table.lock();
        table.last_session += 1;
        let id = SessionId(table.last_session);
        table.sessions.insert(id, Session::new(watched.clone(), now_ms + LEASE_HELD_MS));
        (id, watched)
    }

    /// Whether a session is still there.
    pub fn is_open(&self, id: SessionId) -> bool {
        self.table.lock().sessions.contains_key(&id)
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.table.lock().sessions.len()
    }

    /// How many rounds are under way.
    pub fn rounds(&self) -> usize {
        self.table.lock().rounds.len()
    }

    /// Call it before something is read that a session will be told.
    pub fn read(&self) -> Reading {
        Reading(self.recent.count())
    }

    /// Whether attributes of `handle` changed since, so that a watch registered after the reading
    /// may have come too late.
    pub fn attr_changed_since(&self, reading: Reading, handle: &Handle) -> bool {
        self.recent.changed_since(reading.0, self.keys.attr(handle))
    }

    /// As [`Grantor::attr_changed_since`], for names of `dir`.
    pub fn names_changed_since(&self, reading: Reading, dir: &Handle) -> bool {
        self.recent.changed_since(reading.0, self.keys.names(dir))
    }

    /// Whether anything at all changed since.
    pub fn anything_changed_since(&self, reading: Reading) -> bool {
        self.recent.count() != reading.0
    }

    /// Changes were made, by `origin` where it is one of the sessions: it learns of them from its
    /// answer. `waiter` is called where somebody has to acknowledge.
    pub fn change(
        &self,
        origin: Option<SessionId>,
        changes: &[Change],
        waiter: impl FnOnce() -> W,
    ) -> Round {
        let keys: Vec<_> = changes.iter().map(|change| self.keys.of(change)).collect();
        keys.iter().for_each(|key| self.recent.enter(*key));
        let mut table = self.table.lock();
        let Table { sessions, earlier, rounds, .. } = &mut *table;
        let round = rounds.next_id();
        let mut told = Vec::new();
        for (&id, session) in sessions.iter_mut().filter(|(id, _)| Some(**id) != origin) {
            let watched = session.watched.clone();
            let mut concerned = false;
            for (change, key) in changes.iter().zip(&keys) {
                if let Some(change) = watched.tell(*key, change) {
                    session.queue(change, *key);
                    concerned = true;
                } else if session.owes_of(*key) {
                    // Told before, which used up the watch, and perhaps not forgotten yet.
                    concerned = true;
                }
            }
            if concerned {
                session.wait(round);
                told.push(id);
            }
        }
        let unknown = earlier.as_mut().map(|earlier| earlier.waiting.push(round));
        let waits_for = told.len() + usize::from(unknown.is_some());
        if waits_for == 0 {
            return Round::Over;
        }
        rounds.begin(round, waits_for, waiter());
        Round::UnderWay(told)
    }

    /// The next message for a session; ask again until there is none.
    pub fn next_tell(&self, id: SessionId) -> Option<Tell> {
        self.table.lock().sessions.get_mut(&id)?.next_tell()
    }

    /// A session acknowledged a message. Hands back whoever need not wait any longer.
    pub fn told(&self, id: SessionId, number: u64) -> Vec<W> {
        let mut table = self.table.lock();
        let Table { sessions, rounds, .. } = &mut *table;
        let Some(session) = sessions.get_mut(&id) else { return Vec::new() };
        let over = session.acknowledge(number);
        over.into_iter().filter_map(|round| rounds.release(round)).collect()
    }

    /// A session asks for its lease to be renewed. It is answered when all that is queued for it by
    /// now is acknowledged: a lease must not grow over something the session does not know yet.
    /// `None` where the session is gone; `Some(Round::Over)` where it may be answered at once.
    pub fn renew(&self, now_ms: u64, id: SessionId, waiter: impl FnOnce() -> W) -> Option<Round> {
        let mut table = self.table.lock();
        let Table { sessions, rounds, .. } = &mut *table;
        let session = sessions.get_mut(&id)?;
        let until_ms = now_ms + LEASE_HELD_MS;
        if !session.owes() {
            session.hold(until_ms);
            return Some(Round::Over);
        }
        let round = rounds.next_id();
        session.wait_to_renew(round, until_ms);
        rounds.begin(round, 1, waiter());
        Some(Round::UnderWay(vec![id]))
    }

    /// Ends a session that caches nothing any more, or whose lease ran out. Hands back whoever
    /// need not wait for it any longer.
    pub fn end(&self, id: SessionId) -> Vec<W> {
        let mut table = self.table.lock();
        let Table { sessions, rounds, .. } = &mut *table;
        let Some(session) = sessions.remove(&id) else { return Vec::new() };
        session.into_waiting().filter_map(|round| rounds.release(round)).collect()
    }

    /// Ends every session whose lease ran out before `now_ms`; answers them, and whoever need not
    /// wait for them any longer.
    pub fn expire(&self, now_ms: u64) -> (Vec<SessionId>, Vec<W>) {
        let mut table = self.table.lock();
        let Table { sessions, earlier, rounds, .. } = &mut *table;
        let bound_ms = self.bound_ms.load(Ordering::SeqCst).saturating_add(LEASE_MARGIN_MS);
        let is_over = |session: &Session| {
            session.held_until_ms <= now_ms || session.owes() && bound_ms <= now_ms
        };
        let over: Vec<SessionId> =
            sessions.iter().filter(|(_, s)| is_over(s)).map(|(&id, _)| id).collect();
        let gone = over.iter().filter_map(|id| sessions.remove(id));
        let mut waiting: Vec<RoundId> = gone.flat_map(Session::into_waiting).collect();
        if let Some(earlier) = earlier.take_if(|earlier| earlier.held_until_ms <= now_ms) {
            waiting.extend(earlier.waiting);
        }
        let waiters = waiting.into_iter().filter_map(|round| rounds.release(round)).collect();
        (over, waiters)
    }
}

#[cfg(test)]
#[path = "grantor_tests.rs"]
mod tests;
