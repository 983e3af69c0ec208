//! The arguments of requests that have many, in the terms of the calls that programs make.

use crate::abi::{self, FileLock, LkIn, SetattrIn, fattr};

/// What SETATTR changes: chmod(2), chown(2), truncate(2) and utimensat(2), together or apart. The
/// change time is the file system's own to set.
///
/// One that changes nothing comes before a write that will clear set-user-id; the write says so
/// itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (type bits may be there and mean nothing).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last change of content.
    pub mtime: Option<SetTime>,
    /// The open file it was asked through (ftruncate(2), fchmod(2), ...).
    pub file: Option<u64>,
    /// Whose locks a truncation respects.
    pub lock_owner: Option<u64>,
    /// Clear set-user-id, and set-group-id where the group may execute: the size changes, and the
    /// caller has no CAP_FSETID.
    pub kill_suidgid: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's own clock.
    Now,
    /// This one, counted from 1970.
    At {
        /// Seconds, below 0 before 1970.
        secs: i64,
        /// Nanoseconds, below 1,000,000,000.
        nanos: u32,
    },
}

impl SetAttr {
    /// `None` where a time is none, or no file has such a size.
    pub(crate) fn new(raw: &SetattrIn) -> Option<Self> {
        let valid = |bit| raw.valid & bit != 0;
        let time = |secs: u64, nanos: u32, bit, now_bit| match (valid(bit), valid(now_bit)) {
            (false, _) => Some(None),
            (true, true) => Some(Some(SetTime::Now)),
            (true, false) if nanos < 1_000_000_000 => {
                Some(Some(SetTime::At { secs: secs as i64, nanos }))
            }
            (true, false) => None,
        };
        if valid(fattr::SIZE) && i64::try_from(raw.size).is_err() {
            return None;
        }
        Some(Self {
            mode: valid(fattr::MODE).then_some(raw.mode),
            uid: valid(fattr::UID).then_some(raw.uid),
            gid: valid(fattr::GID).then_some(raw.gid),
            size: valid(fattr::SIZE).then_some(raw.size),
            atime: time(raw.atime, raw.atimensec, fattr::ATIME, fattr::ATIME_NOW)?,
            mtime: time(raw.mtime, raw.mtimensec, fattr::MTIME, fattr::MTIME_NOW)?,
            file: valid(fattr::FH).then_some(raw.fh),
            lock_owner: valid(fattr::LOCKOWNER).then_some(raw.lock_owner),
            kill_suidgid: valid(fattr::KILL_SUIDGID),
        })
    }
}

/// What MKNOD makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mknod {
    /// Type and permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Device number of a device file, as [`abi::decode_dev`] unpacks it.
    pub rdev: u32,
}

/// What RENAME moves, and to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// Directory it leaves.
    pub parent: u64,
    /// Name there.
    pub name: &'a [u8],
    /// Directory it comes into.
    pub new_parent: u64,
    /// Name there.
    pub new_name: &'a [u8],
    /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, ... of renameat2(2).
    pub flags: u32,
}

/// How OPEN opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Flags of open(2): without `O_CREAT`, `O_EXCL` and `O_NOCTTY`, with `O_TRUNC`.
    pub flags: u32,
    /// Truncating clears set-user-id, and set-group-id where the group may execute.
    pub kill_suidgid: bool,
}

/// How CREATE and TMPFILE create and open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    /// Flags of open(2).
    pub flags: u32,
    /// Type (a regular file) and permission bits, before the umask.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Truncating what is there already clears set-user-id, and set-group-id where the group may
    /// execute.
    pub kill_suidgid: bool,
}

/// What READ reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// First byte.
    pub offset: u64,
    /// How many bytes; at most [`Negotiated::max_read_bytes`](crate::Negotiated::max_read_bytes).
    pub len_bytes: u32,
    /// The flags that the file has now (fcntl(2) may change them).
    pub flags: u32,
    /// Whose locks it respects.
    pub lock_owner: Option<u64>,
}

/// Where WRITE writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// First byte. With `O_APPEND` it is where the kernel takes the end to be.
    pub offset: u64,
    /// The flags that the file has now.
    pub flags: u32,
    /// Whose locks it respects.
    pub lock_owner: Option<u64>,
    /// It comes from a page that was written through mmap(2): the file number is that of any open
    /// file that may write, and the caller is not who wrote.
    pub from_cache: bool,
    /// It clears set-user-id, and set-group-id where the group may execute.
    pub kill_suidgid: bool,
}

/// How RELEASE closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The flags that the file had.
    pub flags: u32,
    /// Whose flock(2) lock ends with it.
    pub flock_owner: Option<u64>,
}

/// What SETXATTR sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// Name, with its namespace.
    pub name: &'a [u8],
    /// Value, any bytes, or none.
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE` or neither, of setxattr(2).
    pub flags: u32,
    /// It is `system.posix_acl_access`, and set-group-id is to be cleared.
    pub kill_sgid: bool,
}

/// A lock that GETLK, SETLK and SETLKW ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// Who will own it: a process for fcntl(2) locks, an open file for those of flock(2) and open
    /// file description locks. Any number; owners of the two families are kept apart by `flock`.
    pub owner: u64,
    /// Which bytes (all of them for flock(2)).
    pub range: LockRange,
    /// It is a lock of flock(2), which has nothing to do with those of fcntl(2).
    pub flock: bool,
}

/// Bytes, how they are locked, and by which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte; [`LOCK_TO_END`] for "to the end, wherever that is".
    pub end: u64,
    /// How.
    pub kind: LockKind,
    /// The process, as it may be shown to others.
    pub pid: u32,
}

/// [`LockRange::end`] of a lock without an end.
pub const LOCK_TO_END: u64 = i64::MAX as u64;

/// How bytes are locked; the numbers are `F_RDLCK`, `F_WRLCK` and `F_UNLCK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LockKind {
    /// Shared.
    Read = 0,
    /// Exclusive.
    Write = 1,
    /// Not at all.
    Unlock = 2,
}

impl Lock {
    /// `None` where the kind or the range is none.
    pub(crate) fn new(raw: &LkIn) -> Option<Self> {
        let kind = match raw.lk.kind {
            0 => LockKind::Read,
            1 => LockKind::Write,
            2 => LockKind::Unlock,
            _ => return None,
        };
        let FileLock { start, end, pid, .. } = raw.lk;
        let range = LockRange { start, end, kind, pid };
        let flock = raw.lk_flags & abi::LK_FLOCK != 0;
        (start <= end && end <= LOCK_TO_END).then_some(Self { owner: raw.owner, range, flock })
    }
}

impl LockRange {
    pub(crate) fn to_kernel(self) -> FileLock {
        FileLock { start: self.start, end: self.end, kind: self.kind as u32, pid: self.pid }
    }
}

/// What FALLOCATE does, of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// `FALLOC_FL_...`.
    pub mode: u32,
    /// First byte.
    pub offset: u64,
    /// How many bytes.
    pub len_bytes: u64,
}

/// What LSEEK looks for. The kernel knows all other positions itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`: the first byte at or after this offset that is not in a hole.
    Data(u64),
    /// `SEEK_HOLE`: the first byte at or after this offset that is in one; the end counts as one.
    Hole(u64),
}

/// What COPY_FILE_RANGE copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFileRange {
    /// Open file to read.
    pub file_in: u64,
    /// First byte there.
    pub offset_in: u64,
    /// Nodeid of the file to write.
    pub nodeid_out: u64,
    /// Open file to write.
    pub file_out: u64,
    /// First byte there.
    pub offset_out: u64,
    /// How many bytes; fewer may be copied.
    pub len_bytes: u64,
    /// None are known.
    pub flags: u64,
}
