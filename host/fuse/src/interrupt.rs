//! Which requests want to hear that they are interrupted.
//!
//! The kernel sends INTERRUPT on whichever descriptor is read next, so another thread may see it
//! before the request it names has its hook, or after that request was answered. An interrupt
//! without a hook is therefore remembered for a while: a hook registered later is called at once.
//! Unique numbers are never used again, so one that nobody asks for does no harm.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Interrupts remembered that no hook was there for.
const EARLY_MAX: usize = 256;

pub(crate) type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Interrupts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hooks: HashMap<u64, Hook>,
    early: VecDeque<u64>,
}

impl Interrupts {
    /// Calls `hook` when the request `unique` is interrupted, now if it was already.
    pub(crate) fn register(&self, unique: u64, hook: Hook) {
        let mut state = self.lock();
        if let Some(at) = state.early.iter().position(|&early| early == unique) {
            state.early.remove(at);
            drop(state);
            hook();
        } else {
            state.hooks.insert(unique, hook);
        }
    }

    /// Forgets the hook of a request that is answered.
    pub(crate) fn forget(&self, unique: u64) {
        let hook = self.lock().hooks.remove(&unique);
        // What the hook owns is dropped without the lock.
        drop(hook);
    }

    /// The kernel interrupts `unique`.
    pub(crate) fn interrupt(&self, unique: u64) {
        let mut state = self.lock();
        let Some(hook) = state.hooks.remove(&unique) else {
            if state.early.len() == EARLY_MAX {
                state.early.pop_front();
            }
            state.early.push_back(unique);
            return;
        };
        drop(state);
        hook();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock, so a poisoned state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn counting() -> (Arc<AtomicUsize>, Hook) {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        (calls, Box::new(move || _ = counted.fetch_add(1, Ordering::Relaxed)))
    }

    #[test]
    fn an_interrupt_that_comes_before_its_hook_is_not_lost() {
        let interrupts = Interrupts::default();
        interrupts.interrupt(4);
        let (calls, hook) = counting();
        interrupts.register(4, hook);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_hook_is_called_for_its_own_request_only_and_not_after_the_answer() {
        let interrupts = Interrupts::default();
        let (calls, hook) = counting();
        interrupts.register(4, hook);
        interrupts.interrupt(6);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        interrupts.forget(4);
        interrupts.interrupt(4);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn interrupts_without_a_hook_cost_bounded_memory() {
        let interrupts = Interrupts::default();
        for unique in 0..10 * EARLY_MAX as u64 {
            interrupts.interrupt(unique);
        }
        assert_eq!(interrupts.lock().early.len(), EARLY_MAX);
    }
}
