//! A lock at the kernel: by a descriptor of its own, which closing releases.
//!
//! Record locks are held as open file description locks (`F_OFD_SETLK`, fcntl(2)): unlike those of
//! a process they belong to a descriptor, so that two owners exclude each other although one
//! process, the brick, holds for both. They exclude the record locks of other programs on this
//! host too.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use portcullis_wire::message::LockKind;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, Result};

use super::ranges::{END, Range};

/// Locks or releases a range; `AGAIN` where somebody else has it.
pub(super) fn set_range(fd: &OwnedFd, start: u64, end: u64, kind: LockKind) -> Result<()> {
    control(fd, libc::F_OFD_SETLK, &mut raw(start, end, kind)).map_err(|error| match error {
        Errno::ACCESS => Errno::AGAIN,
        _ => error,
    })
}

/// What stands in the way of a lock, and the process it belongs to where that is not a lock of
/// this sort (0 else).
pub(super) fn test_range(
    fd: &OwnedFd,
    start: u64,
    end: u64,
    kind: LockKind,
) -> Result<Option<(Range, u32)>> {
    let mut lock = raw(start, end, kind);
    control(fd, libc::F_OFD_GETLK, &mut lock)?;
    if i32::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let start = u64::try_from(lock.l_start).unwrap_or_default();
    let end = match u64::try_from(lock.l_len) {
        Ok(len) if len > 0 => start.saturating_add(len - 1),
        _ => END,
    };
    let is_write = i32::from(lock.l_type) == libc::F_WRLCK;
    Ok(Some((Range { start, end, is_write }, u32::try_from(lock.l_pid).unwrap_or_default())))
}

/// Locks or releases the whole file, flock(2); `AGAIN` where somebody else has it.
pub(super) fn set_whole(fd: &OwnedFd, kind: LockKind) -> Result<()> {
    flock(
        fd.as_fd(),
        match kind {
            LockKind::Read => FlockOperation::NonBlockingLockShared,
            LockKind::Write => FlockOperation::NonBlockingLockExclusive,
            LockKind::Unlock => FlockOperation::NonBlockingUnlock,
        },
    )
}

fn raw(start: u64, end: u64, kind: LockKind) -> libc::flock {
    let kind = match kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::Unlock => libc::F_UNLCK,
    };
    // A length of 0 is all to come.
    let len = if end >= END { 0 } else { end - start + 1 };
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: len as libc::off_t,
        l_pid: 0,
    }
}

fn control(fd: &OwnedFd, command: i32, lock: &mut libc::flock) -> Result<()> {
    loop {
        // SAFETY: `fd` is open while it is borrowed, and both commands read and write one
        // `struct flock`, which the pointer is to, and nothing else.
        let answer = unsafe { libc::fcntl(fd.as_raw_fd(), command, std::ptr::from_mut(lock)) };
        if answer >= 0 {
            return Ok(());
        }
        match Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO) {
            Errno::INTR => {}
            error => return Err(error),
        }
    }
}
