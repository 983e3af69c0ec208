//! Advisory locks on open files: POSIX record locks (fcntl(2)) and flock(2), which know nothing of
//! each other.

use serde::{Deserialize, Serialize};

/// Whose lock: two owners exclude each other, also where they are on different clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockOwner {
    /// The client, as in [`Request::Attach`](super::Request::Attach).
    pub client: u128,
    /// The owner within it: what the kernel calls `lock_owner`.
    pub owner: u64,
}

/// The two sorts of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockSort {
    /// A record lock on a range, owned by a process.
    Posix,
    /// A lock on the whole file, owned by an open file.
    Flock,
}

/// What a lock allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: the range is released.
    Unlock,
}

/// A lock, held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lock {
    /// Its sort.
    pub sort: LockSort,
    /// What it allows.
    pub kind: LockKind,
    /// First byte; 0 for a flock.
    pub start_bytes: u64,
    /// Last byte; `i64::MAX` for all to come.
    pub end_bytes: u64,
    /// Whose it is.
    pub owner: LockOwner,
    /// The process, for people who look at who holds a lock; 0 where it is not known.
    pub pid: u32,
}
