//! The client of a gateway: what `portcullis mount`, `ls`, `find` and their like are made of.
//!
//! - [`address`] is where something lies, `pc://HOST:PORT/PATH`.
//! - [`client`]: one method a verb, over one session that is made anew when it is lost.
//! - `link`, `dial`, [`session`]: reaching the gateway; leases, and what is told of changes.
//! - [`mutate`], `operations`: changes, each applied once.
//! - [`listing`], [`open_file`], `locks`: the answers that come in pieces; open files.
//! - [`read_ahead`]: a file from start to end, with several reads under way.
//! - [`recording`]: what is asked of a gateway.
//! - [`mount`]: a volume as a file system of this machine.
//! - [`walk`]: a whole tree in the order of `find`, its directories fetched ahead.
//!
//! What must hold: every request ends within its deadline, where it has one; memory does not grow with the tree,
//! the directory or the file; an error keeps its [`Status`](portcullis_core::Status).

pub mod address;
pub mod client;
mod closing;
mod dial;
pub mod error;
mod link;
pub mod listing;
mod locks;
pub mod mount;
pub mod mutate;
pub mod open_file;
mod operations;
pub mod read_ahead;
pub mod recording;
mod releases;
pub mod session;
pub mod walk;

#[cfg(test)]
mod closing_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use address::Address;
pub use client::{Client, ClientOptions};
pub use error::ClientError;
pub use listing::Listing;
pub use mutate::Changed;
pub use open_file::OpenFile;
pub use read_ahead::ReadAhead;
pub use session::Forgetting;
pub use walk::{Step, Visit, Walk, WalkLimits};
