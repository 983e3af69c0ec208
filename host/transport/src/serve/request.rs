//! A request as it comes in: one frame, and for some a body in data frames.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use portcullis_core::Status;
use portcullis_core::limits::{REQUEST_LEN_BYTES_MAX, STREAM_WINDOW_BYTES};
use portcullis_wire::frame::{self, HEADER_LEN};
use portcullis_wire::message::Failure;
use portcullis_wire::{CodecError, Request, codec};
use quinn::RecvStream;
use thiserror::Error;
use tokio::time::timeout;

/// How long a request may take to arrive whole, and each further piece of its body to come.
const ARRIVAL_MS_MAX: u64 = 10_000;

/// Why there is no request.
pub(super) enum Unreadable {
    /// The peer is gone.
    Gone,
    /// The peer sent nonsense.
    Bad(CodecError),
}

impl From<CodecError> for Unreadable {
    fn from(error: CodecError) -> Self {
        Self::Bad(error)
    }
}

/// Why a body does not come whole.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The peer is gone, or gave the request up.
    #[error("the peer is gone")]
    Gone,
    /// The peer sent something else.
    #[error(transparent)]
    Bad(#[from] CodecError),
}

impl From<BodyError> for Failure {
    fn from(error: BodyError) -> Self {
        Failure::new(Status::BadFrame, error.to_string())
    }
}

/// What follows a request, piece by piece as it arrives. Pieces are cut anyhow.
#[derive(Debug)]
pub struct Body {
    recv: Option<RecvStream>,
    /// Bytes received and not yet looked at.
    buffer: BytesMut,
    /// Bytes of the body still to come.
    left_bytes: usize,
    /// Of these, bytes of the frame that has begun.
    frame_left_bytes: usize,
}

impl Body {
    /// Bytes still to come.
    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// The next piece, `None` at the end.
    ///
    /// # Errors
    /// The peer is gone, or something else follows than was announced.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        while self.left_bytes > 0 {
            if self.frame_left_bytes == 0 {
                if let Some(header) = self.buffer.first_chunk::<HEADER_LEN>() {
                    self.frame_left_bytes = frame::body_len(header, self.left_bytes)?;
                    let _header = self.buffer.split_to(HEADER_LEN);
                    continue;
                }
            } else if !self.buffer.is_empty() {
                let len = self.buffer.len().min(self.frame_left_bytes);
                return Ok(Some(self.take(len)));
            }
            let piece = self.receive().await?;
            // The usual case: the middle of a frame, which is passed on as it lies.
            if self.buffer.is_empty() && piece.len() <= self.frame_left_bytes {
                self.left_bytes -= piece.len();
                self.frame_left_bytes -= piece.len();
                return Ok(Some(piece));
            }
            self.buffer.extend_from_slice(&piece);
        }
        self.take_end().await;
        Ok(None)
    }

    /// All of it, in pieces.
    ///
    /// # Errors
    /// As [`Body::next`].
    pub async fn collect(mut self) -> Result<Vec<Bytes>, BodyError> {
        let mut pieces = Vec::new();
        while let Some(piece) = self.next().await? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    fn take(&mut self, len: usize) -> Bytes {
        self.left_bytes -= len;
        self.frame_left_bytes -= len;
        self.buffer.split_to(len).freeze()
    }

    async fn receive(&mut self) -> Result<Bytes, BodyError> {
        let Some(recv) = &mut self.recv else { return Err(CodecError::Truncated.into()) };
        let limit = Duration::from_millis(ARRIVAL_MS_MAX);
        match timeout(limit, recv.read_chunk(STREAM_WINDOW_BYTES as usize, true)).await {
            Ok(Ok(Some(chunk))) => Ok(chunk.bytes),
            Ok(Ok(None)) | Err(_) => Err(CodecError::Truncated.into()),
            Ok(Err(_)) => Err(BodyError::Gone),
        }
    }

    /// Takes the end of the stream where it has arrived, as it mostly has; a stream that is dropped
    /// without it costs its peer a STOP_SENDING.
    async fn take_end(&mut self) {
        let Some(recv) = &mut self.recv else { return };
        let mut end = pin!(recv.read_chunk(1, true));
        poll_fn(|context| {
            let _ = end.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }
}

/// The request of a stream. Where it has a body, that is still to be read.
pub(super) async fn read_request(recv: RecvStream) -> Result<(Request, Body), Unreadable> {
    let mut body =
        Body { recv: Some(recv), buffer: BytesMut::new(), left_bytes: 0, frame_left_bytes: 0 };
    // One that has arrived whole, as nearly all have, costs no timer.
    let first = {
        let mut reading = pin!(read_head(&mut body));
        let polled = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await;
        match polled {
            Poll::Ready(request) => request,
            Poll::Pending => timeout(Duration::from_millis(ARRIVAL_MS_MAX), reading)
                .await
                .unwrap_or(Err(CodecError::Truncated.into())),
        }
    };
    let request = first?;
    body.left_bytes = request.body_len_bytes() as usize;
    if body.left_bytes == 0 {
        body.recv = None;
    }
    Ok((request, body))
}

/// The request, and the end of the stream where nothing may follow: a stream that is dropped without
/// its end costs its peer a STOP_SENDING.
async fn read_head(body: &mut Body) -> Result<Request, Unreadable> {
    let Body { recv: Some(recv), buffer, .. } = body else { return Err(Unreadable::Gone) };
    let request = loop {
        frame::check_len(buffer, REQUEST_LEN_BYTES_MAX)?;
        if let Some(frame) = frame::take(buffer)? {
            break codec::decode_request(&frame)?;
        }
        match recv.read_chunk(STREAM_WINDOW_BYTES as usize, true).await {
            Ok(Some(chunk)) => buffer.extend_from_slice(&chunk.bytes),
            Ok(None) => return Err(CodecError::Truncated.into()),
            Err(_) => return Err(Unreadable::Gone),
        }
    };
    if request.body_len_bytes() > 0 {
        return Ok(request);
    }
    let follows = match buffer.is_empty() {
        true => recv.read_chunk(1, true).await.map_err(|_| Unreadable::Gone)?.is_some(),
        false => true,
    };
    if follows {
        let reason = "something follows it".to_owned();
        return Err(CodecError::Payload { kind: frame::FrameKind::Request, reason }.into());
    }
    Ok(request)
}
