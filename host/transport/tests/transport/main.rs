//! Requests, bodies, recalls and leases over real QUIC connections on loopback.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod requests;
mod site;
mod watching;
