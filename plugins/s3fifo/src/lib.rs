//! S3-FIFO as a component.
//!
//! The algorithm, with the paper it is from, is in `portcullis_core::eviction::s3fifo`: the component
//! and the host's native policy are the same type, so the two cannot differ.

use portcullis_core::eviction::EvictionPolicy;
use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_sdk::register_native;

register_native!(eviction, S3Fifo, S3Fifo::new);
