//! The driver of the inlining policy: a thread that asks it for rules about once a second.
//!
//! Counts come from the gateway's [`Ledger`], and rules go back there. What must hold: no request waits for a
//! policy; after its first fault a component is gone, and the native one makes rules; rules of one policy
//! do not outlive it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use portcullis_core::inlining::{InliningChoice, Ledger, Rule, Stat};
use portcullis_core::limits::{INLINE_RULES_MS, POLICY_EVENTS_MAX, POLICY_THREAD_STACK_BYTES};

use crate::cpu::thread_cpu_ns;
use crate::error::{Fault, PolicyError};
use crate::inlining_policy::{InliningSeat, LoadedInlining};
use crate::inlining_status::InliningBoard;
use crate::status::add;

/// See the module.
pub(crate) struct InliningDriver {
    pub(crate) board: Arc<InliningBoard>,
    /// Dropped, it ends the thread.
    next: Mutex<Option<SyncSender<Next>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A policy that is to take the place of the active one.
struct Next {
    policy: LoadedInlining,
    /// Where it stands in for another one: why.
    reason: String,
    /// Told when it has.
    done: SyncSender<()>,
}

impl InliningDriver {
    /// Starts the thread.
    pub(crate) fn start(policy: LoadedInlining, ledger: Arc<Ledger>) -> io::Result<Self> {
        let board = Arc::new(InliningBoard::new(policy.identity.clone()));
        let (next, nexts) = sync_channel(1);
        let mut runner = Runner {
            policy: InliningSeat::Nobody,
            board: board.clone(),
            ledger,
            began: Instant::now(),
        };
        // Here, so that what is delivered from now on is counted.
        runner.put_in(policy.policy);
        let thread = thread::Builder::new()
            .name("inlining".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn(move || runner.work(&nexts))?;
        Ok(Self { board, next: Mutex::new(Some(next)), thread: Mutex::new(Some(thread)) })
    }

    /// Lets a policy work in place of the active one, with what the status says of one that stands in for
    /// another; waits until it does.
    pub(crate) fn swap(&self, policy: LoadedInlining, reason: String) -> Result<(), PolicyError> {
        let next = self.next.lock().clone().ok_or(PolicyError::Stopped)?;
        let (done, at_work) = sync_channel(1);
        next.send(Next { policy, reason, done }).map_err(|_| PolicyError::Stopped)?;
        at_work.recv().map_err(|_| PolicyError::Stopped)
    }

    /// Ends the thread and waits for it: as long as a call into a policy may take.
    pub(crate) fn stop(&self) {
        drop(self.next.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            // It ends in an error only where it panicked, which it does not.
            let _ = thread.join();
        }
    }
}

impl Drop for InliningDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the thread has.
struct Runner {
    policy: InliningSeat,
    board: Arc<InliningBoard>,
    ledger: Arc<Ledger>,
    began: Instant,
}

impl Runner {
    fn work(mut self, nexts: &Receiver<Next>) {
        let pause = Duration::from_millis(INLINE_RULES_MS);
        loop {
            match nexts.recv_timeout(pause) {
                Ok(Next { policy, reason, done }) => {
                    self.board.set_active(policy.identity, reason);
                    self.put_in(policy.policy);
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => self.ask(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Begins anew with a policy, which is asked at once.
    fn put_in(&mut self, policy: InliningSeat) {
        self.ledger.restart(!matches!(policy, InliningSeat::Nobody));
        self.policy = policy;
        self.ask();
    }

    fn ask(&mut self) {
        // A panic here is a defect of ours, but must not end what clients get.
        let asked = catch_unwind(AssertUnwindSafe(|| self.rules()));
        if let Err(fault) = asked.unwrap_or(Err(Fault::Panicked)) {
            self.fall_back(&fault);
        }
    }

    fn rules(&mut self) -> Result<(), Fault> {
        if matches!(self.policy, InliningSeat::Nobody) {
            return Ok(());
        }
        let now_ms = self.began.elapsed().as_millis() as u64;
        let (mut stats, mut rules): (Vec<Stat>, Vec<Rule>) = (Vec::new(), Vec::new());
        self.ledger.take(POLICY_EVENTS_MAX, &mut stats);
        add(&self.board.calls, 1);
        add(&self.board.rows, stats.len() as u64);
        let began_ns = thread_cpu_ns();
        let made = match &mut self.policy {
            InliningSeat::Wasm(policy) => policy.rules(now_ms, &stats, &mut rules),
            InliningSeat::Native(policy) => {
                policy.rules(now_ms, &stats, &mut rules);
                Ok(())
            }
            InliningSeat::Nobody => Ok(()),
        };
        add(&self.board.cpu_ns, thread_cpu_ns().saturating_sub(began_ns));
        made?;
        add(&self.board.rules, rules.len() as u64);
        self.ledger.apply(&rules);
        Ok(())
    }

    /// Replaces the component by the native policy, and says why.
    fn fall_back(&mut self, fault: &Fault) {
        add(&self.board.faults, 1);
        let reason = format!("{} {fault}", self.board.active());
        tracing::warn!("inlining policy replaced by the native one: {reason}");
        let LoadedInlining { policy, identity } = LoadedInlining::native(InliningChoice::FALLBACK);
        self.board.set_active(identity, reason);
        self.put_in(policy);
    }
}
