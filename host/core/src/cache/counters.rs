//! What the cache counts.

/// Counters of a cache since it was made, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
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
    /// Lookups answered "no such name".
    pub negative_hits: u64,
    /// Lookups that were not answered.
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
    /// Listings that were not.
    pub list_misses: u64,
    /// Requests that joined a fill on its way.
    pub fills_joined: u64,
    /// Fills dropped because they were older than an invalidation.
    pub fills_late: u64,
    /// Objects evicted on a policy's proposal.
    pub evicted_proposed: u64,
    /// Objects evicted by the cache itself because the reserve was empty.
    pub evicted_shortfall: u64,
    /// Objects that left because they were no longer true, or were replaced.
    pub invalidated: u64,
    /// Hits not told to the policy.
    pub hits_dropped: u64,
}

impl CacheCounters {
    /// Adds the counters of another part of the same cache.
    pub(super) fn add(&mut self, other: &CacheCounters) {
        self.entries += other.entries;
        self.directories += other.directories;
        self.objects += other.objects;
        self.lookup_hits += other.lookup_hits;
        self.negative_hits += other.negative_hits;
        self.lookup_misses += other.lookup_misses;
        self.getattr_hits += other.getattr_hits;
        self.getattr_misses += other.getattr_misses;
        self.readlink_hits += other.readlink_hits;
        self.readlink_misses += other.readlink_misses;
        self.list_hits += other.list_hits;
        self.list_misses += other.list_misses;
        self.fills_joined += other.fills_joined;
        self.fills_late += other.fills_late;
        self.evicted_proposed += other.evicted_proposed;
        self.evicted_shortfall += other.evicted_shortfall;
        self.invalidated += other.invalidated;
        self.hits_dropped += other.hits_dropped;
    }
}
