//! The answer of one request on its way out.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::contents::ContentRun;
use portcullis_core::{Chunk, Status};
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, ReplyFrame, codec};
use quinn::SendStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::frames::join;

/// The peer no longer wants the answer, or is lost. Nobody is left to tell.
#[derive(Debug)]
pub struct PeerGone;

/// Where the answer of one request goes.
#[derive(Debug)]
pub struct ReplySink {
    send: SendStream,
    stopping: Arc<CancellationToken>,
    /// Whether chunks or data were sent.
    is_series: bool,
}

impl ReplySink {
    pub(super) fn new(send: SendStream, stopping: Arc<CancellationToken>) -> Self {
        Self { send, stopping, is_series: false }
    }

    /// Resolves when the peer no longer wants the answer or is lost, or when this server is told to
    /// stop: what may wait for ever, as for a lock, then ends without an answer, and the peer asks
    /// the next server.
    pub async fn gone(&mut self) {
        tokio::select! {
            _ = self.send.stopped() => {}
            () = self.stopping.cancelled() => {}
        }
    }

    /// Answers with one message.
    ///
    /// # Errors
    /// The peer is gone; so for all below.
    pub async fn reply(self, reply: Reply) -> Result<(), PeerGone> {
        self.last(&ReplyFrame::Reply(reply)).await
    }

    /// Answers that the request failed; also in place of an end, after chunks or data.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn fail(self, failure: impl Into<Failure>) -> Result<(), PeerGone> {
        self.last(&ReplyFrame::Failure(failure.into())).await
    }

    /// Answers with a message, or that the request failed.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn result(self, result: Result<Reply, Failure>) -> Result<(), PeerGone> {
        match result {
            Ok(reply) => self.reply(reply).await,
            Err(failure) => self.fail(failure).await,
        }
    }

    /// Sends a chunk of a listing; waits while the peer does not keep up.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn chunk(&mut self, chunk: &Chunk) -> Result<(), PeerGone> {
        self.is_series = true;
        let header = Bytes::copy_from_slice(&codec::chunk_header(chunk));
        self.write(&mut [header, chunk.bytes().clone()]).await
    }

    /// Sends contents of entries of the chunk that is sent next; waits while the peer does not keep up.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn contents(&mut self, run: &ContentRun) -> Result<(), PeerGone> {
        self.is_series = true;
        let header = Bytes::copy_from_slice(&codec::contents_header(run));
        self.write(&mut [header, run.bytes().clone()]).await
    }

    /// Sends bytes of a file, together at most a frame; waits while the peer does not keep up.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn data(&mut self, pieces: Vec<Bytes>) -> Result<(), PeerGone> {
        self.is_series = true;
        let len_bytes = pieces.iter().map(Bytes::len).sum();
        let header = Bytes::copy_from_slice(&codec::data_header(len_bytes));
        self.write(&mut [header, join(pieces)]).await
    }

    /// Ends a listing or a read.
    ///
    /// # Errors
    /// The peer is gone.
    pub async fn end(self, complete: bool) -> Result<(), PeerGone> {
        self.last(&ReplyFrame::End { complete }).await
    }

    /// Sends the last frame. A series counts as under way until the peer has all of it: megabytes
    /// may wait in its windows, and a server that stops would take them back.
    async fn last(mut self, frame: &ReplyFrame) -> Result<(), PeerGone> {
        let bytes = codec::encode_reply(frame).or_else(|error| {
            warn!(%error, "an answer does not fit its frame");
            let failure = Failure::new(Status::Overflow, error.to_string());
            codec::encode_reply(&ReplyFrame::Failure(failure))
        });
        let Ok(bytes) = bytes else { return Err(PeerGone) };
        self.write(&mut [bytes]).await?;
        self.send.finish().map_err(|_| PeerGone)?;
        match self.is_series {
            true => self.send.stopped().await.map(drop).map_err(|_| PeerGone),
            false => Ok(()),
        }
    }

    async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), PeerGone> {
        self.send.write_all_chunks(parts).await.map_err(|_| PeerGone)
    }
}
