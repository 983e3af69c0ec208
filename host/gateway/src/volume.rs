//! What the gateway serves: a brick behind a dentry cache.
//!
//! Cached verbs ask the cache first: a hit answers without a lock beyond the cache's own. A miss
//! leads or joins a fill (`fills`), a listing leads or joins a scan (`scans`). Every other verb is
//! passed through, with the brick's deadline.

use std::sync::Arc;

use portcullis_core::Status;
use portcullis_core::cache::DentryCache;
use portcullis_core::entry::is_valid_name;
use portcullis_core::limits::NAME_LEN_MAX;
use portcullis_core::{Entry, Handle};
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, Request};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::brick_link::BrickLink;
use crate::fills::Seat;
use crate::scans::Scans;

/// Whoever waits for a fill.
pub(crate) type Waiter = oneshot::Sender<Result<Reply, Failure>>;
/// The cache of a gateway.
pub(crate) type Cache = DentryCache<Waiter>;

/// A brick behind a cache.
pub(crate) struct Volume {
    pub(crate) cache: Arc<Cache>,
    pub(crate) brick: Arc<BrickLink>,
    pub(crate) scans: Scans,
    /// Bytes that the cache may hold.
    pub(crate) capacity_bytes: u64,
    /// Where the cache's milliseconds count from.
    started: Instant,
}

impl Volume {
    /// A volume of one brick.
    pub(crate) fn new(cache: Arc<Cache>, brick: Arc<BrickLink>, capacity_bytes: u64) -> Self {
        Self { cache, brick, scans: Scans::new(), capacity_bytes, started: Instant::now() }
    }

    /// Monotonic time, as the cache counts it.
    pub(crate) fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// The root directory: its handle from the session, its attributes as fresh as any others.
    pub(crate) async fn attach(self: &Arc<Self>) -> Result<Reply, Failure> {
        let session = self.brick.session(0, self.brick.deadline()).await?;
        let handle = session.root.handle;
        match self.getattr(handle).await? {
            Reply::Attr(attr) => {
                let kind = attr.kind();
                Ok(Reply::Attached { root: Entry { handle, attr: Some(attr), kind, target: None } })
            }
            other => Ok(other),
        }
    }

    /// The entry `name` of `dir`.
    pub(crate) async fn lookup(
        self: &Arc<Self>,
        dir: Handle,
        name: Vec<u8>,
    ) -> Result<Reply, Failure> {
        check_name(&name)?;
        let mut seat = Seat::default();
        let answer = self.cache.lookup(self.now_ms(), &dir, &name, || seat.take());
        self.settle(answer, seat, Reply::Entry, || Request::Lookup { dir, name }).await
    }

    /// The attributes of `handle`.
    pub(crate) async fn getattr(self: &Arc<Self>, handle: Handle) -> Result<Reply, Failure> {
        let mut seat = Seat::default();
        let answer = self.cache.getattr(self.now_ms(), &handle, || seat.take());
        self.settle(answer, seat, Reply::Attr, || Request::Getattr { handle }).await
    }

    /// The target of the link `handle`.
    pub(crate) async fn readlink(self: &Arc<Self>, handle: Handle) -> Result<Reply, Failure> {
        let mut seat = Seat::default();
        let answer = self.cache.readlink(self.now_ms(), &handle, || seat.take());
        self.settle(answer, seat, Reply::Target, || Request::Readlink { handle }).await
    }

    /// Asks the brick, cache or no cache.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Reply, Failure> {
        let result = self.brick.call(request).await;
        if let Err(failure) = &result {
            self.note(request, failure);
        }
        result
    }

    /// Draws the consequence of a failure that the brick told: a file that is gone is forgotten.
    pub(crate) fn note(&self, request: &Request, failure: &Failure) {
        if failure.status == Status::Stale
            && let Some(handle) = subject(request)
        {
            self.cache.invalidate(handle);
        }
    }
}

/// The file that a request is about.
fn subject(request: &Request) -> Option<&Handle> {
    match request {
        Request::Lookup { dir, .. } | Request::List { dir, .. } => Some(dir),
        Request::Getattr { handle }
        | Request::Readlink { handle }
        | Request::Open { handle }
        | Request::Statfs { handle }
        | Request::Getxattr { handle, .. }
        | Request::Listxattr { handle } => Some(handle),
        Request::Attach | Request::Read { .. } | Request::Release { .. } | Request::Stats => None,
    }
}

/// Refuses what can never be the name of an entry, before it costs anything.
fn check_name(name: &[u8]) -> Result<(), Failure> {
    if name.len() > NAME_LEN_MAX {
        let detail = format!("a name of {} bytes, over the limit of {NAME_LEN_MAX}", name.len());
        return Err(Failure::new(Status::NameTooLong, detail));
    }
    if !is_valid_name(name) {
        return Err(Failure::new(
            Status::InvalidArgument,
            format!(
                "{:?} is not the name of an entry: look up one component, not `.` or `..`",
                String::from_utf8_lossy(name)
            ),
        ));
    }
    Ok(())
}
