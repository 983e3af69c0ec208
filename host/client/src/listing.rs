//! A directory on its way from the gateway, chunk by chunk.

use std::sync::Arc;

use portcullis_core::position::advance;
use portcullis_core::{Chunk, Handle};
use portcullis_transport::ReplyStream;
use portcullis_wire::{ReplyFrame, Request};

use crate::error::ClientError;
use crate::link::Link;

/// The entries of one directory. A listing whose connection breaks goes on over a new one after
/// the last entry it gave, so that no entry comes twice. Dropping it tells the gateway to stop.
#[derive(Debug)]
pub struct Listing {
    link: Arc<Link>,
    dir: Handle,
    /// The cookies of the last entry given, one a brick.
    after: Vec<u64>,
    stream: ReplyStream,
    /// Whether a chunk came over the present connection: one that brings nothing is not mended.
    progress: bool,
    end: Option<bool>,
}

impl Listing {
    pub(crate) async fn start(
        link: Arc<Link>,
        dir: Handle,
        after: Vec<u64>,
    ) -> Result<Self, ClientError> {
        let stream = link.stream(&Request::List { dir, after: after.clone() }).await?;
        Ok(Self { link, dir, after, stream, progress: true, end: None })
    }

    /// The next run of entries, `None` at the end.
    ///
    /// # Errors
    /// The directory cannot be listed (further); the listing is over then.
    pub async fn next(&mut self) -> Result<Option<Chunk>, ClientError> {
        if self.end.is_some() {
            return Ok(None);
        }
        loop {
            match self.link.next(&mut self.stream).await {
                Ok(ReplyFrame::Chunk(chunk)) => {
                    advance(&mut self.after, &chunk, chunk.count() - 1);
                    self.progress = true;
                    return Ok(Some(chunk));
                }
                Ok(ReplyFrame::End { complete }) => {
                    self.end = Some(complete);
                    return Ok(None);
                }
                Err(ClientError::Lost { .. }) if self.progress => {
                    self.progress = false;
                    let request = Request::List { dir: self.dir, after: self.after.clone() };
                    match self.link.stream(&request).await {
                        Ok(stream) => self.stream = stream,
                        Err(error) => return self.fail(error),
                    }
                }
                Ok(other) => return self.fail(self.link.misplaced(&other)),
                Err(error) => return self.fail(error),
            }
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
