//! The client of a gateway: what `portcullis mount`, `ls`, `find` and their like are made of.
//!
//! - [`address`] is where something lies, `pc://HOST:PORT/PATH`.
//! - [`client`]: one method a verb, over one connection that is made anew when it is lost.
//! - [`listing`], [`open_file`]: the answers that come in pieces.
//! - [`read_ahead`]: a file from start to end, with several reads under way.
//! - [`mount`]: a volume as a file system of this machine.
//! - [`walk`]: a whole tree in the order of `find`, its directories fetched ahead.
//!
//! What must hold: every request ends within its deadline; memory does not grow with the tree,
//! the directory or the file; an error keeps its [`Status`](portcullis_core::Status).

pub mod address;
pub mod client;
pub mod error;
mod link;
pub mod listing;
pub mod mount;
pub mod open_file;
pub mod read_ahead;
pub mod walk;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use address::Address;
pub use client::{Client, ClientOptions};
pub use error::ClientError;
pub use listing::Listing;
pub use open_file::OpenFile;
pub use read_ahead::ReadAhead;
pub use walk::{Step, Visit, Walk, WalkLimits};
