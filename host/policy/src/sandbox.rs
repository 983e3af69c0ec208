//! A component in a store of its own, entered with a deadline each time.
//!
//! What must hold: after a fault nothing in the store is called again, since a trap leaves its memory
//! in no known state; whoever sees a fault drops it. Instances are freed only with their store, so
//! each has its own.

use portcullis_core::limits::{POLICY_ANSWER_LEN_BYTES_MAX, POLICY_NAME_LEN_MAX};
use wasmtime::component::{HasSelf, Instance, Linker};
use wasmtime::{Store, Trap};

use crate::bindings::log;
use crate::component::Compiled;
use crate::engine::Engine;
use crate::error::{Fault, Refusal};
use crate::guest::{Guest, Overran, readable};

/// A store with one instance.
pub(crate) struct Sandbox {
    engine: &'static Engine,
    store: Store<Guest>,
}

impl Sandbox {
    /// Instantiates a component, with memory for a policy that decides about `capacity_bytes`.
    /// `name` is what it is called until it told its own name. What it exports, the caller looks up.
    pub(crate) fn instantiate<T>(
        engine: &'static Engine,
        compiled: &Compiled,
        capacity_bytes: u64,
        name: &str,
        exports: impl FnOnce(&mut Store<Guest>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<(Self, T), Refusal> {
        let mut linker = Linker::new(&engine.wasmtime);
        let misfit = |error: wasmtime::Error| Refusal::Interface(format!("{error:#}"));
        log::add_to_linker::<_, HasSelf<_>>(&mut linker, |guest: &mut Guest| guest)
            .map_err(misfit)?;
        // What components of an old version import, which have an adapter.
        #[cfg(test)]
        crate::older::add_to_linker(&mut linker).map_err(misfit)?;
        let prepared = linker.instantiate_pre(&compiled.component).map_err(misfit)?;

        let guest = Guest::new(capacity_bytes, name.to_owned());
        let mut store = Store::new(&engine.wasmtime, guest);
        store.limiter(|guest| guest);
        store.set_hostcall_fuel(POLICY_ANSWER_LEN_BYTES_MAX);
        store.epoch_deadline_callback(|mut store| store.data_mut().at_epoch());
        let mut sandbox = Self { engine, store };
        let instance = sandbox.call("instantiation", |store| prepared.instantiate(store))?;
        let exports = exports(&mut sandbox.store, &instance).map_err(misfit)?;
        Ok((sandbox, exports))
    }

    /// Enters Wasm: with the deadline set, and the ticker running. `name` is that of the function.
    pub(crate) fn call<T>(
        &mut self,
        name: &'static str,
        enter: impl FnOnce(&mut Store<Guest>) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let _watch = self.engine.ticker.watch();
        let store = &mut self.store;
        store.data_mut().first_epoch_ns = None;
        store.set_epoch_deadline(1);
        enter(store).map_err(|error| fault(name, &error, store.data_mut().denied.take()))
    }

    /// Bytes of memory that it has taken.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.store.data().memory_bytes
    }

    /// Takes what the component said of itself, and calls it by its name from now on.
    pub(crate) fn introduce(&mut self, name: &str, version: &str) -> Result<(), Refusal> {
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let long = |text: &str| text.is_empty() || text.len() > POLICY_NAME_LEN_MAX;
        if long(name) || !name.chars().all(of_name) {
            return Err(Refusal::Description("its name is not 1 to 64 of [a-z0-9-]"));
        }
        if long(version) || !version.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Refusal::Description("its version is not 1 to 64 of printable ASCII"));
        }
        name.clone_into(&mut self.store.data_mut().log.name);
        Ok(())
    }
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
