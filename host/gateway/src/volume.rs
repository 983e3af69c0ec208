//! What the gateway serves: bricks behind a dentry cache, and clients that are told of changes.
//!
//! Cached verbs ask the cache first: a hit answers without a lock beyond the cache's own and those
//! of the client's watches. A miss leads or joins a fill (`fills`), a listing leads or joins a scan
//! (`scans`). Every other verb is passed through, with the brick's deadline. Without a lease at every
//! brick that is there, everything is passed through, and nothing is filled.
//!
//! What must hold: whatever a client that watches is told, it watches: from before it was read, or
//! it is read again where it changed in between.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use portcullis_core::cache::DentryCache;
use portcullis_core::entry::is_valid_name;
use portcullis_core::limits::NAME_LEN_MAX;
use portcullis_core::watch::{Change, Watched};
use portcullis_core::{Entry, Handle, Status};
use portcullis_transport::Watching;
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{Reply, Request};
use tokio::sync::oneshot;

use crate::ahead::AheadShared;
use crate::bricks::Bricks;
use crate::clients::Clients;
use crate::clock::Clock;
use crate::coherence::WatchCounters;
use crate::copies_ahead::CopiesAhead;
use crate::fills::Seat;
use crate::inlining::Inlining;
use crate::kept_answers::KeptAnswers;
use crate::leases::Leases;
use crate::lockers::Lockers;
use crate::own_ops::OwnOps;
use crate::scans::Scans;
use crate::space::LastStatfs;
use crate::steps::Led;
use crate::touches::Touches;
use crate::waits::Waits;

/// Whoever waits for a fill.
pub(crate) type Waiter = oneshot::Sender<Result<Reply, Failure>>;
/// The cache of a gateway.
pub(crate) type Cache = DentryCache<Waiter>;
/// How often an entry is looked up again that changes all the time; after that it is told without
/// its attributes.
const LOOKUPS_MAX: usize = 4;

/// Bricks behind a cache.
pub(crate) struct Volume {
    pub(crate) cache: Arc<Cache>,
    pub(crate) bricks: Bricks,
    pub(crate) leases: Leases,
    pub(crate) own_ops: Arc<OwnOps>,
    pub(crate) led: Led,
    pub(crate) kept_answers: KeptAnswers,
    pub(crate) touches: Touches,
    pub(crate) copies_ahead: CopiesAhead,
    pub(crate) scans: Scans,
    pub(crate) ahead: AheadShared,
    pub(crate) inlining: Inlining,
    pub(crate) watching: Arc<Watching>,
    pub(crate) counters: WatchCounters,
    pub(crate) clients: Clients,
    pub(crate) lockers: Lockers,
    pub(crate) last_statfs: LastStatfs,
    pub(crate) waits: Waits,
    /// Some client wants to know which files have no access control lists.
    pub(crate) wants_acl: AtomicBool,
    /// Bytes that the cache may hold.
    pub(crate) capacity_bytes: u64,
    clock: Clock,
}

impl Volume {
    /// A volume of these bricks. Call it within a tokio runtime.
    pub(crate) fn new(
        cache: Arc<Cache>,
        bricks: Bricks,
        (ahead, inlining): (AheadShared, Inlining),
        capacity_bytes: u64,
        clock: Clock,
    ) -> Self {
        Self {
            cache,
            leases: Leases::new(bricks.all().len()),
            own_ops: OwnOps::new(bricks.first().client),
            led: Led::default(),
            kept_answers: KeptAnswers::default(),
            touches: Touches::default(),
            copies_ahead: CopiesAhead::default(),
            bricks,
            scans: Scans::new(),
            ahead,
            inlining,
            watching: Watching::start(),
            counters: WatchCounters::default(),
            clients: Clients::default(),
            lockers: Lockers::default(),
            last_statfs: LastStatfs::default(),
            waits: Waits::default(),
            wants_acl: AtomicBool::new(false),
            capacity_bytes,
            clock,
        }
    }

    /// Monotonic time, as the cache counts it.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Whether answers may come from the cache, and fill it.
    pub(crate) fn may_cache(&self) -> bool {
        self.leases.left_ms(self.now_ms()) > 0
    }

    /// The entry `name` of `dir`.
    pub(crate) async fn lookup(
        self: &Arc<Self>,
        watched: Option<&Watched>,
        dir: Handle,
        name: Vec<u8>,
    ) -> Result<Reply, Failure> {
        check_name(&name)?;
        let Some(watched) = watched else { return self.find(dir, &name).await };
        let mut lookups = 1;
        loop {
            let reading = self.watching.grantor().read();
            watched.watch_names(&dir);
            let mut reply = self.find(dir, &name).await?;
            let Reply::Entry(entry) = &mut reply else { return Ok(reply) };
            watched.watch_attr(&entry.handle);
            if self.watching.grantor().attr_changed_since(reading, &entry.handle) {
                if lookups < LOOKUPS_MAX {
                    lookups += 1;
                    continue;
                }
                entry.attr = None;
            }
            return Ok(reply);
        }
    }

    async fn find(self: &Arc<Self>, dir: Handle, name: &[u8]) -> Result<Reply, Failure> {
        let request = || Request::Lookup { dir, name: name.to_vec() };
        if !self.may_cache() {
            return self.ask(&request()).await;
        }
        let mut seat = Seat::default();
        let answer = self.cache.lookup(self.now_ms(), &dir, name, || seat.take());
        self.settle(answer, seat, Reply::Entry, request).await
    }

    /// The attributes of `handle`.
    pub(crate) async fn getattr(
        self: &Arc<Self>,
        watched: Option<&Watched>,
        handle: Handle,
    ) -> Result<Reply, Failure> {
        if let Some(watched) = watched {
            watched.watch_attr(&handle);
        }
        if !self.may_cache() {
            return self.ask(&Request::Getattr { handle }).await;
        }
        let mut seat = Seat::default();
        let answer = self.cache.getattr(self.now_ms(), &handle, || seat.take());
        self.settle(answer, seat, Reply::Attr, || Request::Getattr { handle }).await
    }

    /// The target of the link `handle`, which never changes.
    pub(crate) async fn readlink(self: &Arc<Self>, handle: Handle) -> Result<Reply, Failure> {
        if !self.may_cache() {
            return self.ask(&Request::Readlink { handle }).await;
        }
        let mut seat = Seat::default();
        let answer = self.cache.readlink(self.now_ms(), &handle, || seat.take());
        self.settle(answer, seat, Reply::Target, || Request::Readlink { handle }).await
    }

    /// The root directory: its handle from the session, its attributes as fresh as any others.
    pub(crate) async fn root(
        self: &Arc<Self>,
        watched: Option<&Watched>,
        handle: Handle,
    ) -> Result<Entry, Failure> {
        match self.getattr(watched, handle).await? {
            Reply::Attr(attr) => {
                Ok(Entry { handle, attr: Some(attr), kind: attr.kind(), target: None })
            }
            _ => Err(self.bricks.of(&handle).nonsense(Verb::Getattr)),
        }
    }

    /// Asks the brick that knows, cache or no cache.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Reply, Failure> {
        let deadline = self.bricks.deadline();
        let result = match request {
            Request::Lookup { dir, name } => self.ask_name(dir, name, deadline).await,
            _ => self.bricks.of_request(request).call(request, deadline).await,
        };
        result.inspect_err(|failure| self.note(request, failure))
    }

    /// Draws the consequence of a failure that a brick told: a file that is gone is forgotten.
    pub(crate) fn note(&self, request: &Request, failure: &Failure) {
        if failure.status == Status::Stale
            && let Some(handle) = subject(request)
        {
            self.inlining.contents.forget(&[Change::Attr { handle: *handle }]);
            self.cache.invalidate(handle);
        }
    }
}

/// The file that a request is about.
pub(crate) fn subject(request: &Request) -> Option<&Handle> {
    match request {
        Request::Lookup { dir, .. } | Request::List { dir, .. } | Request::Fsyncdir { dir } => {
            Some(dir)
        }
        Request::Getattr { handle }
        | Request::Readlink { handle }
        | Request::Open { handle, .. }
        | Request::Statfs { handle }
        | Request::Getxattr { handle, .. }
        | Request::Listxattr { handle } => Some(handle),
        _ => None,
    }
}

/// Refuses what can never be the name of an entry, before it costs anything.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Failure> {
    if name.len() > NAME_LEN_MAX {
        let detail = format!("a name of {} bytes, over the limit of {NAME_LEN_MAX}", name.len());
        return Err(Failure::new(Status::NameTooLong, detail));
    }
    if !is_valid_name(name) {
        return Err(Failure::new(
            Status::InvalidArgument,
            format!(
                "{:?} is not the name of an entry: name one component, not `.` or `..`",
                String::from_utf8_lossy(name)
            ),
        ));
    }
    Ok(())
}
