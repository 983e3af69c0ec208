//! Requests over QUIC between proven peers: what brick, gateway and client have in common.
//!
//! - [`identity`]: the private CA, one certificate a role, and how they lie on disk.
//! - [`endpoint`]: QUIC and TLS settings; a server that admits peers of our CA only.
//! - [`serve`]: the server's side of a request: [`serve::Service`] and its replies.
//! - [`call`]: the client's side of a request.
//! - `frames`: what comes in on one stream, on either side.
//! - [`watching`]: watches and leases: telling clients of changes, and waiting for them.
//!
//! What must hold: no connection without a certificate of our CA on both sides, each naming a
//! role that the other expects; what a peer sends costs bounded memory; a bad frame ends its own
//! stream and nothing else.

pub mod call;
pub mod endpoint;
pub mod error;
mod frames;
pub mod identity;
pub mod serve;
pub mod watching;

pub use call::{CallError, Connection, Recall, ReplyStream, Sending};
pub use endpoint::{Connector, Server};
pub use error::TransportError;
pub use identity::{Identity, IdentitySet, Role};
pub use serve::{Body, Peer, Recaller, ReplySink, Service};
pub use watching::{WatchSession, Watching};
