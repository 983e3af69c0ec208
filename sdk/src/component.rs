//! The inside of a component: what the `register_*` macros expand to calls this, and nothing else
//! should. The code generated from `wit/` is in `sdk/worlds`, what stands between its words and the types
//! of a policy in [`words`](crate::words).

use std::sync::{Mutex, PoisonError};

use crate::Level;

pub use {
    portcullis_world_eviction as eviction, portcullis_world_inlining as inlining,
    portcullis_world_prefetch as prefetch,
};

/// The one policy of a component, from `init` on.
pub struct Slot<R>(Mutex<Option<R>>);

impl<R> Slot<R> {
    /// A slot before `init`.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Fills it with what `make` makes.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn init(&self, make: impl FnOnce() -> Result<R, String>) -> Result<(), String> {
        std::panic::set_hook(Box::new(|panic| crate::log(Level::Error, &panic.to_string())));
        let made = make()?;
        *self.lock() = Some(made);
        Ok(())
    }

    /// Enters the policy. Before `init` there is none, and the answer is the default one.
    pub fn enter<T: Default>(&self, call: impl FnOnce(&mut R) -> T) -> T {
        self.lock().as_mut().map(call).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Default for Slot<R> {
    fn default() -> Self {
        Self::new()
    }
}
