//! Sending to a client that may be slow, without holding anything up meanwhile.
//!
//! What a stalled client keeps waiting for must not clog the one connection to the brick, nor keep
//! a scan or a whole listing in memory. So whoever sends a series of frames holds its source in an
//! `Option`, and where a frame takes long to be sent the source is let go; afterwards the sender
//! goes on from its position with a new one.

use std::pin::pin;
use std::time::Duration;

use portcullis_transport::serve::PeerGone;
use portcullis_wire::message::Failure;

/// A client that takes longer than this for one frame is slow.
const STALL_MS: u64 = 250;

/// Why a series of frames ends without its end.
pub(crate) enum Interrupt {
    /// It failed; the client is to be told.
    Failed(Failure),
    /// Nobody is left to tell.
    PeerGone,
}

impl From<Failure> for Interrupt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<PeerGone> for Interrupt {
    fn from(_: PeerGone) -> Self {
        Self::PeerGone
    }
}

/// Waits until a frame is sent; calls `let_go` where that takes long.
pub(crate) async fn send(
    frame: impl Future<Output = Result<(), PeerGone>>,
    let_go: impl FnOnce(),
) -> Result<(), PeerGone> {
    let mut frame = pin!(frame);
    tokio::select! {
        biased;
        sent = &mut frame => return sent,
        () = tokio::time::sleep(Duration::from_millis(STALL_MS)) => let_go(),
    }
    frame.await
}
