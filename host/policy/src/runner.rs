//! The work of the driver: events from the host to the policy, victims from the policy to the
//! host, and the native policy in place of one that failed.
//!
//! What must hold: events reach the policy in the order in which the host tells them; before
//! victims are chosen, what happened so far was told; after the first fault the component is gone,
//! and the native policy knows every resident object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use portcullis_core::eviction::{Event, EvictionHost, ObjectId, Offered, PolicyLimits};
use portcullis_core::limits::{POLICY_EVENTS_MAX, POLICY_SHORTFALLS_MAX, POLICY_VICTIMS_MAX};

use crate::cpu::thread_cpu_ns;
use crate::error::Fault;
use crate::loaded::{LoadedPolicy, Policy};
use crate::status::{Board, add};

/// Batches handed over before victims are chosen, where the host has ever more to tell.
const DRAINS_MAX: usize = 16;

/// A policy at work for a host.
pub(crate) struct Runner {
    host: Arc<dyn EvictionHost>,
    policy: Policy,
    limits: PolicyLimits,
    board: Arc<Board>,
    began: Instant,
    events: Vec<Event>,
    /// Objects the policy knows.
    resident: u64,
    /// Those of them that are in the host's reserve.
    proposed: HashSet<ObjectId, FixedState>,
    /// Proposals in a row without a usable victim.
    shortfalls: u32,
}

impl Runner {
    pub(crate) fn new(
        host: Arc<dyn EvictionHost>,
        loaded: LoadedPolicy,
        board: Arc<Board>,
    ) -> Self {
        Self {
            host,
            policy: loaded.policy,
            limits: loaded.limits,
            board,
            began: Instant::now(),
            events: Vec::new(),
            resident: 0,
            proposed: HashSet::default(),
            shortfalls: 0,
        }
    }

    /// Tells the policy, which knows nothing yet, of every resident object.
    pub(crate) fn take_over(&mut self) {
        if let Err(fault) = self.tell_residents() {
            self.fall_back(&fault);
        }
    }

    /// Does what there is to do.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => self.fall_back(&fault),
            }
        }
    }

    /// Replaces the policy by the native one, and says why.
    pub(crate) fn fall_back(&mut self, fault: &Fault) {
        if matches!(self.policy, Policy::Wasm(_)) {
            let failed = &self.board.active().0;
            let reason =
                format!("{} {} (sha256 {}) {fault}", failed.name, failed.version, failed.digest);
            tracing::warn!("eviction policy replaced by the native one: {reason}");
            let native = LoadedPolicy::native(self.limits);
            self.board.set_active(native.identity, reason);
            self.policy = native.policy;
        } else {
            // Only a defect of our own brings us here. A fresh start is the best that is left.
            self.policy = LoadedPolicy::native(self.limits).policy;
        }
        // It cannot fail: the policy is native.
        let _ = self.tell_residents();
    }

    fn tell_residents(&mut self) -> Result<(), Fault> {
        self.events.clear();
        self.host.restart(&mut self.events);
        self.resident = 0;
        self.proposed.clear();
        self.shortfalls = 0;
        let told = self.tell();
        // That was the whole cache; batches are smaller.
        self.events.clear();
        self.events.shrink_to(POLICY_EVENTS_MAX);
        told
    }

    /// One round: tell, then ask. Whether there is more to do.
    fn step(&mut self) -> Result<bool, Fault> {
        // Looked at first: all that happened up to here is then told before victims are asked for.
        let shortage = self.host.shortage();
        let mut more = true;
        for _ in 0..DRAINS_MAX {
            self.events.clear();
            more = self.host.drain(POLICY_EVENTS_MAX, &mut self.events);
            self.tell()?;
            if !more {
                break;
            }
        }
        if shortage == 0 {
            return Ok(more);
        }
        let offered = self.ask(shortage.min(POLICY_VICTIMS_MAX))?;
        if offered.foreign > 0 {
            return Err(Fault::Foreign { count: offered.foreign });
        }
        if offered.accepted > 0 {
            self.shortfalls = 0;
        } else if !more {
            self.note_shortfall(offered)?;
        }
        Ok(more || offered.accepted > 0)
    }

    /// Hands the events over.
    fn tell(&mut self) -> Result<(), Fault> {
        for event in &self.events {
            match event {
                Event::Insert { .. } => self.resident += 1,
                Event::Remove { id, .. } => {
                    self.resident = self.resident.saturating_sub(1);
                    self.proposed.remove(id);
                }
                Event::Spare { id } => {
                    self.proposed.remove(id);
                }
                Event::Hit { .. } => {}
            }
        }
        let now_ms = self.now_ms();
        for batch in self.events.chunks(POLICY_EVENTS_MAX) {
            add(&self.board.batches, 1);
            add(&self.board.events, batch.len() as u64);
            count_call(&self.board, &mut self.policy, |policy| policy.on_events(now_ms, batch))?;
        }
        Ok(())
    }

    /// Asks for victims and offers them to the host.
    fn ask(&mut self, want: usize) -> Result<Offered, Fault> {
        let now_ms = self.now_ms();
        let victims =
            count_call(&self.board, &mut self.policy, |policy| policy.propose(now_ms, want))?;
        let mut sum = Offered::default();
        for victim in victims {
            // One by one, to know which are in the reserve now.
            let offered = self.host.offer(&[victim]);
            if offered.accepted > 0 {
                self.proposed.insert(victim);
            }
            sum.accepted += offered.accepted;
            sum.stale += offered.stale;
            sum.repeated += offered.repeated;
            sum.foreign += offered.foreign;
        }
        add(&self.board.accepted, sum.accepted);
        add(&self.board.stale, sum.stale);
        add(&self.board.repeated, sum.repeated);
        add(&self.board.foreign, sum.foreign);
        Ok(sum)
    }

    /// The policy had been told everything and proposed nothing of use.
    fn note_shortfall(&mut self, offered: Offered) -> Result<(), Fault> {
        let resident = self.resident.saturating_sub(self.proposed.len() as u64);
        // Everything is in the reserve, or the policy is ours and its word final.
        if resident == 0 || matches!(self.policy, Policy::Native(_)) {
            return Ok(());
        }
        self.shortfalls += 1;
        if self.shortfalls < POLICY_SHORTFALLS_MAX {
            return Ok(());
        }
        let Offered { stale, repeated, .. } = offered;
        Err(Fault::Shortfall { times: self.shortfalls, resident, stale, repeated })
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
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
