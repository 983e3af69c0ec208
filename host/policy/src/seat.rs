//! A policy at work, with what is kept of its dealings with the host.
//!
//! Several may be told of the same objects at once: the one that chooses, the one before it, one
//! that is about to follow. What must hold: each is told of its own proposals only, so that for
//! every policy a sparing answers a proposal.

use std::borrow::Cow;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use portcullis_core::eviction::{Event, EvictionHost, ObjectId, Offered};
use portcullis_core::limits::{POLICY_EVENTS_MAX, POLICY_SHORTFALLS_MAX};

use crate::cpu::thread_cpu_ns;
use crate::error::Fault;
use crate::evidence::Recent;
use crate::loaded::{LoadedPolicy, Policy};
use crate::recipe::Recipe;
use crate::status::{Board, PolicyIdentity, add};

/// See the module.
pub(crate) struct Seat {
    policy: Policy,
    pub(crate) identity: PolicyIdentity,
    /// How to make it anew.
    pub(crate) recipe: Recipe,
    /// Objects it knows.
    resident: u64,
    /// Those of them that it proposed and that are in the host's reserve.
    proposed: HashSet<ObjectId, FixedState>,
    /// Proposals in a row without a usable victim.
    shortfalls: u32,
    /// What it was asked last, where that is kept.
    recent: Option<Recent>,
}

impl Seat {
    /// A policy that has seen no event yet. `keeps`: what it is asked is kept, if it is a component.
    pub(crate) fn new(loaded: LoadedPolicy, keeps: bool) -> Self {
        let LoadedPolicy { policy, identity, recipe, .. } = loaded;
        let proposed = HashSet::default();
        let is_component = matches!(policy, Policy::Wasm(_));
        let recent = (keeps && is_component).then(Recent::default);
        Self { policy, identity, recipe, resident: 0, proposed, shortfalls: 0, recent }
    }

    /// What it was asked last, where that is kept; it is not kept any longer.
    pub(crate) fn take_recent(&mut self) -> Option<Recent> {
        self.recent.take()
    }

    /// Whether it is part of the host.
    pub(crate) fn is_native(&self) -> bool {
        matches!(self.policy, Policy::Native(_))
    }

    /// Hands events over, in batches.
    pub(crate) fn tell(
        &mut self,
        board: &Board,
        now_ms: u64,
        events: &[Event],
    ) -> Result<(), Fault> {
        for batch in events.chunks(POLICY_EVENTS_MAX) {
            let batch = self.note(batch);
            add(&board.batches, 1);
            add(&board.events, batch.len() as u64);
            if let Some(recent) = &mut self.recent {
                recent.told(now_ms, &batch);
            }
            count_call(board, &mut self.policy, |policy| policy.on_events(now_ms, &batch))?;
        }
        Ok(())
    }

    /// Keeps the books, and leaves out what answers the proposals of others.
    fn note<'a>(&mut self, batch: &'a [Event]) -> Cow<'a, [Event]> {
        let mut kept: Option<Vec<Event>> = None;
        for (at, event) in batch.iter().enumerate() {
            let is_for_me = match event {
                Event::Insert { .. } => {
                    self.resident += 1;
                    true
                }
                Event::Remove { id, .. } => {
                    self.resident = self.resident.saturating_sub(1);
                    self.proposed.remove(id);
                    true
                }
                Event::Spare { id } => self.proposed.remove(id),
                Event::Hit { .. } => true,
            };
            match &mut kept {
                None if !is_for_me => kept = Some(batch[..at].to_vec()),
                Some(kept) if is_for_me => kept.push(*event),
                _ => {}
            }
        }
        kept.map_or(Cow::Borrowed(batch), Cow::Owned)
    }

    /// Asks for `want` victims and offers them to the host.
    pub(crate) fn ask(
        &mut self,
        board: &Board,
        now_ms: u64,
        host: &dyn EvictionHost,
        want: usize,
    ) -> Result<Offered, Fault> {
        if let Some(recent) = &mut self.recent {
            recent.asked(now_ms, want);
        }
        let victims = count_call(board, &mut self.policy, |policy| policy.propose(now_ms, want))?;
        let mut sum = Offered::default();
        for victim in victims {
            // One by one, to know which are in the reserve now.
            let offered = host.offer(&[victim]);
            // What another policy proposed before will be answered all the same.
            if offered.accepted + offered.repeated > 0 {
                self.proposed.insert(victim);
            }
            sum.accepted += offered.accepted;
            sum.stale += offered.stale;
            sum.repeated += offered.repeated;
            sum.foreign += offered.foreign;
        }
        add(&board.accepted, sum.accepted);
        add(&board.stale, sum.stale);
        add(&board.repeated, sum.repeated);
        add(&board.foreign, sum.foreign);
        Ok(sum)
    }

    /// Notes what came of a proposal. `told_all`: it had been told everything there was to tell.
    pub(crate) fn judge(&mut self, offered: Offered, told_all: bool) -> Result<(), Fault> {
        if offered.foreign > 0 {
            return Err(Fault::Foreign { count: offered.foreign });
        }
        if offered.accepted > 0 {
            self.shortfalls = 0;
            return Ok(());
        }
        let resident = self.resident.saturating_sub(self.proposed.len() as u64);
        // Everything is in the reserve, or the policy is ours and its word final.
        if !told_all || resident == 0 || self.is_native() {
            return Ok(());
        }
        self.shortfalls += 1;
        if self.shortfalls < POLICY_SHORTFALLS_MAX {
            return Ok(());
        }
        let Offered { stale, repeated, .. } = offered;
        Err(Fault::Shortfall { times: self.shortfalls, resident, stale, repeated })
    }
}

fn count_call<T>(
    board: &Board,
    policy: &mut Policy,
    call: impl FnOnce(&mut Policy) -> Result<T, Fault>,
) -> Result<T, Fault> {
    add(&board.calls, 1);
    if matches!(policy, Policy::Wasm(_)) {
        add(&board.wasm_calls, 1);
    }
    let began_ns = thread_cpu_ns();
    let result = call(policy);
    add(&board.cpu_ns, thread_cpu_ns().saturating_sub(began_ns));
    result
}
