//! The pure heart of Portcullis: what every tier knows about files, listings and caching.
//!
//! Nothing here does I/O, reads a clock or draws a random number: time (`now_ms`, monotonic) and
//! seeds are arguments, so the simulator in `tests/sim` runs exactly the code that production runs.
//!
//! - [`attr`], [`handle`], [`entry`]: the vocabulary: attributes, handles, entries.
//! - [`chunk`]: a packed run of a listing; one layout on the wire, in the cache and in the mount.
//! - [`cache`]: the dentry cache with its single-flight fills and its fence against late fills.
//! - [`contents`]: contents of small files that came along with their attributes.
//! - [`position`]: how far a listing has come, and what is listed before the brick's own order.
//! - [`scan`]: a listing on its way from a brick, shared by all who list the same directory.
//! - [`eviction`]: what an eviction policy sees and answers, and the native policies.
//! - [`ab`]: two eviction policies compared on live traffic.
//! - [`trace`]: records of what was asked of a cache.
//! - [`prefetch`]: which directories are listed before anybody asks, and the native policies.
//! - [`inlining`]: which content travels with attributes, and the native policies.
//! - [`watch`]: watches and leases: how a change reaches everyone who cached what it makes untrue.
//! - [`replay`]: a request that is asked again is applied once.
//! - [`volume`]: a file tree on several bricks: who has what, and how they change it together.
//! - [`status`]: how a request fails, and the table to errno.
//! - [`limits`]: every bound, with its name, in one place.

pub mod ab;
pub mod attr;
pub mod cache;
pub mod chunk;
pub mod contents;
pub mod entry;
pub mod eviction;
pub mod handle;
pub mod inlining;
pub mod limits;
pub mod position;
pub mod prefetch;
pub mod replay;
pub mod scan;
pub mod status;
#[cfg(test)]
mod testing;
pub mod trace;
pub mod volume;
pub mod watch;

pub use attr::{Attr, FileKind, Timestamp};
pub use chunk::{Chunk, ChunkBuilder};
pub use entry::{Entry, EntryRef};
pub use handle::Handle;
pub use status::Status;
