//! Comparisons on live traffic, believed or not: the real cache in two halves, real policies, a real
//! trace, and the order of things of `portcullis_core::ab`, in one thread.

#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

mod belief;
mod stand;
mod truth;
