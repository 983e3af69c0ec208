//! A comparison of two eviction policies on live traffic: who works where and when, and what that
//! shows.
//!
//! The cache is split by directory into two halves of shards ([`crate::cache::CacheHalf`]). First both
//! have the incumbent (A/A), then one has the candidate, then they change sides: each shard is once
//! under each policy, and each policy meets the same time of day as the other. [`tally`] is what is
//! counted of a shard, [`experiment`] the order of things, [`estimate`] the arithmetic, [`report`] the
//! words. A [`shadow`] is the step before it, which decides nothing.
//!
//! Which directories are in which shard is drawn at random, so shards are what the interval is made
//! from: 64 small experiments that agree or do not. Requests are no such units, since those of one
//! directory depend on one another. What must hold: where both sides have the same policy, about one
//! report in a thousand shows a difference, however uneven the traffic is.

pub mod estimate;
pub mod experiment;
pub mod report;
pub mod shadow;
pub mod tally;

pub use estimate::Estimate;
pub use experiment::{Experiment, Plan, Reading, Side, Sides, Stage};
pub use report::{Glimpse, Report, Verdict};
pub use shadow::{Contender, Progress, ShadowReport};
pub use tally::{Costs, ShardTally};
