//! The work of the driver: events from the host to the policies, victims from the active policy to
//! the host, and which policy is the active one.
//!
//! Beside the active policy there may be the one before it, kept at work for a while so that going
//! back to it takes no time ([`Previous`]), and one that still learns what is resident ([`Trial`]).
//! Both are told what the active one is told, and are never asked for victims. The one before is told
//! everything, rather than told all residents anew on the way back, since only so what it learnt of
//! them is worth something.
//!
//! What must hold: events reach each policy in the order in which the host tells them; before
//! victims are chosen, what happened so far was told; policies change places between two rounds
//! only, and the host's reserve of victims stays when they do; after a fault the instance is gone,
//! and the native policy knows every resident object.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use portcullis_core::eviction::{Event, EvictionHost, PolicyLimits};
use portcullis_core::limits::{
    POLICY_EVENTS_MAX, POLICY_REBUILD_MS, POLICY_VICTIMS_MAX, POLICY_WARM_MS,
};

use crate::error::{Fault, PolicyError, Refusal};
use crate::evidence::Recent;
use crate::loaded::LoadedPolicy;
use crate::mailbox::{Command, Mailbox};
use crate::rebuild::Rebuild;
use crate::recipe::Recipe;
use crate::seat::Seat;
use crate::status::{Before, Board, PolicyIdentity, add};
use crate::strikes::Verdict;
use crate::trial::{Learnt, Purpose, Trial};

/// Batches handed over before victims are chosen, where the host has ever more to tell.
const DRAINS_MAX: usize = 16;

/// Why the active policy is not what somebody chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StandIn {
    /// The component failed.
    Fault,
    /// The panic switch is on.
    Panic,
}

/// The policy before the active one.
struct Previous {
    identity: PolicyIdentity,
    recipe: Recipe,
    /// At work still, and until when.
    warm: Option<(Seat, u64)>,
}

/// Policies at work for a host.
pub(crate) struct Runner {
    host: Arc<dyn EvictionHost>,
    limits: PolicyLimits,
    board: Arc<Board>,
    mailbox: Arc<Mailbox>,
    /// Where it is kept what components were asked that failed.
    evidence: Option<PathBuf>,
    active: Seat,
    stand_in: Option<StandIn>,
    previous: Option<Previous>,
    trial: Option<Trial>,
    rebuild: Rebuild,
    events: Vec<Event>,
}

impl Runner {
    pub(crate) fn new(
        host: Arc<dyn EvictionHost>,
        loaded: LoadedPolicy,
        board: Arc<Board>,
        mailbox: Arc<Mailbox>,
        evidence: Option<PathBuf>,
    ) -> Self {
        Self {
            host,
            limits: loaded.limits,
            board,
            mailbox,
            active: Seat::new(loaded, evidence.is_some()),
            evidence,
            stand_in: None,
            previous: None,
            trial: None,
            rebuild: Rebuild::default(),
            events: Vec::new(),
        }
    }

    /// Tells the first policy, which knows nothing yet, of every resident object.
    pub(crate) fn take_over(&mut self) {
        self.events.clear();
        self.host.restart(&mut self.events);
        let events = std::mem::take(&mut self.events);
        let told = self.active.tell(&self.board, self.board.now_ms(), &events);
        if let Err(fault) = told {
            self.fall_back(&fault);
        }
    }

    /// Does what there is to do.
    pub(crate) fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            while let Some(command) = self.mailbox.take() {
                self.obey(command);
            }
            self.tend();
            let more = match self.step() {
                Ok(more) => more,
                Err(fault) => {
                    self.fall_back(&fault);
                    true
                }
            };
            self.teach();
            if !more && !self.mailbox.has_mail() {
                return;
            }
        }
    }

    /// In which time there is something to do although the host has nothing to tell.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        if self.trial.is_some() {
            // The next lesson. The driver rests before it, as it does between any two rounds: where
            // processors are few, requests are answered by those who want the same one.
            return Some(Duration::ZERO);
        }
        let warm = self.previous.as_ref().and_then(|previous| previous.warm.as_ref());
        let dues_ms = [warm.map(|(_, until_ms)| *until_ms), self.rebuild.due_ms()];
        let due_ms = dues_ms.into_iter().flatten().min()?;
        Some(Duration::from_millis(due_ms.saturating_sub(self.board.now_ms())))
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
        let now_ms = self.board.now_ms();
        let want = shortage.min(POLICY_VICTIMS_MAX);
        let offered = self.active.ask(&self.board, now_ms, &*self.host, want)?;
        self.active.judge(offered, !more)?;
        Ok(more || offered.accepted > 0)
    }

    /// Tells all policies what was drained; the active one last, for it may fail.
    fn tell(&mut self) -> Result<(), Fault> {
        self.tell_others();
        self.active.tell(&self.board, self.board.now_ms(), &self.events)
    }

    fn tell_others(&mut self) {
        if let Some(trial) = &mut self.trial {
            trial.follow(&self.events);
        }
        let now_ms = self.board.now_ms();
        let Some(previous) = &mut self.previous else { return };
        let Some((seat, _)) = &mut previous.warm else { return };
        if let Err(fault) = seat.tell(&self.board, now_ms, &self.events) {
            previous.warm = None;
            let identity = previous.identity.clone();
            tracing::warn!("the eviction policy before this one: {identity} {fault}");
            self.board.strike(&identity.digest, &fault.to_string());
            self.show_previous();
        }
    }

    /// Drops what was kept for long enough, and begins what is due.
    fn tend(&mut self) {
        let now_ms = self.board.now_ms();
        let expired = |previous: &&mut Previous| {
            previous.warm.as_ref().is_some_and(|(_, until_ms)| *until_ms <= now_ms)
        };
        if let Some(previous) = self.previous.as_mut().filter(expired) {
            previous.warm = None;
            self.show_previous();
        }
        if self.trial.is_none() {
            self.rebuild.begin(now_ms, self.limits, &self.mailbox);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Swap { policy, reply } => self.swap(*policy, reply),
            Command::Rollback { reply } => {
                // Who does not wait any more need not be told.
                let _ = reply.send(self.rollback());
            }
            Command::Panic { reply } => {
                self.panic();
                let _ = reply.send(());
            }
            Command::Rebuilt { number, loaded } => self.rebuilt(number, *loaded),
        }
    }

    fn rebuilt(&mut self, number: u64, loaded: Result<LoadedPolicy, PolicyError>) {
        let Some((identity, recipe)) = self.rebuild.end(number) else { return };
        match loaded {
            // Another one learns just now: if nothing comes of it, this one's time comes again.
            Ok(_) if self.trial.is_some() => {
                self.rebuild.plan(self.board.now_ms() + POLICY_REBUILD_MS, identity, recipe);
            }
            Ok(policy) => self.begin_trial(policy, Purpose::Rebuild),
            Err(error) => {
                tracing::warn!("the eviction policy cannot be tried again: {error}");
                self.strike(identity, recipe, &error.to_string());
            }
        }
    }

    fn swap(&mut self, policy: LoadedPolicy, reply: SyncSender<Result<(), PolicyError>>) {
        if self.is_swapping() {
            let _ = reply.send(Err(PolicyError::Busy));
            return;
        }
        self.begin_trial(policy, Purpose::Swap(reply));
    }

    fn is_swapping(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| matches!(trial.purpose, Purpose::Swap(_)))
    }

    /// Lets a policy learn what is resident.
    fn begin_trial(&mut self, policy: LoadedPolicy, purpose: Purpose) {
        let mut residents = Vec::new();
        self.events.clear();
        self.host.residents(&mut self.events, &mut residents);
        // A fresh instance that still learns makes place for what somebody asks for.
        self.trial = None;
        let told = self.tell();
        let now_ms = self.board.now_ms();
        let seat = Seat::new(policy, self.evidence.is_some());
        self.trial = Some(Trial::new(seat, purpose, residents, &self.events, now_ms));
        if let Err(fault) = told {
            self.fall_back(&fault);
        }
    }

    /// Teaches the policy that learns a little more, if there is one, and lets it work once it knows
    /// everything.
    fn teach(&mut self) {
        let Some(trial) = &mut self.trial else { return };
        match trial.lesson(&self.board, self.board.now_ms()) {
            Ok(Learnt::Some) => {}
            Ok(Learnt::All) => self.exchange(),
            Ok(Learnt::TooLate) => self.abandon(Refusal::TooSlow),
            Err(fault) => {
                let (identity, recipe) = (trial.seat.identity.clone(), trial.seat.recipe.clone());
                let recent = trial.seat.take_recent();
                self.keep_evidence(recent, &identity, &fault);
                if self.is_swapping() {
                    self.board.strike(&identity.digest, &fault.to_string());
                } else {
                    self.strike(identity, recipe, &fault.to_string());
                }
                self.abandon(fault.into());
            }
        }
    }

    /// The policy that learnt becomes the active one.
    fn exchange(&mut self) {
        let Some(Trial { seat, purpose, .. }) = self.trial.take() else { return };
        tracing::info!("eviction policy: {}", seat.identity);
        let old = std::mem::replace(&mut self.active, seat);
        self.leave(old);
        self.rebuild.cancel();
        self.stand_in = None;
        self.show_active(String::new());
        if let Purpose::Swap(reply) = purpose {
            add(&self.board.swaps, 1);
            let _ = reply.send(Ok(()));
        }
    }

    /// Keeps the policy that was active at work, unless it only stood in for another one.
    fn leave(&mut self, old: Seat) {
        if self.stand_in.is_some() {
            return;
        }
        let until_ms = self.board.now_ms() + POLICY_WARM_MS;
        let (identity, recipe) = (old.identity.clone(), old.recipe.clone());
        self.previous = Some(Previous { identity, recipe, warm: Some((old, until_ms)) });
    }

    /// Gives up the policy that learns.
    fn abandon(&mut self, refusal: Refusal) {
        let Some(Trial { seat, purpose, .. }) = self.trial.take() else { return };
        let error = refusal.of(seat.recipe.name());
        tracing::warn!("eviction policy not swapped in: {error}");
        self.board.refused(&error.to_string());
        if let Purpose::Swap(reply) = purpose {
            let _ = reply.send(Err(error));
        }
    }

    fn rollback(&mut self) -> Result<Option<Recipe>, PolicyError> {
        if self.stand_in == Some(StandIn::Panic) {
            return Err(PolicyError::PanicSwitch);
        }
        if self.is_swapping() {
            return Err(PolicyError::Busy);
        }
        let Some(previous) = self.previous.take() else { return Err(PolicyError::NoPrevious) };
        if let Some(reason) = self.board.quarantine_reason(&previous.identity.digest) {
            let refused = Refusal::Quarantined { reason }.of(previous.recipe.name());
            self.previous = Some(previous);
            return Err(refused);
        }
        let Some((seat, _)) = previous.warm else {
            let recipe = previous.recipe.clone();
            self.previous = Some(previous);
            return Ok(Some(recipe));
        };
        self.rebuild.cancel();
        self.trial = None;
        tracing::info!("eviction policy, back again: {}", seat.identity);
        let old = std::mem::replace(&mut self.active, seat);
        self.leave(old);
        self.stand_in = None;
        self.show_active(String::new());
        Ok(None)
    }

    /// Lets no component work until one is swapped in.
    fn panic(&mut self) {
        self.abandon(Refusal::Abandoned("the panic switch was pressed"));
        self.rebuild.cancel();
        tracing::warn!("the panic switch: native policies from now on");
        if self.active.is_native() {
            if let Some(previous) = &mut self.previous {
                previous.warm = None;
            }
        } else {
            let (identity, recipe) = (self.active.identity.clone(), self.active.recipe.clone());
            self.previous = Some(Previous { identity, recipe, warm: None });
            self.seat_native();
        }
        self.stand_in = Some(StandIn::Panic);
        self.show_active("the panic switch is on".to_owned());
    }

    /// Replaces the policy by the native one, and says why.
    pub(crate) fn fall_back(&mut self, fault: &Fault) {
        if self.active.is_native() {
            // Only a defect of our own brings us here. A fresh start is the best that is left.
            return self.start_over();
        }
        let (identity, recipe) = (self.active.identity.clone(), self.active.recipe.clone());
        let recent = self.active.take_recent();
        self.keep_evidence(recent, &identity, fault);
        let reason = format!("{identity} {fault}");
        tracing::warn!("eviction policy replaced by the native one: {reason}");
        if matches!(fault, Fault::Panicked) {
            self.start_over();
        } else {
            self.seat_native();
        }
        self.stand_in = Some(StandIn::Fault);
        self.strike(identity, recipe, &fault.to_string());
        self.show_active(reason);
    }

    /// Puts the native policy in the place of one that is not to be entered again.
    fn seat_native(&mut self) {
        let mut residents = Vec::new();
        self.events.clear();
        self.host.residents(&mut self.events, &mut residents);
        self.tell_others();
        self.active = Seat::new(LoadedPolicy::stand_in(self.limits), false);
        // It cannot fail: the policy is native.
        let _ = self.active.tell(&self.board, self.board.now_ms(), &residents);
    }

    /// As at the start, with the native policy and nothing beside it.
    fn start_over(&mut self) {
        self.abandon(Refusal::Panicked);
        if let Some(previous) = &mut self.previous {
            previous.warm = None;
        }
        self.show_previous();
        self.active = Seat::new(LoadedPolicy::stand_in(self.limits), false);
        self.take_over();
    }

    /// Counts a fault of the component that the native policy stands in for: it is tried again later,
    /// or never.
    fn strike(&mut self, identity: PolicyIdentity, recipe: Recipe, reason: &str) {
        if let Verdict::Again { after_ms } = self.board.strike(&identity.digest, reason) {
            self.rebuild.plan(self.board.now_ms() + after_ms, identity, recipe);
        }
    }

    /// Keeps what a component was asked before it failed. The file is written on a thread of its own.
    fn keep_evidence(&self, recent: Option<Recent>, identity: &PolicyIdentity, fault: &Fault) {
        let (Some(dir), Some(recent)) = (self.evidence.clone(), recent) else { return };
        let (identity, fault) = (identity.clone(), fault.to_string());
        let writing = thread::Builder::new().name("policy-evidence".into()).spawn(move || {
            if let Err(error) = recent.write(&dir, &identity, &fault) {
                tracing::warn!("what the eviction policy was asked last is not kept: {error}");
            }
        });
        if let Err(error) = writing {
            tracing::warn!("what the eviction policy was asked last is not kept: {error}");
        }
    }

    fn show_active(&self, reason: String) {
        let is_panic = self.stand_in == Some(StandIn::Panic);
        self.board.set_active(self.active.identity.clone(), reason, is_panic, self.before());
    }

    fn show_previous(&self) {
        self.board.set_previous(self.before());
    }

    fn before(&self) -> Before {
        let previous = self.previous.as_ref()?;
        let until_ms = previous.warm.as_ref().map(|(_, until_ms)| *until_ms);
        Some((previous.identity.clone(), until_ms))
    }
}
