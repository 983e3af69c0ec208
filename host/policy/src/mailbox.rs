//! What others want of the driver, taken by it between two rounds of its work.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use parking_lot::Mutex;

use crate::error::PolicyError;
use crate::loaded::LoadedPolicy;
use crate::recipe::Recipe;

/// What is wanted.
pub(crate) enum Command {
    /// Let this policy work in place of the active one.
    Swap { policy: Box<LoadedPolicy>, reply: SyncSender<Result<(), PolicyError>> },
    /// Let the policy before the active one work again. Where it is not kept at work any more the
    /// answer is how to make it, and nothing happened.
    Rollback { reply: SyncSender<Result<Option<Recipe>, PolicyError>> },
    /// Let no component work.
    Panic { reply: SyncSender<()> },
    /// A fresh instance of a component that failed, or why there is none.
    Rebuilt { number: u64, loaded: Box<Result<LoadedPolicy, PolicyError>> },
}

/// Between those who want something and the driver. What must hold: whatever is put in before the
/// driver's end is taken out, or dropped at that end.
#[derive(Default)]
pub(crate) struct Mailbox {
    commands: Mutex<VecDeque<Command>>,
    is_closed: AtomicBool,
    has_mail: AtomicBool,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Mailbox {
    /// Leaves a command. After the driver's end it is dropped, and with it its reply.
    pub(crate) fn put(&self, command: Command) {
        {
            let mut commands = self.commands.lock();
            if self.is_closed.load(Ordering::Relaxed) {
                return;
            }
            commands.push_back(command);
            self.has_mail.store(true, Ordering::Release);
        }
        if let Some(wake) = self.waker.get() {
            wake();
        }
    }

    /// Sets what wakes the driver, before it first looks here.
    pub(crate) fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        // So that what was put in without waking anybody is seen by whoever looks from now on.
        let _commands = self.commands.lock();
        // There is one driver.
        let _ = self.waker.set(waker);
    }

    /// The next command. Costs a load where there is none.
    pub(crate) fn take(&self) -> Option<Command> {
        if !self.has_mail.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.lock();
        let command = commands.pop_front();
        self.has_mail.store(!commands.is_empty(), Ordering::Release);
        command
    }

    /// Whether a command waits.
    pub(crate) fn has_mail(&self) -> bool {
        self.has_mail.load(Ordering::Acquire)
    }

    /// The driver is at its end.
    pub(crate) fn close(&self) {
        let mut commands = self.commands.lock();
        self.is_closed.store(true, Ordering::Relaxed);
        commands.clear();
    }
}
