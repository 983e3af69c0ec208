//! A file from start to end, with several reads under way.
//!
//! Each read is taken from its stream as it arrives, whether or not it is its turn: a stream left
//! unread would hold back the others on the connection.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::error::ClientError;
use crate::open_file::OpenFile;

/// Bytes of one read.
const READ_LEN_BYTES: u32 = 1024 * 1024;
/// Reads under way at once; with their length, what one file takes of memory.
const READS_MAX: usize = 4;

/// The content of an open file, piece by piece. Dropping it drops the reads under way.
#[derive(Debug)]
pub struct ReadAhead {
    file: Arc<OpenFile>,
    next_offset_bytes: u64,
    under_way: VecDeque<Reading>,
    /// What the first read brought and was not taken yet.
    pieces: std::vec::IntoIter<Bytes>,
    ended: bool,
}

#[derive(Debug)]
struct Reading(JoinHandle<Result<Vec<Bytes>, ClientError>>);

impl ReadAhead {
    /// The content of `file`.
    pub fn new(file: OpenFile) -> Self {
        Self {
            file: Arc::new(file),
            next_offset_bytes: 0,
            under_way: VecDeque::new(),
            pieces: Vec::new().into_iter(),
            ended: false,
        }
    }

    /// The next piece, `None` at the end of the file; also of one that grew since it was opened.
    ///
    /// # Errors
    /// The read failed; nothing more can be had.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        if let Some(piece) = self.pieces.next() {
            return Ok(Some(piece));
        }
        if self.ended {
            return Ok(None);
        }
        // Beyond the size that was announced, one read at a time looks for the end.
        let size_bytes = self.file.attr().size_bytes;
        while self.under_way.is_empty()
            || (self.under_way.len() < READS_MAX && self.next_offset_bytes < size_bytes)
        {
            self.read_next();
        }
        let Some(Reading(first)) = self.under_way.front_mut() else { return Ok(None) };
        let read = first.await.unwrap_or_else(|error| {
            let reason = format!("a read was given up: {error}");
            Err(ClientError::Lost { gateway: self.file.gateway().to_owned(), reason })
        });
        self.under_way.pop_front();
        let data = read.inspect_err(|_| self.ended = true)?;
        if data.iter().map(Bytes::len).sum::<usize>() < READ_LEN_BYTES as usize {
            self.ended = true;
            self.under_way.clear();
        }
        self.pieces = data.into_iter();
        Ok(self.pieces.next())
    }

    fn read_next(&mut self) {
        let (file, offset_bytes) = (self.file.clone(), self.next_offset_bytes);
        let reading = tokio::spawn(async move { file.read(offset_bytes, READ_LEN_BYTES).await });
        self.under_way.push_back(Reading(reading));
        self.next_offset_bytes += u64::from(READ_LEN_BYTES);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}
