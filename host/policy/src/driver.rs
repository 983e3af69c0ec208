//! The driver: a thread on which one policy works for one host.
//!
//! The host wakes it when there is work, and so does whoever puts something into its mailbox; it then
//! works until nothing is left and rests a moment, so that many small wakes become one batch, and
//! sleeps until woken. What must hold: it never ends before it is told to, whatever a policy does; no
//! wake is lost; waking costs one load while the driver is awake.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::eviction::EvictionHost;
use portcullis_core::limits::POLICY_THREAD_STACK_BYTES;

use crate::error::{Fault, PolicyError};
use crate::loaded::{CompiledPolicy, LoadedPolicy};
use crate::mailbox::{Command, Mailbox};
use crate::runner::Runner;
use crate::status::{Board, EvictionStatus};
use crate::strikes::Recovery;

/// Rest after work. A full reserve lasts longer than this.
const REST: Duration = Duration::from_micros(500);

/// How a driver deals with components that fail.
#[derive(Clone, Debug, Default)]
pub struct DriverOptions {
    /// When they are tried again.
    pub recovery: Recovery,
    /// A directory where it is kept what they were asked last; nowhere if `None`.
    pub evidence: Option<PathBuf>,
}

/// A policy at work, which may be exchanged for another one.
pub struct EvictionDriver {
    board: Arc<Board>,
    mailbox: Arc<Mailbox>,
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EvictionDriver {
    /// Starts the thread; the policy is told of every object that is resident.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(host: Arc<dyn EvictionHost>, policy: LoadedPolicy) -> io::Result<Self> {
        Self::start_with(host, policy, DriverOptions::default())
    }

    /// As [`EvictionDriver::start`], with options.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_with(
        host: Arc<dyn EvictionHost>,
        policy: LoadedPolicy,
        options: DriverOptions,
    ) -> io::Result<Self> {
        let DriverOptions { recovery, evidence } = options;
        let board = Arc::new(Board::new(policy.identity.clone(), recovery));
        tracing::info!("eviction policy: {}", policy.identity);
        let (signal, mailbox) = (Arc::<Signal>::default(), Arc::<Mailbox>::default());
        let runner = Runner::new(host.clone(), policy, board.clone(), mailbox.clone(), evidence);
        let (theirs, wakers, mail) = (signal.clone(), signal.clone(), mailbox.clone());
        let thread = thread::Builder::new()
            .name("eviction".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn(move || {
                let waker = || {
                    let (signal, thread) = (wakers.clone(), thread::current());
                    Box::new(move || signal.wake(&thread))
                };
                // Before the first event can be told, so no wake is missed.
                host.set_waker(waker());
                mail.set_waker(waker());
                work(runner, &theirs);
                mail.close();
            })?;
        Ok(Self { board, mailbox, signal, thread: Mutex::new(Some(thread)) })
    }

    /// The active policy and what was counted, as of now. Never waits for the driver.
    pub fn status(&self) -> EvictionStatus {
        self.board.status()
    }

    /// Lets a policy work in place of the active one, as soon as it knows every resident object; the
    /// active one works until then, and stays where something goes wrong. Waits until it is done.
    ///
    /// # Errors
    /// What the policy did wrong while it learnt, or that another one is being swapped in.
    pub fn swap(&self, policy: LoadedPolicy) -> Result<(), PolicyError> {
        let policy = Box::new(policy);
        self.ask(|reply| Command::Swap { policy, reply })?
    }

    /// Lets the policy before the active one work again. Where it is not kept at work any more the
    /// answer is what to swap in, and nothing happened.
    ///
    /// # Errors
    /// There is no policy before, it is quarantined, or the panic switch is on.
    pub fn rollback(&self) -> Result<Option<CompiledPolicy>, PolicyError> {
        let recipe = self.ask(|reply| Command::Rollback { reply })??;
        Ok(recipe.map(|recipe| CompiledPolicy { recipe }))
    }

    /// Lets the native policy work, and no component until one is swapped in.
    ///
    /// # Errors
    /// The driver was stopped.
    pub fn panic(&self) -> Result<(), PolicyError> {
        self.ask(|reply| Command::Panic { reply })
    }

    /// Why a component is not let in, if it is not.
    pub fn quarantine_reason(&self, digest: &str) -> Option<String> {
        self.board.quarantine_reason(digest)
    }

    /// Lets a component in again that was quarantined.
    pub fn pardon(&self, digest: &str) {
        self.board.pardon(digest);
    }

    /// Counts a fault of a component that is not at work here yet.
    pub(crate) fn strike(&self, digest: &str, fault: &Fault) {
        self.board.strike(digest, &fault.to_string());
    }

    /// Notes, for whoever asks for the status, why a policy was not taken.
    pub fn note_refusal(&self, why: &str) {
        self.board.refused(why);
    }

    /// Ends the thread and waits for it: as long as a call into a policy may take. The host then
    /// goes on without a policy.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.signal.stop.store(true, Ordering::Relaxed);
        self.signal.wake(thread.thread());
        // It ends in an error only where it panicked, which it does not.
        let _ = thread.join();
    }

    /// Puts something into the mailbox and waits for the answer.
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, PolicyError> {
        let (reply, answer) = sync_channel(1);
        self.mailbox.put(command(reply));
        // Dropped unanswered only at the driver's end.
        answer.recv().map_err(|_| PolicyError::Stopped)
    }
}

impl Drop for EvictionDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn work(mut runner: Runner, signal: &Signal) {
    guarded(&mut runner, Runner::take_over);
    while !signal.stop.load(Ordering::Relaxed) {
        signal.begin();
        guarded(&mut runner, |runner| runner.run(&signal.stop));
        thread::park_timeout(REST);
        signal.sleep(runner.due_in());
    }
}

/// A panic here is a defect of ours, but must not cost the cache its policy.
fn guarded(runner: &mut Runner, work: impl FnOnce(&mut Runner)) {
    if catch_unwind(AssertUnwindSafe(|| work(runner))).is_err() {
        let _ = catch_unwind(AssertUnwindSafe(|| runner.fall_back(&Fault::Panicked)));
    }
}

const WORKING: u8 = 0;
const WOKEN: u8 = 1;
const ASLEEP: u8 = 2;

/// Between the host that wakes and the driver that sleeps.
#[derive(Default)]
struct Signal {
    state: AtomicU8,
    stop: AtomicBool,
}

impl Signal {
    /// There is work.
    fn wake(&self, thread: &Thread) {
        if self.state.load(Ordering::Relaxed) == WOKEN {
            return;
        }
        if self.state.swap(WOKEN, Ordering::SeqCst) == ASLEEP {
            thread.unpark();
        }
    }

    /// The driver looks for work: what comes later has to wake it again.
    fn begin(&self) {
        self.state.store(WORKING, Ordering::SeqCst);
    }

    /// Sleeps unless woken since [`Signal::begin`], but no longer than `limit`, where there is one.
    fn sleep(&self, limit: Option<Duration>) {
        let asleep =
            self.state.compare_exchange(WORKING, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        if asleep.is_err() {
            return;
        }
        match limit {
            None => {
                while self.state.load(Ordering::SeqCst) == ASLEEP {
                    thread::park();
                }
            }
            // Awake too early is awake all the same: it looks for work, and sleeps again.
            Some(limit) => thread::park_timeout(limit),
        }
    }
}
