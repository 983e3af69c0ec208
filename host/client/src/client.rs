//! A gateway as its clients see it: one method a verb.

use std::sync::Arc;

use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_transport::Identity;
use portcullis_wire::message::{Failure, Statfs};
use portcullis_wire::stats::GatewayStats;
use portcullis_wire::{Reply, ReplyFrame, Request};

use crate::address::{Address, AddressError, check_path, components};
use crate::error::ClientError;
use crate::link::Link;
use crate::listing::Listing;
use crate::open_file::OpenFile;

/// How long a request may take, unless told otherwise.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// How long a request, or the next frame of a long answer, may take; connecting included.
    pub request_timeout_ms: u64,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { request_timeout_ms: REQUEST_TIMEOUT_MS }
    }
}

/// A gateway's volume. Cloning shares the connection, which is made anew when it is lost.
#[derive(Clone, Debug)]
pub struct Client {
    link: Arc<Link>,
    root: Arc<Entry>,
}

impl Client {
    /// Connects to the gateway of `address` and asks for the root of its volume. The path of the
    /// address is left to [`Client::resolve`].
    ///
    /// # Errors
    /// The gateway cannot be reached, refuses this identity, or has no volume to show.
    pub async fn connect(
        address: &Address,
        identity: Identity,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let link = Link::new(address.clone(), identity, options.request_timeout_ms);
        match link.call(&Request::Attach).await? {
            Reply::Attached { root } => Ok(Self { link: Arc::new(link), root: Arc::new(root) }),
            other => Err(link.misplaced(&ReplyFrame::Reply(other))),
        }
    }

    /// The root directory of the volume, as it was when the client connected.
    pub fn root(&self) -> &Entry {
        &self.root
    }

    /// The entry `name` of a directory.
    ///
    /// # Errors
    /// `NotFound` where there is none; so for all below, [`ClientError`] says why.
    pub async fn lookup(&self, dir: &Handle, name: &[u8]) -> Result<Entry, ClientError> {
        match self.link.call(&Request::Lookup { dir: *dir, name: name.to_vec() }).await? {
            Reply::Entry(entry) => Ok(entry),
            other => Err(self.misplaced(other)),
        }
    }

    /// The attributes of a file.
    ///
    /// # Errors
    /// `Stale` where it is gone.
    pub async fn getattr(&self, handle: &Handle) -> Result<Attr, ClientError> {
        match self.link.call(&Request::Getattr { handle: *handle }).await? {
            Reply::Attr(attr) => Ok(attr),
            other => Err(self.misplaced(other)),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidArgument` where it is none.
    pub async fn readlink(&self, handle: &Handle) -> Result<Vec<u8>, ClientError> {
        match self.link.call(&Request::Readlink { handle: *handle }).await? {
            Reply::Target(target) => Ok(target),
            other => Err(self.misplaced(other)),
        }
    }

    /// The entries of a directory, from its start where `after` is empty, else after the entries
    /// with these cookies, one a brick.
    ///
    /// # Errors
    /// The gateway cannot be reached; a directory that cannot be listed says so in
    /// [`Listing::next`].
    pub async fn list(&self, dir: &Handle, after: Vec<u64>) -> Result<Listing, ClientError> {
        Listing::start(self.link.clone(), *dir, after).await
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// It is none, or may not be read.
    pub async fn open(&self, handle: &Handle) -> Result<OpenFile, ClientError> {
        OpenFile::open(self.link.clone(), *handle).await
    }

    /// Space and inodes of the file system that `handle` lies on.
    ///
    /// # Errors
    /// As for all.
    pub async fn statfs(&self, handle: &Handle) -> Result<Statfs, ClientError> {
        match self.link.call(&Request::Statfs { handle: *handle }).await? {
            Reply::Statfs(statfs) => Ok(statfs),
            other => Err(self.misplaced(other)),
        }
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute` where the file has none of that name.
    pub async fn getxattr(&self, handle: &Handle, name: &[u8]) -> Result<Vec<u8>, ClientError> {
        let request = Request::Getxattr { handle: *handle, name: name.to_vec() };
        match self.link.call(&request).await? {
            Reply::Xattr(value) => Ok(value),
            other => Err(self.misplaced(other)),
        }
    }

    /// The names of the extended attributes, each ended by NUL.
    ///
    /// # Errors
    /// As for all.
    pub async fn listxattr(&self, handle: &Handle) -> Result<Vec<u8>, ClientError> {
        match self.link.call(&Request::Listxattr { handle: *handle }).await? {
            Reply::Xattr(names) => Ok(names),
            other => Err(self.misplaced(other)),
        }
    }

    /// The gateway's account of itself.
    ///
    /// # Errors
    /// `WrongRole` for every identity but an admin's.
    pub async fn stats(&self) -> Result<GatewayStats, ClientError> {
        stats(&self.link).await
    }

    /// As [`Client::stats`], over a connection of its own. It asks nothing of the volume, so it is
    /// answered also while a brick is down.
    ///
    /// # Errors
    /// The gateway cannot be reached; `WrongRole` for every identity but an admin's.
    pub async fn stats_of(
        address: &Address,
        identity: Identity,
        options: ClientOptions,
    ) -> Result<GatewayStats, ClientError> {
        let link = Link::new(address.clone(), identity, options.request_timeout_ms);
        let stats = stats(&link).await;
        link.close().await;
        stats
    }

    /// Walks the names of `path` from the root, one lookup each. Symbolic links are not followed:
    /// the last name may be one and is then what is found, one before it is an error. `..` is
    /// refused.
    ///
    /// # Errors
    /// The failure of the lookup that failed.
    pub async fn resolve(&self, path: &[u8]) -> Result<Entry, ClientError> {
        let given = || String::from_utf8_lossy(path).into_owned();
        check_path(path).map_err(|reason| AddressError { given: given(), reason })?;
        let mut names = components(path).peekable();
        if names.peek().is_none() {
            // The root handed out when connecting may be old by now.
            let attr = self.getattr(&self.root.handle).await?;
            return Ok(Entry { attr: Some(attr), kind: attr.kind(), ..Entry::clone(&self.root) });
        }
        let mut entry = Entry::clone(&self.root);
        for name in names {
            if entry.kind == FileKind::Symlink {
                let detail = "a symbolic link lies on the way, and is not followed";
                return Err(Failure::new(Status::NotDirectory, detail).into());
            }
            entry = self.lookup(&entry.handle, name).await?;
        }
        Ok(entry)
    }

    /// Ends the connection, so that the gateway need not find out by itself.
    pub async fn close(&self) {
        self.link.close().await;
    }

    /// Host and port of the gateway.
    pub(crate) fn gateway(&self) -> &str {
        self.link.gateway()
    }

    fn misplaced(&self, reply: Reply) -> ClientError {
        self.link.misplaced(&ReplyFrame::Reply(reply))
    }
}

async fn stats(link: &Link) -> Result<GatewayStats, ClientError> {
    match link.call(&Request::Stats).await? {
        Reply::Stats(stats) => Ok(*stats),
        other => Err(link.misplaced(&ReplyFrame::Reply(other))),
    }
}
