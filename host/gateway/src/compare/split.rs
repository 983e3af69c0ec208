//! A comparison on the live cache: two policies, each on one half.
//!
//! A thread reads what was counted, tells the [`Experiment`] and does what it says: which policy works on
//! which half, each with a driver of its own, made anew whenever sides change. What it has measured is
//! kept after each stage, so that a gateway that is started again goes on; what was interrupted is
//! measured anew. What must hold: whatever ends it, the cache is whole again and one policy is told of
//! all that is resident, unless the gateway itself ends.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::ab::{Contender, Costs, Experiment, Reading, Side, Sides, Stage};
use portcullis_core::cache::CacheHalf;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::limits::POLICY_THREAD_STACK_BYTES;
use portcullis_policy::{EvictionDriver, LoadedPolicy, PolicyChoice, PolicyError};
use portcullis_wire::message::AbStatus;

use super::incumbent::Incumbent;
use super::kept::{Kept, KeptSplit};
use crate::random;
use crate::volume::Volume;

/// How often what was counted is read.
const TURN: Duration = Duration::from_millis(20);

/// A comparison, under way or ended.
pub(super) struct Split {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Who is tried.
    pub(super) candidate: PolicyChoice,
}

struct Shared {
    status: Mutex<AbStatus>,
    order: Mutex<Option<Order>>,
}

/// How it is to end before it is through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// The incumbent has the whole cache again.
    Stop,
    /// The candidate has it.
    Promote,
    /// The gateway ends, and may go on later.
    Leave,
}

/// What a split is made from.
pub(super) struct Setup {
    pub(super) volume: Arc<Volume>,
    pub(super) incumbent: Arc<Incumbent>,
    pub(super) candidate: PolicyChoice,
    pub(super) experiment: Experiment,
    pub(super) kept: Option<KeptSplit>,
}

impl Split {
    /// Splits the cache, and begins or goes on.
    ///
    /// # Errors
    /// What is wrong with one of the policies; the cache is whole then.
    pub(super) fn start(setup: Setup) -> Result<Self, PolicyError> {
        let Setup { volume, incumbent, candidate, experiment, kept } = setup;
        let choices = [incumbent.choice(), candidate.clone()];
        let limits =
            PolicyLimits { capacity_bytes: volume.cache.capacity_bytes() / 2, seed: random() };
        let load = |choice: &PolicyChoice| incumbent.load(choice.clone(), limits);
        // Both, so that a candidate that does not load ends this before it begins.
        let [old, new] = [load(&choices[0])?, load(&choices[1])?];
        let contender = |policy: &LoadedPolicy| Contender {
            name: policy.name().to_owned(),
            digest: policy.digest().to_owned(),
        };
        let status = AbStatus {
            incumbent: contender(&old),
            candidate: contender(&new),
            split: true,
            ended: String::new(),
            report: experiment.report(),
            windows: experiment.windows().to_vec(),
        };
        let shared = Arc::new(Shared { status: Mutex::new(status), order: Mutex::new(None) });
        let named = incumbent.named();
        let mut work = Work {
            volume,
            incumbent,
            choices,
            limits,
            named,
            experiment,
            kept,
            drivers: None,
            shared: shared.clone(),
        };
        work.volume.cache.set_split(true);
        if let Err(error) = work.arm() {
            // It is whole before the error is told; what that may add is logged.
            let _ = work.unite(None);
            return Err(error);
        }
        let thread = thread::Builder::new()
            .name("comparison".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn(move || work.run())
            .map_err(PolicyError::Thread)?;
        Ok(Self { shared, thread: Some(thread), candidate })
    }

    /// What it has shown so far.
    pub(super) fn status(&self) -> AbStatus {
        self.shared.status.lock().clone()
    }

    pub(super) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
            || self.shared.status.lock().split
    }

    /// Tells it how to end, which it has when its thread has.
    pub(super) fn order(&mut self, order: Order) -> Option<JoinHandle<()>> {
        let thread = self.thread.take()?;
        *self.shared.order.lock() = Some(order);
        thread.thread().unpark();
        Some(thread)
    }
}

struct Work {
    volume: Arc<Volume>,
    incumbent: Arc<Incumbent>,
    /// Of the incumbent and the candidate.
    choices: [PolicyChoice; 2],
    limits: PolicyLimits,
    /// The policy that was active for the whole cache when it began.
    named: Contender,
    experiment: Experiment,
    kept: Option<KeptSplit>,
    drivers: Option<[EvictionDriver; 2]>,
    shared: Arc<Shared>,
}

impl Work {
    /// Gives each half the policy that the stage says, made anew.
    fn arm(&mut self) -> Result<(), PolicyError> {
        self.drivers = None;
        let sides: Sides = self.experiment.sides();
        let driver = |half: usize| -> Result<EvictionDriver, PolicyError> {
            let choice = match sides[half] {
                Side::Incumbent => &self.choices[0],
                Side::Candidate => &self.choices[1],
            };
            let policy = self.incumbent.load(choice.clone(), self.limits)?;
            let host = Arc::new(CacheHalf::new(self.volume.cache.clone(), half));
            EvictionDriver::start(host, policy).map_err(PolicyError::Thread)
        };
        self.drivers = Some([driver(0)?, driver(1)?]);
        Ok(())
    }

    fn run(mut self) {
        loop {
            thread::park_timeout(TURN);
            let order = self.shared.order.lock().take();
            match order {
                Some(Order::Leave) => return self.leave(),
                Some(Order::Stop) => return self.finish("it was stopped", 0),
                Some(Order::Promote) => return self.finish("the candidate was promoted", 1),
                None => {}
            }
            if let Some(why) = self.disturbed() {
                return self.finish(&why, 0);
            }
            let sides = self.experiment.sides();
            if self.experiment.observe(&self.reading()) {
                self.keep();
                if self.experiment.stage() == Stage::Done {
                    return self.finish("", 0);
                }
                if self.experiment.sides() != sides
                    && let Err(error) = self.arm()
                {
                    return self.finish(&error.to_string(), 0);
                }
            }
            self.tell("", true);
        }
    }

    /// Why nothing can be compared any more.
    fn disturbed(&self) -> Option<String> {
        if self.incumbent.named() != self.named {
            return Some("another policy was made the active one".to_owned());
        }
        self.drivers.iter().flatten().find_map(|driver| {
            let reason = driver.status().fallback_reason;
            (!reason.is_empty()).then_some(reason)
        })
    }

    fn reading(&self) -> Reading {
        let costs = |half: usize| match &self.drivers {
            Some(drivers) => {
                let status = drivers[half].status();
                Costs { cpu_us: status.cpu_ms * 1_000, events: status.events }
            }
            None => Costs::default(),
        };
        let mut shards = self.volume.cache.tallies();
        for (tally, waited_us) in shards.iter_mut().zip(self.volume.waits.all_us()) {
            tally.waited_us = waited_us;
        }
        Reading { now_ms: self.volume.now_ms(), shards, costs: [costs(0), costs(1)] }
    }

    /// Keeps what was measured, where there is a place for it.
    fn keep(&self) {
        let Some(kept) = &self.kept else { return };
        if let Err(error) = kept.save(&self.experiment, &self.choices[1]) {
            tracing::warn!("what was compared so far would not survive a restart: {error}");
        }
    }

    /// The gateway ends.
    fn leave(mut self) {
        self.keep();
        self.drivers = None;
        self.volume.cache.set_split(false);
        self.tell("the gateway was stopped", false);
    }

    /// It ends, and one of the two (0 the incumbent, 1 the candidate) has the whole cache.
    fn finish(mut self, why: &str, winner: usize) {
        if let Some(kept) = &self.kept {
            kept.clear();
        }
        let choice = self.choices[winner].clone();
        let put_in = self.unite(Some(choice));
        let why = match put_in {
            Ok(()) => why.to_owned(),
            Err(error) => format!("{why}; {error}"),
        };
        tracing::info!(why, "the comparison of eviction policies has ended");
        self.tell(&why, false);
    }

    /// Makes the cache whole again, and puts a policy in for it.
    fn unite(&mut self, choice: Option<PolicyChoice>) -> Result<(), String> {
        self.drivers = None;
        self.volume.cache.set_split(false);
        // Where another policy was made the active one meanwhile, that one stays.
        let stays = choice.is_none() || self.incumbent.named() != self.named;
        match choice {
            Some(choice) if !stays => self.incumbent.put_in(choice),
            _ => self.incumbent.renew(),
        }
    }

    fn tell(&self, why: &str, split: bool) {
        let mut status = self.shared.status.lock();
        status.split = split;
        why.clone_into(&mut status.ended);
        status.report = self.experiment.report();
        status.windows = self.experiment.windows().to_vec();
    }
}

impl Drop for Work {
    /// It ended otherwise than it should: no thread could be had for it, or that panicked.
    fn drop(&mut self) {
        if self.drivers.take().is_none() {
            return;
        }
        self.volume.cache.set_split(false);
        let renewed = self.incumbent.renew();
        tracing::error!(?renewed, "the comparison of eviction policies broke off");
        self.tell("it broke off", false);
    }
}

/// Begins one that was interrupted by the end of a gateway.
pub(super) fn resumed(kept: &KeptSplit) -> io::Result<Option<Kept>> {
    let Some(mut found) = kept.restore()? else { return Ok(None) };
    found.experiment.resume();
    Ok(Some(found))
}
