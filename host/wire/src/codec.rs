//! Messages to frames and back. The only file that names bincode.
//!
//! bincode 2.0.1 is pinned (`deny.toml` says why). Every decode has a size limit and must use up
//! its input, so what a peer sends costs at most the frame it sent.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bytes::Bytes;
use portcullis_core::chunk::{Chunk, ChunkError};
use portcullis_core::contents::{ContentError, ContentRun};
use portcullis_core::limits::{FRAME_LEN_BYTES_MAX, REQUEST_LEN_BYTES_MAX};
use portcullis_core::watch::Tell;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::frame::{self, Frame, FrameKind, HEADER_LEN};
use crate::message::{Failure, Reply, Request};

/// Why bytes are not a message of this protocol.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CodecError {
    /// A frame longer than allowed.
    #[error("a frame of {len_bytes} bytes, over the limit of {max_bytes}")]
    TooLong {
        /// Bytes announced.
        len_bytes: usize,
        /// Bytes allowed.
        max_bytes: usize,
    },
    /// A frame of a kind that this protocol does not have.
    #[error("a frame of unknown kind {kind:#04x}")]
    Kind {
        /// The kind received.
        kind: u8,
    },
    /// A frame of a known kind where it does not belong.
    #[error("a {kind:?} frame where it does not belong")]
    Misplaced {
        /// The kind received.
        kind: FrameKind,
    },
    /// The payload is not the message its kind announces.
    #[error("a {kind:?} frame that cannot be decoded: {reason}")]
    Payload {
        /// The kind received.
        kind: FrameKind,
        /// What the decoder found.
        reason: String,
    },
    /// The payload is not a chunk.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The payload is no contents.
    #[error(transparent)]
    Contents(#[from] ContentError),
    /// The stream ended inside a frame or before its last one.
    #[error("the stream ended before its last frame")]
    Truncated,
}

/// A frame of a reply.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one at a time, on the stack; a box would be an allocation a reply"
)]
pub enum ReplyFrame {
    /// The reply of a request that has one message.
    Reply(Reply),
    /// Entries of a listing.
    Chunk(Chunk),
    /// Contents of entries of the chunk that follows.
    Contents(ContentRun),
    /// Bytes of a file.
    Data(Bytes),
    /// A listing or a read is over; said, never inferred. `complete` is false where a listing
    /// lacks the entries of a brick that is down: then a name that is missing may exist.
    End {
        /// Whether everything was told.
        complete: bool,
    },
    /// The request failed.
    Failure(Failure),
}

const fn config() -> Configuration<LittleEndian, Fixint, Limit<FRAME_LEN_BYTES_MAX>> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<FRAME_LEN_BYTES_MAX>()
}

/// The frame of a request.
///
/// # Errors
/// A request over [`REQUEST_LEN_BYTES_MAX`], for example with an overlong name.
pub fn encode_request(request: &Request) -> Result<Bytes, CodecError> {
    let frame = encode(FrameKind::Request, request)?;
    let len_bytes = frame.len() - HEADER_LEN;
    if len_bytes > REQUEST_LEN_BYTES_MAX {
        return Err(CodecError::TooLong { len_bytes, max_bytes: REQUEST_LEN_BYTES_MAX });
    }
    Ok(frame)
}

/// The request in a frame.
///
/// # Errors
/// [`CodecError`] says what is wrong with it.
pub fn decode_request(frame: &Frame) -> Result<Request, CodecError> {
    expect(frame, FrameKind::Request)?;
    if frame.payload.len() > REQUEST_LEN_BYTES_MAX {
        return Err(CodecError::TooLong {
            len_bytes: frame.payload.len(),
            max_bytes: REQUEST_LEN_BYTES_MAX,
        });
    }
    decode(frame)
}

/// The frame that tells a client of changes.
///
/// # Errors
/// Changes over [`FRAME_LEN_BYTES_MAX`], which a [`Tell`] never has.
pub fn encode_recall(tell: &Tell) -> Result<Bytes, CodecError> {
    encode(FrameKind::Recall, &(tell.number, &tell.changes))
}

/// The changes in a frame.
///
/// # Errors
/// [`CodecError`] says what is wrong with it.
pub fn decode_recall(frame: &Frame) -> Result<Tell, CodecError> {
    expect(frame, FrameKind::Recall)?;
    let (number, changes) = decode(frame)?;
    Ok(Tell { number, changes })
}

/// The frame by which a client says that it has forgotten what tell `number` told.
///
/// # Errors
/// None in practice: a number always fits.
pub fn encode_recalled(number: u64) -> Result<Bytes, CodecError> {
    encode(FrameKind::Recalled, &number)
}

/// The number in such a frame.
///
/// # Errors
/// [`CodecError`] says what is wrong with it.
pub fn decode_recalled(frame: &Frame) -> Result<u64, CodecError> {
    expect(frame, FrameKind::Recalled)?;
    decode(frame)
}

fn expect(frame: &Frame, kind: FrameKind) -> Result<(), CodecError> {
    if frame.kind == kind { Ok(()) } else { Err(CodecError::Misplaced { kind: frame.kind }) }
}

/// The frame of a reply, whole.
///
/// # Errors
/// A message over [`FRAME_LEN_BYTES_MAX`].
pub fn encode_reply(frame: &ReplyFrame) -> Result<Bytes, CodecError> {
    match frame {
        ReplyFrame::Reply(reply) => encode(FrameKind::Reply, reply),
        ReplyFrame::Chunk(chunk) => Ok(join(FrameKind::Chunk, chunk.bytes())),
        ReplyFrame::Contents(run) => Ok(join(FrameKind::Contents, run.bytes())),
        ReplyFrame::Data(data) => Ok(join(FrameKind::Data, data)),
        ReplyFrame::End { complete } => encode(FrameKind::End, complete),
        ReplyFrame::Failure(failure) => encode(FrameKind::Failure, failure),
    }
}

/// The header of a chunk's frame; the chunk's bytes follow it as they are.
pub fn chunk_header(chunk: &Chunk) -> [u8; HEADER_LEN] {
    frame::header(FrameKind::Chunk, chunk.bytes().len())
}

/// The header of a frame of contents; the run's bytes follow it as they are.
pub fn contents_header(run: &ContentRun) -> [u8; HEADER_LEN] {
    frame::header(FrameKind::Contents, run.bytes().len())
}

/// The header of a data frame; the data follows it as it is.
pub fn data_header(len_bytes: usize) -> [u8; HEADER_LEN] {
    frame::header(FrameKind::Data, len_bytes)
}

/// The reply in a frame.
///
/// # Errors
/// [`CodecError`] says what is wrong with it.
pub fn decode_reply(frame: Frame) -> Result<ReplyFrame, CodecError> {
    Ok(match frame.kind {
        FrameKind::Reply => ReplyFrame::Reply(decode(&frame)?),
        FrameKind::Chunk => ReplyFrame::Chunk(Chunk::parse(frame.payload)?),
        FrameKind::Contents => ReplyFrame::Contents(ContentRun::parse(frame.payload)?),
        FrameKind::Data => ReplyFrame::Data(frame.payload),
        FrameKind::End => ReplyFrame::End { complete: decode(&frame)? },
        FrameKind::Failure => ReplyFrame::Failure(decode(&frame)?),
        FrameKind::Request | FrameKind::Recall | FrameKind::Recalled => {
            return Err(CodecError::Misplaced { kind: frame.kind });
        }
    })
}

fn encode<M: Serialize>(kind: FrameKind, message: &M) -> Result<Bytes, CodecError> {
    let mut out = vec![0; HEADER_LEN];
    bincode::serde::encode_into_std_write(message, &mut out, config())
        .map_err(|error| CodecError::Payload { kind, reason: error.to_string() })?;
    let len_bytes = out.len() - HEADER_LEN;
    if len_bytes > FRAME_LEN_BYTES_MAX {
        return Err(CodecError::TooLong { len_bytes, max_bytes: FRAME_LEN_BYTES_MAX });
    }
    out[..HEADER_LEN].copy_from_slice(&frame::header(kind, len_bytes));
    Ok(Bytes::from(out))
}

fn join(kind: FrameKind, payload: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len());
    out.extend_from_slice(&frame::header(kind, payload.len()));
    out.extend_from_slice(payload);
    Bytes::from(out)
}

fn decode<'a, M: Deserialize<'a>>(frame: &'a Frame) -> Result<M, CodecError> {
    let kind = frame.kind;
    let (message, used) = bincode::serde::borrow_decode_from_slice(&frame.payload, config())
        .map_err(|error| CodecError::Payload { kind, reason: error.to_string() })?;
    match frame.payload.len() - used {
        0 => Ok(message),
        rest => Err(CodecError::Payload { kind, reason: format!("{rest} bytes too many") }),
    }
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
