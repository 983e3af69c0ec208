//! What an operator may do with the eviction policy of a running host: try one, swap it in, roll
//! back, press the panic switch, ask.
//!
//! Each call takes as long as it takes, up to seconds, on the caller's thread; the driver's is held up
//! by none of it. What must hold: one policy at a time is tried or swapped in; whatever fails leaves the
//! active policy in charge and its reason in the status; the panic switch waits for nobody, and what
//! was on its way when it was pressed does not come.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use portcullis_core::eviction::{EvictionHost, PolicyLimits};

use crate::codes::{CodeCache, private_dir};
use crate::compiler::Compiler;
use crate::component::sha256;
use crate::driver::{DriverOptions, EvictionDriver};
use crate::error::{PolicyError, Refusal};
use crate::loaded::{CompiledPolicy, LoadedPolicy, PolicyChoice, PolicyLoader};
use crate::saved::SavedPolicies;
use crate::status::{EvictionStatus, PolicyIdentity};
use crate::strikes::Recovery;

/// How the policies of a host are set up.
#[derive(Clone, Debug)]
pub struct PolicySetup {
    /// The policy to begin with, unless another one was swapped in before a restart.
    pub choice: PolicyChoice,
    /// What every policy is told.
    pub limits: PolicyLimits,
    /// What happens after a fault.
    pub recovery: Recovery,
    /// Where components are compiled.
    pub compiler: Compiler,
    /// Where it is kept which policy is active, and compiled code; nowhere if `None`.
    pub state: Option<PathBuf>,
}

impl PolicySetup {
    /// Everything but what is chosen at its default.
    pub fn new(choice: PolicyChoice, limits: PolicyLimits) -> Self {
        let (recovery, compiler) = (Recovery::default(), Compiler::default());
        Self { choice, limits, recovery, compiler, state: None }
    }
}

/// See the module.
pub struct PolicyControl {
    driver: Arc<EvictionDriver>,
    loader: PolicyLoader,
    limits: PolicyLimits,
    saved: Option<SavedPolicies>,
    /// Held by whoever tries a policy or swaps one in.
    changing: Mutex<()>,
    chosen: Mutex<Chosen>,
    /// Presses of the panic switch.
    panics: AtomicU64,
}

/// What somebody chose last, and before that.
struct Chosen {
    active: PolicyChoice,
    previous: Option<PolicyChoice>,
    is_panic: bool,
}

/// What to do besides loading what is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// Also where it is quarantined; it no longer is then.
    pub force: bool,
    /// A component that has the name of the active one, and comes without a configuration, gets the
    /// configuration of the active one.
    pub keep_config: bool,
}

impl PolicyControl {
    /// Starts a driver for `host` with the policy that was active before a restart, or else the one
    /// of the setup. One that does not load any more is passed over, and the status says so.
    ///
    /// # Errors
    /// What is wrong with the policy of the setup or with the directory, or the system gives no thread.
    pub fn start(host: Arc<dyn EvictionHost>, setup: PolicySetup) -> Result<Self, PolicyError> {
        let PolicySetup { choice, limits, recovery, compiler, state } = setup;
        let at = |path: PathBuf| move |source| PolicyError::State { path, source };
        let (mut codes, mut saved, mut evidence) = (None, None, None);
        if let Some(state) = state {
            let (compiled, policies) = (state.join("compiled"), state.join("policies"));
            let faults = state.join("faults");
            private_dir(&faults).map_err(at(faults.clone()))?;
            evidence = Some(faults);
            codes = Some(CodeCache::open(compiled.clone()).map_err(at(compiled))?);
            saved = Some(SavedPolicies::open(policies.clone()).map_err(at(policies))?);
        }
        let loader = PolicyLoader::new(compiler, codes);
        let Restored { policy, is_panic, refusal } = restored(saved.as_ref(), &loader, limits);
        let (choice, loaded) = match policy {
            Some(restored) => restored,
            None => {
                // What is in a file now may be something else later.
                let choice =
                    if choice == PolicyChoice::BuiltIn { choice } else { choice.read()? };
                let loaded = loader.compile(choice.clone())?.load(limits)?;
                (choice, loaded)
            }
        };
        let driver = EvictionDriver::start_with(host, loaded, DriverOptions { recovery, evidence });
        let driver = Arc::new(driver.map_err(PolicyError::Thread)?);
        let chosen = Chosen { active: choice, previous: None, is_panic };
        let control = Self {
            driver,
            loader,
            limits,
            saved,
            changing: Mutex::new(()),
            chosen: Mutex::new(chosen),
            panics: AtomicU64::new(0),
        };
        if let Some(refusal) = refusal {
            tracing::warn!("the policy of before the restart is not active: {refusal}");
            control.driver.note_refusal(&refusal);
        }
        if is_panic {
            control.driver.panic()?;
        }
        Ok(control)
    }

    /// The driver.
    pub fn driver(&self) -> &Arc<EvictionDriver> {
        &self.driver
    }

    /// What loads the policy anew that somebody chose last, whether it works or another one stands in.
    pub fn active_choice(&self) -> PolicyChoice {
        self.chosen.lock().active.clone()
    }

    /// Reads, checks, compiles, initialises and tries a policy with made-up objects, and changes
    /// nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(
        &self,
        choice: PolicyChoice,
        options: LoadOptions,
    ) -> Result<PolicyIdentity, PolicyError> {
        let _changing = self.changing.try_lock().ok_or(PolicyError::Busy)?;
        let (_, loaded) = self.noted(self.try_out(choice, options))?;
        Ok(loaded.identity)
    }

    /// As [`PolicyControl::load`]; then the policy learns what is resident and takes over.
    ///
    /// # Errors
    /// What is wrong with it; the active policy stays.
    pub fn swap(
        &self,
        choice: PolicyChoice,
        options: LoadOptions,
    ) -> Result<PolicyIdentity, PolicyError> {
        let _changing = self.changing.try_lock().ok_or(PolicyError::Busy)?;
        let panics = self.panics.load(Ordering::SeqCst);
        let swapped = self.try_out(choice, options).and_then(|(choice, loaded)| {
            let identity = loaded.identity.clone();
            self.put_in(loaded, panics)?;
            Ok((choice, identity))
        });
        let (choice, identity) = self.noted(swapped)?;
        self.save(|chosen| {
            let active = std::mem::replace(&mut chosen.active, choice);
            chosen.previous = Some(active);
            chosen.is_panic = false;
        });
        Ok(identity)
    }

    /// Lets the policy before the active one work again.
    ///
    /// # Errors
    /// There is none, or it does not work any more; the active policy stays.
    pub fn rollback(&self) -> Result<(), PolicyError> {
        let _changing = self.changing.try_lock().ok_or(PolicyError::Busy)?;
        let panics = self.panics.load(Ordering::SeqCst);
        self.noted(match self.driver.rollback() {
            Ok(None) => Ok(()),
            Ok(Some(compiled)) => {
                compiled.load(self.limits).and_then(|loaded| self.put_in(loaded, panics))
            }
            Err(error) => Err(error),
        })?;
        self.save(|chosen| {
            if let Some(previous) = chosen.previous.take() {
                chosen.previous = Some(std::mem::replace(&mut chosen.active, previous));
            }
        });
        Ok(())
    }

    /// Presses the panic switch: native policies, until one is swapped in.
    ///
    /// # Errors
    /// The driver was stopped.
    pub fn panic(&self) -> Result<(), PolicyError> {
        self.panics.fetch_add(1, Ordering::SeqCst);
        self.driver.panic()?;
        self.save(|chosen| chosen.is_panic = true);
        Ok(())
    }

    /// The active policy and what there is to know of it. Never waits.
    pub fn status(&self) -> EvictionStatus {
        self.driver.status()
    }

    fn put_in(&self, loaded: LoadedPolicy, panics: u64) -> Result<(), PolicyError> {
        if self.panics.load(Ordering::SeqCst) != panics {
            let why = Refusal::Abandoned("the panic switch was pressed");
            return Err(why.of(loaded.recipe.name()));
        }
        self.driver.swap(loaded)
    }

    /// A policy that could be swapped in, and what it was made of.
    fn try_out(
        &self,
        choice: PolicyChoice,
        options: LoadOptions,
    ) -> Result<(PolicyChoice, LoadedPolicy), PolicyError> {
        let given = if choice == PolicyChoice::BuiltIn { choice } else { choice.read()? };
        if let PolicyChoice::Bytes { name, bytes, .. } = &given {
            let digest = sha256(bytes);
            if options.force {
                self.driver.pardon(&digest);
            }
            if let Some(reason) = self.driver.quarantine_reason(&digest) {
                return Err(Refusal::Quarantined { reason }.of(name));
            }
        }
        let compiled = self.loader.compile(given.clone())?;
        let loaded = compiled.load(self.limits);
        let (given, compiled, loaded) = match self.kept_config(&given, options) {
            Some(kept) => self.with_config(kept, (given, compiled, loaded)),
            None => (given, compiled, loaded),
        };
        let loaded = loaded?;
        let tried = compiled.self_test(self.limits);
        if let Some(fault) = tried.as_ref().err().and_then(PolicyError::fault) {
            self.driver.strike(compiled.digest(), fault);
        }
        tried?;
        Ok((given, loaded))
    }

    /// The configuration that a component gets where none came with it.
    fn kept_config(&self, given: &PolicyChoice, options: LoadOptions) -> Option<Vec<u8>> {
        match (given, &self.chosen.lock().active) {
            (PolicyChoice::Bytes { config, .. }, PolicyChoice::Bytes { config: kept, .. })
                if options.keep_config && config.is_empty() && !kept.is_empty() =>
            {
                Some(kept.clone())
            }
            _ => None,
        }
    }

    /// The component with the configuration of the active one, if it has its name and takes it.
    fn with_config(&self, kept: Vec<u8>, (given, compiled, loaded): Candidate) -> Candidate {
        let configured = compiled.clone().with_config(&kept);
        let reloaded = configured.load(self.limits);
        let active = self.driver.status().name;
        match (reloaded, given) {
            (Ok(reloaded), PolicyChoice::Bytes { name, bytes, .. })
                if reloaded.identity.name == active =>
            {
                let given = PolicyChoice::Bytes { name, bytes, config: kept };
                (given, configured, Ok(reloaded))
            }
            // One of the same name that does not take it says why.
            (Err(error), given) if loaded.as_ref().is_ok_and(|it| it.identity.name == active) => {
                (given, compiled, Err(error))
            }
            (_, given) => (given, compiled, loaded),
        }
    }

    /// Notes a change of what was chosen, also for after a restart where there is a place for it.
    fn save(&self, change: impl FnOnce(&mut Chosen)) {
        let mut chosen = self.chosen.lock();
        change(&mut chosen);
        let Some(saved) = &self.saved else { return };
        let Chosen { active, previous, is_panic } = &*chosen;
        if let Err(error) = saved.save(active, previous.as_ref(), *is_panic) {
            tracing::warn!("which policy is active would not survive a restart: {error}");
        }
    }

    /// Notes a failure for whoever asks for the status.
    fn noted<T>(&self, result: Result<T, PolicyError>) -> Result<T, PolicyError> {
        result.inspect_err(|error| self.driver.note_refusal(&error.to_string()))
    }
}

/// What was given, compiled, and loaded or not.
type Candidate = (PolicyChoice, CompiledPolicy, Result<LoadedPolicy, PolicyError>);

/// What is left of before a restart.
#[derive(Default)]
struct Restored {
    policy: Option<(PolicyChoice, LoadedPolicy)>,
    is_panic: bool,
    /// Why there is no policy although there was one.
    refusal: Option<String>,
}

fn restored(
    saved: Option<&SavedPolicies>,
    loader: &PolicyLoader,
    limits: PolicyLimits,
) -> Restored {
    let (choice, is_panic) = match saved.map(SavedPolicies::restore) {
        None | Some(Ok(None)) => return Restored::default(),
        Some(Ok(Some((choice, is_panic)))) => (choice, is_panic),
        Some(Err(damage)) => return Restored { refusal: Some(damage), ..Restored::default() },
    };
    let loaded = choice.and_then(|choice| {
        let compiled = loader.compile(choice.clone()).map_err(|error| error.to_string())?;
        let loaded = compiled.load(limits).map_err(|error| error.to_string())?;
        Ok((choice, loaded))
    });
    match loaded {
        Ok(policy) => Restored { policy: Some(policy), is_panic, refusal: None },
        Err(refusal) => Restored { policy: None, is_panic, refusal: Some(refusal) },
    }
}
