//! Requests, bodies, recalls and leases over real QUIC connections on loopback.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

mod requests;
mod site;
mod watching;
