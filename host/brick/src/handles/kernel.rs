//! The kernel's own file handles: `name_to_handle_at(2)` and `open_by_handle_at(2)`.
//!
//! On the file systems of [`Lasting`] such a handle holds inode number and generation, so it stays
//! valid through renames, remounts and reboots, and an inode number used again has another
//! generation. Elsewhere that is not so (a FUSE handle is a node id that the file system may give
//! to another file), so there they are not used at all.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::{Errno, Result};
use rustix::path::Arg;

use super::tag::BODY_LEN_MAX;

/// File systems whose handles stay with their file for good.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lasting {
    /// ext2, ext3 and ext4.
    Ext,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
    /// tmpfs, until it is unmounted.
    Tmpfs,
}

impl Lasting {
    /// The file system of this `f_type` (statfs(2)), if it is one of them.
    pub(crate) fn of(fs_type: u64) -> Option<Self> {
        match fs_type {
            0xef53 => Some(Self::Ext),
            0x5846_5342 => Some(Self::Xfs),
            0x9123_683e => Some(Self::Btrfs),
            0x0102_1994 => Some(Self::Tmpfs),
            _ => None,
        }
    }
}

/// Longest kernel handle that fits a handle, with its kind and its type before it.
const LEN_MAX: usize = BODY_LEN_MAX - 2;

/// Longest handle that any file system makes (`MAX_HANDLE_SZ`, fcntl.h).
const KERNEL_LEN_MAX: usize = 128;

/// A kernel handle: its type and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelHandle {
    len: u8,
    /// Type, then the file system's bytes.
    packed: [u8; LEN_MAX + 1],
}

/// `struct file_handle` with room for its flexible array.
#[repr(C)]
struct RawHandle {
    header: libc::file_handle,
    bytes: [u8; KERNEL_LEN_MAX],
}

const _: () = assert!(size_of::<libc::file_handle>() == 8);
const _: () = assert!(std::mem::offset_of!(RawHandle, bytes) == 8);

impl RawHandle {
    fn new(kind: i32, bytes: &[u8]) -> Self {
        let header =
            libc::file_handle { handle_bytes: bytes.len() as u32, handle_type: kind, f_handle: [] };
        let mut raw = Self { header, bytes: [0; KERNEL_LEN_MAX] };
        raw.bytes[..bytes.len()].copy_from_slice(bytes);
        raw
    }
}

impl KernelHandle {
    /// The handle of the file that `fd`, which may be `O_PATH`, refers to; `None` where the file
    /// system gives none, or one that does not fit.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Option<Self>> {
        Self::at(fd, b"", libc::AT_EMPTY_PATH)
    }

    /// The same for what `name` stands for in `dir`, a link itself.
    pub(crate) fn of_name(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Self>> {
        Self::at(dir, name, 0)
    }

    fn at(fd: BorrowedFd<'_>, name: &[u8], flags: i32) -> Result<Option<Self>> {
        let mut raw = RawHandle::new(0, &[0; KERNEL_LEN_MAX]);
        let mut mount_id = 0;
        let result = name.into_with_c_str(|name| {
            // SAFETY: `fd` is open while it is borrowed and `name` is a C string. The pointer comes
            // from the whole of `raw`, which begins with a `file_handle` and has `handle_bytes`
            // bytes after it (asserted above), and the kernel writes no more than that.
            Ok(unsafe {
                libc::name_to_handle_at(
                    fd.as_raw_fd(),
                    name.as_ptr(),
                    (&raw mut raw).cast(),
                    &mut mount_id,
                    flags,
                )
            })
        })?;
        if result != 0 {
            return match last_error() {
                Errno::OPNOTSUPP | Errno::OVERFLOW => Ok(None),
                error => Err(error),
            };
        }
        let len = raw.header.handle_bytes as usize;
        let (Ok(kind), true) = (u8::try_from(raw.header.handle_type), len <= LEN_MAX) else {
            return Ok(None);
        };
        let mut packed = [0; LEN_MAX + 1];
        packed[0] = kind;
        packed[1..=len].copy_from_slice(&raw.bytes[..len]);
        Ok(Some(Self { len: len as u8 + 1, packed }))
    }

    /// The handle of this type with these bytes, `None` where it does not fit.
    pub(crate) fn of_parts(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut packed = [0; LEN_MAX + 1];
        packed[0] = u8::try_from(kind).ok()?;
        packed.get_mut(1..=bytes.len())?.copy_from_slice(bytes);
        Some(Self { len: bytes.len() as u8 + 1, packed })
    }

    /// The handle that [`KernelHandle::as_bytes`] gave, `None` where it cannot have.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut packed = [0; LEN_MAX + 1];
        packed.get_mut(..bytes.len())?.copy_from_slice(bytes);
        (!bytes.is_empty()).then_some(Self { len: bytes.len() as u8, packed })
    }

    /// Type and bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.packed[..usize::from(self.len)]
    }

    /// The inode number in a handle of this file system, `None` where the handle has another form
    /// than we know. The forms last, because NFS clients keep such handles for years.
    pub(crate) fn ino(&self, file_system: Lasting) -> Option<u64> {
        let (&kind, bytes) = self.as_bytes().split_first()?;
        let word = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u64::from(u32::from_ne_bytes(*bytes)))
        };
        let double = || Some(u64::from_ne_bytes(*bytes.first_chunk()?));
        match (file_system, kind) {
            // FILEID_INO32_GEN: inode number, generation.
            (Lasting::Ext | Lasting::Xfs, 1) => word(0),
            // FILEID_INO64_GEN, and FILEID_BTRFS_WITHOUT_PARENT: the object's id first.
            (Lasting::Xfs, 0x81) | (Lasting::Btrfs, 0x4d) => double(),
            // Generation, lower and upper half of the inode number.
            (Lasting::Tmpfs, 1) => Some(word(4)? | word(8)? << 32),
            _ => None,
        }
    }

    /// Opens the file by an `O_PATH` descriptor, on the file system of `mount`. Needs
    /// `CAP_DAC_READ_SEARCH`.
    pub(crate) fn open(&self, mount: BorrowedFd<'_>) -> Result<OwnedFd> {
        let mut raw = RawHandle::new(i32::from(self.packed[0]), &self.as_bytes()[1..]);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // SAFETY: as above; the kernel only reads the `handle_bytes` bytes after the header.
        let fd = unsafe {
            libc::open_by_handle_at(
                mount.as_raw_fd(),
                (&raw mut raw).cast(),
                flags.bits().cast_signed(),
            )
        };
        if fd < 0 {
            return Err(last_error());
        }
        // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_handle_holds_the_inode_number_where_it_is_looked_for() {
        for dir in [std::env::temp_dir(), "/dev/shm".into(), "/".into()] {
            let Ok(fd) = std::fs::File::open(&dir) else { continue };
            let fs_type = rustix::fs::fstatfs(&fd).expect("statfs").f_type as u64;
            let Some(file_system) = Lasting::of(fs_type) else { continue };
            let Ok(Some(handle)) = KernelHandle::of(fd.as_fd()) else { continue };
            let ino = fd.metadata().expect("metadata").ino();
            assert_eq!(handle.ino(file_system), Some(ino), "{file_system:?}: {handle:?}");
        }
    }
}
