//! A component at work: one store, entered with a deadline each time.
//!
//! What must hold: after a fault the instance is not called again, since a trap leaves its memory
//! in no known state; whoever sees a fault drops it. Instances are freed only with their store, so
//! each has its own.

use portcullis_core::eviction::{Event, ObjectId, PolicyLimits};
use portcullis_core::limits::{
    POLICY_ANSWER_LEN_BYTES_MAX, POLICY_EVENTS_MAX, POLICY_NAME_LEN_MAX, POLICY_VICTIMS_MAX,
};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Store, Trap};

use crate::bindings::EvictionPolicy;
use crate::bindings::exports::portcullis::policy::control::{Info, Limits};
use crate::component::Compiled;
use crate::engine::Engine;
use crate::error::{Fault, Refusal};
use crate::guest::{Guest, Overran, readable};

/// A component that accepted its configuration.
pub(crate) struct Instance {
    engine: &'static Engine,
    store: Store<Guest>,
    policy: EvictionPolicy,
    /// Packed events, kept for its room.
    words: Vec<u64>,
}

impl Instance {
    /// Instantiates a component and initialises it. `name` is what it is called until it told its
    /// own name.
    pub(crate) fn start(
        engine: &'static Engine,
        compiled: &Compiled,
        limits: PolicyLimits,
        config: &[u8],
        name: &str,
    ) -> Result<(Self, Info), Refusal> {
        let mut linker = Linker::new(&engine.wasmtime);
        let misfit = |error: wasmtime::Error| Refusal::Interface(format!("{error:#}"));
        EvictionPolicy::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut Guest| guest)
            .map_err(misfit)?;
        let prepared = linker.instantiate_pre(&compiled.component).map_err(misfit)?;

        let guest = Guest::new(limits.capacity_bytes, name.to_owned());
        let mut store = Store::new(&engine.wasmtime, guest);
        store.limiter(|guest| guest);
        store.set_hostcall_fuel(POLICY_ANSWER_LEN_BYTES_MAX);
        store.epoch_deadline_callback(|mut store| store.data_mut().at_epoch());
        let instance =
            call(engine, &mut store, "instantiation", |store| prepared.instantiate(store))?;
        let policy = EvictionPolicy::new(&mut store, &instance).map_err(misfit)?;

        let mut instance = Self { engine, store, policy, words: Vec::new() };
        let info = instance.describe()?;
        instance.store.data_mut().log.name.clone_from(&info.name);
        instance.init(limits, config)?;
        Ok((instance, info))
    }

    fn describe(&mut self) -> Result<Info, Refusal> {
        let info = call(self.engine, &mut self.store, "describe", |store| {
            self.policy.portcullis_policy_control().call_describe(store)
        })?;
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let long = |text: &str| text.is_empty() || text.len() > POLICY_NAME_LEN_MAX;
        if long(&info.name) || !info.name.chars().all(of_name) {
            return Err(Refusal::Description("its name is not 1 to 64 of [a-z0-9-]"));
        }
        if long(&info.version) || !info.version.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Refusal::Description("its version is not 1 to 64 of printable ASCII"));
        }
        Ok(info)
    }

    fn init(&mut self, limits: PolicyLimits, config: &[u8]) -> Result<(), Refusal> {
        let limits = Limits {
            capacity_bytes: limits.capacity_bytes,
            seed: limits.seed,
            max_events: POLICY_EVENTS_MAX as u32,
            max_answers: POLICY_VICTIMS_MAX as u32,
        };
        call(self.engine, &mut self.store, "init", |store| {
            self.policy.portcullis_policy_control().call_init(store, limits, config)
        })?
        .map_err(|reason| Refusal::Config(readable(&reason)))
    }

    /// Hands over a batch, of at most [`POLICY_EVENTS_MAX`].
    pub(crate) fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Fault> {
        self.words.clear();
        self.words.extend(events.iter().flat_map(Event::pack));
        call(self.engine, &mut self.store, "on-events", |store| {
            self.policy.portcullis_policy_eviction().call_on_events(store, now_ms, &self.words)
        })
    }

    /// Asks for victims, at most [`POLICY_VICTIMS_MAX`].
    pub(crate) fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Fault> {
        let ids = call(self.engine, &mut self.store, "propose", |store| {
            self.policy.portcullis_policy_eviction().call_propose(store, now_ms, want as u32)
        })?;
        if ids.len() > want {
            return Err(Fault::Oversize { proposed: ids.len(), wanted: want });
        }
        Ok(ids.into_iter().map(ObjectId).collect())
    }
}

/// Enters Wasm: with the deadline set, and the ticker running.
fn call<T>(
    engine: &Engine,
    store: &mut Store<Guest>,
    name: &'static str,
    enter: impl FnOnce(&mut Store<Guest>) -> wasmtime::Result<T>,
) -> Result<T, Fault> {
    let _watch = engine.ticker.watch();
    store.data_mut().first_epoch_ns = None;
    store.set_epoch_deadline(1);
    enter(store).map_err(|error| fault(name, &error, store.data_mut().denied.take()))
}

fn fault(call: &'static str, error: &wasmtime::Error, denied: Option<String>) -> Fault {
    if error.is::<Overran>() {
        return Fault::Overrun { call };
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => {
            let trap = trap.to_string();
            let trap = trap.strip_prefix("wasm trap: ").unwrap_or(&trap).to_owned();
            Fault::Trap { call, trap, denied }
        }
        None => Fault::Failed { call, reason: readable(&error.root_cause().to_string()), denied },
    }
}
