//! The content of open files.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use bytes::Bytes;
use portcullis_core::{Handle, Status};
use portcullis_wire::message::{Caller, Failure};
use rustix::fs::{self, FallocateFlags, SeekFrom, seek};
use rustix::io::{Errno, ReadWriteFlags, Result as IoResult, pread, pwritev2, writev};

use super::Changes;
use crate::attr::stat;
use crate::caller::{as_caller, unprivileged};
use crate::error::failure;
use crate::export::reopen_for_append;

/// Bytes one copy_file_range takes at most; whoever wants more asks again. It keeps a worker from
/// being held for long where bytes have to be moved.
const COPY_LEN_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Pieces of a body written at once; a body in more pieces is put together first (`IOV_MAX`).
const PIECES_MAX: usize = 1024;
/// Bytes the file system is asked to copy at once,
const COPY_STEP_LEN_BYTES: u64 = 32 * 1024 * 1024;
/// and bytes moved at once where it does not copy.
const MOVE_LEN_BYTES: usize = 256 * 1024;

/// An open file.
#[derive(Clone, Copy)]
pub(crate) struct Content<'a> {
    /// Its descriptor.
    pub(crate) fd: BorrowedFd<'a>,
    /// The file.
    pub(crate) handle: &'a Handle,
}

/// pwrite(2), or an append where there is no offset. All of `data` is written unless the file
/// system takes no more. `kill` is the caller where set-id bits and file capabilities are to go,
/// which the file system sees to when somebody writes who is not root.
pub(crate) fn write(
    file: Content<'_>,
    offset_bytes: Option<u64>,
    data: &[Bytes],
    kill: Option<&Caller>,
    changes: &mut Changes,
) -> Result<usize, Failure> {
    let len: u64 = data.iter().map(|piece| piece.len() as u64).sum();
    let end = offset_bytes.unwrap_or(0).checked_add(len);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(Status::TooBig.into());
    }
    changes.attr(*file.handle);
    let whole;
    let slices: Vec<IoSlice<'_>> = if data.len() <= PIECES_MAX {
        data.iter().map(|piece| IoSlice::new(piece)).collect()
    } else {
        whole = data.concat();
        vec![IoSlice::new(&whole)]
    };
    let write = || match offset_bytes {
        Some(offset) => {
            let flags = ReadWriteFlags::empty();
            all(slices, |rest, done| pwritev2(file.fd, rest, offset + done, flags))
        }
        None => append(file.fd, slices),
    };
    match kill {
        Some(caller) => as_caller(&unprivileged(caller), write),
        None => write(),
    }
    .map_err(failure)
}

/// Appends at once, wherever the end is by then.
fn append(file: BorrowedFd<'_>, slices: Vec<IoSlice<'_>>) -> IoResult<usize> {
    let flags = ReadWriteFlags::APPEND;
    let appended = all(slices.clone(), |rest, _| pwritev2(file, rest, 0, flags));
    if appended != Err(Errno::OPNOTSUPP) {
        return appended;
    }
    let file = reopen_for_append(file)?;
    all(slices, |rest, _| writev(&file, rest))
}

/// Writes the rest until nothing is left; fewer bytes where it fails in between.
fn all(
    mut slices: Vec<IoSlice<'_>>,
    write: impl Fn(&[IoSlice<'_>], u64) -> IoResult<usize>,
) -> IoResult<usize> {
    let mut rest = &mut slices[..];
    let mut done = 0;
    // Also leaves out empty ones at the front.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match write(rest, done as u64) {
            Ok(0) => break,
            Ok(written) => {
                done += written;
                IoSlice::advance_slices(&mut rest, written);
            }
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// fallocate(2), in every mode that the file system has. `kill` as in [`write()`].
pub(crate) fn allocate(
    file: Content<'_>,
    mode: u32,
    offset_bytes: u64,
    len_bytes: u64,
    kill: Option<&Caller>,
    changes: &mut Changes,
) -> Result<(), Failure> {
    changes.attr(*file.handle);
    let mode = FallocateFlags::from_bits_retain(mode);
    let allocate = || {
        loop {
            match fs::fallocate(file.fd, mode, offset_bytes, len_bytes) {
                Err(Errno::INTR) => {}
                allocated => return allocated,
            }
        }
    };
    match kill {
        Some(caller) => as_caller(&unprivileged(caller), allocate),
        None => allocate(),
    }
    .map_err(failure)
}

/// copy_file_range(2): answers how many bytes were copied, fewer than asked for at the end of the
/// source and over [`COPY_LEN_BYTES_MAX`].
pub(crate) fn copy_file_range(
    (from, from_offset_bytes): (Content<'_>, u64),
    (to, to_offset_bytes): (Content<'_>, u64),
    len_bytes: u64,
    kill: Option<&Caller>,
    changes: &mut Changes,
) -> Result<u64, Failure> {
    let ends = [from_offset_bytes, to_offset_bytes].map(|at| at.checked_add(len_bytes));
    if ends.iter().any(|end| end.is_none_or(|end| i64::try_from(end).is_err())) {
        return Err(Status::Overflow.into());
    }
    let distance = from_offset_bytes.abs_diff(to_offset_bytes);
    if is_same(from.fd, to.fd).map_err(failure)? && distance < len_bytes {
        let detail = "the ranges of one file overlap";
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    changes.attr(*to.handle);
    let len = len_bytes.min(COPY_LEN_BYTES_MAX);
    let copy = || {
        let (mut at, mut to_at) = (from_offset_bytes, to_offset_bytes);
        let mut copied = 0;
        while copied < len {
            let step = (len - copied).min(COPY_STEP_LEN_BYTES) as usize;
            match fs::copy_file_range(from.fd, Some(&mut at), to.fd, Some(&mut to_at), step) {
                Ok(0) => break,
                Ok(step) => copied += step as u64,
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return move_bytes((from.fd, at), (to.fd, to_at), len - copied)
                        .map(|moved| copied + moved)
                        .or_else(|error| if copied > 0 { Ok(copied) } else { Err(error) });
                }
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    };
    match kill {
        Some(caller) => as_caller(&unprivileged(caller), copy),
        None => copy(),
    }
    .map_err(failure)
}

/// Reads and writes what the file system does not copy itself.
fn move_bytes(
    (from, from_at): (BorrowedFd<'_>, u64),
    (to, to_at): (BorrowedFd<'_>, u64),
    len: u64,
) -> IoResult<u64> {
    let mut buffer = vec![0; MOVE_LEN_BYTES.min(len as usize)];
    let mut moved = 0;
    while moved < len {
        let room = buffer.len().min((len - moved) as usize);
        let read = match pread(from, &mut buffer[..room], from_at + moved) {
            Ok(0) => break,
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(error) if moved == 0 => return Err(error),
            Err(_) => break,
        };
        let slices = vec![IoSlice::new(&buffer[..read])];
        let flags = ReadWriteFlags::empty();
        let written = all(slices, |rest, done| pwritev2(to, rest, to_at + moved + done, flags));
        match written {
            Ok(written) => moved += written as u64,
            Err(error) if moved == 0 => return Err(error),
            Err(_) => break,
        }
        if written != Ok(read) {
            break;
        }
    }
    Ok(moved)
}

fn is_same(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> IoResult<bool> {
    let (a, b) = (stat(a)?, stat(b)?);
    Ok((a.dev(), a.ino()) == (b.dev(), b.ino()))
}

/// fsync(2), or fdatasync(2) where `data_only`.
pub(crate) fn fsync(file: BorrowedFd<'_>, data_only: bool) -> Result<(), Failure> {
    let synced = if data_only { fs::fdatasync(file) } else { fs::fsync(file) };
    synced.map_err(failure)
}

/// lseek(2) with `SEEK_DATA`, or `SEEK_HOLE` where `hole`: where the next one begins.
pub(crate) fn lseek(file: BorrowedFd<'_>, offset_bytes: u64, hole: bool) -> Result<u64, Failure> {
    if i64::try_from(offset_bytes).is_err() {
        return Err(Status::NoDevice.into());
    }
    // Nothing reads or writes at the position that this moves.
    let at = if hole { SeekFrom::Hole(offset_bytes) } else { SeekFrom::Data(offset_bytes) };
    seek(file, at).map_err(failure)
}
