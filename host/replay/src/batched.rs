//! A replay as the live path of a gateway goes: the policy is called once in so many requests.
//!
//! In between a hit leaves its mark on the object, and is folded or dropped; what is fetched enters at
//! once, and room for it is made from a reserve of victims that the policy proposed earlier. One that
//! was used since is spared. Where the reserve is empty, the host chooses by itself. The rules are those
//! of `host/core/src/cache` (`host.rs`, `ledger.rs`, `reserve.rs`), written once more for objects that
//! have no content.
//!
//! What must hold: as there, no insert, removal or sparing is lost, and an object that comes and goes
//! between two calls is not told at all.

use std::collections::VecDeque;

use portcullis_core::eviction::{Event, ObjectId, Removal};
use portcullis_core::limits::{POLICY_EVENTS_MAX, RESERVE_MAX};

use crate::outcome::{Outcome, Tally};
use crate::policy::Policy;
use crate::replay::Setup;
use crate::residents::Residents;
use crate::trace::Trace;

/// Hits of one object that are told at once.
const FOLDED_MAX: u32 = 255;
/// `told_at` of an object whose insert was told.
const TOLD: u32 = u32::MAX;

/// Plays `trace` to `policy`, which is called once in `requests`; of a million hits
/// `dropped_per_million` are not told.
///
/// # Errors
/// The policy fails.
pub fn replay<P: Policy>(
    trace: &Trace,
    setup: Setup,
    requests: u32,
    dropped_per_million: u32,
    policy: P,
) -> Result<Outcome, P::Error> {
    let mut game = Game {
        policy,
        residents: Residents::new(trace.distinct()),
        marks: Vec::new(),
        events: Vec::new(),
        touched: Vec::new(),
        reserve: VecDeque::new(),
        batch: Vec::new(),
        tally: Tally::new(trace.counted(), setup.intervals),
        capacity_bytes: setup.capacity.capacity_bytes(),
        chance: setup.seed,
        dropped_per_million,
    };
    for (request, &object) in trace.objects().iter().enumerate() {
        let size_bytes = trace.size_bytes(request);
        let slot = game.residents.slot(object);
        let counted = trace.is_counted(request);
        if counted {
            game.tally.count(size_bytes, slot.is_some());
        }
        match slot {
            Some(slot) if counted => game.hit(slot),
            Some(_) => {}
            None => {
                let weight_bytes = setup.capacity.weight_bytes(size_bytes);
                game.admit(trace, request, weight_bytes);
            }
        }
        if (request + 1).is_multiple_of(requests.max(1) as usize) {
            game.call(trace.now_ms(request))?;
        }
    }
    game.call(trace.now_ms(trace.objects().len() - 1))?;
    Ok(game.tally.outcome)
}

/// What the host knows of the object in a slot, beside what it is.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Hits to tell.
    hits: u32,
    /// Index of the insert to tell, or [`TOLD`].
    told_at: u32,
    /// In the reserve.
    proposed: bool,
    /// Used since it was proposed.
    touched: bool,
    /// Used since the host's own search came by.
    recent: bool,
}

struct Game<P> {
    policy: P,
    residents: Residents,
    /// By slot.
    marks: Vec<Mark>,
    /// To tell; `None` where an insert was taken back.
    events: Vec<Option<Event>>,
    /// Slots with hits to tell.
    touched: Vec<u32>,
    reserve: VecDeque<ObjectId>,
    /// Kept for its room.
    batch: Vec<Event>,
    tally: Tally,
    capacity_bytes: u64,
    chance: u64,
    dropped_per_million: u32,
}

impl<P: Policy> Game<P> {
    fn hit(&mut self, slot: u32) {
        let dropped = self.dropped_per_million > 0
            && below_a_million(&mut self.chance) < self.dropped_per_million;
        let mark = &mut self.marks[slot as usize];
        mark.touched = true;
        mark.recent = true;
        if dropped || mark.hits == FOLDED_MAX {
            self.tally.outcome.dropped += 1;
            return;
        }
        if mark.hits == 0 {
            self.touched.push(slot);
        }
        mark.hits += 1;
    }

    fn admit(&mut self, trace: &Trace, request: usize, weight_bytes: u32) {
        if u64::from(weight_bytes) > self.capacity_bytes {
            self.tally.outcome.refused += 1;
            return;
        }
        let (object, class) = (trace.objects()[request], trace.class(request));
        let id = self.residents.insert(object, weight_bytes);
        let slot = id.slot() as usize;
        if slot == self.marks.len() {
            self.marks.push(Mark::default());
        }
        self.marks[slot] = Mark { told_at: self.events.len() as u32, ..Mark::default() };
        let key = trace.key(object);
        self.events.push(Some(Event::Insert { id, key, class, weight_bytes }));
        while self.residents.used_bytes() > self.capacity_bytes {
            match self.reserve.pop_front() {
                Some(victim) => self.judge(victim),
                None => self.sweep(),
            }
        }
    }

    /// A victim from the reserve leaves, or is spared.
    fn judge(&mut self, victim: ObjectId) {
        let mark = &mut self.marks[victim.slot() as usize];
        if !self.residents.is_live(victim) || !mark.proposed {
            return;
        }
        mark.proposed = false;
        if std::mem::take(&mut mark.touched) {
            self.tally.outcome.spared += 1;
            self.events.push(Some(Event::Spare { id: victim }));
        } else {
            self.tally.outcome.evicted += 1;
            self.remove(victim);
        }
    }

    /// The host's own choice.
    fn sweep(&mut self) {
        let marks = &mut self.marks;
        let victim = self.residents.sweep(|slot| std::mem::take(&mut marks[slot as usize].recent));
        if let Some(victim) = victim {
            self.tally.outcome.shortfall += 1;
            self.remove(victim);
        }
    }

    fn remove(&mut self, id: ObjectId) {
        self.residents.remove(id);
        let mark = std::mem::take(&mut self.marks[id.slot() as usize]);
        if mark.told_at == TOLD {
            self.events.push(Some(Event::Remove { id, reason: Removal::Evicted }));
        } else {
            self.events[mark.told_at as usize] = None;
        }
    }

    /// Tells the policy what happened, and has it fill the reserve.
    fn call(&mut self, now_ms: u64) -> Result<(), P::Error> {
        loop {
            let shortage = self.shortage();
            self.drain();
            for batch in self.batch.chunks(POLICY_EVENTS_MAX) {
                self.policy.on_events(now_ms, batch)?;
            }
            if shortage == 0 {
                return Ok(());
            }
            let victims = self.policy.propose(now_ms, shortage)?;
            if !self.offer(&victims) {
                return Ok(());
            }
        }
    }

    /// How many victims the reserve lacks; none while there is room, or it is half full.
    fn shortage(&self) -> usize {
        if self.residents.used_bytes() < self.capacity_bytes / 16 * 15 {
            return 0;
        }
        let len = self.residents.len();
        let target = (len / 64).max((len / 16).min(64)).clamp(1, RESERVE_MAX);
        let len = self.reserve.len();
        if len > target / 2 { 0 } else { target - len }
    }

    /// Inserts, removals and sparings in their order, then hits, folded.
    fn drain(&mut self) {
        self.batch.clear();
        for event in self.events.drain(..).flatten() {
            if let Event::Insert { id, .. } = event {
                self.marks[id.slot() as usize].told_at = TOLD;
            }
            self.batch.push(event);
        }
        for slot in self.touched.drain(..) {
            let count = std::mem::take(&mut self.marks[slot as usize].hits);
            if count > 0 {
                self.batch.push(Event::Hit { id: self.residents.id(slot), count });
            }
        }
    }

    /// Takes proposals into the reserve; whether any was of use.
    fn offer(&mut self, victims: &[ObjectId]) -> bool {
        let before = self.reserve.len();
        for &victim in victims {
            let live = self.residents.is_live(victim);
            match self.marks.get_mut(victim.slot() as usize) {
                Some(mark) if live && !mark.proposed => {
                    mark.proposed = true;
                    mark.touched = false;
                    self.reserve.push_back(victim);
                }
                _ => self.tally.outcome.useless += 1,
            }
        }
        self.reserve.len() > before
    }
}

/// A number below a million: SplitMix64.
fn below_a_million(state: &mut u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) % 1_000_000) as u32
}
