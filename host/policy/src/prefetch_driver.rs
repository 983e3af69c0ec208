//! The driver of prefetch policies: a thread on which one component works for all clients.
//!
//! Engines of clients ring ([`prefetch_clients`](crate::prefetch_clients)); the driver then takes from
//! each what it has to tell, hands that to the component, asks it what is wanted for each of them, and
//! brings the answers back. Where a native policy works the driver sleeps: engines ask that one
//! themselves, since it answers at once.
//!
//! A component that fails is replaced at once, and a fresh instance of it is tried after a pause, as
//! [`strikes`](crate::strikes) has it. The thread makes that instance itself: while the native policy
//! works it has nothing else to do.
//!
//! What must hold: no client waits for a component; after a fault its store is gone, and every engine
//! goes on with the native policy; one that is quarantined does not come back by itself, nor after
//! another one was chosen; answers are about what was told to this component, by this client.

use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

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
use crate::prefetch_policy::{LoadedPrefetch, PrefetchRecipe, PrefetchSeat};
use crate::prefetch_status::{PrefetchBoard, PrefetchStatus};
use crate::status::{PolicyIdentity, add};
use crate::strikes::{Recovery, Verdict};

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
        Self::start_with(policy, Recovery::default())
    }

    /// As [`PrefetchDriver::start`]; `recovery` says when components that fail are tried again.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_with(policy: LoadedPrefetch, recovery: Recovery) -> io::Result<Self> {
        let board = Arc::new(PrefetchBoard::new(policy.identity.clone(), recovery));
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
        self.swap_saying(policy, String::new())
    }

    /// As [`PrefetchDriver::swap`], with what the status says of a policy that stands in for another.
    pub(crate) fn swap_saying(
        &self,
        policy: LoadedPrefetch,
        reason: String,
    ) -> Result<(), PolicyError> {
        let (done, at_work) = sync_channel(1);
        self.clients.put_next(Next { policy, reason, done })?;
        // Dropped unanswered only at the driver's end.
        at_work.recv().map_err(|_| PolicyError::Stopped)
    }

    /// Why a component is not let in, if it is not.
    pub fn quarantine_reason(&self, digest: &str) -> Option<String> {
        self.board.quarantine_reason(digest)
    }

    /// Lets a component in again that was quarantined.
    pub fn pardon(&self, digest: &str) {
        self.board.pardon(digest);
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
    /// How to make the component at work again, if it is one.
    recipe: Option<PrefetchRecipe>,
    failed: Option<Failed>,
    board: Arc<PrefetchBoard>,
    clients: Arc<Clients>,
    /// Clients that the component was told of.
    known: HashSet<ClientId>,
    events: Vec<Event>,
    told: Vec<Told>,
    answers: Vec<Answer>,
}

/// A component that the native policy stands in for, to be tried again.
struct Failed {
    due_ms: u64,
    identity: PolicyIdentity,
    recipe: PrefetchRecipe,
}

impl Runner {
    fn new(policy: LoadedPrefetch, board: Arc<PrefetchBoard>, clients: Arc<Clients>) -> Self {
        Self {
            policy: policy.policy,
            recipe: policy.recipe,
            failed: None,
            board,
            clients,
            known: HashSet::new(),
            events: Vec::new(),
            told: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn work(mut self) {
        while let Some(mut work) = self.clients.wait(self.due_in()) {
            if let Some(next) = work.next.take() {
                self.failed = None;
                self.exchange(next.policy, next.reason, None);
                let _ = next.done.send(());
                // Who had rung has nothing to tell any more.
                continue;
            }
            if self.due_in() == Some(Duration::ZERO) {
                self.try_again();
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
        let now_ms = self.board.now_ms();
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
        let identity = self.board.active();
        let reason = format!("{identity} {fault}");
        tracing::warn!("prefetch policy replaced by the native one: {reason}");
        // A native policy has none: its fault would be a defect of ours.
        let recipe = self.recipe.take();
        let native = LoadedPrefetch::native(PrefetchChoice::default());
        self.exchange(native, reason, Some(&identity.digest));
        if let Some(recipe) = recipe {
            self.strike(identity, recipe, &fault.to_string());
        }
    }

    /// Counts a fault: the component is tried again later, or never.
    fn strike(&mut self, identity: PolicyIdentity, recipe: PrefetchRecipe, reason: &str) {
        self.failed = match self.board.strike(&identity.digest, reason) {
            Verdict::Again { after_ms } => {
                Some(Failed { due_ms: self.board.now_ms() + after_ms, identity, recipe })
            }
            Verdict::Quarantined => None,
        };
    }

    /// In which time a component is to be tried again, if there is one.
    fn due_in(&self) -> Option<Duration> {
        let due_ms = self.failed.as_ref()?.due_ms;
        Some(Duration::from_millis(due_ms.saturating_sub(self.board.now_ms())))
    }

    /// Lets a fresh instance of the component that failed work.
    fn try_again(&mut self) {
        let Some(Failed { identity, recipe, .. }) = self.failed.take() else { return };
        match recipe.start() {
            Ok(policy) => {
                tracing::info!("prefetch policy, tried again: {identity}");
                self.exchange(policy, String::new(), None);
            }
            Err(refusal) => {
                tracing::warn!("the prefetch policy {identity} cannot be tried again: {refusal}");
                self.strike(identity, recipe, &refusal.to_string());
            }
        }
    }

    fn exchange(&mut self, policy: LoadedPrefetch, reason: String, stands_in_for: Option<&str>) {
        let native = native_of(&policy.policy);
        (self.policy, self.recipe) = (policy.policy, policy.recipe);
        self.known.clear();
        self.board.set_active(policy.identity, reason, stands_in_for);
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
