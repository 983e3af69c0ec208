//! Attributes of a file, as `statx(2)` gives them.

use serde::{Deserialize, Serialize};

/// A point in time: whole seconds since 1970-01-01 UTC, and nanoseconds into that second.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Seconds since the epoch; negative before it.
    pub secs: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

/// What `stat` tells of a file. Plain numbers as the kernel gives them; `mode` holds type and
/// permission (`st_mode`, inode(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attr {
    /// Inode number, unique and stable within a volume.
    pub ino: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// `st_mode`: type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file (`makedev(3)`), 0 for other kinds.
    pub rdev: u64,
    /// Preferred size of I/O.
    pub block_size_bytes: u32,
    /// The file has no POSIX access control list. Where it is not set, that is not known.
    pub has_no_acl: bool,
}

/// The type of a file: the `S_IFMT` bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// A FIFO (named pipe).
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A Unix socket.
    Socket,
    /// Not told: the file system gives no `d_type` and the attributes could not be read.
    Unknown,
}

impl FileKind {
    /// The kind in the `S_IFMT` bits of `mode`.
    pub const fn of_mode(mode: u32) -> Self {
        Self::of_dtype(((mode >> 12) & 0o17) as u8)
    }

    /// The kind of a `d_type` from getdents64(2), which is `S_IFMT >> 12`.
    pub const fn of_dtype(dtype: u8) -> Self {
        match dtype {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => Self::Unknown,
        }
    }

    /// The `d_type` of this kind, 0 (`DT_UNKNOWN`) where it is not known.
    pub const fn dtype(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::Regular => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
            Self::Unknown => 0,
        }
    }

    /// The letter `find -printf %y` prints for this kind.
    pub const fn letter(self) -> char {
        match self {
            Self::Fifo => 'p',
            Self::CharDevice => 'c',
            Self::Directory => 'd',
            Self::BlockDevice => 'b',
            Self::Regular => 'f',
            Self::Symlink => 'l',
            Self::Socket => 's',
            Self::Unknown => 'U',
        }
    }
}

impl Attr {
    /// The type of the file.
    pub const fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode)
    }

    /// Whether this is a directory.
    pub const fn is_dir(&self) -> bool {
        matches!(self.kind(), FileKind::Directory)
    }
}
