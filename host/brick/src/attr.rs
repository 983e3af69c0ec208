//! `statx(2)` to [`Attr`].

use std::os::fd::BorrowedFd;

use portcullis_core::{Attr, FileKind, Timestamp};
use rustix::fs::{AtFlags, Statx, StatxFlags, StatxTimestamp, makedev, statx};
use rustix::io;

/// What statx told of one file.
#[derive(Clone, Copy)]
pub(crate) struct Stat(Statx);

/// The stat of the file that `fd`, which may be `O_PATH`, refers to.
pub(crate) fn stat(fd: BorrowedFd<'_>) -> io::Result<Stat> {
    statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, mask()).map(Stat)
}

/// The same, as it is now, whatever a cache of the file system tells.
pub(crate) fn stat_synced(fd: BorrowedFd<'_>) -> io::Result<Stat> {
    statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, mask()).map(Stat)
}

/// The stat of what `name` stands for in `dir`, of a link itself.
pub(crate) fn stat_name(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Stat> {
    statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, mask()).map(Stat)
}

fn mask() -> StatxFlags {
    StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID
}

impl Stat {
    /// The attributes.
    pub(crate) fn attr(&self) -> Attr {
        let s = &self.0;
        Attr {
            ino: s.stx_ino,
            size_bytes: s.stx_size,
            blocks: s.stx_blocks,
            atime: timestamp(&s.stx_atime),
            mtime: timestamp(&s.stx_mtime),
            ctime: timestamp(&s.stx_ctime),
            mode: u32::from(s.stx_mode),
            nlink: s.stx_nlink,
            uid: s.stx_uid,
            gid: s.stx_gid,
            rdev: makedev(s.stx_rdev_major, s.stx_rdev_minor),
            block_size_bytes: s.stx_blksize,
            has_no_acl: false,
        }
    }

    /// The type of the file.
    pub(crate) fn kind(&self) -> FileKind {
        FileKind::of_mode(u32::from(self.0.stx_mode))
    }

    /// Inode number.
    pub(crate) fn ino(&self) -> u64 {
        self.0.stx_ino
    }

    /// Device that the file lies on.
    pub(crate) fn dev(&self) -> u64 {
        makedev(self.0.stx_dev_major, self.0.stx_dev_minor)
    }

    /// Number of hard links.
    pub(crate) fn nlink(&self) -> u32 {
        self.0.stx_nlink
    }

    /// The mount through which the file was reached, `None` before Linux 5.8.
    pub(crate) fn mount(&self) -> Option<u64> {
        (self.0.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(self.0.stx_mnt_id)
    }

    /// When the inode was made; zeros where the file system does not keep it.
    pub(crate) fn birth(&self) -> Timestamp {
        if self.0.stx_mask & StatxFlags::BTIME.bits() != 0 {
            timestamp(&self.0.stx_btime)
        } else {
            Timestamp::default()
        }
    }
}

fn timestamp(time: &StatxTimestamp) -> Timestamp {
    // A network file system can hand the kernel nonsense, which no tier beyond would accept.
    Timestamp { secs: time.tv_sec, nanos: time.tv_nsec.min(999_999_999) }
}
