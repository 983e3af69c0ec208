//! A gateway as its clients see it: one method a verb; all that changes something is a
//! [`Mutation`].

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_transport::{Identity, Role};
use portcullis_wire::message::{
    Caller, Failure, Mutated, Mutation, Notices, PolicyCommand, PolicyKind, PolicyStatus, SetAttr,
    Statfs,
};
use portcullis_wire::stats::GatewayStats;
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::sync::mpsc;

use crate::address::{Address, AddressError, check_path, components};
use crate::error::ClientError;
use crate::link::{Link, LinkOptions};
use crate::listing::Listing;
use crate::mutate::{Ask, Changed};
use crate::open_file::OpenFile;
use crate::session::Forgetting;

/// How long a request may take, unless told otherwise.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// How long a request, or the next frame of a long answer, may take; connecting included.
    /// 0: as long as it takes.
    pub request_timeout_ms: u64,
    /// What is told will be cached, so changes are to be told too ([`Client::forgettings`]). Such
    /// a client also waits for a gateway that is down, until the deadline of each request.
    pub watch: bool,
    /// Listings are to tell which files have no access control lists.
    pub acl: bool,
    /// Listings may bring contents of small files along.
    pub contents: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { request_timeout_ms: REQUEST_TIMEOUT_MS, watch: false, acl: false, contents: false }
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
        Self::connect_to(Role::Gateway, address, identity, options).await
    }

    /// As [`Client::connect`], to a server of any role: a brick speaks the same language.
    pub(crate) async fn connect_to(
        server: Role,
        address: &Address,
        identity: Identity,
        options: ClientOptions,
    ) -> Result<Self, ClientError> {
        let options = LinkOptions { client: options, attach: true, server };
        let link = Link::new(address.clone(), identity, options, draw());
        let root = link.attach().await?;
        Ok(Self { link, root: Arc::new(root) })
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
        self.open_with(handle, 0).await
    }

    /// Opens a regular file; of `flags`, of open(2), count the access mode and `O_APPEND`.
    ///
    /// # Errors
    /// It is none.
    pub async fn open_with(&self, handle: &Handle, flags: u32) -> Result<OpenFile, ClientError> {
        OpenFile::open(self.link.clone(), *handle, flags).await
    }

    /// Carries out a mutation that opens no file and goes through none, once, whatever happens to
    /// the connection; `body` is the value of an extended attribute.
    ///
    /// # Errors
    /// Why it was not applied; `InDoubt` where nobody knows whether it was.
    pub async fn mutate(
        &self,
        caller: Caller,
        mutation: Mutation,
        body: Option<Bytes>,
    ) -> Result<Changed<Mutated>, ClientError> {
        let ask = Ask { body: body.into_iter().collect(), ..Ask::new(caller, mutation) };
        Ok(self.link.mutate(ask).await?.whole())
    }

    /// Sets attributes; answers with all of them as they are then.
    ///
    /// # Errors
    /// As [`Client::mutate`].
    pub async fn setattr(
        &self,
        caller: Caller,
        handle: &Handle,
        set: SetAttr,
    ) -> Result<Changed<Attr>, ClientError> {
        let mutation = Mutation::Setattr { handle: *handle, file: 0, set };
        let changed = self.mutate(caller, mutation, None).await?;
        match changed.value {
            Mutated::Attr(attr) => {
                Ok(Changed { value: attr, changes: changed.changes, dirs: changed.dirs })
            }
            result => Err(self.misplaced(Reply::Mutated {
                result,
                changes: changed.changes,
                dirs: changed.dirs,
            })),
        }
    }

    /// Carries out a [`Mutation::Create`] or [`Mutation::Tmpfile`].
    ///
    /// # Errors
    /// As [`Client::mutate`].
    pub async fn create(
        &self,
        caller: Caller,
        mutation: Mutation,
    ) -> Result<Changed<(Entry, OpenFile)>, ClientError> {
        let created = self.link.mutate(Ask::new(caller, mutation)).await?.into_created();
        created.ok_or_else(|| self.misplaced(Reply::Done))
    }

    /// Waits until the names of a directory are on stable storage.
    ///
    /// # Errors
    /// They are not.
    pub async fn fsyncdir(&self, dir: &Handle) -> Result<(), ClientError> {
        match self.link.call(&Request::Fsyncdir { dir: *dir }).await? {
            Reply::Done => Ok(()),
            other => Err(self.misplaced(other)),
        }
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
        let options = LinkOptions { client: options, attach: false, server: Role::Gateway };
        let link = Link::new(address.clone(), identity, options, draw());
        let stats = stats(&link).await;
        link.close().await;
        stats
    }

    /// Asks something of the policies of a gateway, over a connection of its own; `body` is what the
    /// command announces. It is asked once: what came of it where the connection is lost is not known.
    ///
    /// # Errors
    /// The gateway cannot be reached, or does not do it; `WrongRole` for every identity but an admin's.
    pub async fn policy_of(
        address: &Address,
        identity: Identity,
        options: ClientOptions,
        (kind, command): (PolicyKind, PolicyCommand),
        body: &[Bytes],
    ) -> Result<PolicyStatus, ClientError> {
        let options = LinkOptions { client: options, attach: false, server: Role::Gateway };
        let link = Link::new(address.clone(), identity, options, draw());
        let reply = link.call_once(&Request::Policy { kind, command }, body).await;
        let status = match reply {
            Ok(Reply::Policy(status)) => Ok(*status),
            Ok(other) => Err(link.misplaced(&ReplyFrame::Reply(other))),
            Err(error) => Err(error),
        };
        link.close().await;
        status
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

    /// Whoever caches what this client is told takes from here what is no longer true, and must
    /// say of each when it is forgotten. There is one such receiver, the one asked for last.
    pub fn forgettings(&self) -> mpsc::Receiver<Forgetting> {
        self.link.forgettings()
    }

    /// Milliseconds for which what is told now may be cached; 0 without a lease.
    pub fn lease_left_ms(&self) -> u64 {
        self.link.lease_left_ms()
    }

    /// Counts the connections of this client: what was told over an earlier one is forgotten.
    pub fn epoch(&self) -> u64 {
        self.link.current().map_or(0, |session| session.epoch)
    }

    /// The connection over which what is told may be cached now, and is recalled also where it is
    /// changed on the brick directly; `None` without one.
    pub(crate) fn recalling_epoch(&self) -> Option<u64> {
        let session = self.link.current()?;
        let holds = session.lease.holds(self.link.now_ms()) && session.notices != Notices::None;
        holds.then_some(session.epoch)
    }

    /// The random number by which servers know this client.
    pub fn id(&self) -> u128 {
        self.link.operations.client()
    }

    /// Tells the gateway how many contents that came along were read without asking it, by directory; for
    /// its statistics.
    ///
    /// # Errors
    /// As for all.
    pub(crate) async fn read_in_place(&self, dirs: Vec<(Handle, u32)>) -> Result<(), ClientError> {
        match self.link.call(&Request::ReadInPlace { dirs }).await? {
            Reply::Done => Ok(()),
            other => Err(self.misplaced(other)),
        }
    }

    /// Ends the session and the connection, so that the gateway need not find out by itself.
    /// Nothing that was told may be answered to anybody any more.
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

/// A random number for a client.
pub(crate) fn draw() -> u128 {
    let half = || u128::from(RandomState::new().hash_one(std::process::id()));
    half() << 64 | half()
}

async fn stats(link: &Link) -> Result<GatewayStats, ClientError> {
    match link.call(&Request::Stats).await? {
        Reply::Stats(stats) => Ok(*stats),
        other => Err(link.misplaced(&ReplyFrame::Reply(other))),
    }
}
