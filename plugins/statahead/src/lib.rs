//! Statahead as a component.
//!
//! The algorithm, and where it is from, is in `portcullis_core::prefetch::statahead`: the component and the
//! host's native policy are the same type, so the two cannot differ.

use portcullis_core::prefetch::{PrefetchPolicy, Statahead};
use portcullis_sdk::register_native;

register_native!(prefetch, Statahead, |_| Statahead::default());
