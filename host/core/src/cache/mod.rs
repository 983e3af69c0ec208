//! The dentry cache: entries, absent names and whole listings, bounded by bytes.
//!
//! Of a listing names and attributes can leave apart ([`weigh`]): attributes first, and what is left
//! is a listing all the same ([`listing`]). What changes in it is changed where it lies
//! ([`rewrite`]).
//!
//! Sharded by directory; each shard ([`shard`]) has one lock ([`lock`]). A request looks up with it
//! held shared; where nothing is known, it looks again with it held exclusively, and joins the fill
//! on its way or leads a new one ([`flights`]). Listings fill the cache from their chunks as these
//! pass through ([`runs`]). Every fill is fenced ([`fence`]): what was asked before an invalidation
//! does not come in after it, and what leaves is decided in [`forget`]; what came of a mutation is
//! taken in by [`learn`]. Objects, hits and what an eviction policy is told are kept by the
//! [`ledger`]; a fill that needs room takes victims from the [`reserve`], and where that is empty
//! chooses by itself ([`host`]). Whoever listens is told what happens by the [`tap`].
//!
//! A lookup in a large cache costs what its reads of memory cost that depend on one another: of the
//! directory ([`dirs`]), of the name's position ([`names`], [`index`]), of the entry.
//!
//! What must hold: an answer from here was true at some moment since the last invalidation of
//! what it concerns; "no such name" comes only from a brick's own answer or from a listing that
//! said its end and lost nothing since; memory stays within the capacity, up to the fills under
//! way. Lock order: a shard, then the index by handle; never two shards.

mod access;
#[cfg(test)]
mod ahead_tests;
mod common;
mod counters;
mod dir;
mod dirs;
pub(crate) mod fence;
mod flights;
mod forget;
mod forget_member;
mod host;
mod index;
mod learn;
mod ledger;
mod listing;
#[cfg(test)]
mod listing_tests;
mod lock;
mod names;
mod nodes;
mod reserve;
mod rewrite;
mod runs;
mod shard;
#[cfg(test)]
mod sharing_tests;
mod slot;
#[cfg(test)]
mod split_tests;
mod tap;
#[cfg(test)]
mod tap_tests;
#[cfg(test)]
mod tests;
mod weigh;

use crate::attr::Attr;
use crate::chunk::Chunk;
use crate::entry::Entry;
use crate::eviction::Class;
use crate::handle::Handle;
use crate::limits::{CACHE_BYTES_MIN, CACHE_SHARDS};
use crate::trace::{Operation, What};

use common::{COUNTED_WEIGHT_BYTES, Common};
pub use counters::CacheCounters;
use counters::count;
use fence::Asked;
pub use flights::Ticket;
use flights::{FillKey, Role};
pub use host::CacheHalf;
pub use learn::{Learnt, MutationStamp};
use lock::StripedLock;
use reserve::Reserve;
use shard::{Found, Shard};
pub use tap::{Listener, TapConfig, TapNames};

/// How a cache is set up.
#[derive(Clone, Copy, Debug)]
pub struct CacheConfig {
    /// Bytes it may hold, at least [`CACHE_BYTES_MIN`].
    pub capacity_bytes: u64,
    /// How long after its fill something may be answered.
    pub max_age_ms: u64,
    /// Seed of its hashes; random in production, so that nobody can choose colliding names.
    pub seed: u64,
}

/// What the cache answers.
#[derive(Debug)]
pub enum Answer<T> {
    /// Known.
    Hit(T),
    /// Known not to exist.
    Negative,
    /// Not known; the waiter joined the fill on its way.
    Joined,
    /// Not known, and nobody asks yet: whoever gets this asks the brick, and ends the flight with
    /// [`DentryCache::fill`] whatever comes of it.
    Lead(Ticket),
    /// Not known, and a limit on fills or waiters is reached.
    Busy,
}

/// What a flight brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filled {
    /// The entry of a name.
    Entry(Entry),
    /// Attributes.
    Attr(Attr),
    /// A link target: not kept here, since it travels with entries.
    Target(Vec<u8>),
    /// There is no such name.
    Absent,
    /// Nothing: the brick could not be asked, or answered with another failure.
    Failed,
}

/// A piece of a listing from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChunk {
    /// The entries.
    pub chunk: Chunk,
    /// Entries whose attributes are missing here and have to be asked for, a bit each.
    pub missing: u128,
}

/// The right to fill a directory from a listing that was asked from its start.
#[derive(Debug)]
pub struct ListingTicket {
    dir: Handle,
    asked: Asked,
    class: Class,
    listing: u64,
    runs: usize,
    kept_bytes: u64,
    keeping: bool,
}

/// When a listing was asked for: whether it may be joined ([`DentryCache::may_join`]).
#[derive(Clone, Copy, Debug)]
pub struct ListingStamp {
    asked: Asked,
}

impl ListingTicket {
    /// When this listing was asked for.
    pub fn stamp(&self) -> ListingStamp {
        ListingStamp { asked: self.asked }
    }
}

/// A cache for many threads. `W` is whoever waits for a fill.
pub struct DentryCache<W> {
    common: Common,
    shards: Box<[StripedLock<Shard<W>>]>,
    /// Of the halves; where the cache is whole, the first is all of it.
    reserves: [Reserve; 2],
    evictions: host::Evictions,
}

impl<W> DentryCache<W> {
    /// An empty cache. A capacity under [`CACHE_BYTES_MIN`] is raised to it.
    pub fn new(config: CacheConfig) -> Self {
        let capacity_bytes = config.capacity_bytes.max(CACHE_BYTES_MIN);
        Self::with(Common::new(CacheConfig { capacity_bytes, ..config }, false))
    }

    /// An empty cache of so many entries, whatever they take: all objects weigh the same, and
    /// `capacity_bytes` is not looked at. For comparisons with replays, whose capacities count alike.
    pub fn of_entries(entries: u64, config: CacheConfig) -> Self {
        let capacity_bytes = entries.saturating_mul(u64::from(COUNTED_WEIGHT_BYTES));
        Self::with(Common::new(CacheConfig { capacity_bytes, ..config }, true))
    }

    fn with(common: Common) -> Self {
        Self {
            common,
            shards: (0..CACHE_SHARDS).map(|number| StripedLock::new(Shard::new(number))).collect(),
            reserves: Default::default(),
            evictions: host::Evictions::default(),
        }
    }

    /// The entry `name` of `dir`. `waiter` is called where the request has to wait.
    pub fn lookup(
        &self,
        now_ms: u64,
        dir: &Handle,
        name: &[u8],
        waiter: impl FnOnce() -> W,
    ) -> Answer<Entry> {
        let common = &self.common;
        let hash = common.hash(dir.as_bytes());
        let lock = &self.shards[Common::shard_of(hash)];
        self.note_time(now_ms);
        {
            let shard = lock.read();
            if let Some(answer) = self.known(shard.find(common, now_ms, hash, dir, name)) {
                return answer;
            }
        }
        // Looked at again under the lock that guards the flight.
        let mut shard = lock.write();
        if let Some(answer) = self.known(shard.find(common, now_ms, hash, dir, name)) {
            return answer;
        }
        shard.counters.lookup_misses += 1;
        self.enter(&mut shard, FillKey::Lookup(*dir, name.into()), waiter)
    }

    /// Counts what was found, and answers it; `None` where nothing is known.
    #[inline]
    fn known(&self, found: Found<'_>) -> Option<Answer<Entry>> {
        match found {
            Found::Entry(chunk, offset) => {
                count(&self.common.hits().lookup);
                Some(Answer::Hit(chunk.to_entry_at(offset)))
            }
            Found::Absent => {
                count(&self.common.hits().negative);
                Some(Answer::Negative)
            }
            Found::Unknown => None,
        }
    }

    /// The attributes of `handle`, wherever they are cached.
    pub fn getattr(
        &self,
        now_ms: u64,
        handle: &Handle,
        waiter: impl FnOnce() -> W,
    ) -> Answer<Attr> {
        self.note_time(now_ms);
        let place =
            self.find_place(now_ms, handle, Operation::Getattr).and_then(|entry| entry.attr);
        let lock = self.shard(handle);
        let own = || lock.read().find_own(&self.common, now_ms, handle);
        if let Some(attr) = place.or_else(own) {
            count(&self.common.hits().getattr);
            return Answer::Hit(attr);
        }
        // Looked at again under the lock that guards the flight.
        let mut shard = lock.write();
        if let Some(attr) = shard.find_own(&self.common, now_ms, handle) {
            count(&self.common.hits().getattr);
            return Answer::Hit(attr);
        }
        shard.counters.getattr_misses += 1;
        self.enter(&mut shard, FillKey::Getattr(*handle), waiter)
    }

    /// The target of the link `handle`.
    pub fn readlink(
        &self,
        now_ms: u64,
        handle: &Handle,
        waiter: impl FnOnce() -> W,
    ) -> Answer<Vec<u8>> {
        self.note_time(now_ms);
        let target =
            self.find_place(now_ms, handle, Operation::Readlink).and_then(|entry| entry.target);
        if let Some(target) = target {
            count(&self.common.hits().readlink);
            return Answer::Hit(target);
        }
        let mut shard = self.shard(handle).write();
        shard.counters.readlink_misses += 1;
        self.enter(&mut shard, FillKey::Readlink(*handle), waiter)
    }

    /// Bytes that it may hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.common.config.capacity_bytes
    }

    /// Ends a flight: caches what it brought unless that is late, and gives back who waits for it,
    /// the leader's waiter among them.
    pub fn fill(&self, now_ms: u64, ticket: Ticket, filled: &Filled) -> Vec<W> {
        let handle = *ticket.key.handle();
        let refreshed = match (&ticket.key, filled) {
            (FillKey::Getattr(_), Filled::Attr(attr)) => {
                self.refresh(now_ms, ticket.asked, &handle, attr)
            }
            _ => false,
        };
        let waiters = {
            let mut shard = self.shard(&handle).write();
            shard.filled_for = match &ticket.key {
                FillKey::Lookup(..) => Operation::Lookup,
                FillKey::Getattr(_) => Operation::Getattr,
                FillKey::Readlink(_) => Operation::Readlink,
            };
            let late = self.is_late(&ticket, filled);
            match (&ticket.key, filled) {
                (_, Filled::Failed | Filled::Target(_)) => {}
                _ if late => shard.counters.fills_late += 1,
                (FillKey::Lookup(dir, name), Filled::Entry(entry)) => {
                    shard.insert_single(&self.common, now_ms, dir, name, entry);
                }
                (FillKey::Lookup(dir, name), Filled::Absent) => {
                    shard.insert_negative(&self.common, now_ms, dir, name);
                }
                (FillKey::Getattr(handle), Filled::Attr(attr)) => {
                    shard.take_own(&self.common, now_ms, handle, attr, refreshed);
                }
                _ => debug_assert!(false, "{filled:?} does not answer {:?}", ticket.key),
            }
            shard.flights().leave(&ticket)
        };
        self.make_room();
        waiters
    }

    /// Whether the whole listing of `dir` is known, without using it.
    pub fn has_listing(&self, now_ms: u64, dir: &Handle) -> bool {
        self.shard(dir).read().has_listing(&self.common, now_ms, dir)
    }

    /// Notes that a listing of `dir` from its start is about to be asked for.
    pub fn begin_listing(&self, dir: &Handle) -> ListingTicket {
        self.begin_listing_of(dir, Class::Listed)
    }

    /// As [`DentryCache::begin_listing`], for one that nobody has asked for: eviction is told so.
    pub fn begin_listing_ahead(&self, dir: &Handle) -> ListingTicket {
        self.begin_listing_of(dir, Class::Prefetched)
    }

    fn begin_listing_of(&self, dir: &Handle, class: Class) -> ListingTicket {
        let asked = self.common.fence.ask();
        let listing = self.shard(dir).write().number_listing();
        ListingTicket { dir: *dir, asked, class, listing, runs: 0, kept_bytes: 0, keeping: true }
    }

    /// Whether a listing that was asked for then has all names of `dir` that it has now, and no
    /// others. Attributes may have changed since.
    pub fn names_hold(&self, stamp: ListingStamp, dir: &Handle) -> bool {
        !self.common.fence.is_late(stamp.asked, &[self.common.listing_mark(dir)])
    }

    /// Whether whoever lists now may share the listing that was asked for then: not when anything
    /// was invalidated since, for that may concern one of its entries.
    pub fn may_join(&self, stamp: ListingStamp) -> bool {
        self.common.fence.is_current(stamp.asked)
    }

    /// Caches the next chunk of a listing as it passes through.
    pub fn fill_chunk(&self, now_ms: u64, ticket: &mut ListingTicket, chunk: &Chunk) {
        if !ticket.keeping {
            return;
        }
        {
            let mut shard = self.shard(&ticket.dir).write();
            shard.filled_for = Operation::List;
            if self.is_listing_late(ticket) {
                shard.counters.fills_late += 1;
                shard.abandon_runs(&self.common, &ticket.dir, ticket.listing, true);
                ticket.keeping = false;
                return;
            }
            ticket.kept_bytes += chunk.bytes().len() as u64;
            let extent = self.common.extent_of(shard.number);
            if ticket.kept_bytes > self.common.capacity_bytes(extent) / 8 * 7 {
                // It would displace everything else, itself in the end.
                shard.abandon_runs(&self.common, &ticket.dir, ticket.listing, true);
                ticket.keeping = false;
                return;
            }
            let stale = self.late_entries(ticket.asked, chunk);
            ticket.keeping = shard.insert_run(
                &self.common,
                now_ms,
                &ticket.dir,
                ticket.listing,
                ticket.runs == 0,
                (chunk.detached(), ticket.class),
                stale,
            );
            ticket.runs += 1;
        }
        self.make_room();
    }

    /// Ends a listing whose end was said; `complete` as it was said. A listing that failed is ended
    /// by [`DentryCache::abandon_listing`].
    pub fn finish_listing(&self, now_ms: u64, ticket: ListingTicket, complete: bool) {
        {
            let mut shard = self.shard(&ticket.dir).write();
            if !ticket.keeping {
                return;
            }
            shard.filled_for = Operation::List;
            if self.is_listing_late(&ticket) {
                shard.counters.fills_late += 1;
                shard.abandon_runs(&self.common, &ticket.dir, ticket.listing, true);
                return;
            }
            let ListingTicket { dir, listing, runs, .. } = &ticket;
            shard.finish_runs(&self.common, now_ms, dir, *listing, *runs, complete);
        }
        self.make_room();
    }

    /// Ends a listing that failed or was given up. Its entries stay, its completeness is not known.
    pub fn abandon_listing(&self, ticket: ListingTicket) {
        let mut shard = self.shard(&ticket.dir).write();
        shard.abandon_runs(&self.common, &ticket.dir, ticket.listing, false);
    }

    /// The number of the shard that has what is known of a directory, or of a file's own attributes.
    pub fn shard_of(&self, handle: &Handle) -> usize {
        Common::shard_of(self.common.hash(handle.as_bytes()))
    }

    fn shard(&self, handle: &Handle) -> &StripedLock<Shard<W>> {
        &self.shards[self.shard_of(handle)]
    }

    /// Takes in attributes wherever the file is listed, unless they changed since `asked`. Answers
    /// whether they are known in such a place now.
    fn refresh(&self, now_ms: u64, asked: Asked, handle: &Handle, attr: &Attr) -> bool {
        let marks = [self.common.attr_mark(handle)];
        let mut refreshed = false;
        for place in self.common.nodes.candidates(self.common.hash(handle.as_bytes())) {
            let mut shard = self.shards[place.shard as usize].write();
            // Under the lock of its place: who changes them takes it after raising the fence.
            if !self.common.fence.is_late(asked, &marks) {
                refreshed |= shard.refresh_place(&self.common, now_ms, place, handle, attr);
            }
        }
        refreshed
    }

    fn find_place(&self, now_ms: u64, handle: &Handle, operation: Operation) -> Option<Entry> {
        let places = self.common.nodes.candidates(self.common.hash(handle.as_bytes()));
        places.into_iter().find_map(|place| {
            let shard = self.shards[place.shard as usize].read();
            shard.find_place(&self.common, now_ms, place, handle, operation)
        })
    }

    /// Whether something that the flight brought was invalidated after it was asked for.
    fn is_late(&self, ticket: &Ticket, filled: &Filled) -> bool {
        let Common { fence, .. } = &self.common;
        let late = match &ticket.key {
            FillKey::Lookup(dir, name) => {
                fence.is_late(ticket.asked, &self.common.name_marks(dir, name))
            }
            FillKey::Getattr(handle) | FillKey::Readlink(handle) => {
                fence.is_late(ticket.asked, &[self.common.attr_mark(handle)])
            }
        };
        late || matches!(filled, Filled::Entry(entry)
            if fence.is_late(ticket.asked, &[self.common.attr_mark(&entry.handle)]))
    }

    fn is_listing_late(&self, ticket: &ListingTicket) -> bool {
        self.common.fence.is_late(ticket.asked, &[self.common.listing_mark(&ticket.dir)])
    }

    /// Entries of `chunk` whose attributes were invalidated after it was asked for, a bit each.
    fn late_entries(&self, asked: Asked, chunk: &Chunk) -> u128 {
        (0..chunk.count()).fold(0, |late, entry| {
            let is_late = Handle::new(chunk.handle_bytes(entry)).is_none_or(|handle| {
                let mark = self.common.attr_mark(&handle);
                self.common.fence.is_late(asked, &[mark])
            });
            late | u128::from(is_late) << entry
        })
    }

    /// Tells those who listen what time it is.
    #[inline]
    fn note_time(&self, now_ms: u64) {
        if self.common.is_observed() {
            self.common.tap.set_now(now_ms);
        }
    }

    fn enter<T>(
        &self,
        shard: &mut Shard<W>,
        key: FillKey,
        waiter: impl FnOnce() -> W,
    ) -> Answer<T> {
        let seen = self.common.is_tapped().then(|| key.clone());
        let role = shard.flights().enter(key, self.common.fence.ask(), waiter);
        if let Some(key) = seen {
            let what = if matches!(role, Role::Joined) { What::Joined } else { What::Missed };
            let (operation, name) = match &key {
                FillKey::Lookup(_, name) => (Operation::Lookup, Some(&**name)),
                FillKey::Getattr(_) => (Operation::Getattr, None),
                FillKey::Readlink(_) => (Operation::Readlink, None),
            };
            self.common.saw(shard.number, what, operation, key.handle(), name);
        }
        match role {
            Role::Joined => {
                shard.counters.fills_joined += 1;
                Answer::Joined
            }
            Role::Lead(ticket) => Answer::Lead(ticket),
            Role::Busy => Answer::Busy,
        }
    }
}
