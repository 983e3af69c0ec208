//! A directory on its way from the gateway, chunk by chunk.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::contents::Arriving;
use portcullis_core::position::advance;
use portcullis_core::{Chunk, Handle, Status};
use portcullis_transport::ReplyStream;
use portcullis_wire::{ReplyFrame, Request};

use crate::error::ClientError;
use crate::link::Link;

/// The entries of one directory. A listing whose connection breaks goes on over a new one after
/// the last entry it gave, so that no entry comes twice; so does that of a mount while a server is
/// away, for as long as any request waits. Dropping it tells the gateway to stop.
#[derive(Debug)]
pub struct Listing {
    link: Arc<Link>,
    dir: Handle,
    /// The cookies of the last entry given, one a brick.
    after: Vec<u64>,
    stream: ReplyStream,
    /// What came along for the next chunk, and with the last one.
    arriving: Arriving,
    contents: Vec<(usize, Bytes)>,
    /// Whether a chunk came over the present connection: one that brings nothing is not mended, but
    /// for a mount.
    progress: bool,
    end: Option<bool>,
}

impl Listing {
    pub(crate) async fn start(
        link: Arc<Link>,
        dir: Handle,
        after: Vec<u64>,
    ) -> Result<Self, ClientError> {
        let stream = link
            .stream(&Request::List {
                dir,
                after: after.clone(),
                acl: link.wants_acl(),
                contents: link.wants_contents(),
            })
            .await?;
        let (arriving, contents) = (Arriving::default(), Vec::new());
        Ok(Self { link, dir, after, stream, arriving, contents, progress: true, end: None })
    }

    /// The contents that came along with the chunk that was given last, each with the index of its entry.
    pub fn take_contents(&mut self) -> Vec<(usize, Bytes)> {
        std::mem::take(&mut self.contents)
    }

    /// The next run of entries, `None` at the end.
    ///
    /// # Errors
    /// The directory cannot be listed (further); the listing is over then.
    pub async fn next(&mut self) -> Result<Option<Chunk>, ClientError> {
        if self.end.is_some() {
            return Ok(None);
        }
        let link = self.link.clone();
        match link.within(self.go_on()).await {
            Err(error) => self.fail(error),
            next => next,
        }
    }

    async fn go_on(&mut self) -> Result<Option<Chunk>, ClientError> {
        loop {
            let error = match self.link.next(&mut self.stream).await {
                Ok(ReplyFrame::Contents(run)) => {
                    self.arriving.push(run).map_err(|error| self.link.malformed(error))?;
                    continue;
                }
                Ok(ReplyFrame::Chunk(chunk)) => {
                    let came = self.arriving.take(&chunk);
                    self.contents = came.map_err(|error| self.link.malformed(error))?;
                    advance(&mut self.after, &chunk, chunk.count() - 1);
                    self.progress = true;
                    return Ok(Some(chunk));
                }
                Ok(ReplyFrame::End { complete }) => {
                    self.arriving.end().map_err(|error| self.link.malformed(error))?;
                    self.end = Some(complete);
                    return Ok(None);
                }
                Ok(other) => return Err(self.link.misplaced(&other)),
                Err(error) => error,
            };
            let is_lost = matches!(error, ClientError::Lost { .. });
            if error.status() == Status::Unavailable && self.link.persists() {
                self.link.pause().await;
            } else if !is_lost || !self.progress {
                return Err(error);
            }
            self.progress = false;
            let request = Request::List {
                dir: self.dir,
                after: self.after.clone(),
                acl: self.link.wants_acl(),
                contents: self.link.wants_contents(),
            };
            self.arriving = Arriving::default();
            self.stream = self.link.stream(&request).await?;
        }
    }

    /// Whether the end was said and nothing is missing: `false` while there is more to come, and
    /// where a brick that is down has kept its entries.
    pub fn complete(&self) -> bool {
        self.end == Some(true)
    }

    fn fail(&mut self, error: ClientError) -> Result<Option<Chunk>, ClientError> {
        self.end = Some(false);
        Err(error)
    }
}
