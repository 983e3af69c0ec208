//! What the mount itself remembers of names, attributes and listings, so that the kernel is answered
//! without the gateway when it asks again: after what it was told has run out, or after a new epoch.
//! A listing enters chunk by chunk as it passes ([`Learning`]); once its end was said it answers
//! the next listing, lookups of its names, and that there are no others.
//!
//! It holds for as long as the session's lease does, and only where the brick tells of changes.
//! What is recalled is forgotten here, too, and what a mutation of our own brought is learnt: in a
//! directory that was made through this mount, a name that it did not make is known to be absent.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::cache::{
    Answer, CacheConfig, CacheCounters, DentryCache, Filled, Learnt, ListedChunk, ListingStamp,
    ListingTicket, MutationStamp, Ticket,
};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Chunk, Entry, Handle};
use tokio::time::Instant;

use crate::Client;

/// How long something is remembered at most.
const AGE_MS_MAX: u64 = 600_000;

/// See the module.
pub(super) struct Memory {
    /// `None` where nothing is to be remembered.
    cache: Option<Arc<DentryCache<()>>>,
    started: Instant,
    /// The connection that all of it was told over.
    epoch: Mutex<u64>,
}

/// What is remembered.
pub(super) enum Known<T> {
    /// This.
    This(T),
    /// That there is no such name.
    Absent,
    /// Nothing; what the gateway answers may be filled in.
    Nothing(Option<Filling>),
}

/// The right to fill in an answer. Dropping it fills in nothing.
pub(super) struct Filling {
    cache: Arc<DentryCache<()>>,
    ticket: Option<Ticket>,
    started: Instant,
}

impl Filling {
    /// Fills in what the gateway answered, unless it was recalled meanwhile.
    pub(super) fn fill(mut self, filled: &Filled) {
        self.end(filled);
    }

    fn end(&mut self, filled: &Filled) {
        if let Some(ticket) = self.ticket.take() {
            let now_ms = self.started.elapsed().as_millis() as u64;
            // Nobody waits for it: each asks for itself.
            let _ = self.cache.fill(now_ms, ticket, filled);
        }
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.end(&Filled::Failed);
    }
}

/// The right to take in a listing that is asked for from its start. Dropping it leaves what came of
/// it, and says nothing of names that did not come.
pub(super) struct Learning {
    cache: Arc<DentryCache<()>>,
    ticket: Option<ListingTicket>,
    /// The connection over which it was asked.
    epoch: u64,
}

impl Learning {
    /// When the listing was asked for, and over which connection; `None` once it ended.
    pub(super) fn asked(&self) -> Option<(ListingStamp, u64)> {
        self.ticket.as_ref().map(|ticket| (ticket.stamp(), self.epoch))
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.cache.abandon_listing(ticket);
        }
    }
}

impl Memory {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let seed = RandomState::new().hash_one(capacity_bytes);
        let config = CacheConfig { capacity_bytes, max_age_ms: AGE_MS_MAX, seed };
        let cache = (capacity_bytes > 0).then(|| Arc::new(DentryCache::new(config)));
        Self { cache, started: Instant::now(), epoch: Mutex::new(0) }
    }

    /// The entry `name` of `dir`.
    pub(super) fn lookup(&self, client: &Client, dir: &Handle, name: &[u8]) -> Known<Entry> {
        let Some(cache) = self.holding(client) else { return Known::Nothing(None) };
        self.known(cache, cache.lookup(self.now_ms(), dir, name, || ()))
    }

    /// The attributes of a file.
    pub(super) fn getattr(&self, client: &Client, handle: &Handle) -> Known<Attr> {
        let Some(cache) = self.holding(client) else { return Known::Nothing(None) };
        self.known(cache, cache.getattr(self.now_ms(), handle, || ()))
    }

    /// The whole listing of a directory, in its order. Attributes may be missing: the kernel looks up
    /// what it needs.
    pub(super) fn list(&self, client: &Client, dir: &Handle) -> Option<Vec<ListedChunk>> {
        self.holding(client)?.list(self.now_ms(), dir, &[])
    }

    /// Call it before a listing is asked for from its start; `None` where it is not to be kept.
    pub(super) fn begin_listing(&self, client: &Client, dir: &Handle) -> Option<Learning> {
        let cache = self.holding(client)?.clone();
        let epoch = *self.epoch.lock();
        let ticket = Some(cache.begin_listing(dir));
        Some(Learning { cache, ticket, epoch })
    }

    /// As [`Memory::begin_listing`], for a listing that the kernel has not asked for.
    pub(super) fn begin_listing_ahead(&self, client: &Client, dir: &Handle) -> Option<Learning> {
        let cache = self.holding(client)?.clone();
        let epoch = *self.epoch.lock();
        let ticket = Some(cache.begin_listing_ahead(dir));
        Some(Learning { cache, ticket, epoch })
    }

    /// Whether all of a directory is known, without using it.
    pub(super) fn has_listing(&self, client: &Client, dir: &Handle) -> bool {
        self.holding(client).is_some_and(|cache| cache.has_listing(self.now_ms(), dir))
    }

    /// Whether a listing that was asked for then has the names of the directory as they are now.
    pub(super) fn names_hold(&self, asked: ListingStamp, dir: &Handle) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.names_hold(asked, dir))
    }

    /// Takes in the next chunk of a listing.
    pub(super) fn fill_chunk(&self, learning: &mut Learning, chunk: &Chunk) {
        if let Some(ticket) = &mut learning.ticket {
            learning.cache.fill_chunk(self.now_ms(), ticket, chunk);
        }
    }

    /// The end of a listing was said; `complete` as it was said. One that went on over another
    /// connection is not whole: what was told over the first is not recalled any more.
    pub(super) fn finish_listing(&self, client: &Client, mut learning: Learning, complete: bool) {
        if client.recalling_epoch() == Some(learning.epoch)
            && let Some(ticket) = learning.ticket.take()
        {
            learning.cache.finish_listing(self.now_ms(), ticket, complete);
        }
    }

    /// What it holds, and how often it could answer.
    pub(super) fn counters(&self) -> Option<CacheCounters> {
        self.cache.as_ref().map(|cache| cache.counters())
    }

    /// Forgets what is no longer true.
    pub(super) fn forget(&self, changes: &[Change]) {
        if let Some(cache) = &self.cache {
            cache.forget(changes);
        }
    }

    /// Call it before a mutation is asked for.
    pub(super) fn before(&self) -> Option<MutationStamp> {
        self.cache.as_ref().map(|cache| cache.begin_mutation())
    }

    /// A mutation was answered.
    pub(super) fn learn(
        &self,
        before: Option<MutationStamp>,
        changes: &[Change],
        learnt: &[Learnt],
    ) {
        if let (Some(cache), Some(before)) = (&self.cache, before) {
            cache.learn(self.now_ms(), before, changes, learnt);
        }
    }

    /// The cache, where it may be answered from. What an earlier connection told is forgotten
    /// first; fills that are on their way from there come too late then.
    fn holding(&self, client: &Client) -> Option<&Arc<DentryCache<()>>> {
        let cache = self.cache.as_ref()?;
        let epoch = client.recalling_epoch()?;
        let mut told_over = self.epoch.lock();
        if *told_over != epoch {
            cache.forget(&[Change::All]);
            *told_over = epoch;
        }
        Some(cache)
    }

    fn known<T>(&self, cache: &Arc<DentryCache<()>>, answer: Answer<T>) -> Known<T> {
        match answer {
            Answer::Hit(answer) => Known::This(answer),
            Answer::Negative => Known::Absent,
            Answer::Joined | Answer::Busy => Known::Nothing(None),
            Answer::Lead(ticket) => {
                let (cache, started) = (cache.clone(), self.started);
                Known::Nothing(Some(Filling { cache, ticket: Some(ticket), started }))
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}
