//! A gateway's account of itself: what `portcullis stats --json` prints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::message::Notices;

/// All counters of one gateway since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatewayStats {
    /// Version of the gateway.
    pub version: String,
    /// Milliseconds since it started.
    pub uptime_ms: u64,
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// The dentry cache.
    pub cache: CacheStats,
    /// The eviction policy.
    pub eviction: EvictionStats,
    /// Directories that are listed before a client asks for them.
    pub prefetch: PrefetchStats,
    /// Contents of small files that travel along with listings.
    pub inlining: InliningStats,
    /// One for each brick.
    pub bricks: Vec<BrickStats>,
    /// Watches and leases.
    pub watch: WatchStats,
    /// Requests of clients by verb.
    pub requests: BTreeMap<String, u64>,
    /// Requests that failed, by status.
    pub failures: BTreeMap<String, u64>,
    /// Clients connected now.
    pub connections: u64,
    /// Connections refused: a foreign certificate, a wrong role, or too many.
    pub refused_connections: u64,
    /// Frames from clients that could not be read.
    pub bad_frames: u64,
}

/// Counters of the dentry cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheStats {
    /// Bytes allowed.
    pub capacity_bytes: u64,
    /// Bytes held.
    pub used_bytes: u64,
    /// Entries held, negative ones included.
    pub entries: u64,
    /// Directories of which something is held.
    pub directories: u64,
    /// Objects that policies see.
    pub objects: u64,
    /// Lookups answered by an entry.
    pub lookup_hits: u64,
    /// Lookups answered "no such name" by a negative entry or a complete listing.
    pub negative_hits: u64,
    /// Lookups that went to a brick or joined one on its way.
    pub lookup_misses: u64,
    /// Attribute requests answered.
    pub getattr_hits: u64,
    /// Attribute requests that were not.
    pub getattr_misses: u64,
    /// Link targets answered.
    pub readlink_hits: u64,
    /// Link targets that were not.
    pub readlink_misses: u64,
    /// Whole listings answered.
    pub list_hits: u64,
    /// Listings that went to a brick or joined one on its way.
    pub list_misses: u64,
    /// Requests that joined a fill on its way instead of starting one.
    pub fills_joined: u64,
    /// Fills dropped because what they brought was older than an invalidation.
    pub fills_late: u64,
    /// Objects evicted on a policy's proposal.
    pub evicted_proposed: u64,
    /// Objects evicted by the cache itself because the reserve was empty.
    pub evicted_shortfall: u64,
    /// Objects that left because they were no longer true.
    pub invalidated: u64,
}

/// The eviction policy that is really active, and what it did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvictionStats {
    /// Name, as the policy gives it.
    pub name: String,
    /// Version, as the policy gives it.
    pub version: String,
    /// `wasm` or `native`.
    pub kind: String,
    /// SHA-256 of the active component, in hexadecimal; empty for a native policy.
    pub digest: String,
    /// Whether this is the fallback, and why: what the component did wrong. Empty if it is not.
    pub fallback_reason: String,
    /// Calls into the policy. For a component, each enters Wasm.
    pub calls: u64,
    /// Events handed over.
    pub events: u64,
    /// Batches of events.
    pub batches: u64,
    /// Victims accepted.
    pub accepted: u64,
    /// Proposals of objects that had left.
    pub stale: u64,
    /// Proposals made twice.
    pub repeated: u64,
    /// Proposals of ids that were never given out.
    pub foreign: u64,
    /// Hits not told, because too many objects were touched between two batches.
    pub hits_dropped: u64,
    /// CPU time spent in the policy.
    pub cpu_ms: u64,
}

/// Directories that were listed at the brick before a client asked for them. Each one begun is
/// counted once more where that has been decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrefetchStats {
    /// Name of the policy.
    pub name: String,
    /// `wasm` or `native`.
    pub kind: String,
    /// SHA-256 of the component in hexadecimal; empty for a native policy.
    pub digest: String,
    /// Where this is the fallback: which component failed, and how. Empty otherwise.
    pub fallback_reason: String,
    /// Listings begun ahead.
    pub begun: u64,
    /// Of those, asked for when they were there.
    pub used: u64,
    /// Asked for before they were there.
    pub late: u64,
    /// Never asked for while they were known.
    pub wasted: u64,
    /// Given up on the way.
    pub cancelled: u64,
    /// Not to be had.
    pub failed: u64,
    /// Calls into components; native policies are not counted.
    pub calls: u64,
    /// Events handed over to components.
    pub events: u64,
    /// Batches of events.
    pub batches: u64,
    /// Directories that components chose and that were then listed.
    pub accepted: u64,
    /// Answers about directories that were forgotten.
    pub stale: u64,
    /// Directories chosen that were listed already.
    pub repeated: u64,
    /// Answers with ids that were never given out.
    pub foreign: u64,
    /// Directories chosen beyond what may be listed at once.
    pub excess: u64,
    /// Times that a client told more than its policy took, and began anew.
    pub overflows: u64,
    /// CPU time spent in components.
    pub cpu_ms: u64,
}

/// Contents of small files that travel along with listings, and those kept for that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InliningStats {
    /// Name of the policy.
    pub name: String,
    /// `wasm` or `native`.
    pub kind: String,
    /// SHA-256 of the component in hexadecimal; empty for a native policy.
    pub digest: String,
    /// Where this is the fallback: which component failed, and how. Empty otherwise.
    pub fallback_reason: String,
    /// Times that policies were asked for rules.
    pub calls: u64,
    /// Rows of statistics handed over.
    pub rows: u64,
    /// Rules taken.
    pub rules: u64,
    /// CPU time spent in policies.
    pub cpu_ms: u64,
    /// Files delivered to clients that take contents along, empty and very large ones not counted.
    pub delivered: u64,
    /// Of those, files read.
    pub read: u64,
    /// Of those delivered, files whose content travelled along.
    pub inlined: u64,
    /// Of those whose content travelled along, files read.
    pub inlined_read: u64,
    /// Bytes of content that travelled along.
    pub inlined_bytes: u64,
    /// Bytes of contents that may be kept.
    pub capacity_bytes: u64,
    /// Bytes of contents kept.
    pub used_bytes: u64,
    /// Contents kept.
    pub contents: u64,
    /// Contents that came from bricks and were kept.
    pub filled: u64,
    /// Contents not kept because they were older than an invalidation.
    pub late: u64,
    /// Contents that left for others.
    pub evicted: u64,
    /// Contents that left because they were no longer true.
    pub invalidated: u64,
}

/// A brick as its gateway sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BrickStats {
    /// Address.
    pub address: String,
    /// Whether there is a connection.
    pub connected: bool,
    /// Connections made so far.
    pub connects: u64,
    /// The last error, empty if there was none.
    pub last_error: String,
    /// Requests sent, by verb.
    pub requests: BTreeMap<String, u64>,
    /// Bytes of reply frames received.
    pub received_bytes: u64,
}

/// Watches and leases of a gateway, towards its clients and towards its brick.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchStats {
    /// Clients that cache and are told of changes.
    pub sessions: u64,
    /// Changes that clients are told of now and have not all acknowledged.
    pub rounds: u64,
    /// Changes that clients were told of.
    pub told: u64,
    /// Changes that the brick told of.
    pub recalled: u64,
    /// For how long answers from the cache are allowed unless the lease is renewed; 0 where they
    /// are not.
    pub lease_left_ms: u64,
    /// How the brick notices changes that are not made through it.
    pub notices: Notices,
}
