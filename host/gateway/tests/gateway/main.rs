//! The gateway with a real brick and real clients, over QUIC on loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod admin;
mod eviction;
mod harness;
mod outages;
mod reading;
mod relay;
mod sharing;
mod slow;
mod tree;
