//! The gateway with a real brick and real clients, over QUIC on loopback.

mod admin;
mod eviction;
mod harness;
mod outages;
mod reading;
mod relay;
mod sharing;
mod slow;
mod tree;
