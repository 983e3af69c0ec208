//! The driver of prefetch policies: a thread on which one component works for all clients.
//!
//! Engines of clients ring ([`prefetch_clients`](crate::prefetch_clients)); the driver then takes from
//! each what it has to tell, hands that to the component, asks it what is wanted for each of them, and
//! brings the answers back. Where a native policy works the driver sleeps: engines ask that one
//! themselves, since it answers at once.
//!
//! What must hold: no client waits for a component; after its first fault it is gone, and every
//! engine goes on with the native policy; answers are about what was told to this component, by this
//! client.

use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;
use portcullis_core::limits::{
    POLICY_EVENTS_MAX, POLICY_PREFETCH_ANSWERS_MAX, POLICY_THREAD_STACK_BYTES,
};
use portcullis_core::prefetch::{
    Answer, Answered, ClientId, Event, PrefetchChoice, PrefetchHost, Told,
};

use crate::cpu::thread_cpu_ns;
use crate::error::{Fault, PolicyError};
use crate::prefetch_clients::{Clients, Next, PrefetchClient, Work};
use crate::prefetch_instance::PrefetchInstance;
use crate::prefetch_policy::{LoadedPrefetch, PrefetchSeat};
use crate::prefetch_status::{PrefetchBoard, PrefetchStatus};
use crate::status::add;

/// Full answers of one client that are taken in a row, before others have their turn.
const ANSWERS_IN_A_ROW_MAX: usize = 32;

/// See the module.
pub struct PrefetchDriver {
    board: Arc<PrefetchBoard>,
    clients: Arc<Clients>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl PrefetchDriver {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(policy: LoadedPrefetch) -> io::Result<Self> {
        let board = Arc::new(PrefetchBoard::new(policy.identity.clone()));
        let clients = Arc::new(Clients::new(native_of(&policy.policy)));
        let runner = Runner::new(policy, board.clone(), clients.clone());
        let thread = thread::Builder::new()
            .name("prefetch".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn(move || runner.work())?;
        Ok(Self { board, clients, thread: Mutex::new(Some(thread)) })
    }

    /// Takes in a client, which is told at once which policy is at work.
    pub fn join(&self, host: &Arc<dyn PrefetchHost>) -> PrefetchClient {
        self.clients.join(host)
    }

    /// The active policy and what was counted, as of now. Never waits for the driver.
    pub fn status(&self) -> PrefetchStatus {
        self.board.status()
    }

    /// Lets a policy work in place of the active one, between two batches; every client begins anew.
    /// Waits until it is done.
    ///
    /// # Errors
    /// Another one is being swapped in, or the driver was stopped.
    pub fn swap(&self, policy: LoadedPrefetch) -> Result<(), PolicyError> {
        let (done, at_work) = sync_channel(1);
        if !self.clients.put_next(Next { policy, done }) {
            return Err(PolicyError::Busy);
        }
        // Dropped unanswered only at the driver's end.
        at_work.recv().map_err(|_| PolicyError::Stopped)
    }

    /// Ends the thread and waits for it: as long as a call into a policy may take.
    pub fn stop(&self) {
        let Some(thread) = self.thread.lock().take() else { return };
        self.clients.stop();
        // It ends in an error only where it panicked, which it does not.
        let _ = thread.join();
    }
}

impl Drop for PrefetchDriver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn native_of(policy: &PrefetchSeat) -> Option<PrefetchChoice> {
    match policy {
        PrefetchSeat::Native(choice) => Some(*choice),
        PrefetchSeat::Wasm(_) => None,
    }
}

/// What the thread has.
struct Runner {
    policy: PrefetchSeat,
    board: Arc<PrefetchBoard>,
    clients: Arc<Clients>,
    began: Instant,
    /// Clients that the component was told of.
    known: HashSet<ClientId>,
    events: Vec<Event>,
    told: Vec<Told>,
    answers: Vec<Answer>,
}

impl Runner {
    fn new(policy: LoadedPrefetch, board: Arc<PrefetchBoard>, clients: Arc<Clients>) -> Self {
        Self {
            policy: policy.policy,
            board,
            clients,
            began: Instant::now(),
            known: HashSet::new(),
            events: Vec::new(),
            told: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn work(mut self) {
        while let Some(mut work) = self.clients.wait() {
            if let Some(next) = work.next.take() {
                self.exchange(next.policy, String::new());
                let _ = next.done.send(());
                // Who had rung has nothing to tell any more.
                continue;
            }
            // A panic here is a defect of ours, but must not end what clients get.
            let round = catch_unwind(AssertUnwindSafe(|| self.round(&work)));
            if let Err(fault) = round.unwrap_or(Err(Fault::Panicked)) {
                self.fall_back(&fault);
            }
        }
    }

    /// Takes what clients have to tell, and brings them what is wanted for them.
    fn round(&mut self, work: &Work) -> Result<(), Fault> {
        let PrefetchSeat::Wasm(policy) = &mut self.policy else { return Ok(()) };
        let now_ms = self.began.elapsed().as_millis() as u64;
        self.told.clear();
        for &client in &work.left {
            if self.known.remove(&client) {
                self.told.push(Told::Left { client });
            }
        }
        let mut wants = Vec::with_capacity(work.rung.len());
        for &(client, ref host) in &work.rung {
            self.events.clear();
            let want = host.drain(&mut self.events).unwrap_or_else(|| {
                add(&self.board.overflows, 1);
                if self.known.remove(&client) {
                    self.told.push(Told::Left { client });
                }
                host.drain(&mut self.events).unwrap_or(0)
            });
            if !self.events.is_empty() {
                self.known.insert(client);
            }
            self.told.extend(self.events.iter().map(|&event| Told::Event { client, event }));
            wants.push((client, host, want));
        }
        for batch in self.told.chunks(POLICY_EVENTS_MAX) {
            add(&self.board.batches, 1);
            add(&self.board.events, batch.len() as u64);
            count_call(&self.board, || policy.on_events(now_ms, batch))?;
        }
        // Batches are small but for those of a client that has just come to a large directory.
        self.told.shrink_to(POLICY_EVENTS_MAX);
        self.events.shrink_to(POLICY_EVENTS_MAX);
        for (client, host, want) in wants {
            if self.known.contains(&client) {
                ask(policy, &self.board, &mut self.answers, now_ms, (client, host, want))?;
            }
        }
        Ok(())
    }

    /// Replaces the component by the native policy, and says why.
    fn fall_back(&mut self, fault: &Fault) {
        let failed = self.board.active();
        let reason = format!("{failed} {fault}");
        tracing::warn!("prefetch policy replaced by the native one: {reason}");
        self.exchange(LoadedPrefetch::native(PrefetchChoice::default()), reason);
    }

    fn exchange(&mut self, policy: LoadedPrefetch, reason: String) {
        let native = native_of(&policy.policy);
        self.policy = policy.policy;
        self.known.clear();
        self.board.set_active(policy.identity, reason);
        self.clients.restart(native);
    }
}

/// Asks what is wanted for one client, and brings it that.
fn ask(
    policy: &mut PrefetchInstance,
    board: &PrefetchBoard,
    answers: &mut Vec<Answer>,
    now_ms: u64,
    (client, host, mut want): (ClientId, &Arc<dyn PrefetchHost>, usize),
) -> Result<(), Fault> {
    for _ in 0..ANSWERS_IN_A_ROW_MAX {
        answers.clear();
        count_call(board, || policy.propose(now_ms, client, want, answers))?;
        if answers.is_empty() {
            return Ok(());
        }
        let Answered { accepted, stale, repeated, foreign, excess } =
            host.clone().answer(want, answers);
        add(&board.accepted, accepted);
        add(&board.stale, stale);
        add(&board.repeated, repeated);
        add(&board.foreign, foreign);
        add(&board.excess, excess);
        if foreign > 0 {
            return Err(Fault::Foreign { count: foreign });
        }
        if answers.len() < POLICY_PREFETCH_ANSWERS_MAX {
            return Ok(());
        }
        want = want.saturating_sub(accepted as usize);
    }
    Ok(())
}

fn count_call<T>(
    board: &PrefetchBoard,
    call: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    add(&board.calls, 1);
    let began_ns = thread_cpu_ns();
    let result = call();
    add(&board.cpu_ns, thread_cpu_ns().saturating_sub(began_ns));
    result
}
