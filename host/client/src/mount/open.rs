//! A file that a program has open: at the gateway, or by a content that is in place.
//!
//! A file of the second sort is opened at the gateway by its handle with the first thing that the content
//! cannot answer: a read after it was recalled or the lease ran out, a lock, anything else. Where it turns
//! out to be gone by then, because it was removed elsewhere when nobody had it open there, the content that
//! it had last is what there is left to read.

use portcullis_core::{Attr, Handle};
use portcullis_fuse::Errno;
use tokio::sync::OnceCell;

use super::attr::errno_of_handle;
use super::contents::Pinned;
use crate::{Client, OpenFile};

/// See the module.
pub(super) struct File {
    pub(super) nodeid: u64,
    handle: Handle,
    opened: OnceCell<OpenFile>,
    in_place: Option<Pinned>,
}

impl File {
    /// One that is open at the gateway.
    pub(super) fn opened(file: OpenFile, nodeid: u64) -> Self {
        let handle = *file.handle();
        Self { nodeid, handle, opened: OnceCell::new_with(Some(file)), in_place: None }
    }

    /// One for reading, whose content is in place.
    pub(super) fn in_place(content: Pinned, handle: Handle, nodeid: u64) -> Self {
        Self { nodeid, handle, opened: OnceCell::new(), in_place: Some(content) }
    }

    /// Which file it is.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The file at the gateway, where it was opened there.
    pub(super) fn at_gateway(&self) -> Option<&OpenFile> {
        self.opened.get()
    }

    /// The file at the gateway, opened now where it was not yet.
    pub(super) async fn open(&self, client: &Client) -> Result<&OpenFile, Errno> {
        let open = || client.open_with(&self.handle, 0);
        self.opened.get_or_try_init(open).await.map_err(|error| errno_of_handle(&error))
    }

    /// What a read gives where the content is in place and holds.
    pub(super) fn read_in_place(
        &self,
        client: &Client,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Option<&[u8]> {
        let content = self.in_place.as_ref().filter(|content| content.holds(client))?;
        Some(content.read(offset_bytes, len_bytes))
    }

    /// What a read gives of a file that is gone and was never open at the gateway.
    pub(super) fn read_last(&self, offset_bytes: u64, len_bytes: u32) -> Option<&[u8]> {
        let content = self.in_place.as_ref().filter(|_| self.opened.get().is_none())?;
        Some(content.read(offset_bytes, len_bytes))
    }

    /// The attributes of such a file: no name leads to it any more.
    pub(super) fn last_attr(&self) -> Option<Attr> {
        let content = self.in_place.as_ref().filter(|_| self.opened.get().is_none())?;
        Some(Attr { nlink: 0, ..*content.attr() })
    }
}
