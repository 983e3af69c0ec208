//! The clients that a prefetch policy serves, as their engines and the driver's thread share them.
//!
//! An engine joins, rings when it has something to tell, and leaves when it is dropped. What must
//! hold: no ring is lost; a number is given again only after the driver knows that its client left;
//! whoever joins is told which policy is at work, and is told again of each that follows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use portcullis_core::prefetch::{ClientId, PrefetchChoice, PrefetchHost};

use crate::error::PolicyError;
use crate::prefetch_policy::LoadedPrefetch;

/// See the module.
pub(crate) struct Clients {
    state: Mutex<State>,
    /// There is something to do.
    rung: Condvar,
}

struct State {
    hosts: HashMap<ClientId, Client, FixedState>,
    rung: Vec<ClientId>,
    left: Vec<ClientId>,
    given: u32,
    /// The native policy that engines use; `None` where a component works.
    native: Option<PrefetchChoice>,
    /// To take the place of the active one, and who waits for that.
    next: Option<Next>,
    stops: bool,
}

struct Client {
    host: Weak<dyn PrefetchHost>,
    is_rung: Arc<AtomicBool>,
}

/// A policy that is to take the place of the active one.
pub(crate) struct Next {
    pub(crate) policy: LoadedPrefetch,
    /// Where it stands in for another one: why.
    pub(crate) reason: String,
    /// Told when it has.
    pub(crate) done: std::sync::mpsc::SyncSender<()>,
}

/// What there is to do.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) rung: Vec<(ClientId, Arc<dyn PrefetchHost>)>,
    pub(crate) left: Vec<ClientId>,
    pub(crate) next: Option<Next>,
}

/// A client that has joined; it leaves when this is dropped.
pub struct PrefetchClient {
    clients: Arc<Clients>,
    id: ClientId,
    is_rung: Arc<AtomicBool>,
}

impl Clients {
    pub(crate) fn new(native: Option<PrefetchChoice>) -> Self {
        let state = State {
            hosts: HashMap::default(),
            rung: Vec::new(),
            left: Vec::new(),
            given: 0,
            native,
            next: None,
            stops: false,
        };
        Self { state: Mutex::new(state), rung: Condvar::new() }
    }

    pub(crate) fn join(self: &Arc<Self>, host: &Arc<dyn PrefetchHost>) -> PrefetchClient {
        let mut state = self.state.lock();
        let id = state.free_id();
        let is_rung = Arc::<AtomicBool>::default();
        let client = Client { host: Arc::downgrade(host), is_rung: is_rung.clone() };
        state.hosts.insert(id, client);
        // Nobody else knows this host yet. Who comes to know it tells it of later policies.
        host.clone().restart(state.native);
        drop(state);
        PrefetchClient { clients: self.clone(), id, is_rung }
    }

    /// Waits for work, but no longer than `limit`, where there is one; `None` at the end.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Option<Work> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = self.state.lock();
        while !state.stops && state.rung.is_empty() && state.left.is_empty() && state.next.is_none()
        {
            match until {
                None => self.rung.wait(&mut state),
                Some(until) if self.rung.wait_until(&mut state, until).timed_out() => break,
                Some(_) => {}
            }
        }
        if state.stops {
            return None;
        }
        let State { hosts, rung, left, next, .. } = &mut *state;
        let rung = rung.drain(..).filter_map(|id| {
            let client = hosts.get(&id)?;
            // Before it is looked at, so that what comes later rings again.
            client.is_rung.store(false, Ordering::SeqCst);
            Some((id, client.host.upgrade()?))
        });
        Some(Work { rung: rung.collect(), left: std::mem::take(left), next: next.take() })
    }

    /// Another policy is at work from now on: everybody begins anew.
    pub(crate) fn restart(&self, native: Option<PrefetchChoice>) {
        let hosts: Vec<_> = {
            let mut state = self.state.lock();
            state.native = native;
            state.hosts.values().filter_map(|client| client.host.upgrade()).collect()
        };
        // Not with the lock, which they take when they ring.
        for host in hosts {
            host.restart(native);
        }
    }

    /// Has a policy take the place of the active one.
    pub(crate) fn put_next(&self, next: Next) -> Result<(), PolicyError> {
        let mut state = self.state.lock();
        if state.stops {
            return Err(PolicyError::Stopped);
        }
        if state.next.is_some() {
            return Err(PolicyError::Busy);
        }
        state.next = Some(next);
        self.rung.notify_one();
        Ok(())
    }

    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stops = true;
        // Who waits for it is answered by that.
        state.next = None;
        drop(state);
        self.rung.notify_one();
    }
}

impl State {
    fn free_id(&mut self) -> ClientId {
        loop {
            self.given = self.given.wrapping_add(1);
            let id = ClientId(self.given);
            if !self.hosts.contains_key(&id) && !self.left.contains(&id) {
                return id;
            }
        }
    }
}

impl PrefetchClient {
    /// There is something to tell, or more may be wanted than before.
    pub fn ring(&self) {
        if self.is_rung.swap(true, Ordering::SeqCst) {
            return;
        }
        self.clients.state.lock().rung.push(self.id);
        self.clients.rung.notify_one();
    }
}

impl Drop for PrefetchClient {
    fn drop(&mut self) {
        let mut state = self.clients.state.lock();
        state.hosts.remove(&self.id);
        state.left.push(self.id);
        drop(state);
        self.clients.rung.notify_one();
    }
}
