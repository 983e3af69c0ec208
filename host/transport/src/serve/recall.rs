//! Telling a client of changes: a stream that the server opens, one recall, one acknowledgement.

use bytes::BytesMut;
use portcullis_core::watch::Tell;
use portcullis_wire::{codec, frame};
use quinn::VarInt;

use super::PeerGone;

/// Bytes taken from a stream at once: an acknowledgement is one small frame.
const PIECE_LEN_BYTES: usize = 1024;

/// The way to tell one client of changes.
#[derive(Clone, Debug)]
pub struct Recaller {
    connection: quinn::Connection,
}

impl Recaller {
    pub(super) fn new(connection: quinn::Connection) -> Self {
        Self { connection }
    }

    /// Tells the client, and waits until it says that it has forgotten what is no longer true.
    ///
    /// # Errors
    /// The connection is lost, or the client does not speak this protocol: whether it has
    /// forgotten anything is not known.
    pub async fn tell(&self, tell: &Tell) -> Result<(), PeerGone> {
        let recall = codec::encode_recall(tell).map_err(|_| PeerGone)?;
        let (mut send, mut recv) = self.connection.open_bi().await.map_err(|_| PeerGone)?;
        send.write_chunk(recall).await.map_err(|_| PeerGone)?;
        send.finish().map_err(|_| PeerGone)?;
        let mut buffer = BytesMut::new();
        loop {
            if let Some(frame) = frame::take(&mut buffer).map_err(|_| PeerGone)? {
                let number = codec::decode_recalled(&frame).map_err(|_| PeerGone)?;
                return if number == tell.number { Ok(()) } else { Err(PeerGone) };
            }
            match recv.read_chunk(PIECE_LEN_BYTES, true).await {
                Ok(Some(chunk)) if buffer.len() < PIECE_LEN_BYTES => {
                    buffer.extend_from_slice(&chunk.bytes);
                }
                _ => return Err(PeerGone),
            }
        }
    }

    /// Ends the connection: the client's lease is over.
    pub fn close(&self, reason: &str) {
        self.connection.close(VarInt::from_u32(2), reason.as_bytes());
    }
}
