//! The clock of deadlines: a thread that advances the engine's epoch while a policy runs.
//!
//! It has a thread of its own, so that nothing a policy or a runtime does can hold it up, and
//! sleeps for good while no policy runs. What must hold: while a [`Watch`] lives, the epoch
//! advances every [`TICK`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Between two epochs: how late a deadline may be noticed.
const TICK: Duration = Duration::from_millis(10);

/// The thread, which lasts as long as the process.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    watches: AtomicUsize,
    parked: AtomicBool,
}

impl Ticker {
    /// Starts the thread; `tick` advances the epoch.
    pub(crate) fn start(tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let ticking = shared.clone();
        let thread = thread::Builder::new().name("policy-ticker".into()).spawn(move || {
            loop {
                ticking.wait_for_watch();
                pause();
                tick();
            }
        })?;
        Ok(Self { shared, thread: thread.thread().clone() })
    }

    /// Ticks until the watch is dropped.
    pub(crate) fn watch(&self) -> Watch<'_> {
        self.shared.watches.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
        Watch(&self.shared)
    }
}

impl Shared {
    fn wait_for_watch(&self) {
        while self.watches.load(Ordering::SeqCst) == 0 {
            // Either this sees the watch, or the watch sees this and unparks.
            self.parked.store(true, Ordering::SeqCst);
            if self.watches.load(Ordering::SeqCst) == 0 {
                thread::park();
            }
            self.parked.store(false, Ordering::SeqCst);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a clock has nothing to wait for but time")]
fn pause() {
    thread::sleep(TICK);
}

/// A policy runs.
pub(crate) struct Watch<'a>(&'a Shared);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::SeqCst);
    }
}
