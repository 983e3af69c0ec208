//! The driver: a thread on which one policy works for one host.
//!
//! The host wakes it when there is work; it then works until nothing is left and rests a moment,
//! so that many small wakes become one batch, and sleeps until woken. What must hold: it never
//! ends before it is told to, whatever a policy does; no wake is lost; waking costs one load while
//! the driver is awake.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::eviction::EvictionHost;
use portcullis_core::limits::POLICY_THREAD_STACK_BYTES;

use crate::error::Fault;
use crate::loaded::LoadedPolicy;
use crate::runner::Runner;
use crate::status::{Board, EvictionStatus, PolicyIdentity};

/// Rest after work. A full reserve lasts longer than this.
const REST: Duration = Duration::from_micros(500);

/// A policy at work.
pub struct EvictionDriver {
    board: Arc<Board>,
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EvictionDriver {
    /// Starts the thread; the policy is told of every object that is resident.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(host: Arc<dyn EvictionHost>, policy: LoadedPolicy) -> io::Result<Self> {
        let board = Arc::new(Board::new(policy.identity.clone()));
        let PolicyIdentity { name, version, kind, digest } = &policy.identity;
        tracing::info!(name, version, kind = kind.as_str(), sha256 = digest, "eviction policy");
        let signal = Arc::<Signal>::default();
        let (theirs, waker) = (signal.clone(), signal.clone());
        let runner = Runner::new(host.clone(), policy, board.clone());
        let thread = thread::Builder::new()
            .name("eviction".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn(move || {
                let thread = thread::current();
                // Before the first event can be told, so no wake is missed.
                host.set_waker(Box::new(move || waker.wake(&thread)));
                work(runner, &theirs);
            })?;
        Ok(Self { board, signal, thread: Mutex::new(Some(thread)) })
    }

    /// The active policy and what was counted, as of now. Never waits for the driver.
    pub fn status(&self) -> EvictionStatus {
        self.board.status()
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
        signal.sleep();
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

    /// Sleeps unless woken since [`Signal::begin`].
    fn sleep(&self) {
        let asleep =
            self.state.compare_exchange(WORKING, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        while asleep.is_ok() && self.state.load(Ordering::SeqCst) == ASLEEP {
            thread::park();
        }
    }
}
