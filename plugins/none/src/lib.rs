//! A prefetch policy that fetches nothing ahead, as a component: what others are compared with.

use portcullis_core::prefetch::{Nothing, PrefetchPolicy};
use portcullis_sdk::register_native;

register_native!(prefetch, Nothing, |_| Nothing);
