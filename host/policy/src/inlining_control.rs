//! What an operator may do with the inlining policy of a running gateway: try one, swap it in, roll back,
//! press the panic switch, ask.
//!
//! Each call takes as long as it takes, on the caller's thread. What must hold: one policy at a time is
//! tried or swapped in; whatever fails leaves the active policy in charge and its reason in the status. The
//! panic switch has nothing travel along. What was swapped in does not outlive the gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::inlining::{InliningChoice, Ledger};

use crate::compiler::Compiler;
use crate::control::LoadOptions;
use crate::error::{PolicyError, Refusal};
use crate::inlining_driver::InliningDriver;
use crate::inlining_policy::{InliningPolicyChoice, LoadedInlining};
use crate::inlining_status::InliningStatus;
use crate::status::PolicyIdentity;

/// See the module.
pub struct InliningControl {
    driver: InliningDriver,
    compiler: Compiler,
    limits: PolicyLimits,
    /// Held by whoever tries a policy or swaps one in.
    changing: Mutex<()>,
    chosen: Mutex<Chosen>,
    /// Presses of the panic switch.
    panics: AtomicU64,
}

struct Chosen {
    active: (InliningPolicyChoice, PolicyIdentity),
    previous: Option<(InliningPolicyChoice, PolicyIdentity)>,
    is_panic: bool,
    swaps: u64,
    last_refusal: String,
}

/// How the inlining policies stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InliningStanding {
    /// The active policy, and what was counted.
    pub status: InliningStatus,
    /// Whether the panic switch is on.
    pub is_panic: bool,
    /// The policy that was chosen before.
    pub previous: Option<PolicyIdentity>,
    /// Policies swapped in.
    pub swaps: u64,
    /// Why the last policy that was not taken was not taken; empty if there was none.
    pub last_refusal: String,
}

impl InliningControl {
    /// Starts the driver, which takes counts from `ledger` and brings rules there. Of `limits` the capacity
    /// is what the contents kept may take.
    ///
    /// # Errors
    /// What is wrong with the policy, or the system gives no thread.
    pub fn start(
        choice: InliningPolicyChoice,
        limits: PolicyLimits,
        compiler: Compiler,
        ledger: Arc<Ledger>,
    ) -> Result<Self, PolicyError> {
        let choice = choice.read()?;
        let loaded = LoadedInlining::load(choice.clone(), limits, &compiler)?;
        let chosen = Chosen {
            active: (choice, loaded.identity.clone()),
            previous: None,
            is_panic: false,
            swaps: 0,
            last_refusal: String::new(),
        };
        Ok(Self {
            driver: InliningDriver::start(loaded, ledger).map_err(PolicyError::Thread)?,
            compiler,
            limits,
            changing: Mutex::new(()),
            chosen: Mutex::new(chosen),
            panics: AtomicU64::new(0),
        })
    }

    /// Reads, checks, compiles and initialises a policy, and changes nothing. Of `options`, nothing is
    /// quarantined here.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(
        &self,
        choice: InliningPolicyChoice,
        options: LoadOptions,
    ) -> Result<PolicyIdentity, PolicyError> {
        let _changing = self.changing.try_lock().ok_or(PolicyError::Busy)?;
        let (_, loaded) = self.noted(self.try_out(choice, options))?;
        Ok(loaded.identity)
    }

    /// As [`InliningControl::load`]; then it works in place of the active one, with counts and rules of its
    /// own.
    ///
    /// # Errors
    /// What is wrong with it; the active policy stays.
    pub fn swap(
        &self,
        choice: InliningPolicyChoice,
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
        let (choice, _) = previous.ok_or(PolicyError::NoPrevious)?;
        self.noted(self.put_in(choice, LoadOptions::default()))?;
        Ok(())
    }

    /// Presses the panic switch: nothing travels along, until a policy is swapped in.
    ///
    /// # Errors
    /// The driver was stopped.
    pub fn panic(&self) -> Result<(), PolicyError> {
        self.panics.fetch_add(1, Ordering::SeqCst);
        self.chosen.lock().is_panic = true;
        let nothing = LoadedInlining::native(InliningChoice::Nothing);
        self.driver.swap(nothing, "the panic switch is on".to_owned())
    }

    /// The active policy and what there is to know of it. Never waits for the driver.
    pub fn standing(&self) -> InliningStanding {
        let status = self.driver.board.status();
        let chosen = self.chosen.lock();
        InliningStanding {
            status,
            is_panic: chosen.is_panic,
            previous: chosen.previous.as_ref().map(|(_, identity)| identity.clone()),
            swaps: chosen.swaps,
            last_refusal: chosen.last_refusal.clone(),
        }
    }

    /// Ends the driver's thread and waits for it.
    pub fn stop(&self) {
        self.driver.stop();
    }

    /// A policy that could be swapped in, and what it was made of.
    fn try_out(
        &self,
        choice: InliningPolicyChoice,
        options: LoadOptions,
    ) -> Result<(InliningPolicyChoice, LoadedInlining), PolicyError> {
        let mut choice = choice.read()?;
        let loaded = LoadedInlining::load(choice.clone(), self.limits, &self.compiler);
        let active = self.chosen.lock().active.clone();
        if options.keep_config
            && loaded.as_ref().is_ok_and(|loaded| loaded.identity.name == active.1.name)
            && let InliningPolicyChoice::Bytes { config, .. } = &mut choice
            && let InliningPolicyChoice::Bytes { config: kept, .. } = active.0
            && config.is_empty()
            && !kept.is_empty()
        {
            *config = kept;
            let loaded = LoadedInlining::load(choice.clone(), self.limits, &self.compiler)?;
            return Ok((choice, loaded));
        }
        Ok((choice, loaded?))
    }

    fn put_in(
        &self,
        choice: InliningPolicyChoice,
        options: LoadOptions,
    ) -> Result<PolicyIdentity, PolicyError> {
        let panics = self.panics.load(Ordering::SeqCst);
        let (choice, loaded) = self.try_out(choice, options)?;
        let identity = loaded.identity.clone();
        if self.panics.load(Ordering::SeqCst) != panics {
            let why = Refusal::Abandoned("the panic switch was pressed");
            return Err(why.of(&identity.name));
        }
        self.driver.swap(loaded, String::new())?;
        if self.panics.load(Ordering::SeqCst) != panics {
            // Pressed while it was put in: whichever came first, nothing travels along now.
            self.panic()?;
        }
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
            tracing::warn!("inlining policy not taken: {error}");
            self.chosen.lock().last_refusal = error.to_string();
        }
        result
    }
}
