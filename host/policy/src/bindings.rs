//! Generated from `wit/`: what the host calls and gives, one module a world.

#![allow(missing_docs, unreachable_pub, reason = "generated")]

/// World `eviction-policy`, and what all worlds import.
pub(crate) mod eviction {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        world: "eviction-policy",
    });
}

/// World `prefetch-policy`.
pub(crate) mod prefetch {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        world: "prefetch-policy",
        with: { "portcullis:policy/log": crate::bindings::eviction::portcullis::policy::log },
    });
}

/// World `inlining-policy`.
pub(crate) mod inlining {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        world: "inlining-policy",
        with: { "portcullis:policy/log": crate::bindings::eviction::portcullis::policy::log },
    });
}

pub(crate) use eviction::portcullis::policy::log;

/// The version of the interface.
pub(crate) const VERSION: &str = "0.1.0";
/// Versions whose components work here, one adapter each where they are not of the present track.
pub(crate) const VERSIONS: &[&str] = &[
    VERSION,
    #[cfg(test)]
    crate::older::VERSION,
];
