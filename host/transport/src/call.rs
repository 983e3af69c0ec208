//! The client's side of a connection: one bidirectional stream a request, and recalls from the
//! server on streams of its own.

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_core::limits::FRAME_LEN_BYTES_MAX;
use portcullis_core::watch::{Change, Tell};
use portcullis_wire::message::Failure;
use portcullis_wire::{CodecError, Reply, ReplyFrame, Request, codec};
use quinn::{ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};
use thiserror::Error;
use tracing::warn;

use crate::frames::{Broken, Frames, Incoming};

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
        only_reply(self.stream(request).await?.next().await?)
    }

    /// Sends a request that has a body and is answered by one message.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_with(&self, request: &Request, body: &[Bytes]) -> Result<Reply, CallError> {
        let mut sending = self.begin(request).await?;
        for piece in body {
            sending.piece(piece.clone()).await?;
        }
        only_reply(sending.finish()?.next().await?)
    }

    /// Sends a request that is answered by a series of frames.
    ///
    /// # Errors
    /// The request is over its limit, or the connection is lost.
    pub async fn stream(&self, request: &Request) -> Result<ReplyStream, CallError> {
        self.begin(request).await?.finish()
    }

    /// Sends a request whose body follows.
    ///
    /// # Errors
    /// The request is over its limit, or the connection is lost.
    pub async fn begin(&self, request: &Request) -> Result<Sending, CallError> {
        let request = codec::encode_request(request)?;
        let (send, recv) = self.inner.open_bi().await.map_err(lost)?;
        let mut sending = Sending { connection: self.inner.clone(), send, recv };
        sending.write(&mut [request]).await?;
        Ok(sending)
    }

    /// The next word of changes from the server, on whichever stream it comes.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn next_recall(&self) -> Result<Recall, CallError> {
        loop {
            let (send, recv) = self.inner.accept_bi().await.map_err(lost)?;
            match Recall::receive(send, recv).await {
                Ok(recall) => return Ok(recall),
                Err(CallError::Lost(reason)) => return Err(CallError::Lost(reason)),
                // It is not acknowledged, so the server ends the lease.
                Err(error) => warn!(%error, "a word of changes that cannot be read"),
            }
        }
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

fn only_reply(frame: ReplyFrame) -> Result<Reply, CallError> {
    match frame {
        ReplyFrame::Reply(reply) => Ok(reply),
        ReplyFrame::Failure(failure) => Err(CallError::Failed(failure)),
        other => Err(CallError::Protocol(misplaced(&other))),
    }
}

/// A request whose body is being sent. Dropping it gives the request up.
#[derive(Debug)]
pub struct Sending {
    connection: quinn::Connection,
    send: SendStream,
    recv: RecvStream,
}

impl Sending {
    /// Sends the next bytes of the body; waits while the server does not keep up.
    ///
    /// # Errors
    /// The connection is lost. A server that refuses the request is no error here: its answer says
    /// why.
    pub async fn piece(&mut self, piece: Bytes) -> Result<(), CallError> {
        self.write(&mut [piece]).await
    }

    /// Ends the request; what follows is its answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn finish(mut self) -> Result<ReplyStream, CallError> {
        // A server that refused the request has stopped this side already.
        if self.send.finish().is_err()
            && let Some(reason) = self.connection.close_reason()
        {
            return Err(lost(reason));
        }
        Ok(ReplyStream { frames: Frames::new(self.recv) })
    }

    async fn write(&mut self, parts: &mut [Bytes]) -> Result<(), CallError> {
        match self.send.write_all_chunks(parts).await {
            Err(WriteError::ConnectionLost(error)) => Err(lost(error)),
            Err(_) if let Some(reason) = self.connection.close_reason() => Err(lost(reason)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Changes that a server tells of.
#[derive(Debug)]
pub struct Recall {
    tell: Tell,
    send: SendStream,
}

impl Recall {
    async fn receive(send: SendStream, recv: RecvStream) -> Result<Self, CallError> {
        match Frames::new(recv).next(FRAME_LEN_BYTES_MAX).await {
            Ok(Incoming::Frame(frame)) => Ok(Self { tell: codec::decode_recall(&frame)?, send }),
            Ok(Incoming::Data(data)) => Err(misplaced(&ReplyFrame::Data(data)).into()),
            Err(Broken::Lost(ReadError::ConnectionLost(error))) => Err(lost(error)),
            Err(Broken::Lost(_)) => Err(CodecError::Truncated.into()),
            Err(Broken::Bad(error)) => Err(error.into()),
        }
    }

    /// What is no longer true.
    pub fn changes(&self) -> &[Change] {
        &self.tell.changes
    }

    /// Acknowledges: all of it is forgotten, here and wherever it was passed on to.
    pub async fn acknowledge(mut self) {
        let Ok(word) = codec::encode_recalled(self.tell.number) else { return };
        // A server that cannot be told waits for the lease to end.
        if self.send.write_chunk(word).await.is_ok() {
            let _ = self.send.finish();
        }
    }
}

/// The frames that answer one request. Dropping it tells the server to stop.
#[derive(Debug)]
pub struct ReplyStream {
    frames: Frames,
}

impl ReplyStream {
    /// The next frame; of data, what has arrived of it, however it was cut. After
    /// [`ReplyFrame::Reply`], [`ReplyFrame::End`] or [`ReplyFrame::Failure`] there is none, and the
    /// caller stops asking.
    ///
    /// # Errors
    /// The connection is lost, the stream ends too early, or a frame cannot be read.
    pub async fn next(&mut self) -> Result<ReplyFrame, CallError> {
        let frame = match self.frames.next(FRAME_LEN_BYTES_MAX).await {
            Ok(Incoming::Data(data)) => return Ok(ReplyFrame::Data(data)),
            Ok(Incoming::Frame(frame)) => codec::decode_reply(frame)?,
            Err(Broken::Bad(error)) => return Err(error.into()),
            Err(Broken::Lost(ReadError::ConnectionLost(error))) => return Err(lost(error)),
            Err(Broken::Lost(error)) => return Err(CallError::Lost(error.to_string())),
        };
        if !matches!(frame, ReplyFrame::Chunk(_) | ReplyFrame::Contents(_)) {
            self.frames.take_end().await;
        }
        Ok(frame)
    }

    /// Data that comes next, at most `len_bytes_max` of it, where some has arrived already.
    pub fn next_data_held(&mut self, len_bytes_max: usize) -> Option<Bytes> {
        self.frames.next_data_held(len_bytes_max)
    }

    /// Bytes received so far.
    pub fn received_bytes(&self) -> u64 {
        self.frames.received_bytes()
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
            ReplyFrame::Contents(_) => FrameKind::Contents,
            ReplyFrame::Data(_) => FrameKind::Data,
            ReplyFrame::End { .. } => FrameKind::End,
            ReplyFrame::Failure(_) => FrameKind::Failure,
        },
    }
}
