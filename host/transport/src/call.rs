//! The client's side of a request: one bidirectional stream each.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::BytesMut;
use portcullis_core::Status;
use portcullis_core::limits::STREAM_WINDOW_BYTES;
use portcullis_wire::message::Failure;
use portcullis_wire::{CodecError, Reply, ReplyFrame, Request, codec, frame};
use quinn::{ConnectionError, ReadError, RecvStream, VarInt, WriteError};
use thiserror::Error;

/// Why a request has no answer, or not the one hoped for.
#[derive(Debug, Error)]
pub enum CallError {
    /// The server answered that the request failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The connection was lost before the answer was complete.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The server does not speak this protocol.
    #[error("the server's answer cannot be read: {0}")]
    Protocol(#[from] CodecError),
}

impl CallError {
    /// What a tier in between tells its own client.
    pub fn to_failure(&self) -> Failure {
        match self {
            CallError::Failed(failure) => failure.clone(),
            CallError::Lost(_) => Failure::new(Status::Unavailable, self.to_string()),
            CallError::Protocol(_) => Failure::new(Status::Io, self.to_string()),
        }
    }
}

/// A connection to a proven server. Cloning shares it; requests may run side by side.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: quinn::Connection,
}

impl Connection {
    pub(crate) fn new(inner: quinn::Connection) -> Self {
        Self { inner }
    }

    /// Sends a request that is answered by one message.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::Failed`] is the server's own answer.
    pub async fn call(&self, request: &Request) -> Result<Reply, CallError> {
        match self.stream(request).await?.next().await? {
            ReplyFrame::Reply(reply) => Ok(reply),
            ReplyFrame::Failure(failure) => Err(CallError::Failed(failure)),
            other => Err(CallError::Protocol(misplaced(&other))),
        }
    }

    /// Sends a request that is answered by a series of frames.
    ///
    /// # Errors
    /// The request is over its limit, or the connection is lost.
    pub async fn stream(&self, request: &Request) -> Result<ReplyStream, CallError> {
        let request = codec::encode_request(request)?;
        let (mut send, recv) = self.inner.open_bi().await.map_err(lost)?;
        let sent = async {
            send.write_chunk(request).await.map_err(|error| match error {
                WriteError::ConnectionLost(error) => lost(error),
                other => CallError::Lost(other.to_string()),
            })?;
            send.finish().map_err(|error| CallError::Lost(error.to_string()))
        };
        // A server that refuses the request stops reading it; its answer says why.
        if let Err(error) = sent.await
            && self.inner.close_reason().is_some()
        {
            return Err(error);
        }
        Ok(ReplyStream { recv, buffer: BytesMut::new(), received_bytes: 0 })
    }

    /// Resolves when the connection is lost or closed, with the reason.
    pub async fn closed(&self) -> String {
        self.inner.closed().await.to_string()
    }

    /// Whether the connection is lost or closed.
    pub fn is_closed(&self) -> bool {
        self.inner.close_reason().is_some()
    }

    /// Ends the connection.
    pub fn close(&self, reason: &str) {
        self.inner.close(VarInt::from_u32(0), reason.as_bytes());
    }
}

/// The frames that answer one request. Dropping it tells the server to stop.
#[derive(Debug)]
pub struct ReplyStream {
    recv: RecvStream,
    buffer: BytesMut,
    received_bytes: u64,
}

impl ReplyStream {
    /// The next frame. After [`ReplyFrame::Reply`], [`ReplyFrame::End`] or
    /// [`ReplyFrame::Failure`] there is none, and the caller stops asking.
    ///
    /// # Errors
    /// The connection is lost, the stream ends too early, or a frame cannot be read.
    pub async fn next(&mut self) -> Result<ReplyFrame, CallError> {
        loop {
            if let Some(frame) = frame::take(&mut self.buffer)? {
                let frame = codec::decode_reply(frame)?;
                if !matches!(frame, ReplyFrame::Chunk(_) | ReplyFrame::Data(_)) {
                    self.take_end().await;
                }
                return Ok(frame);
            }
            let chunk = self.recv.read_chunk(STREAM_WINDOW_BYTES as usize, true).await.map_err(
                |error| match error {
                    ReadError::ConnectionLost(error) => lost(error),
                    other => CallError::Lost(other.to_string()),
                },
            )?;
            let Some(chunk) = chunk else {
                return Err(CallError::Protocol(CodecError::Truncated));
            };
            self.received_bytes += chunk.bytes.len() as u64;
            self.buffer.extend_from_slice(&chunk.bytes);
        }
    }

    /// Takes the end of the stream where it has arrived along with the last frame, as it mostly
    /// has; a stream that is dropped without it costs its peer a STOP_SENDING.
    async fn take_end(&mut self) {
        let mut end = pin!(self.recv.read_chunk(1, true));
        poll_fn(|context| {
            let _ = end.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }
}

fn lost(error: ConnectionError) -> CallError {
    CallError::Lost(error.to_string())
}

/// The error for a frame that does not belong where it came.
pub fn misplaced(frame: &ReplyFrame) -> CodecError {
    use portcullis_wire::frame::FrameKind;
    CodecError::Misplaced {
        kind: match frame {
            ReplyFrame::Reply(_) => FrameKind::Reply,
            ReplyFrame::Chunk(_) => FrameKind::Chunk,
            ReplyFrame::Data(_) => FrameKind::Data,
            ReplyFrame::End { .. } => FrameKind::End,
            ReplyFrame::Failure(_) => FrameKind::Failure,
        },
    }
}
