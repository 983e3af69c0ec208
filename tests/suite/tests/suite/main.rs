//! Whole processes: the finished binary, driven as a user would drive it. One module a subject.

#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

mod admin;
mod commands;
mod eviction;
mod hostile;
mod lifecycle;
mod memory;
mod mount;
mod odd;
mod outage;
mod staleness;
mod trees;
