//! Attributes and extended attributes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portcullis_core::limits::{XATTR_LEN_BYTES_MAX, XATTR_NAME_LEN_MAX};
use portcullis_core::{Attr, FileKind, Handle, Status, Timestamp};
use portcullis_wire::message::{Caller, Failure, SetAttr, SetTime};
use rustix::fs::{
    self, AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
    XattrFlags, chmodat, chownat, ftruncate, utimensat,
};

use super::{Changes, Mutator};
use crate::attr::stat;
use crate::caller::{as_caller, unprivileged};
use crate::error::failure;
use crate::export::proc_path;
use crate::handles::Object;

impl Mutator {
    /// chmod(2), chown(2), truncate(2) and utimensat(2) in one. `file` is the file opened for
    /// writing, where the caller has it open. Answers the attributes afterwards.
    ///
    /// What the caller may be refused comes first, and content is cut off last: a refusal leaves the
    /// size as it was.
    pub(crate) fn setattr(
        &self,
        caller: &Caller,
        handle: &Handle,
        file: Option<BorrowedFd<'_>>,
        set: &SetAttr,
        changes: &mut Changes,
    ) -> Result<Attr, Failure> {
        let nobody = Some(u32::MAX);
        if set.uid == nobody || set.gid == nobody {
            return Err(Failure::new(Status::InvalidArgument, "no user or group has this id"));
        }
        let object = self.handles.object(handle)?;
        if set.size_bytes.is_some_and(|size_bytes| i64::try_from(size_bytes).is_err()) {
            return Err(Status::TooBig.into());
        }
        let opened: OwnedFd;
        let content = match (set.size_bytes, file) {
            (None, _) => None,
            (Some(size_bytes), Some(file)) => Some((file, size_bytes)),
            (Some(size_bytes), None) => {
                opened = self.open_to_truncate(&object)?;
                Some((opened.as_fd(), size_bytes))
            }
        };
        changes.attr(*handle);
        set_by_path(caller, &object, set)?;
        if let Some((file, size_bytes)) = content {
            truncate(caller, file, size_bytes, set.kill_set_id)?;
            // That moved the times, and may have taken set-id bits away.
            set_by_path(caller, &object, &SetAttr { uid: None, gid: None, ..*set })?;
        }
        let attr = stat(object.fd.as_fd()).map_err(failure)?.attr();
        Ok(self.orphans.told(handle, attr))
    }

    fn open_to_truncate(&self, object: &Object) -> Result<OwnedFd, Failure> {
        match object.stat.kind() {
            FileKind::Regular => {
                let export = self.handles.export();
                export.open_file(object.fd.as_fd(), OFlags::WRONLY).map_err(failure)
            }
            FileKind::Directory => Err(Status::IsDirectory.into()),
            _ => Err(Status::InvalidArgument.into()),
        }
    }

    /// setxattr(2), with its flags. The value may be empty, and have any bytes.
    pub(crate) fn setxattr(
        &self,
        caller: &Caller,
        handle: &Handle,
        name: &[u8],
        value: &[u8],
        flags: u32,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        check_xattr_name(name)?;
        if value.len() > XATTR_LEN_BYTES_MAX {
            let detail = format!("a value has at most {XATTR_LEN_BYTES_MAX} bytes");
            return Err(Failure::new(Status::TooLong, detail));
        }
        let flags = XattrFlags::from_bits_retain(flags);
        if !(XattrFlags::CREATE | XattrFlags::REPLACE).contains(flags) {
            return Err(Failure::new(Status::InvalidArgument, "unknown flags of a setxattr"));
        }
        let object = self.handles.object(handle)?;
        let path = proc_path(object.fd.as_fd());
        changes.attr(*handle);
        as_caller(caller, || fs::setxattr(&path, name, value, flags)).map_err(failure)
    }

    /// removexattr(2).
    pub(crate) fn removexattr(
        &self,
        caller: &Caller,
        handle: &Handle,
        name: &[u8],
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        check_xattr_name(name)?;
        let object = self.handles.object(handle)?;
        let path = proc_path(object.fd.as_fd());
        changes.attr(*handle);
        as_caller(caller, || fs::removexattr(&path, name)).map_err(failure)
    }
}

/// Cuts a file that is open for writing, or makes it longer.
fn truncate(
    caller: &Caller,
    file: BorrowedFd<'_>,
    size_bytes: u64,
    kill_set_id: bool,
) -> Result<(), Failure> {
    let truncate = || ftruncate(file, size_bytes);
    let truncated = if kill_set_id {
        as_caller(&unprivileged(caller), truncate)
    } else {
        as_caller(caller, truncate)
    };
    truncated.map_err(failure)
}

/// Sets what needs no open file. Owners first: giving a file away clears the set-id bits that a
/// mode set along with it may have.
fn set_by_path(caller: &Caller, object: &Object, set: &SetAttr) -> Result<(), Failure> {
    let is_bare_kill = set.kill_set_id && set.size_bytes.is_none();
    let owner = set.uid.is_some() || set.gid.is_some() || is_bare_kill;
    // Truncating sets the time, and whoever may write need not be the owner.
    let is_set = set.size_bytes.is_some() && set.mtime == Some(SetTime::Now);
    let mtime = if is_set { None } else { set.mtime };
    let times = set.atime.is_some() || mtime.is_some();
    if !owner && set.mode.is_none() && !times {
        return Ok(());
    }
    let set_all = || {
        if owner {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            chownat(&object.fd, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = set.mode {
            // An O_PATH descriptor has no fchmod.
            let path = proc_path(object.fd.as_fd());
            chmodat(CWD, path, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        if times {
            let times = Timestamps { last_access: time(set.atime), last_modification: time(mtime) };
            utimensat(&object.fd, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    };
    as_caller(caller, set_all).map_err(failure)
}

fn time(set: Option<SetTime>) -> Timespec {
    match set {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(Timestamp { secs, nanos })) => {
            // A greater number would be one of those above.
            Timespec { tv_sec: secs, tv_nsec: i64::from(nanos.min(999_999_999)) }
        }
    }
}

fn check_xattr_name(name: &[u8]) -> Result<(), Failure> {
    if name.is_empty() || name.contains(&0) || name.len() > XATTR_NAME_LEN_MAX {
        let detail = "the name of an attribute has 1 to 255 bytes, none of them NUL";
        return Err(Failure::new(Status::Range, detail));
    }
    Ok(())
}
