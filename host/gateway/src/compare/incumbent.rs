//! The policy that is active for the whole cache, as comparisons see it, and how others are made.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use portcullis_core::ab::Contender;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_policy::{LoadOptions, LoadedPolicy, PolicyChoice, PolicyControl, PolicyError};

/// How often a swap is tried while somebody else swaps, and the pause between.
const BUSY_TRIES_MAX: usize = 200;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct Incumbent {
    control: Arc<PolicyControl>,
}

impl Incumbent {
    pub(crate) fn new(control: Arc<PolicyControl>) -> Self {
        Self { control }
    }

    /// What loads it anew.
    pub(super) fn choice(&self) -> PolicyChoice {
        self.control.active_choice()
    }

    /// A policy beside it.
    pub(super) fn load(
        &self,
        choice: PolicyChoice,
        limits: PolicyLimits,
    ) -> Result<LoadedPolicy, PolicyError> {
        self.control.load_apart(choice, limits)
    }

    /// Who it is.
    pub(super) fn named(&self) -> Contender {
        let status = self.control.status();
        Contender { name: status.name, digest: status.digest }
    }

    /// Whether the panic switch is on: then nothing is tried.
    pub(super) fn is_panic(&self) -> bool {
        self.control.status().is_panic
    }

    /// Has the active policy told of all that is resident, whatever it is.
    pub(super) fn renew(&self) -> Result<(), String> {
        if !self.is_panic() {
            return self.put_in(self.choice());
        }
        // The switch alone would not have the native policy told, where that is at work already.
        self.put_in(PolicyChoice::Named(S3Fifo::NAME.to_owned()))?;
        self.control.panic().map_err(|error| error.to_string())
    }

    /// Puts a policy in for the whole cache, which is told of all that is resident.
    pub(super) fn put_in(&self, choice: PolicyChoice) -> Result<(), String> {
        let options = LoadOptions { force: true, keep_config: false };
        for _ in 0..BUSY_TRIES_MAX {
            match self.control.swap(choice.clone(), options) {
                // Somebody else swaps, and may have been told of what was resident before.
                Err(PolicyError::Busy) => thread::park_timeout(BUSY_PAUSE),
                swapped => return swapped.map(drop).map_err(|error| error.to_string()),
            }
        }
        Err(PolicyError::Busy.to_string())
    }
}
