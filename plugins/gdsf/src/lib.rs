//! GDSF as a component.
//!
//! The algorithm, with the paper it is from, is in `portcullis_core::eviction::gdsf`: the component
//! and the host's native policy are the same type, so the two cannot differ.

use portcullis_core::eviction::EvictionPolicy;
use portcullis_core::eviction::gdsf::Gdsf;
use portcullis_sdk::register_native;

register_native!(eviction, Gdsf, |_| Gdsf::default());
