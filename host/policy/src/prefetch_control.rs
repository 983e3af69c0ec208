//! What an operator may do with the prefetch policy of a running gateway: try one, swap it in, roll
//! back, press the panic switch, ask.
//!
//! Each call takes as long as it takes, on the caller's thread. What must hold: one policy at a time is
//! tried or swapped in; whatever fails leaves the active policy in charge and its reason in the status.
//! A policy that is swapped in knows nothing of what clients did before, so there is nothing to learn,
//! and none is kept at work beside it. What was swapped in is active again after a restart, where there
//! is a place to keep it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::prefetch::PrefetchChoice;

use crate::compiler::Compiler;
use crate::component::sha256;
use crate::control::LoadOptions;
use crate::error::{PolicyError, Refusal};
use crate::prefetch_driver::PrefetchDriver;
use crate::prefetch_policy::{LoadedPrefetch, PrefetchPolicyChoice};
use crate::prefetch_status::PrefetchStatus;
use crate::saved::SavedPolicies;
use crate::status::PolicyIdentity;
use crate::strikes::Recovery;

/// How prefetch policies are set up.
#[derive(Clone, Debug)]
pub struct PrefetchSetup {
    /// The policy to begin with, unless another one was swapped in before a restart.
    pub choice: PrefetchPolicyChoice,
    /// What every policy is told; the capacity is what may be there ahead for one client.
    pub limits: PolicyLimits,
    /// What happens after a fault.
    pub recovery: Recovery,
    /// Where components are compiled.
    pub compiler: Compiler,
    /// Where it is kept which policy is active; nowhere if `None`.
    pub state: Option<PathBuf>,
}

impl PrefetchSetup {
    /// Everything but what is chosen at its default.
    pub fn new(choice: PrefetchPolicyChoice, limits: PolicyLimits) -> Self {
        let (recovery, compiler) = (Recovery::default(), Compiler::default());
        Self { choice, limits, recovery, compiler, state: None }
    }
}

/// See the module.
pub struct PrefetchControl {
    driver: Arc<PrefetchDriver>,
    compiler: Compiler,
    limits: PolicyLimits,
    saved: Option<SavedPolicies>,
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
    /// Starts the driver with the policy that was active before a restart, or else the one of the
    /// setup. One that does not load any more is passed over, and the standing says so.
    ///
    /// # Errors
    /// What is wrong with the policy of the setup or with the directory, or the system gives no thread.
    pub fn start(setup: PrefetchSetup) -> Result<Self, PolicyError> {
        let PrefetchSetup { choice, limits, recovery, compiler, state } = setup;
        let saved = match state.map(|state| state.join("prefetch-policies")) {
            Some(path) => {
                let opened = SavedPolicies::open(path.clone());
                Some(opened.map_err(|source| PolicyError::State { path, source })?)
            }
            None => None,
        };
        let load =
            |choice: &PrefetchPolicyChoice| LoadedPrefetch::load(choice.clone(), limits, &compiler);
        let Restored { policy, is_panic, refusal: last_refusal } = restored(saved.as_ref(), load);
        if !last_refusal.is_empty() {
            tracing::warn!(
                "the prefetch policy of before the restart is not active: {last_refusal}"
            );
        }
        let (choice, loaded) = match policy {
            Some(restored) => restored,
            None => {
                let choice = choice.read()?;
                let loaded = load(&choice)?;
                (choice, loaded)
            }
        };
        let active = (choice, loaded.identity.clone());
        let driver = PrefetchDriver::start_with(loaded, recovery).map_err(PolicyError::Thread)?;
        let chosen = Chosen { active, previous: None, is_panic: false, swaps: 0, last_refusal };
        let control = Self {
            driver: Arc::new(driver),
            compiler,
            limits,
            saved,
            changing: Mutex::new(()),
            chosen: Mutex::new(chosen),
            panics: AtomicU64::new(0),
        };
        if is_panic {
            control.panic()?;
        }
        Ok(control)
    }

    /// The driver.
    pub fn driver(&self) -> &Arc<PrefetchDriver> {
        &self.driver
    }

    /// Reads, checks, compiles and initialises a policy, and changes nothing.
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
        self.save(|chosen| chosen.is_panic = true);
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
        if let PrefetchPolicyChoice::Bytes { name, bytes, .. } = &choice {
            let digest = sha256(bytes);
            if options.force {
                self.driver.pardon(&digest);
            }
            if let Some(reason) = self.driver.quarantine_reason(&digest) {
                return Err(Refusal::Quarantined { reason }.of(name));
            }
        }
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
        self.save(|chosen| {
            let before = std::mem::replace(&mut chosen.active, (choice, identity.clone()));
            chosen.previous = Some(before);
            chosen.is_panic = self.panics.load(Ordering::SeqCst) != panics;
            chosen.swaps += 1;
        });
        Ok(identity)
    }

    /// Notes a change of what was chosen, also for after a restart where there is a place for it.
    fn save(&self, change: impl FnOnce(&mut Chosen)) {
        let mut chosen = self.chosen.lock();
        change(&mut chosen);
        let Some(saved) = &self.saved else { return };
        let active = chosen.active.0.to_kept();
        let previous = chosen.previous.as_ref().map(|(choice, _)| choice.to_kept());
        if let Err(error) = saved.save(&active, previous.as_ref(), chosen.is_panic) {
            tracing::warn!("which prefetch policy is active would not survive a restart: {error}");
        }
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

/// What is left of before a restart.
#[derive(Default)]
struct Restored {
    policy: Option<(PrefetchPolicyChoice, LoadedPrefetch)>,
    is_panic: bool,
    /// Why there is no policy although there was one; empty otherwise.
    refusal: String,
}

fn restored(
    saved: Option<&SavedPolicies>,
    load: impl Fn(&PrefetchPolicyChoice) -> Result<LoadedPrefetch, PolicyError>,
) -> Restored {
    let (kept, is_panic) = match saved.map(SavedPolicies::restore) {
        None | Some(Ok(None)) => return Restored::default(),
        Some(Ok(Some(last))) => last,
        Some(Err(refusal)) => return Restored { refusal, ..Restored::default() },
    };
    let loaded = kept.and_then(PrefetchPolicyChoice::from_kept).and_then(|choice| {
        let loaded = load(&choice).map_err(|error| error.to_string())?;
        Ok((choice, loaded))
    });
    match loaded {
        Ok(policy) => Restored { policy: Some(policy), is_panic, refusal: String::new() },
        Err(refusal) => Restored { policy: None, is_panic, refusal },
    }
}
