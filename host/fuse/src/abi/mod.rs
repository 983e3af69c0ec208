//! The kernel's FUSE interface as plain structs: what is read from and written to `/dev/fuse`.
//!
//! - `opcode`: the numbers of requests.
//! - `request`, `reply`: the structs, in the two directions.
//! - `flags`: the bits of flag words.
//!
//! Layouts and numbers are those of Linux `include/uapi/linux/fuse.h`, version 7.45; names are the
//! kernel's without their `fuse_` prefix. Everything is in host byte order. Only what the session
//! uses is here.

mod flags;
mod opcode;
mod reply;
mod request;

pub use self::flags::*;
pub use self::opcode::Opcode;
pub use self::reply::*;
pub use self::request::*;

/// Major version of the interface. Another one has other headers.
pub const KERNEL_VERSION: u32 = 7;
/// The newest minor version these structs follow.
pub const KERNEL_MINOR_VERSION: u32 = 45;
/// The oldest minor version the session speaks (Linux 4.20): the first with `max_pages`.
pub const KERNEL_MINOR_VERSION_MIN: u32 = 28;
/// The first minor version (Linux 6.16) with the notification INC_EPOCH.
pub const KERNEL_MINOR_VERSION_EPOCH: u32 = 44;

/// The nodeid of the root directory.
pub const ROOT_ID: u64 = 1;
/// The inode number of an entry whose inode number is not known; 0 would mean "deleted" to libc.
pub const UNKNOWN_INO: u64 = 0xffff_ffff;
/// The read buffer must have at least this many bytes.
pub const MIN_READ_BUFFER_LEN: usize = 8192;
/// Bytes of a page as `max_pages` counts them.
pub const PAGE_LEN_BYTES: usize = 4096;
/// The longest name a notification may carry.
pub const NAME_LEN_MAX: usize = 1024;

/// `FUSE_DEV_IOC_CLONE`, `_IOR(229, 0, uint32_t)`: attaches a fresh `/dev/fuse` to a connection.
pub const DEV_IOC_CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// A device number as [`Attr::rdev`] and [`MknodIn::rdev`] carry it: 12 bits of major, 20 of minor.
pub const fn encode_dev(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// Major and minor of a device number that [`encode_dev`] packed.
pub const fn decode_dev(dev: u32) -> (u32, u32) {
    ((dev & 0xf_ff00) >> 8, (dev & 0xff) | ((dev >> 12) & 0xf_ff00))
}

/// The length of a directory record with its padding.
pub const fn record_align(len: usize) -> usize {
    len.next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clone_ioctl_has_the_kernels_number() {
        assert_eq!(DEV_IOC_CLONE, 0x8004_e500);
    }

    #[test]
    fn device_numbers_pack_as_the_kernel_unpacks_them() {
        // new_decode_dev: major = (dev & 0xfff00) >> 8, minor = (dev & 0xff) | ((dev >> 12) & 0xfff00)
        assert_eq!(encode_dev(8, 17), 0x811);
        assert_eq!(encode_dev(253, 0x12345), 0x1230_fd45);
        for (major, minor) in [(1, 3), (8, 17), (253, 0x12345), (0xfff, 0xf_ffff)] {
            assert_eq!(decode_dev(encode_dev(major, minor)), (major, minor));
        }
    }
}
