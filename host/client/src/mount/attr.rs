//! Attributes and errors in the kernel's terms.

use portcullis_core::{Attr, Status, Timestamp};
use portcullis_fuse::{Errno, abi, request};
use portcullis_wire::message::{SetAttr, SetTime, Statfs};

use crate::error::ClientError;

/// The bits of a mode that are not the type.
pub(super) const PERMISSIONS: u32 = 0o7777;

/// Attributes as the kernel takes them, `None` where it would refuse them.
pub(super) fn to_kernel(attr: &Attr) -> Option<abi::Attr> {
    let attr = abi::Attr {
        ino: attr.ino,
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: attr.atime.secs as u64,
        mtime: attr.mtime.secs as u64,
        ctime: attr.ctime.secs as u64,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: abi::encode_dev(rustix::fs::major(attr.rdev), rustix::fs::minor(attr.rdev)),
        blksize: attr.block_size_bytes,
        flags: 0,
    };
    attr.is_valid().then_some(attr)
}

/// Attributes to set, as the wire takes them; of the mode only what chmod(2) may set.
pub(super) fn set_attr(set: &request::SetAttr) -> SetAttr {
    let time = |time: request::SetTime| match time {
        request::SetTime::Now => SetTime::Now,
        request::SetTime::At { secs, nanos } => SetTime::At(Timestamp { secs, nanos }),
    };
    SetAttr {
        mode: set.mode.map(|mode| mode & PERMISSIONS),
        uid: set.uid,
        gid: set.gid,
        size_bytes: set.size,
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
        kill_set_id: set.kill_suidgid,
    }
}

/// Space and inodes as the kernel takes them.
pub(super) fn statfs_to_kernel(statfs: &Statfs) -> abi::StatfsOut {
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    abi::StatfsOut {
        blocks: statfs.blocks,
        bfree: statfs.blocks_free,
        bavail: statfs.blocks_available,
        files: statfs.files,
        ffree: statfs.files_free,
        bsize: narrow(statfs.block_bytes),
        namelen: narrow(statfs.name_len_max),
        frsize: narrow(statfs.fragment_bytes),
        ..abi::StatfsOut::default()
    }
}

/// The errno of a failure of a lookup, where "no such file" speaks of the name.
pub(super) fn errno(error: &ClientError) -> Errno {
    Errno::from_raw_os_error(error.status().to_errno())
}

/// The errno of a failure of a request for one file by its handle. There "no such file" speaks of
/// the file, and ESTALE makes the kernel walk the path anew instead of giving up.
pub(super) fn errno_of_handle(error: &ClientError) -> Errno {
    match error.status() {
        Status::NotFound => Errno::STALE,
        _ => errno(error),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_wire::message::Failure;

    use super::*;

    #[test]
    fn times_before_1970_and_device_numbers_survive() {
        let attr = Attr {
            mode: 0o020_600,
            mtime: Timestamp { secs: -5, nanos: 7 },
            rdev: rustix::fs::makedev(5, 300),
            ..Attr::default()
        };
        let kernel = to_kernel(&attr).unwrap();
        assert_eq!((kernel.mtime as i64, kernel.mtimensec), (-5, 7));
        assert_eq!(kernel.rdev, abi::encode_dev(5, 300));
    }

    #[test]
    fn what_the_kernel_would_refuse_is_not_offered() {
        assert!(to_kernel(&Attr::default()).is_none(), "no type");
        let size_bytes = u64::MAX;
        assert!(to_kernel(&Attr { mode: 0o100_644, size_bytes, ..Attr::default() }).is_none());
    }

    #[test]
    fn a_file_that_is_gone_is_stale_and_a_name_that_is_gone_is_missing() {
        let gone = ClientError::from(Failure::from(Status::NotFound));
        assert_eq!(errno(&gone), Errno::NOENT);
        assert_eq!(errno_of_handle(&gone), Errno::STALE);
        let denied = ClientError::from(Failure::from(Status::AccessDenied));
        assert_eq!(errno_of_handle(&denied), Errno::ACCESS);
    }
}
