//! A request as it comes in: one frame, and for some a body, whose bytes follow as they are.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_core::limits::REQUEST_LEN_BYTES_MAX;
use portcullis_wire::frame::FrameKind;
use portcullis_wire::message::Failure;
use portcullis_wire::{CodecError, Request, codec};
use quinn::RecvStream;
use thiserror::Error;
use tokio::time::timeout;

use crate::frames::{Broken, Frames, Incoming};

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

impl From<Broken> for Unreadable {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Lost(_) => Self::Gone,
            Broken::Bad(error) => Self::Bad(error),
        }
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
    frames: Frames,
    /// Bytes still to come.
    left_bytes: usize,
    is_over: bool,
}

impl Body {
    /// Bytes still to come.
    pub fn left_bytes(&self) -> usize {
        self.left_bytes
    }

    /// The next piece, `None` at the end.
    ///
    /// # Errors
    /// The peer is gone, or fewer or more bytes follow than were announced.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        if self.is_over {
            return Ok(None);
        }
        let limit = Duration::from_millis(ARRIVAL_MS_MAX);
        let piece = match timeout(limit, self.frames.bytes()).await {
            Ok(Ok(piece)) => piece,
            Ok(Err(Broken::Lost(_))) => return Err(BodyError::Gone),
            Ok(Err(Broken::Bad(error))) => return Err(error.into()),
            Err(_) => return Err(CodecError::Truncated.into()),
        };
        match &piece {
            None if self.left_bytes > 0 => return Err(CodecError::Truncated.into()),
            None => self.is_over = true,
            Some(piece) if piece.len() > self.left_bytes => return Err(too_much().into()),
            Some(piece) => self.left_bytes -= piece.len(),
        }
        Ok(piece)
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
}

/// The request of a stream. Where it has a body, that is still to be read.
pub(super) async fn read_request(recv: RecvStream) -> Result<(Request, Body), Unreadable> {
    let mut frames = Frames::new(recv);
    // One that has arrived whole, as nearly all have, costs no timer.
    let request = {
        let mut reading = pin!(read_head(&mut frames));
        match poll_fn(|context| Poll::Ready(reading.as_mut().poll(context))).await {
            Poll::Ready(request) => request,
            Poll::Pending => timeout(Duration::from_millis(ARRIVAL_MS_MAX), reading)
                .await
                .unwrap_or(Err(CodecError::Truncated.into())),
        }
    }?;
    let left_bytes = request.body_len_bytes() as usize;
    Ok((request, Body { frames, left_bytes, is_over: left_bytes == 0 }))
}

/// The request, and the end of the stream where nothing may follow: a stream that is dropped without
/// its end costs its peer a STOP_SENDING.
async fn read_head(frames: &mut Frames) -> Result<Request, Unreadable> {
    let request = match frames.next(REQUEST_LEN_BYTES_MAX).await? {
        Incoming::Frame(frame) => codec::decode_request(&frame)?,
        Incoming::Data(_) => {
            return Err(CodecError::Misplaced { kind: FrameKind::Data }.into());
        }
    };
    if request.body_len_bytes() == 0 && frames.bytes().await?.is_some() {
        return Err(too_much().into());
    }
    Ok(request)
}

fn too_much() -> CodecError {
    let reason = "something follows it".to_owned();
    CodecError::Payload { kind: FrameKind::Request, reason }
}
