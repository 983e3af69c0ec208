//! A thin session with the kernel over `/dev/fuse`.
//!
//! - [`abi`]: the kernel's structs and numbers.
//! - [`mount`]: attaches a connection to a directory and takes it away again: mount(2) as root,
//!   `fusermount3` otherwise.
//! - [`filesystem`]: the trait a file system implements.
//! - [`request`], [`caller`]: the arguments of its methods.
//! - [`session`]: the threads that read requests and hand them to the file system; before that
//!   [`negotiate`] agrees with the kernel on what either may use.
//! - [`notify`]: what the kernel is told of changes it did not make itself.
//! - [`reply`]: the tokens by which requests are answered, from any thread and at any time.
//! - [`directory`]: the buffer that a readdir packs its entries into.
//!
//! What must hold: every request that expects a reply gets exactly one, whatever the file system
//! does with its token; a malformed request costs an errno and nothing else; once the mount is
//! gone the threads end by themselves; nothing stays mounted after the [`Session`] is dropped.

pub mod abi;
mod buffer;
pub mod caller;
mod channel;
pub mod directory;
mod dispatch;
pub mod error;
pub mod filesystem;
mod fusermount;
mod interrupt;
pub mod mount;
mod mountinfo;
pub mod negotiate;
pub mod notify;
pub mod reply;
pub mod request;
pub mod session;

pub use caller::Caller;
pub use directory::DirectoryBuffer;
pub use error::FuseError;
pub use filesystem::Filesystem;
pub use mount::{Mount, MountOptions};
pub use negotiate::{Config, Invalidation, Negotiated};
pub use notify::Notifier;
pub use reply::{Delivery, Reply};
pub use rustix::io::Errno;
pub use session::Session;
