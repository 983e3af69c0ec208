//! What comes in on one stream: frames, or the bare bytes of a body.
//!
//! Data is handed on in pieces, as quinn has received them. What must hold: a piece keeps the memory of
//! all that came with it, so at most [`PIECES`] are taken from quinn and not yet handed on, and its
//! flow control holds back a peer whom nobody listens to. What is put together is copied as it comes,
//! and a body is handed on in pieces of some size.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::{Buf, Bytes};
use portcullis_core::limits::FRAME_LEN_BYTES_MAX;
use portcullis_wire::CodecError;
use portcullis_wire::frame::{self, Frame, FrameKind, HEADER_LEN};
use quinn::{ReadError, RecvStream};

/// Pieces taken from quinn at once. Each is what one datagram brought, or less.
const PIECES: usize = 16;
/// Shortest piece of a body but for its last: whoever collects the pieces holds so many at most.
const BODY_PIECE_LEN_BYTES_MIN: usize = 4096;

/// Why nothing more comes in.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection is lost, or the peer gave the stream up.
    Lost(ReadError),
    /// The peer sent nonsense, or too little.
    Bad(CodecError),
}

impl From<CodecError> for Broken {
    fn from(error: CodecError) -> Self {
        Self::Bad(error)
    }
}

/// What came in.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A frame that is not data, whole.
    Frame(Frame),
    /// The next bytes of a data frame, not empty. Where one frame ends and the next begins is not
    /// told.
    Data(Bytes),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Frames {
    recv: RecvStream,
    pieces: VecDeque<Bytes>,
    /// Bytes in `pieces`.
    held_bytes: usize,
    /// Bytes still to come of the data frame that has begun.
    data_left_bytes: usize,
    /// The frame that is being put together, and its length.
    whole: Option<(FrameKind, usize)>,
    /// What has come of it, or of a piece of a body.
    buffer: Vec<u8>,
    received_bytes: u64,
}

/// The pieces in one, copied unless it is one already. What is sent on should be in few pieces: for
/// each packet, quinn looks for its bytes from the first piece on that is not acknowledged.
pub(crate) fn join(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        1 => pieces.remove(0),
        _ => pieces.concat().into(),
    }
}

impl Frames {
    pub(crate) fn new(recv: RecvStream) -> Self {
        Self {
            recv,
            pieces: VecDeque::new(),
            held_bytes: 0,
            data_left_bytes: 0,
            whole: None,
            buffer: Vec::new(),
            received_bytes: 0,
        }
    }

    /// Bytes received so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The next frame, at most `len_bytes_max` long.
    pub(crate) async fn next(&mut self, len_bytes_max: usize) -> Result<Incoming, Broken> {
        loop {
            if let Some(incoming) = self.next_held(len_bytes_max)? {
                return Ok(incoming);
            }
            if !self.receive().await? {
                return Err(CodecError::Truncated.into());
            }
        }
    }

    /// Data that comes next, at most `len_bytes_max` of it, where some has arrived already.
    pub(crate) fn next_data_held(&mut self, len_bytes_max: usize) -> Option<Bytes> {
        if self.data_left_bytes == 0 {
            let header = self.peek_header().filter(|_| self.whole.is_none())?;
            // A header that is wrong is found again by `next`.
            let (kind, len_bytes) = frame::parse_header(&header, FRAME_LEN_BYTES_MAX).ok()?;
            if kind != FrameKind::Data || len_bytes == 0 {
                return None;
            }
            self.skip(HEADER_LEN);
            self.data_left_bytes = len_bytes;
        }
        self.take_data(len_bytes_max)
    }

    /// The next bytes of a stream without frames; `None` at its end.
    pub(crate) async fn bytes(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            let is_over = self.held_bytes == 0 && !self.receive().await?;
            let held_bytes = std::mem::take(&mut self.held_bytes);
            let pieces = self.pieces.drain(..);
            if self.buffer.is_empty() && held_bytes >= BODY_PIECE_LEN_BYTES_MIN {
                return Ok(Some(join(pieces.collect())));
            }
            pieces.for_each(|piece| self.buffer.extend_from_slice(&piece));
            if is_over || self.buffer.len() >= BODY_PIECE_LEN_BYTES_MIN {
                let piece = std::mem::take(&mut self.buffer);
                return Ok(Some(Bytes::from(piece)).filter(|piece| !piece.is_empty()));
            }
        }
    }

    /// Takes the end of the stream where it has arrived, as it mostly has: a stream that is dropped
    /// without it costs its peer a STOP_SENDING.
    pub(crate) async fn take_end(&mut self) {
        let mut end = pin!(self.recv.read_chunk(1, true));
        poll_fn(|context| {
            let _ = end.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }

    /// Waits for more; `false` at the end of the stream.
    async fn receive(&mut self) -> Result<bool, Broken> {
        let mut pieces: [Bytes; PIECES] = Default::default();
        let count = self.recv.read_chunks(&mut pieces).await.map_err(Broken::Lost)?;
        let Some(count) = count else { return Ok(false) };
        for piece in pieces.into_iter().take(count).filter(|piece| !piece.is_empty()) {
            self.held_bytes += piece.len();
            self.received_bytes += piece.len() as u64;
            self.pieces.push_back(piece);
        }
        Ok(true)
    }

    fn next_held(&mut self, len_bytes_max: usize) -> Result<Option<Incoming>, CodecError> {
        loop {
            if let Some((kind, len_bytes)) = self.whole {
                return Ok(self.put_together(len_bytes).map(|payload| {
                    self.whole = None;
                    Incoming::Frame(Frame { kind, payload })
                }));
            }
            if self.data_left_bytes > 0 {
                return Ok(self.take_data(usize::MAX).map(Incoming::Data));
            }
            let Some(header) = self.peek_header() else { return Ok(None) };
            let (kind, len_bytes) = frame::parse_header(&header, len_bytes_max)?;
            if kind == FrameKind::Data && len_bytes == 0 {
                return Err(CodecError::Payload { kind, reason: "it is empty".into() });
            }
            self.skip(HEADER_LEN);
            match kind {
                FrameKind::Data => self.data_left_bytes = len_bytes,
                _ => self.whole = Some((kind, len_bytes)),
            }
        }
    }

    /// The header at the front, where it is there.
    fn peek_header(&self) -> Option<[u8; HEADER_LEN]> {
        if let Some(header) = self.pieces.front()?.first_chunk::<HEADER_LEN>() {
            return Some(*header);
        }
        let mut header = [0; HEADER_LEN];
        let mut bytes = self.pieces.iter().flat_map(|piece| piece.iter());
        for byte in &mut header {
            *byte = *bytes.next()?;
        }
        Some(header)
    }

    fn skip(&mut self, mut len_bytes: usize) {
        while let Some(skipped) = self.take_piece(len_bytes) {
            len_bytes -= skipped.len();
        }
    }

    fn take_data(&mut self, len_bytes_max: usize) -> Option<Bytes> {
        let data = self.take_piece(self.data_left_bytes.min(len_bytes_max))?;
        self.data_left_bytes -= data.len();
        Some(data)
    }

    /// `len_bytes` bytes, once they are there, in memory of their own: they may be kept for long.
    fn put_together(&mut self, len_bytes: usize) -> Option<Bytes> {
        while let Some(piece) = self.take_piece(len_bytes - self.buffer.len()) {
            if self.buffer.is_empty() {
                // Not before anything of it has come.
                self.buffer.reserve_exact(len_bytes);
            }
            self.buffer.extend_from_slice(&piece);
        }
        (self.buffer.len() == len_bytes).then(|| Bytes::from(std::mem::take(&mut self.buffer)))
    }

    /// At most `len_bytes_max` bytes from the front, `None` where that is nothing.
    fn take_piece(&mut self, len_bytes_max: usize) -> Option<Bytes> {
        let front = self.pieces.front_mut().filter(|_| len_bytes_max > 0)?;
        let piece = front.split_to(front.len().min(len_bytes_max));
        if !front.has_remaining() {
            self.pieces.pop_front();
        }
        self.held_bytes -= piece.len();
        Some(piece)
    }
}
