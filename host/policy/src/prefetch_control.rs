//! What an operator may do with the prefetch policy of a running gateway: try one, swap it in, roll
//! back, press the panic switch, ask.
//!
//! Each call takes as long as it takes, on the caller's thread. What must hold: one policy at a time is
//! tried or swapped in; whatever fails leaves the active policy in charge and its reason in the status.
//! A policy that is swapped in knows nothing of what clients did before, so there is nothing to learn,
//! and none is kept at work beside it. What was swapped in does not outlive the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::prefetch::PrefetchChoice;

use crate::compiler::Compiler;
use crate::control::LoadOptions;
use crate::error::{PolicyError, Refusal};
use crate::prefetch_driver::PrefetchDriver;
use crate::prefetch_policy::{LoadedPrefetch, PrefetchPolicyChoice};
use crate::prefetch_status::PrefetchStatus;
use crate::status::PolicyIdentity;

/// See the module.
pub struct PrefetchControl {
    driver: Arc<PrefetchDriver>,
    compiler: Compiler,
    limits: PolicyLimits,
    /// Held by whoever tries a policy or swaps one in.
    changing: Mutex<()>,
    chosen: Mutex<Chosen>,
    /// Presses of the panic switch.
    panics: AtomicU64,
}

struct Chosen {
    active: (PrefetchPolicyChoice, PolicyIdentity),
    previous: Option<(PrefetchPolicyChoice, PolicyIdentity)>,
    is_panic: bool,
    swaps: u64,
    last_refusal: String,
}

/// How the prefetch policies stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefetchStanding {
    /// The active policy, and what was counted.
    pub status: PrefetchStatus,
    /// Whether the panic switch is on.
    pub is_panic: bool,
    /// The policy that was chosen before.
    pub previous: Option<PolicyIdentity>,
    /// Policies swapped in.
    pub swaps: u64,
    /// Why the last policy that was not taken was not taken; empty if there was none.
    pub last_refusal: String,
}

impl PrefetchControl {
    /// Starts the driver. Of `limits` the capacity is what may be there ahead for one client.
    ///
    /// # Errors
    /// What is wrong with the policy, or the system gives no thread.
    pub fn start(
        choice: PrefetchPolicyChoice,
        limits: PolicyLimits,
        compiler: Compiler,
    ) -> Result<Self, PolicyError> {
        let choice = choice.read()?;
        let loaded = LoadedPrefetch::load(choice.clone(), limits, &compiler)?;
        let chosen = Chosen {
            active: (choice, loaded.identity.clone()),
            previous: None,
            is_panic: false,
            swaps: 0,
            last_refusal: String::new(),
        };
        let driver = Arc::new(PrefetchDriver::start(loaded).map_err(PolicyError::Thread)?);
        Ok(Self {
            driver,
            compiler,
            limits,
            changing: Mutex::new(()),
            chosen: Mutex::new(chosen),
            panics: AtomicU64::new(0),
        })
    }

    /// The driver.
    pub fn driver(&self) -> &Arc<PrefetchDriver> {
        &self.driver
    }

    /// Reads, checks, compiles and initialises a policy, and changes nothing. Of `options`, nothing is
    /// quarantined here.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(
        &self,
        choice: PrefetchPolicyChoice,
        options: LoadOptions,
    ) -> Result<PolicyIdentity, PolicyError> {
        let _changing = self.changing.try_lock().ok_or(PolicyError::Busy)?;
        let (_, loaded) = self.noted(self.try_out(choice, options))?;
        Ok(loaded.identity)
    }

    /// As [`PrefetchControl::load`]; then it works in place of the active one, and every client begins
    /// anew.
    ///
    /// # Errors
    /// What is wrong with it; the active policy stays.
    pub fn swap(
        &self,
        choice: PrefetchPolicyChoice,
        options: LoadOptions,
    ) -> Result<PolicyIdentity, PolicyError> {
        let _changing = self.changing.try_lock().ok_or(PolicyError::Busy)?;
        self.noted(self.put_in(choice, options))
    }

    /// Lets the policy before the active one work again.
    ///
    /// # Errors
    /// There is none, or it does not load any more; the active policy stays.
    pub fn rollback(&self) -> Result<(), PolicyError> {
        let _changing = self.changing.try_lock().ok_or(PolicyError::Busy)?;
        let (previous, is_panic) = {
            let chosen = self.chosen.lock();
            (chosen.previous.clone(), chosen.is_panic)
        };
        if is_panic {
            return Err(PolicyError::PanicSwitch);
        }
        let previous = previous.map(|(choice, _)| choice).ok_or(PolicyError::NoPrevious);
        let as_it_was = LoadOptions::default();
        self.noted(previous.and_then(|choice| self.put_in(choice, as_it_was)))?;
        Ok(())
    }

    /// Presses the panic switch: the native policy, until one is swapped in.
    ///
    /// # Errors
    /// The driver was stopped.
    pub fn panic(&self) -> Result<(), PolicyError> {
        self.panics.fetch_add(1, Ordering::SeqCst);
        self.chosen.lock().is_panic = true;
        let native = || LoadedPrefetch::native(PrefetchChoice::default());
        let reason = || "the panic switch is on".to_owned();
        match self.driver.swap_saying(native(), reason()) {
            Err(PolicyError::Busy) => {
                // Another one is about to work: it does so first, which takes one call at most.
                let _changing = self.changing.lock();
                self.driver.swap_saying(native(), reason())
            }
            done => done,
        }
    }

    /// The active policy and what there is to know of it. Never waits for the driver.
    pub fn standing(&self) -> PrefetchStanding {
        let status = self.driver.status();
        let chosen = self.chosen.lock();
        PrefetchStanding {
            status,
            is_panic: chosen.is_panic,
            previous: chosen.previous.as_ref().map(|(_, identity)| identity.clone()),
            swaps: chosen.swaps,
            last_refusal: chosen.last_refusal.clone(),
        }
    }

    /// A policy that could be swapped in, and what it was made of.
    fn try_out(
        &self,
        choice: PrefetchPolicyChoice,
        options: LoadOptions,
    ) -> Result<(PrefetchPolicyChoice, LoadedPrefetch), PolicyError> {
        let load = |choice: &PrefetchPolicyChoice| {
            LoadedPrefetch::load(choice.clone(), self.limits, &self.compiler)
        };
        let mut choice = choice.read()?;
        let loaded = load(&choice);
        let active = self.chosen.lock().active.clone();
        if options.keep_config
            && loaded.as_ref().is_ok_and(|loaded| loaded.identity.name == active.1.name)
            && let PrefetchPolicyChoice::Bytes { config, .. } = &mut choice
            && let PrefetchPolicyChoice::Bytes { config: kept, .. } = active.0
            && config.is_empty()
            && !kept.is_empty()
        {
            *config = kept;
            let loaded = load(&choice)?;
            return Ok((choice, loaded));
        }
        Ok((choice, loaded?))
    }

    fn put_in(
        &self,
        choice: PrefetchPolicyChoice,
        options: LoadOptions,
    ) -> Result<PolicyIdentity, PolicyError> {
        let panics = self.panics.load(Ordering::SeqCst);
        let (choice, loaded) = self.try_out(choice, options)?;
        let identity = loaded.identity.clone();
        if self.panics.load(Ordering::SeqCst) != panics {
            let why = Refusal::Abandoned("the panic switch was pressed");
            return Err(why.of(&identity.name));
        }
        self.driver.swap(loaded)?;
        let mut chosen = self.chosen.lock();
        let before = std::mem::replace(&mut chosen.active, (choice, identity.clone()));
        chosen.previous = Some(before);
        chosen.is_panic = self.panics.load(Ordering::SeqCst) != panics;
        chosen.swaps += 1;
        Ok(identity)
    }

    /// Keeps the reason of a refusal for the status.
    fn noted<T>(&self, result: Result<T, PolicyError>) -> Result<T, PolicyError> {
        if let Err(error) = &result {
            tracing::warn!("prefetch policy not taken: {error}");
            self.chosen.lock().last_refusal = error.to_string();
        }
        result
    }
}
