//! Cuts a byte stream into frames: `len u32 LE | kind u8 | payload`, `len` counting the payload.
//!
//! A frame over its limit is refused by its header, before anything is allocated for it.

use bytes::{Buf, Bytes, BytesMut};
use portcullis_core::limits::FRAME_LEN_BYTES_MAX;

use crate::codec::CodecError;

/// Bytes of a frame's header.
pub const HEADER_LEN: usize = 5;

/// What a frame carries. The numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A request.
    Request = 0x01,
    /// Changes that a client is told of, on a stream that the server opened.
    Recall = 0x02,
    /// The client has forgotten what it was told of.
    Recalled = 0x03,
    /// A reply of one message.
    Reply = 0x10,
    /// A chunk of a listing, packed as `portcullis_core::chunk` describes.
    Chunk = 0x11,
    /// Bytes of a file, or of the body of a request.
    Data = 0x12,
    /// The end of a listing or a read.
    End = 0x13,
    /// Contents of entries of the chunk that follows, packed as `portcullis_core::contents` describes.
    Contents = 0x14,
    /// The request failed; nothing follows.
    Failure = 0x1f,
}

impl FrameKind {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::Request,
            Self::Recall,
            Self::Recalled,
            Self::Reply,
            Self::Chunk,
            Self::Data,
            Self::End,
            Self::Contents,
            Self::Failure,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == byte)
    }
}

/// One frame, its payload still packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the payload is.
    pub kind: FrameKind,
    /// The payload.
    pub payload: Bytes,
}

/// The header of a frame whose payload has `len` bytes, which must be within the limit.
pub fn header(kind: FrameKind, len: usize) -> [u8; HEADER_LEN] {
    debug_assert!(len <= FRAME_LEN_BYTES_MAX);
    let [a, b, c, d] = (len as u32).to_le_bytes();
    [a, b, c, d, kind as u8]
}

/// What the frame with this header is, and how many bytes of payload follow it.
///
/// # Errors
/// A frame of unknown kind, or over `max_bytes`; the stream cannot be read further.
pub fn parse_header(
    header: &[u8; HEADER_LEN],
    max_bytes: usize,
) -> Result<(FrameKind, usize), CodecError> {
    let [a, b, c, d, kind] = *header;
    let len_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
    let kind = FrameKind::of(kind).ok_or(CodecError::Kind { kind })?;
    if len_bytes > max_bytes {
        return Err(CodecError::TooLong { len_bytes, max_bytes });
    }
    Ok((kind, len_bytes))
}

/// Takes one whole frame from the front of `buffer`, `None` where more bytes are needed.
///
/// # Errors
/// A frame of unknown kind or over [`FRAME_LEN_BYTES_MAX`]; the stream cannot be read further.
pub fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, CodecError> {
    let Some(header) = buffer.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let (kind, len) = parse_header(header, FRAME_LEN_BYTES_MAX)?;
    if buffer.len() < HEADER_LEN + len {
        return Ok(None);
    }
    buffer.advance(HEADER_LEN);
    Ok(Some(Frame { kind, payload: buffer.split_to(len).freeze() }))
}
