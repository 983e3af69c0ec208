//! The kernel's FUSE interface as plain structs: what is read from and written to `/dev/fuse`.
//!
//! Layouts and numbers are those of Linux `include/uapi/linux/fuse.h`, version 7.44; names are the
//! kernel's without their `fuse_` prefix. Everything is in host byte order. Only what the session
//! uses is here.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the interface. Another one has other headers.
pub const KERNEL_VERSION: u32 = 7;
/// The newest minor version these structs follow.
pub const KERNEL_MINOR_VERSION: u32 = 44;
/// The oldest minor version the session speaks (Linux 4.20): the first with `max_pages`.
pub const KERNEL_MINOR_VERSION_MIN: u32 = 28;

/// The nodeid of the root directory.
pub const ROOT_ID: u64 = 1;
/// The inode number of an entry whose inode number is not known; 0 would mean "deleted" to libc.
pub const UNKNOWN_INO: u64 = 0xffff_ffff;
/// The read buffer must have at least this many bytes.
pub const MIN_READ_BUFFER_LEN: usize = 8192;

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`: attaches a fresh `/dev/fuse` to a connection.
pub const DEV_IOC_CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// Flags of INIT, asked for by the kernel's offer and our answer.
pub mod init {
    /// Reads of one file may be under way side by side.
    pub const ASYNC_READ: u64 = 1 << 0;
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
    /// `InitOut::max_pages` is meaningful.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// `flags2` is meaningful.
    pub const INIT_EXT: u64 = 1 << 30;
}

/// Flag of an answer to OPEN: reads go past the page cache, each as the program made it.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;

/// What the kernel asks. Numbers that are not here are answered ENOSYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "each is the FUSE request of its name")]
pub enum Opcode {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Readlink = 5,
    Open = 14,
    Read = 15,
    Statfs = 17,
    Release = 18,
    Getxattr = 22,
    Listxattr = 23,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Interrupt = 36,
    Destroy = 38,
    BatchForget = 42,
    Readdirplus = 44,
}

impl Opcode {
    /// The opcode of this number, `None` where the session does not know it.
    pub const fn of(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Lookup,
            2 => Self::Forget,
            3 => Self::Getattr,
            5 => Self::Readlink,
            14 => Self::Open,
            15 => Self::Read,
            17 => Self::Statfs,
            18 => Self::Release,
            22 => Self::Getxattr,
            23 => Self::Listxattr,
            26 => Self::Init,
            27 => Self::Opendir,
            28 => Self::Readdir,
            29 => Self::Releasedir,
            36 => Self::Interrupt,
            38 => Self::Destroy,
            42 => Self::BatchForget,
            44 => Self::Readdirplus,
            _ => return None,
        })
    }
}

/// Before every request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    /// The thread that asks, in the pid namespace of whoever mounted; 0 where it has no number there.
    pub pid: u32,
    /// Length of the extensions after the arguments, in units of 8 bytes.
    pub total_extlen: u16,
    pub padding: u16,
}

/// Before every reply.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct OutHeader {
    pub len: u32,
    /// 0, or an errno below 0.
    pub error: i32,
    pub unique: u64,
}

/// Arguments of INIT that every version has.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
}

/// Answer to INIT.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
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

/// Arguments of FORGET.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct ForgetIn {
    pub nlookup: u64,
}

/// Arguments of BATCH_FORGET, before `count` times [`ForgetOne`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct BatchForgetIn {
    pub count: u32,
    pub dummy: u32,
}

/// One nodeid of a BATCH_FORGET.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct ForgetOne {
    pub nodeid: u64,
    pub nlookup: u64,
}

/// Arguments of OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct OpenIn {
    pub flags: u32,
    pub open_flags: u32,
}

/// Answer to OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct OpenOut {
    pub fh: u64,
    pub open_flags: u32,
    pub padding: u32,
}

/// Arguments of RELEASE and RELEASEDIR.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct ReleaseIn {
    pub fh: u64,
    pub flags: u32,
    pub release_flags: u32,
    pub lock_owner: u64,
}

/// Arguments of READ, READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct ReadIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub read_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// Arguments of GETXATTR (before the name) and LISTXATTR.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct GetxattrIn {
    pub size: u32,
    pub padding: u32,
}

/// Answer to GETXATTR and LISTXATTR that asked for the size only.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct GetxattrOut {
    pub size: u32,
    pub padding: u32,
}

/// Arguments of INTERRUPT.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct InterruptIn {
    pub unique: u64,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
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
    /// As [`encode_dev`] packs it.
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
#[allow(missing_docs, reason = "fields are the kernel's")]
pub struct AttrOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: Attr,
}

/// Answer to LOOKUP, and the first part of each entry of READDIRPLUS.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs, reason = "fields are the kernel's")]
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
#[allow(missing_docs, reason = "fields are the kernel's")]
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
#[allow(missing_docs, reason = "fields are the kernel's")]
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

/// A device number as [`Attr::rdev`] carries it: 12 bits of major, 20 of minor.
pub const fn encode_dev(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// The length of a directory record with its padding.
pub const fn record_align(len: usize) -> usize {
    len.next_multiple_of(8)
}

// The kernel's sizes; a struct that differs would shift every field after it.
const _: () = assert!(size_of::<InHeader>() == 40 && size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<InitIn>() == 16 && size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Attr>() == 88 && size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<EntryOut>() == 128 && size_of::<Dirent>() == 24);
const _: () = assert!(size_of::<StatfsOut>() == 80 && size_of::<ReadIn>() == 40);
const _: () = assert!(size_of::<ReleaseIn>() == 24 && size_of::<OpenOut>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clone_ioctl_has_the_kernels_number() {
        assert_eq!(DEV_IOC_CLONE, 0x8004_e500);
    }

    #[test]
    fn an_opcode_comes_back_from_its_number() {
        for number in 0..5000 {
            if let Some(opcode) = Opcode::of(number) {
                assert_eq!(opcode as u32, number);
            }
        }
    }

    #[test]
    fn device_numbers_pack_as_the_kernel_unpacks_them() {
        // new_decode_dev: major = (dev & 0xfff00) >> 8, minor = (dev & 0xff) | ((dev >> 12) & 0xfff00)
        for (major, minor) in [(1, 3), (8, 17), (253, 0x12345), (0xfff, 0xf_ffff)] {
            let dev = encode_dev(major, minor);
            assert_eq!((dev & 0xf_ff00) >> 8, major);
            assert_eq!((dev & 0xff) | ((dev >> 12) & 0xf_ff00), minor);
        }
    }
}
