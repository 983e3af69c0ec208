//! The brick, asked over real QUIC on loopback, on real trees.
//!
//! Tests of [`on_each_kind!`] run once for each way of making handles. What the machine does not
//! let us test says `skipped: NAME: why` on stderr.

#![allow(clippy::panic, reason = "a test fails by panicking")]

mod bounds;
mod direct;
mod handles;
mod listing;
mod locks;
mod mutations;
mod odd_trees;
mod requests;
mod support;
mod volume;
