//! What crosses between tiers: messages, frames and their codec. No I/O.
//!
//! One request is one bidirectional QUIC stream: a request frame, the bytes of a body where the
//! request has one, then reply frames. Streams that a server opens tell its client of changes (recalls). [`message`]
//! has the messages, [`frame`] cuts a byte stream into frames, [`codec`] turns messages into
//! frames and back and alone names bincode, [`stats`] is what a gateway tells of itself.
//! `docs/PROTOCOL.md` describes the bytes.

pub mod codec;
pub mod frame;
pub mod message;
pub mod stats;

pub use codec::{CodecError, ReplyFrame};
pub use message::{Reply, Request};

/// The application protocol of the TLS handshake (RFC 7301); its number changes with the protocol.
pub const ALPN: &[u8] = b"portcullis/1";
