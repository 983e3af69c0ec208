//! The host's half of prefetch for one client: what it lists ahead, and what becomes of that.
//!
//! The host tells of each listing of its client ([`entered`](Prefetcher::entered),
//! [`told`](Prefetcher::told), [`ended`](Prefetcher::ended)), carries out what
//! [`take`](Prefetcher::take) answers, and tells of those listings too
//! ([`told_ahead`](Prefetcher::told_ahead), [`ended_ahead`](Prefetcher::ended_ahead)), and of what is
//! no longer true. It may be that a directory is listed ahead and by its client at once: then the
//! client takes the listing over as it comes, if the host can do that.
//!
//! `take` asks a policy at once. One that works elsewhere is handed what [`drain`](Prefetcher::drain)
//! gives, and what it wants comes back to [`answer`](Prefetcher::answer) when it has decided; the
//! directories may stand differently by then.
//!
//! What must hold: never more listings are under way than the budget has requests; no new one
//! begins while what was brought and is not used is over its bytes or entries, or over what lasts in
//! memory (`room`), and one that brings
//! more than that alone is stopped; each listing ahead is counted once, as used, late, wasted,
//! cancelled or failed. All of that whatever a policy answers, and when.

use super::dirs::{Dirs, Held, Standing};
use super::room::Room;
use super::{Answer, DirId, Entry, Event, Loss, PrefetchPolicy};
use crate::attr::FileKind;
use crate::chunk::Chunk;
use crate::handle::Handle;
use crate::limits::PREFETCH_DIRS_MAX;
use crate::watch::Change;

/// What may be spent on one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Listings ahead under way.
    pub requests: usize,
    /// Bytes of listings that are not used yet.
    pub bytes: u64,
    /// Entries of listings that are not used yet.
    pub entries: u64,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchCounters {
    /// Listings begun ahead.
    pub begun: u64,
    /// Of those, used when they were there.
    pub used: u64,
    /// Used before they were there.
    pub late: u64,
    /// Never used: changed, evicted, or given up for as long as it is known.
    pub wasted: u64,
    /// Given up before they were there.
    pub cancelled: u64,
    /// Not to be had.
    pub failed: u64,
}

impl PrefetchCounters {
    /// Adds what one client's counters went on by, from `before` to `now`. One of them may go back,
    /// for what turned out to be known.
    pub fn advance(&mut self, before: &Self, now: &Self) {
        let on = |sum: &mut u64, before: u64, now: u64| {
            *sum = sum.wrapping_add(now).wrapping_sub(before);
        };
        on(&mut self.begun, before.begun, now.begun);
        on(&mut self.used, before.used, now.used);
        on(&mut self.late, before.late, now.late);
        on(&mut self.wasted, before.wasted, now.wasted);
        on(&mut self.cancelled, before.cancelled, now.cancelled);
        on(&mut self.failed, before.failed, now.failed);
    }
}

/// How a client's listing meets what is done ahead of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// It is being listed ahead: take that over.
    UnderWay,
    /// Nothing of it is under way.
    Alone,
}

/// What the host has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// List this directory ahead, from its start.
    List(Handle),
    /// Give that up.
    Stop(Handle),
}

/// What came of a policy's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Directories that are now listed ahead.
    pub accepted: u64,
    /// Of directories that were forgotten.
    pub stale: u64,
    /// Directories that are listed already.
    pub repeated: u64,
    /// Of ids that were never given out.
    pub foreign: u64,
    /// Directories to be listed beyond those that were wanted; the policy is told that they are lost.
    pub excess: u64,
}

/// See the module.
pub struct Prefetcher {
    budget: Budget,
    room: Room,
    dirs: Dirs,
    events: Vec<Event>,
    answers: Vec<Answer>,
    under_way: usize,
    held: Held,
    counters: PrefetchCounters,
}

impl Prefetcher {
    /// One that knows nothing yet. `seed` keeps clients from choosing handles that collide.
    pub fn new(budget: Budget, seed: u64) -> Self {
        Self {
            budget,
            room: Room::new(&budget),
            dirs: Dirs::new(seed),
            events: Vec::new(),
            answers: Vec::new(),
            under_way: 0,
            held: Held::default(),
            counters: PrefetchCounters::default(),
        }
    }

    /// What was counted.
    pub fn counters(&self) -> PrefetchCounters {
        self.counters
    }

    /// Listings ahead under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// What was brought and is not used yet.
    #[cfg(test)]
    pub(super) fn held(&self) -> Held {
        self.held
    }

    /// The last id that was given out; they are numbers in sequence.
    #[cfg(test)]
    pub(super) fn last_given(&self) -> u64 {
        self.dirs.last_given()
    }

    /// Directories that the policy has not forgotten.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.dirs.len()
    }

    /// The client begins to list a directory from its start; `is_cached` tells whether all of it is
    /// in the cache.
    pub fn entered(&mut self, dir: &Handle, is_cached: bool) -> Meeting {
        let known = self.dirs.find(dir);
        let Some(id) = known.or_else(|| self.has_room().then(|| self.dirs.add(dir))) else {
            return Meeting::Alone;
        };
        let standing = self.dirs.get(id).map_or(Standing::Known, |dir| dir.standing);
        let entry = match standing {
            Standing::Ready(_) if is_cached => Entry::Used,
            Standing::UnderWay(_) => Entry::Late,
            _ if is_cached => Entry::Known,
            _ => Entry::Missed,
        };
        self.room.entered();
        match (entry, standing) {
            (Entry::Used, Standing::Ready(held)) => {
                self.counters.used += 1;
                self.room.used(held);
            }
            (Entry::Late, _) => self.counters.late += 1,
            // It has left the cache.
            (Entry::Missed, Standing::Ready(_)) => {
                self.counters.wasted += 1;
                let listing = self.dirs.get(id).map_or(0, |dir| dir.listing);
                self.room.lost(listing, self.held);
            }
            _ => {}
        }
        self.stand(id, Standing::Entered);
        self.events.push(Event::Entered { dir: id, entry });
        if entry == Entry::Late { Meeting::UnderWay } else { Meeting::Alone }
    }

    /// A chunk of the client's own listing.
    pub fn told(&mut self, dir: &Handle, chunk: &Chunk) {
        if let Some(id) = self.dirs.find(dir)
            && self.dirs.get(id).is_some_and(|dir| !dir.is_told)
        {
            self.subdirs(id, chunk);
        }
    }

    /// The client's own listing is over, whole or not.
    pub fn ended(&mut self, dir: &Handle) {
        if let Some(id) = self.dirs.find(dir)
            && let Some(dir) = self.dirs.get_mut(id)
            && !dir.is_told
        {
            dir.is_told = true;
            self.events.push(Event::Listed { dir: id });
        }
    }

    /// A chunk of a listing ahead. Where the answer is `false` the listing has to be stopped: it is
    /// too large.
    pub fn told_ahead(&mut self, dir: &Handle, chunk: &Chunk) -> bool {
        let Some(id) = self.dirs.find(dir) else { return true };
        self.subdirs(id, chunk);
        let Some(Standing::UnderWay(held)) = self.dirs.get(id).map(|dir| dir.standing) else {
            return true;
        };
        let (bytes, entries) = (chunk.bytes().len() as u64, chunk.count() as u64);
        let held = Held { bytes: held.bytes + bytes, entries: held.entries + entries };
        self.stand(id, Standing::UnderWay(held));
        held.bytes <= self.budget.bytes && held.entries <= self.budget.entries
    }

    /// A listing ahead is over: it is in the cache, or why not. Each [`Order::List`] ends with this,
    /// or with an [`Order::Stop`].
    pub fn ended_ahead(&mut self, dir: &Handle, outcome: Result<(), Loss>) {
        self.under_way = self.under_way.saturating_sub(1);
        let Some(id) = self.dirs.find(dir) else { return };
        let Some(Standing::UnderWay(held)) = self.dirs.get(id).map(|dir| dir.standing) else {
            // The client has taken it over, or the policy gave it up.
            if self.dirs.get(id).is_some_and(|dir| dir.standing == Standing::Entered) {
                self.events.push(Event::Listed { dir: id });
            }
            return;
        };
        match outcome {
            Ok(()) => {
                self.room.brought(held);
                self.stand(id, Standing::Ready(held));
                self.events.push(Event::Listed { dir: id });
            }
            Err(loss) => {
                match loss {
                    // Never asked for.
                    Loss::Known => self.counters.begun -= 1,
                    Loss::Failed => self.counters.failed += 1,
                    Loss::Invalidated | Loss::Dropped => self.counters.wasted += 1,
                }
                self.stand(id, Standing::Known);
                if let Some(dir) = self.dirs.get_mut(id) {
                    dir.is_told = false;
                }
                self.events.push(Event::Lost { dir: id, loss });
            }
        }
    }

    /// Begins anew, for a policy that knows nothing, or at the end of the client: what is under way is
    /// cancelled, and the rest was in vain. The host stops all that it lists ahead, and tells nothing
    /// more of that.
    pub fn restart(&mut self) {
        // Those that the client came to meanwhile are counted.
        let is_under_way = |standing| matches!(standing, Standing::UnderWay(_));
        self.counters.cancelled += self.dirs.of_standing(is_under_way).len() as u64;
        let is_ready = |standing| matches!(standing, Standing::Ready(_));
        self.counters.wasted += self.dirs.of_standing(is_ready).len() as u64;
        (self.under_way, self.held) = (0, Held::default());
        self.dirs.clear();
        self.events.clear();
    }

    /// What is no longer true was forgotten.
    pub fn forgotten(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Name { dir, .. } | Change::Names { dir } => {
                    if let Some(id) = self.dirs.find(dir) {
                        self.waste(id, Loss::Invalidated);
                    }
                }
                Change::All => {
                    let is_ready = |standing| matches!(standing, Standing::Ready(_));
                    for id in self.dirs.of_standing(is_ready) {
                        self.waste(id, Loss::Invalidated);
                    }
                }
                Change::Attr { .. } => {}
            }
        }
    }

    /// Tells the policy what happened, and answers what the host has to do now.
    pub fn take(&mut self, policy: &mut dyn PrefetchPolicy, now_ms: u64) -> Vec<Order> {
        let mut events = std::mem::take(&mut self.events);
        policy.on_events(now_ms, &events);
        events.clear();
        self.events = events;
        let want = self.want();
        let mut answers = std::mem::take(&mut self.answers);
        policy.propose(now_ms, want, &mut answers);
        let (orders, _) = self.answer(want, &answers);
        answers.clear();
        self.answers = answers;
        orders
    }

    /// Events that wait to be told.
    pub fn pending(&self) -> usize {
        self.events.len()
    }

    /// Moves what is to be told to the end of `events`, and answers how many directories the policy
    /// may want to be listed once it knows that. Not called again until those are answered.
    pub fn drain(&mut self, events: &mut Vec<Event>) -> usize {
        events.append(&mut self.events);
        self.want()
    }

    /// What a policy wants that was told that it may want `want` directories: what the host has to
    /// do, and what came of each.
    pub fn answer(&mut self, want: usize, answers: &[Answer]) -> (Vec<Order>, Answered) {
        let (mut orders, mut answered) = (Vec::new(), Answered::default());
        for &answer in answers {
            let (Answer::List(id) | Answer::Cancel(id) | Answer::Forget(id)) = answer;
            let Some(standing) = self.dirs.get(id).map(|dir| dir.standing) else {
                let never = !self.dirs.was_given(id);
                *(if never { &mut answered.foreign } else { &mut answered.stale }) += 1;
                continue;
            };
            let order = match answer {
                Answer::Cancel(_) => self.cancel(id),
                Answer::Forget(_) => self.forget(id),
                Answer::List(_) if standing != Standing::Known => {
                    answered.repeated += 1;
                    None
                }
                Answer::List(_) if answered.accepted >= want as u64 => {
                    answered.excess += 1;
                    self.events.push(Event::Lost { dir: id, loss: Loss::Failed });
                    None
                }
                Answer::List(_) => {
                    answered.accepted += 1;
                    self.list(id)
                }
            };
            self.give(order, &mut orders);
        }
        (orders, answered)
    }

    /// Adds an order. What is to be stopped and was not begun yet is not begun.
    fn give(&mut self, order: Option<Order>, orders: &mut Vec<Order>) {
        let Some(order) = order else { return };
        if let Order::Stop(dir) = order
            && let Some(at) = orders.iter().position(|order| *order == Order::List(dir))
        {
            orders.remove(at);
            self.counters.begun -= 1;
            self.counters.cancelled -= 1;
        } else {
            orders.push(order);
        }
    }

    fn want(&self) -> usize {
        let fit = self.room.listings(self.held, self.under_way);
        fit.min(self.budget.requests.saturating_sub(self.under_way))
    }

    fn list(&mut self, id: DirId) -> Option<Order> {
        let number = self.room.begin();
        let dir = self.dirs.get_mut(id)?;
        (dir.is_told, dir.listing) = (true, number);
        let handle = dir.handle;
        self.under_way += 1;
        self.counters.begun += 1;
        self.stand(id, Standing::UnderWay(Held::default()));
        Some(Order::List(handle))
    }

    fn cancel(&mut self, id: DirId) -> Option<Order> {
        let dir = self.dirs.get(id)?;
        let order = match dir.standing {
            Standing::UnderWay(_) => {
                self.counters.cancelled += 1;
                self.under_way -= 1;
                Some(Order::Stop(dir.handle))
            }
            Standing::Ready(_) => {
                self.counters.wasted += 1;
                None
            }
            Standing::Known | Standing::Entered => return None,
        };
        self.stand(id, Standing::Known);
        if let Some(dir) = self.dirs.get_mut(id) {
            dir.is_told = false;
        }
        order
    }

    fn forget(&mut self, id: DirId) -> Option<Order> {
        let order = self.cancel(id);
        self.dirs.remove(id);
        order
    }

    fn waste(&mut self, id: DirId, loss: Loss) {
        if self.dirs.get(id).is_some_and(|dir| matches!(dir.standing, Standing::Ready(_))) {
            self.counters.wasted += 1;
            self.stand(id, Standing::Known);
            self.events.push(Event::Lost { dir: id, loss });
        }
    }

    fn subdirs(&mut self, id: DirId, chunk: &Chunk) {
        for entry in 0..chunk.count() {
            if chunk.kind(entry) != FileKind::Directory || !self.has_room() {
                continue;
            }
            if let Some(handle) = Handle::new(chunk.handle_bytes(entry))
                && self.dirs.find(&handle).is_none()
            {
                let subdir = self.dirs.add(&handle);
                self.events.push(Event::Subdir { dir: id, subdir });
            }
        }
    }

    /// A policy that keeps to its limit is never refused; one that does not is told no more.
    fn has_room(&self) -> bool {
        self.dirs.len() < 2 * PREFETCH_DIRS_MAX
    }

    fn stand(&mut self, id: DirId, standing: Standing) {
        let Some(dir) = self.dirs.get_mut(id) else { return };
        let before = std::mem::replace(&mut dir.standing, standing);
        let of = |standing| match standing {
            Standing::UnderWay(held) | Standing::Ready(held) => held,
            Standing::Known | Standing::Entered => Held::default(),
        };
        let (before, now) = (of(before), of(standing));
        self.held.bytes = self.held.bytes + now.bytes - before.bytes;
        self.held.entries = self.held.entries + now.entries - before.entries;
    }
}

impl std::fmt::Debug for Prefetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { under_way, held, counters, .. } = self;
        let mut shown = f.debug_struct("Prefetcher");
        shown.field("under_way", under_way).field("held", held);
        shown.field("counters", counters).finish_non_exhaustive()
    }
}
