//! Learnt odds, as a component.
//!
//! The algorithm, with what it rests on, is in `portcullis_core::inlining::learnt`: the component and the
//! host's native policy are the same type, so the two cannot differ.

use portcullis_core::inlining::{InliningPolicy, Learnt};
use portcullis_sdk::register_native;

register_native!(inlining, Learnt, |_| Learnt::default());
