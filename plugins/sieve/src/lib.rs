//! SIEVE as a component.
//!
//! The algorithm, with the paper it is from, is in `portcullis_core::eviction::sieve`: the component
//! and the host's native policy are the same type, so the two cannot differ.

use portcullis_core::eviction::EvictionPolicy;
use portcullis_core::eviction::sieve::Sieve;
use portcullis_sdk::register_native;

register_native!(eviction, Sieve, |_| Sieve::default());
