//! Every bound Portcullis keeps, in one place. A limit is named here or it does not exist.
//!
//! Units are in the names. The assertions at the end tie limits that depend on one another.

/// Longest name of a directory entry (`NAME_MAX`, limits.h).
pub const NAME_LEN_MAX: usize = 255;
/// Longest symlink target: `PATH_MAX` less its terminating NUL.
pub const LINK_TARGET_LEN_MAX: usize = 4095;
/// Longest handle; a kernel file handle that does not fit is replaced by one from the brick's map.
pub const HANDLE_LEN_MAX: usize = 63;
/// Longest extended attribute name (`XATTR_NAME_MAX`).
pub const XATTR_NAME_LEN_MAX: usize = 255;
/// Largest extended attribute value, and largest list of names (`XATTR_SIZE_MAX`).
pub const XATTR_LEN_BYTES_MAX: usize = 64 * 1024;

/// Entries in one chunk of a listing: large enough to amortise its header, small enough to evict.
pub const CHUNK_ENTRIES_MAX: usize = 128;
/// Bytes in one chunk: its heap offsets are 16 bits wide.
pub const CHUNK_LEN_BYTES_MAX: usize = 60 * 1024;
/// Bricks of one volume: a set of them is one word.
pub const BRICKS_MAX: usize = 64;
/// How often a member is asked to make a copy of a directory whose attributes change meanwhile.
pub const COPY_TRIES_MAX: usize = 16;
/// How long a member holds a name for a transaction that does not go on.
pub const HOLD_MS_MAX: u64 = 60_000;
/// How deep below the root a directory can be moved in a volume of several bricks.
pub const DIR_DEPTH_MAX: usize = 64 * 1024;
/// Cookies of a position, and brick numbers that chunks may have: those of bricks, and the highest ones
/// of names that were learnt.
pub const POSITION_COOKIES_MAX: usize = 256;
/// Names of one directory that a tier lists before the brick's own order, since it learnt of them
/// after it listed the directory; each has one of the highest brick numbers.
pub const LEARNT_NAMES_MAX: usize = 32;
/// Entries of a cached run from which its attributes are an object of their own: those of fewer
/// would give back less than the object takes.
pub const RUN_SPLIT_ENTRIES_MIN: usize = 16;
/// Entries of a cached listing whose attributes may be missing and are asked for one by one; with
/// more, and more than one in [`LISTING_MISSING_SHARE`], the directory is listed again.
pub const LISTING_MISSING_MAX: usize = 1024;
/// See [`LISTING_MISSING_MAX`].
pub const LISTING_MISSING_SHARE: usize = 32;

/// Largest frame on a stream, header excluded.
pub const FRAME_LEN_BYTES_MAX: usize = 1024 * 1024;
/// Largest request, which is one frame.
pub const REQUEST_LEN_BYTES_MAX: usize = 16 * 1024;
/// Data carried by one frame of a read.
pub const READ_FRAME_LEN_BYTES: usize = 256 * 1024;
/// Bytes one write may bring.
pub const WRITE_LEN_BYTES_MAX: u32 = 1024 * 1024;
/// Supplementary groups of a caller that travel with its request (`NGROUPS_MAX` is more; further
/// ones are left out).
pub const CALLER_GROUPS_MAX: usize = 1024;
/// Bytes one read request may ask for.
pub const READ_LEN_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Requests one connection may have under way (QUIC bidirectional streams).
pub const REQUESTS_IN_FLIGHT_MAX: u32 = 1024;
/// Requests a brick works on at once over all connections: one blocking thread each at most.
pub const BRICK_WORKERS_MAX: usize = 64;
/// Listings and reads that a brick has under way for one connection; further ones wait. Each
/// holds at most half a megabyte while its reader does not keep up, a listing with contents three times
/// as much.
pub const BRICK_STREAMS_PER_CONNECTION_MAX: usize = 128;
/// Directories whose place a brick remembers where the kernel cannot open them by handle.
pub const PLACES_DIRS_MAX: usize = 256 * 1024;
/// Other files whose place it remembers there.
pub const PLACES_FILES_MAX: usize = 1024 * 1024;
/// Files one client may hold open, over one connection to its gateway.
pub const OPEN_FILES_MAX: usize = 16 * 1024;
/// Files of which one request asks the attributes.
pub const GETATTRS_MAX: usize = CHUNK_ENTRIES_MAX;
/// Transactions on several bricks told at once that are not through.
pub const UNFINISHED_TOLD_MAX: usize = 1024;
/// Open files and locks that a brick holds for all clients of all gateways, if its process may have so
/// many descriptors.
pub const BRICK_DESCRIPTORS_MAX: usize = 1024 * 1024;
/// Descriptors of a brick that are not held for clients, if its process may have twice as many; an
/// eighth of all, where that is more.
pub const BRICK_DESCRIPTORS_KEPT: usize = 1024;
/// Files closed by one request.
pub const RELEASES_MAX: usize = 1024;
/// Connections one server keeps.
pub const CONNECTIONS_MAX: usize = 4096;
/// Bytes a server sends ahead of its peer's acknowledgement, on one connection.
pub const SEND_WINDOW_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes a peer may send ahead of what was read, on one stream.
pub const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes a peer may send ahead of what was read, on one connection.
pub const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// Chunks a listing in flight may run ahead of its fastest reader.
pub const FILL_AHEAD_CHUNKS_MAX: usize = 32;
/// Fills (single-flight groups) under way in one shard of the cache.
pub const FILLS_PER_SHARD_MAX: usize = 4096;
/// Requests that may wait for one fill.
pub const FILL_WAITERS_MAX: usize = 65_536;
/// Shards of the dentry cache.
pub const CACHE_SHARDS: usize = 64;
/// Smallest cache that can be asked for.
pub const CACHE_BYTES_MIN: u64 = 1024 * 1024;
/// Smallest cache that can be asked for where its capacity counts entries.
pub const CACHE_ENTRIES_MIN: u64 = 64;

/// How long the caching side of a session may answer from its cache after it sent a renewal.
pub const LEASE_MS: u64 = 4000;
/// How long the answering side holds a lease after it took a renewal. Longer than [`LEASE_MS`] by
/// a quarter: far more than two clocks drift apart in that time.
pub const LEASE_HELD_MS: u64 = 5000;
/// How much longer than it was given a lease may last by another clock, with room to spare.
pub const LEASE_MARGIN_MS: u64 = LEASE_MS / 10;
/// How often a lease is renewed.
pub const LEASE_RENEW_MS: u64 = 1000;
/// Watches of all sessions of one tier; beyond it a session watches everything.
pub const WATCHES_MAX: usize = 8 * 1024 * 1024;
/// Names of one directory told one by one before a session is told to forget all of them.
pub const NAMES_TOLD_MAX: u8 = 64;
/// Changes remembered, so that an answer that was read while something changed is noticed.
pub const RECENT_CHANGES_MAX: usize = 1024;
/// Changes that wait to be told to one session; beyond it the session forgets everything.
pub const CHANGES_QUEUED_MAX: usize = 4096;
/// Changes told in one message.
pub const CHANGES_TOLD_MAX: usize = 256;
/// Messages with changes that one session has not acknowledged.
pub const TELLS_IN_FLIGHT_MAX: usize = 8;

/// Operations of one client whose answers are kept, so that one asked again is applied once.
pub const REPLAYS_PER_CLIENT_MAX: usize = 4096;
/// Operations of all clients whose answers are kept; beyond it whole clients are forgotten, the one
/// that was quiet for longest first.
pub const REPLAYS_MAX: usize = 256 * 1024;

/// Events handed to an eviction policy in one call.
pub const POLICY_EVENTS_MAX: usize = 4096;
/// Victims asked of an eviction policy in one call.
pub const POLICY_VICTIMS_MAX: usize = 256;
/// Answers of a prefetch policy in one call.
pub const POLICY_PREFETCH_ANSWERS_MAX: usize = 2048;
/// Rules of an inlining policy in one call.
pub const POLICY_RULES_MAX: usize = 2048;
/// Victims kept in reserve, so that a fill never waits for a policy.
pub const RESERVE_MAX: usize = 256;
/// Touched objects one shard remembers between two drains; further hits are dropped and counted.
pub const TOUCHED_PER_SHARD_MAX: usize = 4096;
/// Invalidations remembered one by one; beyond it every fill on its way counts as late.
pub const FENCE_MARKS_MAX: usize = 4096;
/// Events or touched objects of one shard after which the driver is woken.
pub const EVENTS_WAKE: usize = 256;

/// Directories that a prefetch policy goes ahead of a walk at first,
pub const PREFETCH_WINDOW_DIRS_MIN: usize = 8;
/// and at most.
pub const PREFETCH_WINDOW_DIRS_MAX: usize = 256;
/// Walks of one client that are followed at once.
pub const PREFETCH_WALKS_MAX: usize = 8;
/// Directories of all walks of one client that are known and still to come; of what comes beyond
/// nothing is fetched ahead.
pub const PREFETCH_DIRS_MAX: usize = 16 * 1024;
/// Events of one client that wait for a prefetch policy; beyond it the policy is told of that client
/// from its next directory on.
pub const PREFETCH_EVENTS_MAX: usize = 64 * 1024;
/// Directories that one mount lists ahead at once.
pub const PREFETCH_REQUESTS_MAX: usize = 128;
/// Directories that a gateway lists ahead at a brick at once, for all clients.
pub const PREFETCH_SCANS_MAX: usize = 64;
/// What was fetched ahead and not used yet takes at most one part in this many of a cache.
pub const PREFETCH_CACHE_SHARE: u64 = 4;
/// As [`PREFETCH_CACHE_SHARE`], of the cache of a gateway and for one of its clients.
pub const PREFETCH_CLIENT_SHARE: u64 = 16;
/// Entries of directories that were listed ahead for one client and not used yet.
pub const PREFETCH_ENTRIES_MAX: u64 = 256 * 1024;

/// Content of files of at most so many bytes travels along where nothing is learnt: in source trees
/// 76 to 91 in 100 files are as small, and have a tenth to a quarter of the bytes.
pub const INLINE_FIXED_BYTES: u64 = 16 * 1024;
/// Largest content that travels along, whatever a policy says.
pub const INLINE_BYTES_MAX: u64 = 256 * 1024;
/// Classes of directories and clients that an inlining policy remembers.
pub const INLINE_CLASSES_MAX: usize = 4096;
/// A chunk of a listing ends where the contents of its entries come to so many bytes.
pub const INLINE_CHUNK_BYTES: usize = 512 * 1024;
/// Contents that may travel with one chunk.
pub const INLINE_CHUNK_BYTES_MAX: usize = 1024 * 1024;
/// Listings with contents that a gateway sends at once, each with those of one chunk in memory; further ones
/// go without.
pub const INLINE_SENDS_MAX: usize = 128;
/// Contents that may travel with one listing.
pub const INLINE_LISTING_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Contents of one directory that a cache of contents takes: one in so many of its bytes.
pub const INLINE_DIR_SHARE: u64 = 2;
/// Contents that a gateway keeps, unless told otherwise.
pub const INLINE_CACHE_BYTES: u64 = 64 * 1024 * 1024;
/// Contents that a mount keeps, unless told otherwise.
pub const MOUNT_CONTENT_BYTES: u64 = 64 * 1024 * 1024;
/// What a content takes in a cache beside its bytes.
pub const CONTENT_OVERHEAD_BYTES: u64 = 384;
/// Contents of open files that a mount keeps beyond those in its cache.
pub const MOUNT_PINNED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How old a content may become in a mount.
pub const MOUNT_CONTENT_AGE_MS_MAX: u64 = 60_000;
/// Deliveries of files that are remembered, to know whether their content is read.
pub const INLINE_DELIVERIES_MAX: usize = 64 * 1024;
/// How often an inlining policy is asked for rules.
pub const INLINE_RULES_MS: u64 = 1_000;
/// Directories of which one request tells how many contents were read.
pub const INLINE_TOLD_DIRS_MAX: usize = 128;
/// Where a brick only looks now and then for changes, content that changed within this time stays.
pub const INLINE_SETTLED_MS: u64 = 3_000;

/// Largest policy component that is loaded.
pub const POLICY_COMPONENT_LEN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Memory a policy may take, if half of the cache it serves is not more.
pub const POLICY_MEMORY_BYTES: u64 = 64 * 1024 * 1024;
/// Core instances in one policy: its module, and the glue that the encoder adds.
pub const POLICY_INSTANCES_MAX: usize = 16;
/// Tables of one policy.
pub const POLICY_TABLES_MAX: usize = 8;
/// Elements of one table.
pub const POLICY_TABLE_ELEMENTS_MAX: usize = 16 * 1024;
/// Stack of a policy's code.
pub const POLICY_STACK_BYTES_MAX: usize = 512 * 1024;
/// Stack of a thread that calls policies: theirs, and ample room for the host's own frames, since
/// a thread that runs out of stack takes the process with it.
pub const POLICY_THREAD_STACK_BYTES: usize = 4 * 1024 * 1024;
/// CPU time of one call into a policy. Generous, since no request waits for a policy.
pub const POLICY_CALL_CPU_MS_MAX: u64 = 500;
/// Bytes a policy may hand over in one call.
pub const POLICY_ANSWER_LEN_BYTES_MAX: usize = 64 * 1024;
/// Longest name and longest version of a policy.
pub const POLICY_NAME_LEN_MAX: usize = 64;
/// Longest message of a policy that is passed on; longer ones are cut.
pub const POLICY_MESSAGE_LEN_MAX: usize = 512;
/// Lines a policy may log in one second; further ones are counted.
pub const POLICY_LOGS_PER_SECOND_MAX: u32 = 10;
/// Proposals without one usable victim, in a row, after which a policy has failed.
pub const POLICY_SHORTFALLS_MAX: u32 = 8;

/// Largest configuration of a policy.
pub const POLICY_CONFIG_LEN_BYTES_MAX: usize = 64 * 1024;
/// CPU time that compiling a policy may take.
pub const POLICY_COMPILE_CPU_S_MAX: u64 = 60;
/// Address space that compiling a policy may take.
pub const POLICY_COMPILE_MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Machine code of one policy.
pub const POLICY_CODE_LEN_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Policies whose machine code is kept in one directory.
pub const POLICY_CODES_MAX: usize = 64;
/// Compiled policies kept in memory, whether they work or not.
pub const POLICY_COMPONENTS_KEPT_MAX: usize = 4;
/// How long a policy that was replaced is kept at work beside its successor, so that going back to it
/// takes no time.
pub const POLICY_WARM_MS: u64 = 60_000;
/// How long a policy may take to learn what is resident before it is swapped in.
pub const POLICY_SWAP_MS_MAX: u64 = 20_000;
/// Events that may wait for a policy that still learns what is resident.
pub const POLICY_BACKLOG_EVENTS_MAX: usize = 1024 * 1024;
/// Residents told in one turn to a policy that still learns them; the active one works between.
pub const POLICY_LESSON_EVENTS: usize = 1024;
/// Faults of one component within [`POLICY_STRIKES_MS`] after which it is quarantined.
pub const POLICY_STRIKES_MAX: usize = 3;
/// See [`POLICY_STRIKES_MAX`].
pub const POLICY_STRIKES_MS: u64 = 60_000;
/// How long the native policy works after the first fault within that time before a fresh instance of
/// the component is tried; twice as long after each further one.
pub const POLICY_REBUILD_MS: u64 = 500;
/// Events that are kept of what a component was told last, for when it fails.
pub const POLICY_EVIDENCE_EVENTS_MAX: usize = 64 * 1024;
/// Files with such events that are kept.
pub const POLICY_EVIDENCE_FILES_MAX: usize = 16;
/// Components that are remembered as quarantined; beyond it the oldest are forgotten.
pub const POLICY_QUARANTINED_MAX: usize = 64;
/// Requests that each side of a comparison has to have in each period, so that anything is told.
pub const AB_SIDE_REQUESTS_MIN: u64 = 1_000;
/// Windows that a comparison keeps for its plot.
pub const AB_WINDOWS_MAX: usize = 256;
/// Listeners to what is asked of a cache.
pub const TAP_LISTENERS_MAX: usize = 4;
/// Bytes of records that wait for one listener; further ones are lost, and counted.
pub const TAP_QUEUE_LEN_BYTES: usize = 8 * 1024 * 1024;
/// Objects that are told as resident when a recording begins; with more in the cache none is.
pub const TAP_RESIDENTS_MAX: usize = 1024 * 1024;

/// Largest trace that is replayed, decompressed.
pub const TRACE_LEN_BYTES_MAX: u64 = 8 << 30;
/// Requests of one trace.
pub const TRACE_REQUESTS_MAX: usize = 1_000_000_000;
/// Intervals of a replay that are counted apart.
pub const REPLAY_INTERVALS_MAX: usize = 10_000;
/// Seeds that one policy is replayed with.
pub const REPLAY_SEEDS_MAX: usize = 1_000;
/// Capacities of one replay.
pub const REPLAY_CAPACITIES_MAX: usize = 64;

/// Bytes one read or readdir of a mount may ask for: what the kernel grants without its sysctl raised.
pub const MOUNT_REQUEST_LEN_BYTES_MAX: usize = 1024 * 1024;
/// Directories one mount holds open.
pub const MOUNT_OPEN_DIRS_MAX: usize = 16 * 1024;
/// Chunks an open directory of a mount keeps in memory; a seek further back asks again.
pub const MOUNT_DIR_CHUNKS_MAX: usize = 4;
/// Entries of one open directory whose positions a mount remembers, 8 bytes each.
pub const MOUNT_DIR_POSITIONS_MAX: usize = 16 * 1024 * 1024;

/// Directories that a mount has closed and whose positions it remembers, so that the kernel's own copy
/// of their listings stays in use.
pub const MOUNT_KEPT_DIRS_MAX: usize = 16 * 1024;
/// Positions of all those, 8 bytes each.
pub const MOUNT_KEPT_POSITIONS_MAX: usize = 4 * 1024 * 1024;

const _: () = assert!(CHUNK_LEN_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(CHUNK_LEN_BYTES_MAX < FRAME_LEN_BYTES_MAX);
const _: () = assert!(READ_FRAME_LEN_BYTES < FRAME_LEN_BYTES_MAX);
// A content fits a frame, and those up to where a chunk ends, and one more, fit a chunk.
const _: () = assert!(INLINE_BYTES_MAX as usize + 5 <= FRAME_LEN_BYTES_MAX);
const _: () = assert!(INLINE_CHUNK_BYTES + INLINE_BYTES_MAX as usize <= INLINE_CHUNK_BYTES_MAX);
const _: () = assert!(INLINE_BYTES_MAX <= u32::MAX as u64);
const _: () = assert!(INLINE_TOLD_DIRS_MAX * (HANDLE_LEN_MAX + 16) < REQUEST_LEN_BYTES_MAX);
const _: () = assert!(XATTR_LEN_BYTES_MAX <= WRITE_LEN_BYTES_MAX as usize);
const _: () = assert!(
    CALLER_GROUPS_MAX * 4 + LINK_TARGET_LEN_MAX + 2 * NAME_LEN_MAX < REQUEST_LEN_BYTES_MAX - 512
);
// A number takes up to 9 bytes.
const _: () = assert!(RELEASES_MAX * 9 + 16 < REQUEST_LEN_BYTES_MAX);
const _: () = assert!(XATTR_LEN_BYTES_MAX + 1024 < FRAME_LEN_BYTES_MAX);
const _: () = assert!(HANDLE_LEN_MAX <= u8::MAX as usize);
const _: () = assert!(NAME_LEN_MAX <= u8::MAX as usize);
const _: () = assert!(RESERVE_MAX <= POLICY_VICTIMS_MAX);
const _: () = assert!(POLICY_VICTIMS_MAX * size_of::<u64>() < POLICY_ANSWER_LEN_BYTES_MAX);
const _: () =
    assert!(POLICY_PREFETCH_ANSWERS_MAX * 2 * size_of::<u64>() < POLICY_ANSWER_LEN_BYTES_MAX);
const _: () = assert!(POLICY_RULES_MAX * 2 * size_of::<u64>() < POLICY_ANSWER_LEN_BYTES_MAX);
const _: () = assert!(POLICY_STACK_BYTES_MAX * 4 <= POLICY_THREAD_STACK_BYTES);
const _: () = assert!(POLICY_LESSON_EVENTS <= POLICY_EVENTS_MAX);
const _: () = assert!(POLICY_EVENTS_MAX < POLICY_EVIDENCE_EVENTS_MAX);
const _: () = assert!(CACHE_SHARDS.is_power_of_two());
const _: () = assert!(BRICKS_MAX <= u64::BITS as usize);
const _: () = assert!(PREFETCH_REQUESTS_MAX * 2 <= REQUESTS_IN_FLIGHT_MAX as usize);
const _: () = assert!(BRICKS_MAX <= POSITION_COOKIES_MAX - LEARNT_NAMES_MAX);
const _: () = assert!(LEASE_MS + LEASE_MS / 4 <= LEASE_HELD_MS);
const _: () = assert!(LEASE_RENEW_MS * 3 < LEASE_MS);
// A gateway gives up a client early enough to keep its own session, also with clocks that drift.
const _: () = assert!(LEASE_MS + LEASE_MARGIN_MS + LEASE_HELD_MS / 20 < LEASE_HELD_MS);
const _: () =
    assert!(CHANGES_TOLD_MAX * (NAME_LEN_MAX + HANDLE_LEN_MAX + 32) < FRAME_LEN_BYTES_MAX);
// One entry of the greatest size always fits an empty chunk.
const _: () =
    assert!(NAME_LEN_MAX + LINK_TARGET_LEN_MAX + HANDLE_LEN_MAX + 512 < CHUNK_LEN_BYTES_MAX);
