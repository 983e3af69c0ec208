//! Eviction: what a policy sees of the cache and what it answers.
//!
//! The cache keeps **objects**: the names of a chunk of a listing, its attributes, or a single
//! entry, each with an id, a weight and a class. A policy is told of them in batches of [`Event`]s
//! and proposes victims; the host decides. Three parties meet here:
//!
//! - the **host** ([`EvictionHost`]: the cache, or a replay of a trace) owns the objects, counts
//!   their hits and keeps a reserve of victims, so that no request waits for a policy;
//! - a **policy** ([`EvictionPolicy`]) orders the objects; native ones are in this module, and a
//!   WebAssembly component is one too, behind an adapter in `host/policy`; [`native`] has their
//!   names;
//! - the **driver** (`host/policy`) carries batches between them on a thread of its own.
//!
//! What must hold: every insert, removal and sparing reaches the policy exactly once and in the
//! order in which it happened to that object; hits may be folded together or dropped.

pub mod fifo;
pub mod gdsf;
mod line;
pub mod lru;
pub mod native;
mod nodes;
pub mod s3fifo;
pub mod sieve;
#[cfg(test)]
mod testing;
pub mod w_tinylfu;

use std::fmt;

/// Second chances that one call of `propose` of a native policy gives, so that it takes bounded
/// time.
const CHANCES_MAX: usize = 65_536;

/// An object of the cache: slot (upper 32 bits) and generation of that slot (lower 32 bits).
/// A slot is used again with another generation, so an id never comes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The id of `slot` in its `generation`-th use.
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self((slot as u64) << 32 | generation as u64)
    }

    /// The slot.
    pub const fn slot(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Which use of the slot this is.
    pub const fn generation(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

/// Why an object is in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// A client asked for it by name.
    Asked = 0,
    /// It came with a listing.
    Listed = 1,
    /// It was fetched ahead.
    Prefetched = 2,
}

/// Why an object left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Removal {
    /// To make room: a policy's proposal, or the host's own choice in a shortfall.
    Evicted = 0,
    /// Its content was no longer true, or was replaced.
    Invalidated = 1,
}

/// Something that happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It came into the cache.
    Insert {
        /// The object.
        id: ObjectId,
        /// Hash of what the object stands for: the same content evicted and fetched again has
        /// another id but the same key, which is what a ghost list remembers.
        key: u64,
        /// Why it came.
        class: Class,
        /// Bytes it takes.
        weight_bytes: u32,
    },
    /// It was hit, once or several times since the last event of this kind.
    Hit {
        /// The object.
        id: ObjectId,
        /// How often, folded.
        count: u32,
    },
    /// It left the cache.
    Remove {
        /// The object.
        id: ObjectId,
        /// Why it left.
        reason: Removal,
    },
    /// The policy proposed it, but the host keeps it (it was touched since, or something else had to
    /// leave first): it is an ordinary resident again.
    Spare {
        /// The object.
        id: ObjectId,
    },
}

impl Event {
    /// Words of a packed event: id, key, and `weight << 32 | count-or-detail << 8 | kind`, where
    /// detail is the class of an insert and the reason of a removal.
    pub const WORDS: usize = 3;

    /// The packed form that crosses into a component (`wit/README.md`).
    pub fn pack(&self) -> [u64; Self::WORDS] {
        match *self {
            Event::Insert { id, key, class, weight_bytes } => {
                [id.0, key, u64::from(weight_bytes) << 32 | (class as u64) << 8]
            }
            Event::Hit { id, count } => [id.0, 0, u64::from(count.min(0xff_ffff)) << 8 | 1],
            Event::Remove { id, reason } => [id.0, 0, (reason as u64) << 8 | 2],
            Event::Spare { id } => [id.0, 0, 3],
        }
    }

    /// The event of a packed form, `None` where its kind is unknown. An object of an unknown class is
    /// there all the same, and one that left for an unknown reason is gone.
    pub fn unpack(words: [u64; Self::WORDS]) -> Option<Self> {
        let [id, key, meta] = words;
        let id = ObjectId(id);
        let detail = (meta >> 8) as u32 & 0xff_ffff;
        match meta as u8 {
            0 => {
                let class = match detail {
                    1 => Class::Listed,
                    2 => Class::Prefetched,
                    _ => Class::Asked,
                };
                Some(Event::Insert { id, key, class, weight_bytes: (meta >> 32) as u32 })
            }
            1 => Some(Event::Hit { id, count: detail }),
            2 => {
                let reason = match detail {
                    0 => Removal::Evicted,
                    _ => Removal::Invalidated,
                };
                Some(Event::Remove { id, reason })
            }
            3 => Some(Event::Spare { id }),
            _ => None,
        }
    }
}

/// What a policy is told once, before its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyLimits {
    /// Bytes the cache may hold: the sum of the weights stays about there.
    pub capacity_bytes: u64,
    /// Seed for a policy that needs chance; the same seed gives the same choices.
    pub seed: u64,
}

/// An eviction policy.
///
/// The caller guarantees: events of one object come in order, beginning with its insert; an object
/// that comes and goes between two batches is not told at all; an id is not used again after its
/// removal; each proposed id is answered by `Remove` or `Spare`.
///
/// The implementor must: propose resident ids only, each at most once until it is spared; keep
/// what it remembers within a fixed multiple of the resident set; and do the same for the same
/// events.
pub trait EvictionPolicy: Send {
    /// Takes a batch of events. `now_ms` is monotonic, from an arbitrary start.
    fn on_events(&mut self, now_ms: u64, events: &[Event]);

    /// Proposes up to `want` victims, best first.
    fn propose(&mut self, now_ms: u64, want: usize) -> Vec<ObjectId>;
}

/// What became of a proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// Ids taken into the reserve.
    pub accepted: u64,
    /// Ids of objects that left meanwhile.
    pub stale: u64,
    /// Ids already in the reserve.
    pub repeated: u64,
    /// Ids that the host never gave out.
    pub foreign: u64,
}

/// The owner of the objects, as the driver sees it. Calls are short and never wait for a policy.
///
/// The caller guarantees that one driver at a time drains and offers.
///
/// The implementor must lose no insert, removal or sparing of what it tells, and count the hits it
/// drops. Nothing is told before the first `restart`.
pub trait EvictionHost: Send + Sync {
    /// Appends pending events, about `max` of them (a shard's are never split). Returns whether
    /// more are waiting.
    fn drain(&self, max: usize, events: &mut Vec<Event>) -> bool;

    /// How many victims the reserve lacks; 0 while memory is not short.
    fn shortage(&self) -> usize;

    /// Puts proposed victims into the reserve, best first.
    fn offer(&self, victims: &[ObjectId]) -> Offered;

    /// Empties the reserve, discards pending events and tells every resident object as an insert
    /// with its hits, oldest first: what the first policy of a driver has to know.
    fn restart(&self, events: &mut Vec<Event>);

    /// Appends all pending events to `pending`, and every object that is resident after them to
    /// `residents`, as an insert, oldest first: what a policy has to know that comes beside another
    /// one, or after it. What is drained from now on follows on both. The reserve stays as it is.
    fn residents(&self, pending: &mut Vec<Event>, residents: &mut Vec<Event>);

    /// Bytes held and bytes allowed.
    fn usage(&self) -> (u64, u64);

    /// Sets what to call when there is work for the driver. It must not block.
    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>);
}
