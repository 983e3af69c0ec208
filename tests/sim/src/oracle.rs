//! What each client may be told.
//!
//! The history of a name is the list of its states, in the order in which the brick applied changes.
//! A change is acknowledged when the program that asked for it has its answer; from then on nobody
//! who asks is told what it changed: which file a name stands for, or the version of that file. The
//! two are apart, since a file may be seen, and changed, before whoever made it has the answer. A change that was made on the brick itself counts as
//! acknowledged when [`TOLD_US_MAX`] have passed. A mutation is applied at most once, its answer
//! tells what came of it, and nobody whose own way to the brick is in order waits longer than the
//! leases of others can last.

use std::collections::BTreeMap;

use portcullis_core::Status;
use portcullis_core::limits::LEASE_HELD_MS;
use portcullis_core::replay::OpId;
use portcullis_wire::message::Mutation;
use portcullis_wire::{Reply, ReplyFrame, Request};

use crate::brick::NOTICE_US_MAX;
use crate::tree::{NAMES, Place, State, file_of, name_of, place_of};

/// A lease as the answering side holds it, by the true clock, with the ticks that end it.
const LEASE_US: u64 = LEASE_HELD_MS * 1000 / 100 * 103 + 200_000;
/// Longest time until a change on the brick itself is known to all.
const TOLD_US_MAX: u64 = NOTICE_US_MAX + LEASE_US + 500_000;
/// Longest time for which anybody waits: for a gateway at the brick, then for a client at the
/// gateway, and once more where its own session ended because it acknowledged too late; and what
/// packets take that are lost again and again.
pub const WAIT_US_MAX: u64 = 3 * LEASE_US + 2_000_000;

/// What a client asked, and what it may not be told any more.
#[derive(Clone, Debug)]
struct Asked {
    client: usize,
    at_us: u64,
    request: Option<Request>,
    /// For each name of the directory, what was acknowledged last when this was asked.
    floor: [Floor; NAMES],
    op: Option<(u128, u64)>,
}

/// The last changes of a name that were acknowledged, as places in its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Floor {
    /// Of which file it stands for.
    name: usize,
    /// Of the version of a file.
    version: usize,
}

/// How a mutation was applied: where, and as which state of that name; or how it failed.
type Applied = (u64, Result<(Place, usize), Status>);

/// What a client was told of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Absent,
    /// A file, and its version where its attributes were told.
    File(u64, Option<u64>),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Oracle {
    histories: BTreeMap<Place, Vec<State>>,
    acknowledged: BTreeMap<Place, Floor>,
    /// Changes made on the brick itself, and when they count as acknowledged.
    direct: Vec<(u64, Place, usize)>,
    applied: BTreeMap<(u128, u64), Vec<Applied>>,
    asked: BTreeMap<u64, Asked>,
    /// Since when the way of each client is in order.
    calm_since_us: BTreeMap<usize, u64>,
    /// The life of the brick.
    pub brick_life: u64,
    /// Longest time for which anybody may wait, where that is bounded.
    wait_us_max: Option<u64>,
    /// What was wrong.
    pub violations: Vec<String>,
    /// Answers judged; mutations done, repeated ones among them; outcomes not known.
    pub counts: Counts,
}

/// See [`Oracle::counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub struct Counts {
    pub answers: u64,
    pub mutations: u64,
    pub unknown: u64,
    pub longest_wait_us: u64,
}

impl Oracle {
    /// Nothing happened yet. Nobody may wait for longer than `wait_us_max`, where that is bounded.
    pub fn new(wait_us_max: Option<u64>) -> Self {
        Self { wait_us_max, ..Self::default() }
    }

    /// Somebody changed something on the brick itself.
    pub fn change(&mut self, now_us: u64, place: Place, state: State) {
        let index = self.push(place, state);
        self.direct.push((now_us + TOLD_US_MAX, place, index));
    }

    fn push(&mut self, place: Place, state: State) -> usize {
        let history = self.histories.entry(place).or_insert_with(|| vec![None]);
        history.push(state);
        history.len() - 1
    }

    /// The brick applies a mutation.
    pub fn apply(
        &mut self,
        op: &OpId,
        mutation: &Mutation,
        result: Result<(Place, State), Status>,
    ) {
        let result = result.map(|(place, state)| (place, self.push(place, state)));
        let life = self.brick_life;
        let applied = self.applied.entry((op.client, op.number)).or_default();
        let is_done = |(of_life, result): &Applied| {
            *of_life == life || result.is_ok() && !mutation.is_idempotent()
        };
        if applied.iter().any(is_done) {
            self.violations.push(format!("{mutation:?} was applied twice: {applied:?}"));
        }
        applied.push((life, result));
    }

    /// A client asks; `request` is `None` for a mutation.
    pub fn ask(&mut self, now_us: u64, id: u64, client: usize, request: Option<Request>) {
        for (at_us, place, index) in std::mem::take(&mut self.direct) {
            if at_us <= now_us {
                self.acknowledge(place, index);
            } else {
                self.direct.push((at_us, place, index));
            }
        }
        let dir = match &request {
            Some(Request::Lookup { dir, .. } | Request::List { dir, .. }) => {
                place_of(dir, &name_of(0)).map(|(dir, _)| dir)
            }
            Some(Request::Getattr { handle }) => file_of(handle).map(|((dir, _), _)| dir),
            _ => None,
        };
        let floor = std::array::from_fn(|name| {
            let place = (dir.unwrap_or_default(), name);
            self.acknowledged.get(&place).copied().unwrap_or_default()
        });
        let asked = Asked { client, at_us: now_us, request, floor, op: None };
        self.asked.insert(id, asked);
    }

    /// The operation of a mutation that was asked.
    pub fn begin(&mut self, id: u64, op: &OpId) {
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.op = Some((op.client, op.number));
        }
    }

    /// The way of a client to the brick is not in order until then.
    pub fn disturb(&mut self, client: usize, until_us: u64) {
        let calm_since_us = self.calm_since_us.entry(client).or_default();
        *calm_since_us = until_us.max(*calm_since_us);
    }

    /// A client is gone, and whatever it asked.
    pub fn forget(&mut self, client: usize) {
        self.asked.retain(|_, asked| asked.client != client);
    }

    /// How many wait for an answer.
    pub fn waiting(&self) -> usize {
        self.asked.len()
    }

    /// The end: whoever still waits never got an answer.
    pub fn end(&mut self) {
        for (id, asked) in std::mem::take(&mut self.asked) {
            self.violations.push(format!("{id} never got an answer: {asked:?}"));
        }
    }

    fn acknowledge(&mut self, place: Place, index: usize) {
        let Some(history) = self.histories.get(&place) else { return };
        let file = |state: State| state.map(|found| found.file);
        let floor = self.acknowledged.entry(place).or_default();
        let is_version = index > 0 && file(history[index - 1]) == file(history[index]);
        let floor = if is_version { &mut floor.version } else { &mut floor.name };
        *floor = index.max(*floor);
    }

    fn take(&mut self, now_us: u64, id: u64) -> Option<Asked> {
        let asked = self.asked.remove(&id)?;
        self.counts.answers += 1;
        let calm_us = self.calm_since_us.get(&asked.client).copied().unwrap_or_default();
        let waited_us = now_us.saturating_sub(asked.at_us.max(calm_us));
        self.counts.longest_wait_us = waited_us.max(self.counts.longest_wait_us);
        if self.wait_us_max.is_some_and(|max| waited_us > max) {
            self.violations.push(format!("{id} waited for {waited_us} us: {asked:?}"));
        }
        Some(asked)
    }

    /// Judges an answer.
    pub fn answer(&mut self, now_us: u64, id: u64, frames: &[ReplyFrame]) {
        let Some(asked) = self.take(now_us, id) else {
            self.violations.push(format!("a second answer to {id}"));
            return;
        };
        if let Err(violation) = self.judge(&asked, frames) {
            self.violations.push(format!("{id}: {violation}"));
        }
    }

    /// Judges the answer to a mutation, which acknowledges it. `life` of the brick is when it was
    /// sent first, as its client knew.
    pub fn mutated(&mut self, now_us: u64, id: u64, life: u64, frame: &ReplyFrame) {
        let Some(asked) = self.take(now_us, id) else { return };
        let op = asked.op.unwrap_or_default();
        let applied = self.applied.get(&op).cloned().unwrap_or_default();
        self.counts.mutations += 1;
        match frame {
            ReplyFrame::Reply(Reply::Mutated { .. }) => {
                match applied.iter().rev().find_map(|(_, result)| result.as_ref().ok()) {
                    Some(&(place, index)) => self.acknowledge(place, index),
                    None => self.violations.push(format!("{id} was not applied: {applied:?}")),
                }
            }
            ReplyFrame::Failure(failure) if failure.status == Status::InDoubt => {
                self.counts.unknown += 1;
                if life == self.brick_life {
                    self.violations.push(format!("{id} is not known, but the brick lives on"));
                }
            }
            ReplyFrame::Failure(failure) => {
                if !applied.iter().any(|(_, result)| *result == Err(failure.status)) {
                    self.violations.push(format!("{id} failed: {failure:?}, but {applied:?}"));
                }
            }
            other => self.violations.push(format!("{id} was answered {other:?}")),
        }
    }

    fn judge(&self, asked: &Asked, frames: &[ReplyFrame]) -> Result<(), String> {
        let request = asked.request.as_ref().ok_or("a mutation was answered as a question")?;
        match (request, frames) {
            (Request::Lookup { dir, name }, [frame]) => {
                let place = place_of(dir, name).ok_or("no such name")?;
                let told = match frame {
                    ReplyFrame::Reply(Reply::Entry(entry)) => {
                        let file = file_of(&entry.handle).ok_or("no such handle")?.1;
                        Told::File(file, entry.attr.map(|attr| attr.size_bytes))
                    }
                    ReplyFrame::Failure(failure) if failure.status == Status::NotFound => {
                        Told::Absent
                    }
                    other => return Err(format!("{request:?} was answered {other:?}")),
                };
                self.admit(asked, place, told, |state| state)
            }
            (Request::Getattr { handle }, [frame]) => {
                let (place, file) = file_of(handle).ok_or("no such handle")?;
                let told = match frame {
                    ReplyFrame::Reply(Reply::Attr(attr)) => Told::File(file, Some(attr.size_bytes)),
                    ReplyFrame::Failure(failure) if failure.status == Status::Stale => Told::Absent,
                    other => return Err(format!("{request:?} was answered {other:?}")),
                };
                self.admit(asked, place, told, |state| state.filter(|found| found.file == file))
            }
            (Request::List { dir, .. }, [chunks @ .., ReplyFrame::End { complete: true }]) => {
                let (dir, _) = place_of(dir, &name_of(0)).ok_or("no such directory")?;
                self.judge_listing(asked, dir, chunks)
            }
            (request, other) => Err(format!("{request:?} was answered {other:?}")),
        }
    }

    fn judge_listing(
        &self,
        asked: &Asked,
        dir: usize,
        chunks: &[ReplyFrame],
    ) -> Result<(), String> {
        let mut told = [Told::Absent; NAMES];
        for chunk in chunks {
            let ReplyFrame::Chunk(chunk) = chunk else {
                return Err(format!("{chunk:?} in a listing"));
            };
            for entry in chunk.entries() {
                let ((_, name), file) = file_of(&entry.handle).ok_or("no such handle")?;
                let new = Told::File(file, entry.attr.map(|attr| attr.size_bytes));
                if std::mem::replace(&mut told[name], new) != Told::Absent {
                    return Err(format!("name {name} twice in one listing"));
                }
            }
        }
        (0..NAMES).try_for_each(|name| self.admit(asked, (dir, name), told[name], |state| state))
    }

    /// Whether a state of a name, of which one sees what `view` leaves, may be told.
    fn admit(
        &self,
        asked: &Asked,
        place: Place,
        told: Told,
        view: impl Fn(State) -> State,
    ) -> Result<(), String> {
        let never = vec![None];
        let history = self.histories.get(&place).unwrap_or(&never);
        let floor = asked.floor[place.1];
        let is_named = |state: &State| match (told, view(*state)) {
            (Told::Absent, None) => true,
            (Told::File(file, _), Some(found)) => file == found.file,
            _ => false,
        };
        let is_of_version = |&index: &usize| match (told, history[index]) {
            (Told::File(file, Some(version)), Some(found)) => {
                (file, version) == (found.file, found.version)
            }
            _ => false,
        };
        let is_floor_of_file = match (told, history[floor.version]) {
            (Told::File(file, Some(_)), Some(found)) => file == found.file,
            _ => false,
        };
        let is_known = !matches!(told, Told::File(_, Some(_)));
        let oldest = if is_floor_of_file { floor.version } else { 0 };
        if history[floor.name..].iter().any(is_named)
            && (is_known || (oldest..history.len()).any(|index| is_of_version(&index)))
        {
            return Ok(());
        }
        Err(format!(
            "{:?} of client {} at {} us: {place:?} told as {told:?}, but {:?} was acknowledged \
             before it was asked (history {history:?})",
            asked.request, asked.client, asked.at_us, floor
        ))
    }
}
