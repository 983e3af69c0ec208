//! The bits of flag words, by the request that carries them.

/// Flags of INIT, asked for by the kernel's offer and our answer.
pub mod init {
    /// Reads of one file may be under way side by side.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// Byte range locks of fcntl(2) are sent, not kept by the kernel.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// An open that truncates comes with `O_TRUNC`, not as an open and a SETATTR.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Writes may be larger than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The caller's umask is not applied by the kernel; it is sent.
    pub const DONT_MASK: u64 = 1 << 6;
    /// Locks of flock(2) are sent, not kept by the kernel.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// The kernel drops cached pages when a file's mtime or size changed.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// The kernel may send READDIRPLUS.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The kernel sends READDIRPLUS only where it saw entries looked up.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Direct reads may be under way side by side.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Lookups and readdirs of one directory may be under way side by side.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel checks POSIX access lists, which it reads as extended attributes.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// `InitOut::max_pages` is meaningful.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The kernel keeps the targets of symbolic links.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// The kernel drops cached pages only when it is told to.
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    /// The file system clears set-user-id, set-group-id and file capabilities.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// SETXATTR carries `setxattr_flags`.
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// `flags2` is meaningful.
    pub const INIT_EXT: u64 = 1 << 30;
    /// The kernel can expire an entry without dropping it.
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
}

/// Which fields of SETATTR are meant.
pub mod fattr {
    #![allow(missing_docs, reason = "each names its field")]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCKOWNER: u32 = 1 << 9;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flag of an answer to OPEN: reads and writes go past the page cache, each as the program made it.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// Flag of an answer to OPEN: what the page cache has of the file stays.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// Flag of an answer to OPENDIR: the kernel may keep the listing.
pub const FOPEN_CACHE_DIR: u32 = 1 << 3;
/// Flag of an answer to OPEN: closing sends no FLUSH. With it POSIX locks are never given back.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;
/// Flag of an answer to OPEN: direct writes of one file may be under way side by side.
pub const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// Flag of GETATTR: `fh` is meaningful.
pub const GETATTR_FH: u32 = 1 << 0;
/// Flag of OPEN and CREATE: truncating clears set-user-id and set-group-id.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// Flag of READ: `lock_owner` is meaningful.
pub const READ_LOCKOWNER: u32 = 1 << 1;
/// Flag of WRITE: it comes from the page cache, and the file number is a guess.
pub const WRITE_CACHE: u32 = 1 << 0;
/// Flag of WRITE: `lock_owner` is meaningful.
pub const WRITE_LOCKOWNER: u32 = 1 << 1;
/// Flag of WRITE: it clears set-user-id and set-group-id.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// Flag of RELEASE: the flock(2) lock of `lock_owner` ends.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// Flag of FSYNC and FSYNCDIR: data only, as fdatasync(2).
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// Flag of SETXATTR: setting an access list clears set-group-id.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Flag of GETLK, SETLK and SETLKW: the lock is one of flock(2).
pub const LK_FLOCK: u32 = 1 << 0;
/// Flag of the notification INVAL_ENTRY: the entry is asked for anew, but not dropped.
pub const EXPIRE_ONLY: u32 = 1 << 0;

/// The notifications, each sent as the `error` of a reply to request 0.
pub mod notify {
    /// Drops attributes and pages of a file.
    pub const INVAL_INODE: i32 = 2;
    /// Drops an entry of a directory.
    pub const INVAL_ENTRY: i32 = 3;
    /// An entry was deleted.
    pub const DELETE: i32 = 6;
    /// Every entry known so far is asked for anew (Linux 6.16).
    pub const INC_EPOCH: i32 = 8;
}
