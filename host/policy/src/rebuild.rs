//! A fresh instance of a component that failed: when it is due, and who makes it.
//!
//! It is made on a thread of its own, since even its start may take as long as a call may. What must
//! hold: what was called off does not come back.

use std::sync::Arc;
use std::thread;

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::limits::POLICY_THREAD_STACK_BYTES;

use crate::mailbox::{Command, Mailbox};
use crate::recipe::Recipe;
use crate::status::PolicyIdentity;

/// See the module.
#[derive(Default)]
pub(crate) struct Rebuild {
    state: State,
    /// Counts those begun, to know an answer that nobody waits for.
    number: u64,
}

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    Due {
        at_ms: u64,
        identity: PolicyIdentity,
        recipe: Recipe,
    },
    UnderWay {
        identity: PolicyIdentity,
        recipe: Recipe,
    },
}

impl Rebuild {
    /// Sets it for a time.
    pub(crate) fn plan(&mut self, at_ms: u64, identity: PolicyIdentity, recipe: Recipe) {
        self.state = State::Due { at_ms, identity, recipe };
    }

    /// Calls it off.
    pub(crate) fn cancel(&mut self) {
        self.state = State::Nothing;
    }

    /// When it is due, if it is set and has not begun.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        match self.state {
            State::Due { at_ms, .. } => Some(at_ms),
            State::Nothing | State::UnderWay { .. } => None,
        }
    }

    /// Begins it where it is due; the driver finds the answer in its mailbox.
    pub(crate) fn begin(&mut self, now_ms: u64, limits: PolicyLimits, mailbox: &Arc<Mailbox>) {
        if self.due_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        let State::Due { identity, recipe, .. } = std::mem::take(&mut self.state) else { return };
        self.number += 1;
        self.state = State::UnderWay { identity, recipe: recipe.clone() };
        let (number, mailbox) = (self.number, mailbox.clone());
        let spawned = thread::Builder::new()
            .name("policy-load".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn(move || {
                let loaded = recipe.start(limits).map_err(|refusal| refusal.of(recipe.name()));
                mailbox.put(Command::Rebuilt { number, loaded: Box::new(loaded) });
            });
        if let Err(error) = spawned {
            tracing::warn!("no thread to try the eviction policy again: {error}");
            self.state = State::Nothing;
        }
    }

    /// Takes the answer of that number: what it was of, if anybody waits for it.
    pub(crate) fn end(&mut self, number: u64) -> Option<(PolicyIdentity, Recipe)> {
        if number != self.number {
            return None;
        }
        match std::mem::take(&mut self.state) {
            State::UnderWay { identity, recipe } => Some((identity, recipe)),
            other => {
                self.state = other;
                None
            }
        }
    }
}
