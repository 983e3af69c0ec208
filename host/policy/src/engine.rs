//! The engine: what WebAssembly may do here, for all policies of the process.

use std::sync::OnceLock;

use portcullis_core::limits::POLICY_STACK_BYTES_MAX;
use wasmtime::{Config, OptLevel, WasmFeatures};

use crate::error::Refusal;
use crate::ticker::Ticker;

/// One engine and its ticker. There is one a process: stores and components of different engines
/// must never meet.
pub(crate) struct Engine {
    pub(crate) wasmtime: wasmtime::Engine,
    pub(crate) ticker: Ticker,
}

impl Engine {
    /// The engine of this process.
    pub(crate) fn shared() -> Result<&'static Self, Refusal> {
        static SHARED: OnceLock<Result<Engine, String>> = OnceLock::new();
        SHARED.get_or_init(Engine::new).as_ref().map_err(|error| Refusal::Engine(error.clone()))
    }

    fn new() -> Result<Self, String> {
        let wasmtime = wasmtime::Engine::new(&config()).map_err(|error| format!("{error:#}"))?;
        let ticking = wasmtime.clone();
        let ticker = Ticker::start(move || ticking.increment_epoch())
            .map_err(|error| format!("no thread for its clock: {error}"))?;
        Ok(Self { wasmtime, ticker })
    }
}

/// What any engine of ours is like: code is good for all engines of the same settings.
pub(crate) fn config() -> Config {
    let mut config = Config::new();
    // A deadline for every call.
    config.epoch_interruption(true);
    config.max_wasm_stack(POLICY_STACK_BYTES_MAX);
    // Calls are synchronous: without this each would keep a task (0.36 us in place of 0.11 us).
    config.concurrency_support(false);
    // The same events give the same choices on every machine.
    config.cranelift_nan_canonicalization(true);
    config.cranelift_opt_level(OptLevel::Speed);
    // What no policy needs is not offered to a hostile one.
    let refused = [
        WasmFeatures::GC_TYPES,
        WasmFeatures::EXCEPTIONS,
        WasmFeatures::THREADS,
        WasmFeatures::MEMORY64,
        WasmFeatures::MULTI_MEMORY,
        WasmFeatures::RELAXED_SIMD,
        WasmFeatures::TAIL_CALL,
    ];
    for feature in refused {
        config.wasm_features(feature, false);
    }
    // Unwinding tables of generated code would take libgcc's lock.
    config.native_unwind_info(false);
    config
}
