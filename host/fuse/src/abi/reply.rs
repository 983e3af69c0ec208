//! What follows the header of each answer, and what notifications carry.

#![allow(missing_docs, reason = "fields are the kernel's")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Before every reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OutHeader {
    pub len: u32,
    /// 0, or an errno below 0.
    pub error: i32,
    pub unique: u64,
}

/// Answer to INIT.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct InitOut {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub max_background: u16,
    pub congestion_threshold: u16,
    pub max_write: u32,
    pub time_gran: u32,
    pub max_pages: u16,
    pub map_alignment: u16,
    pub flags2: u32,
    pub max_stack_depth: u32,
    pub request_timeout: u16,
    pub unused: [u16; 11],
}

/// Answer to OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct OpenOut {
    pub fh: u64,
    pub open_flags: u32,
    pub padding: u32,
}

/// Answer to GETXATTR and LISTXATTR that asked for the size only.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GetxattrOut {
    pub size: u32,
    pub padding: u32,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Attr {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    /// Seconds, two's complement below 1970; so for the other times.
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atimensec: u32,
    pub mtimensec: u32,
    pub ctimensec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// As [`encode_dev`](super::encode_dev) packs it.
    pub rdev: u32,
    pub blksize: u32,
    pub flags: u32,
}

impl Attr {
    /// Whether the kernel accepts these: it answers EIO for an impossible type or a size beyond
    /// `i64::MAX`.
    pub const fn is_valid(&self) -> bool {
        let known = matches!((self.mode >> 12) & 0o17, 1 | 2 | 4 | 6 | 8 | 10 | 12);
        known && self.size <= i64::MAX as u64
    }
}

/// Answer to GETATTR.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct AttrOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: Attr,
}

/// Answer to LOOKUP, and the first part of each entry of READDIRPLUS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct EntryOut {
    /// In READDIRPLUS, 0 says that no lookup was done for this entry.
    pub nodeid: u64,
    pub generation: u64,
    pub entry_valid: u64,
    pub attr_valid: u64,
    pub entry_valid_nsec: u32,
    pub attr_valid_nsec: u32,
    pub attr: Attr,
}

/// An entry of a directory, before its name and the zeros that pad it to 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Dirent {
    pub ino: u64,
    pub off: u64,
    pub namelen: u32,
    /// `S_IFMT >> 12`, 0 where it is not known.
    pub kind: u32,
}

/// Answer to STATFS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct StatfsOut {
    pub blocks: u64,
    pub bfree: u64,
    pub bavail: u64,
    pub files: u64,
    pub ffree: u64,
    pub bsize: u32,
    pub namelen: u32,
    pub frsize: u32,
    pub padding: u32,
    pub spare: [u32; 6],
}

/// Answer to WRITE and COPY_FILE_RANGE.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct WriteOut {
    pub size: u32,
    pub padding: u32,
}

/// Answer to COPY_FILE_RANGE_64.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CopyFileRangeOut {
    pub bytes_copied: u64,
}

/// Answer to LSEEK.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LseekOut {
    pub offset: u64,
}

/// The notification INVAL_INODE.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NotifyInvalInodeOut {
    pub ino: u64,
    pub off: i64,
    pub len: i64,
}

/// The notification INVAL_ENTRY, before the name and a NUL.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NotifyInvalEntryOut {
    pub parent: u64,
    pub namelen: u32,
    pub flags: u32,
}

/// The notification DELETE, before the name and a NUL.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NotifyDeleteOut {
    pub parent: u64,
    pub child: u64,
    pub namelen: u32,
    pub padding: u32,
}

// The kernel's sizes; a struct that differs would shift every field after it.
const _: () = assert!(size_of::<OutHeader>() == 16 && size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Attr>() == 88 && size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<EntryOut>() == 128 && size_of::<Dirent>() == 24);
const _: () = assert!(size_of::<StatfsOut>() == 80 && size_of::<OpenOut>() == 16);
const _: () = assert!(size_of::<NotifyInvalInodeOut>() == 24);
const _: () = assert!(size_of::<NotifyInvalEntryOut>() == 16);
const _: () = assert!(size_of::<NotifyDeleteOut>() == 24);
