//! A replay in which the policy knows of every use when it is asked for a victim, and is asked for
//! one at a time: the answers are those of the papers.
//!
//! An object that is larger than the cache does not enter it. Otherwise victims leave until it fits,
//! and then it enters. Between two questions the policy is only told, so all of that goes in one call:
//! a component is entered twice for an eviction, and not at all for a hit.

use portcullis_core::eviction::{Event, ObjectId, Removal};
use portcullis_core::limits::POLICY_EVENTS_MAX;

use crate::outcome::{Outcome, Tally};
use crate::policy::Policy;
use crate::replay::Setup;
use crate::residents::Residents;
use crate::trace::Trace;

/// Plays `trace` to `policy`.
///
/// # Errors
/// The policy fails.
pub fn replay<P: Policy>(trace: &Trace, setup: Setup, policy: P) -> Result<Outcome, P::Error> {
    let mut game = Game {
        policy,
        residents: Residents::new(trace.distinct()),
        events: Vec::with_capacity(POLICY_EVENTS_MAX),
        tally: Tally::new(trace.counted(), setup.intervals),
        capacity_bytes: setup.capacity.capacity_bytes(),
        now_ms: 0,
    };
    for (request, &object) in trace.objects().iter().enumerate() {
        let size_bytes = trace.size_bytes(request);
        game.now_ms = trace.now_ms(request);
        let slot = game.residents.slot(object);
        let counted = trace.is_counted(request);
        if counted {
            game.tally.count(size_bytes, slot.is_some());
        }
        match slot {
            Some(slot) if counted => {
                game.tell(Event::Hit { id: game.residents.id(slot), count: 1 })?;
            }
            Some(_) => {}
            None => {
                let weight_bytes = setup.capacity.weight_bytes(size_bytes);
                game.admit(trace, request, weight_bytes)?;
            }
        }
    }
    game.flush()?;
    Ok(game.tally.outcome)
}

struct Game<P> {
    policy: P,
    residents: Residents,
    /// What the policy is yet to be told.
    events: Vec<Event>,
    tally: Tally,
    capacity_bytes: u64,
    now_ms: u64,
}

impl<P: Policy> Game<P> {
    fn tell(&mut self, event: Event) -> Result<(), P::Error> {
        self.events.push(event);
        if self.events.len() == POLICY_EVENTS_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), P::Error> {
        self.policy.on_events(self.now_ms, &self.events)?;
        self.events.clear();
        Ok(())
    }

    fn admit(&mut self, trace: &Trace, request: usize, weight_bytes: u32) -> Result<(), P::Error> {
        if u64::from(weight_bytes) > self.capacity_bytes {
            self.tally.outcome.refused += 1;
            return Ok(());
        }
        while self.residents.used_bytes() + u64::from(weight_bytes) > self.capacity_bytes {
            let Some(victim) = self.victim()? else { break };
            self.residents.remove(victim);
            self.tell(Event::Remove { id: victim, reason: Removal::Evicted })?;
        }
        let (object, class) = (trace.objects()[request], trace.class(request));
        let id = self.residents.insert(object, weight_bytes);
        self.tell(Event::Insert { id, key: trace.key(object), class, weight_bytes })
    }

    /// The policy's victim, or the host's own where that is none.
    fn victim(&mut self) -> Result<Option<ObjectId>, P::Error> {
        self.flush()?;
        for victim in self.policy.propose(self.now_ms, 1)? {
            if self.residents.is_live(victim) {
                self.tally.outcome.evicted += 1;
                return Ok(Some(victim));
            }
            self.tally.outcome.useless += 1;
        }
        self.tally.outcome.shortfall += 1;
        Ok(self.residents.sweep(|_| false))
    }
}
