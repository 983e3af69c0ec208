//! The simulator: `core` and `wire` run by one thread, one clock and one seed.
//!
//! A [`world::World`] holds a model brick, a gateway made of the real cache, some clients, and a
//! network that delays, loses and reorders messages, all of which travel as the real frames. The
//! same seed gives the same run to the last message. Violations are reported with their seed, so
//! that `cargo run -p portcullis-sim -- --seed N` shows the run again, message by message.
//!
//! - [`net`]: messages under way and when they arrive.
//! - [`brick`]: a tree that changes, and says so.
//! - [`gateway`]: the cache with what a gateway does around it; also with a planted fault.
//! - [`oracle`]: what each client may be told.
//! - [`world`]: the loop.

#![allow(clippy::panic, reason = "a model that meets the impossible has a bug of its own")]

pub mod brick;
pub mod gateway;
pub mod net;
pub mod oracle;
pub mod world;

pub use gateway::Plant;
pub use world::{Outcome, World};
