//! The crawl as a component.
//!
//! The algorithm is in `portcullis_core::prefetch::crawl`: the component and the host's native policy are
//! the same type, so the two cannot differ.

use portcullis_core::prefetch::{Crawl, PrefetchPolicy};
use portcullis_sdk::register_native;

register_native!(prefetch, Crawl, |_| Crawl::default());
