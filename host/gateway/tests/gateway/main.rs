//! The gateway with a real brick and real clients, over QUIC on loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod admin;
mod changing;
mod coherence;
mod comparing;
mod eviction;
mod fetching_ahead;
mod harness;
mod leases;
mod locking;
mod mount;
mod outages;
mod reading;
mod recording;
mod relay;
mod relisting;
mod reopening;
mod repeating;
mod several;
mod sharing;
mod slow;
mod splitting;
mod tree;
