//! Generated from `wit/`: what the host calls and gives.

#![allow(missing_docs, unreachable_pub, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../../wit/0.1.0",
    world: "eviction-policy",
});

/// The version of the interface.
pub(crate) const VERSION: &str = "0.1.0";
