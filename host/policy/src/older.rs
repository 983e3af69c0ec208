//! A version of the interface that there never was, `tests/wit/0.0.9`: what an adapter for an old one
//! is made of. Only for tests, since a host that takes it would take what nobody has.

#![allow(missing_docs, unreachable_pub, reason = "generated")]

use portcullis_core::eviction::Event;
use wasmtime::Store;
use wasmtime::component::{HasSelf, Instance, Linker};

use crate::bindings::log as present;
use crate::guest::Guest;

wasmtime::component::bindgen!({
    path: "../../tests/wit/0.0.9",
    world: "eviction-policy",
});

pub(crate) use exports::portcullis::policy::control::Limits;

/// Its version.
pub(crate) const VERSION: &str = "0.0.9";

/// Whether a component was made for it.
pub(crate) fn is_it(store: &mut Store<Guest>, instance: &Instance) -> bool {
    let name = format!("portcullis:policy/eviction@{VERSION}");
    instance.get_export_index(store, None, &name).is_some()
}

/// Its events have no key.
pub(crate) fn pack(event: &Event) -> [u64; 2] {
    let [id, _key, rest] = event.pack();
    [id, rest]
}

/// What it imports.
pub(crate) fn add_to_linker(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    portcullis::policy::log::add_to_linker::<_, HasSelf<_>>(linker, |guest: &mut Guest| guest)
}

impl portcullis::policy::log::Host for Guest {
    fn log(&mut self, level: portcullis::policy::log::Level, message: String) {
        use portcullis::policy::log::Level;

        let level = match level {
            Level::Error => present::Level::Error,
            Level::Warn => present::Level::Warn,
            Level::Info => present::Level::Info,
            Level::Debug => present::Level::Debug,
        };
        present::Host::log(self, level, message);
    }
}
