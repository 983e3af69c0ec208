//! W-TinyLFU with an adaptive window, as a component.
//!
//! The algorithm, with the paper it is from, is in `portcullis_core::eviction::w_tinylfu`: the component
//! and the host's native policy are the same type, so the two cannot differ.

use portcullis_core::eviction::EvictionPolicy;
use portcullis_core::eviction::w_tinylfu::WTinyLfu;
use portcullis_sdk::register_native;

register_native!(eviction, WTinyLfu, WTinyLfu::new);
