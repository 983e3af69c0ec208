//! Telling a client of changes: a stream that the server opens, one recall, one acknowledgement.

use portcullis_core::watch::Tell;
use portcullis_wire::codec;
use quinn::VarInt;

use super::PeerGone;
use crate::frames::{Frames, Incoming};

/// Longest acknowledgement: one number.
const RECALLED_LEN_BYTES_MAX: usize = 16;

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
        let (mut send, recv) = self.connection.open_bi().await.map_err(|_| PeerGone)?;
        send.write_chunk(recall).await.map_err(|_| PeerGone)?;
        send.finish().map_err(|_| PeerGone)?;
        let Ok(Incoming::Frame(frame)) = Frames::new(recv).next(RECALLED_LEN_BYTES_MAX).await
        else {
            return Err(PeerGone);
        };
        match codec::decode_recalled(&frame) {
            Ok(number) if number == tell.number => Ok(()),
            _ => Err(PeerGone),
        }
    }

    /// What is known of the line to the client: what it carries, in bytes a second, and the time of a round
    /// trip, in microseconds. The first is what congestion control lets through a round trip.
    pub fn line(&self) -> (u64, u64) {
        let path = self.connection.stats().path;
        let rtt_us = u64::try_from(path.rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        (path.cwnd.saturating_mul(1_000_000) / rtt_us, rtt_us)
    }

    /// Ends the connection: the client's lease is over.
    pub fn close(&self, reason: &str) {
        self.connection.close(VarInt::from_u32(2), reason.as_bytes());
    }
}
