//! A file that is open for reading.
//!
//! The id by which the gateway knows an open file belongs to one connection. After that is lost,
//! the next read opens the file again by its handle; a file that is gone by then is `Stale`.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use portcullis_core::limits::READ_LEN_BYTES_MAX;
use portcullis_core::{Attr, Handle, Status};
use portcullis_wire::{Reply, ReplyFrame, Request};

use crate::error::ClientError;
use crate::link::Link;

/// An open file. Reads may run side by side. Dropping it releases it in the background.
#[derive(Debug)]
pub struct OpenFile {
    link: Arc<Link>,
    handle: Handle,
    attr: Attr,
    opened: tokio::sync::Mutex<Opened>,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    file: u64,
    epoch: u64,
    released: bool,
}

impl OpenFile {
    pub(crate) async fn open(link: Arc<Link>, handle: Handle) -> Result<Self, ClientError> {
        let (opened, attr) = open(&link, handle).await?;
        Ok(Self { link, handle, attr, opened: tokio::sync::Mutex::new(opened) })
    }

    /// Its attributes when it was opened.
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// Host and port of the gateway, as errors name it.
    pub(crate) fn gateway(&self) -> &str {
        self.link.gateway()
    }

    /// Reads `len_bytes` from `offset_bytes` on; fewer come back only at the end of the file, or
    /// where more than [`READ_LEN_BYTES_MAX`] are asked for.
    ///
    /// # Errors
    /// `Stale` where the file is gone.
    pub async fn read(&self, offset_bytes: u64, len_bytes: u32) -> Result<Bytes, ClientError> {
        let len_bytes = len_bytes.min(READ_LEN_BYTES_MAX);
        let opened = *self.opened.lock().await;
        match self.read_on(opened, offset_bytes, len_bytes).await {
            Ok(Some(data)) => return Ok(data),
            // An id that the gateway does not know (any more) has gone the same way.
            Ok(None) | Err(ClientError::Lost { .. }) => {}
            Err(error) if error.status() == Status::BadFile => {}
            Err(error) => return Err(error),
        }
        let opened = self.reopen(opened).await?;
        match self.read_on(opened, offset_bytes, len_bytes).await? {
            Some(data) => Ok(data),
            None => Err(ClientError::Lost {
                gateway: self.link.gateway().to_owned(),
                reason: "it broke twice during one read".into(),
            }),
        }
    }

    /// Closes the file and waits until the gateway has done so.
    ///
    /// # Errors
    /// The gateway did not answer; the file is closed all the same once the connection ends.
    pub async fn release(self) -> Result<(), ClientError> {
        let Opened { file, epoch, .. } = {
            let mut opened = self.opened.lock().await;
            opened.released = true;
            *opened
        };
        release(&self.link, file, epoch).await
    }

    /// `None` where the connection of `opened` is gone.
    async fn read_on(
        &self,
        opened: Opened,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Result<Option<Bytes>, ClientError> {
        let request = Request::Read { file: opened.file, offset_bytes, len_bytes };
        let Some(mut stream) = self.link.stream_on(opened.epoch, &request).await? else {
            return Ok(None);
        };
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        loop {
            match self.link.next(&mut stream).await? {
                ReplyFrame::Data(data)
                    if first.len().max(joined.len()) + data.len() > len_bytes as usize =>
                {
                    return Err(self.link.misplaced(&ReplyFrame::Data(data)));
                }
                ReplyFrame::Data(data) if first.is_empty() => first = data,
                ReplyFrame::Data(data) => {
                    if joined.is_empty() {
                        joined.reserve(len_bytes as usize);
                        joined.extend_from_slice(&first);
                    }
                    joined.extend_from_slice(&data);
                }
                ReplyFrame::End { .. } if joined.is_empty() => return Ok(Some(first)),
                ReplyFrame::End { .. } => return Ok(Some(joined.freeze())),
                other => return Err(self.link.misplaced(&other)),
            }
        }
    }

    /// Opens the file again unless another read has done so since `seen`.
    async fn reopen(&self, seen: Opened) -> Result<Opened, ClientError> {
        let mut opened = self.opened.lock().await;
        if (opened.file, opened.epoch) == (seen.file, seen.epoch) {
            (*opened, _) = open(&self.link, self.handle).await?;
        }
        Ok(*opened)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Opened { file, epoch, released } = *self.opened.get_mut();
        if !released && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let link = self.link.clone();
            runtime.spawn(async move { release(&link, file, epoch).await });
        }
    }
}

async fn open(link: &Link, handle: Handle) -> Result<(Opened, Attr), ClientError> {
    match link.call_on(&Request::Open { handle }).await? {
        (Reply::Opened { file, attr }, epoch) => {
            Ok((Opened { file, epoch, released: false }, attr))
        }
        (other, _) => Err(link.misplaced(&ReplyFrame::Reply(other))),
    }
}

async fn release(link: &Link, file: u64, epoch: u64) -> Result<(), ClientError> {
    // A file of a lost connection is closed already.
    let Some(mut stream) = link.stream_on(epoch, &Request::Release { file }).await? else {
        return Ok(());
    };
    match link.next(&mut stream).await? {
        ReplyFrame::Reply(Reply::Released) => Ok(()),
        other => Err(link.misplaced(&other)),
    }
}
