//! The simulator: `core` and `wire` run by one thread, one clock and one seed.
//!
//! A [`world::World`] holds a brick, two gateways and their clients, made of the real cache, grantor,
//! leases, replays and frames, and a network that delays, loses and reorders. Connections are cut
//! and lost, nodes freeze and restart, and every node has a clock that drifts. The same seed gives
//! the same run to the last packet. Violations are reported with their seed, so that
//! `cargo run -p portcullis-sim -- --seed N` shows the run again, packet by packet.
//!
//! - [`net`]: packets and clocks.
//! - [`tree`]: what the brick holds.
//! - [`serving`]: the answering side of sessions, for brick and gateway.
//! - [`caching`]: the caching side, for gateway and client.
//! - [`brick`], [`gateway`], [`client`]: the tiers, thin around those two.
//! - [`plant`]: faults that a tier could make.
//! - [`oracle`]: what each client may be told.
//! - [`world`]: the loop.

#![allow(clippy::panic, reason = "a model that meets the impossible has a bug of its own")]
#![allow(clippy::large_enum_variant, reason = "events of a model are few and short-lived")]

pub mod brick;
pub mod caching;
pub mod client;
pub mod gateway;
pub mod net;
pub mod oracle;
pub mod plant;
pub mod serving;
pub mod tree;
pub mod world;

pub use plant::{PLANTS, Plant};
pub use world::{Outcome, World};
