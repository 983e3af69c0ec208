//! Whole processes: the finished binary, driven as a user would drive it. One module a subject.

#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

mod acls;
mod admin;
mod blocked;
mod coherence;
mod commands;
mod contention;
mod crashes;
mod eviction;
mod faults;
mod file_systems;
mod hostile;
mod hostile_changes;
mod inlining;
mod lifecycle;
mod locks;
mod memory;
mod model;
mod mount;
mod odd;
mod open_files;
mod open_limits;
mod operations;
mod outage;
mod ownership;
mod policies;
mod policy_swap;
mod posix;
mod prefetch;
mod programs;
mod recording;
mod replay;
mod retries;
mod staleness;
mod swap_memory;
mod trees;
mod volumes;
