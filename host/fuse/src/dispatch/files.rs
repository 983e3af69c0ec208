//! Requests about open files, and those that open them.

use zerocopy::FromBytes;

use super::arguments::Arguments;
use super::{Dispatcher, caller};
use crate::abi::{
    CopyFileRangeIn, CreateIn, FSYNC_FDATASYNC, FallocateIn, FlushIn, FsyncIn, InHeader, IoctlIn,
    LkIn, LseekIn, OPEN_KILL_SUIDGID, Opcode, OpenIn, PAGE_LEN_BYTES, READ_LOCKOWNER,
    RELEASE_FLOCK_UNLOCK, ReadIn, ReleaseIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WRITE_LOCKOWNER,
    WriteIn,
};
use crate::buffer::Request;
use crate::filesystem::Filesystem;
use crate::reply::Reply;
use crate::request::{CopyFileRange, Create, Fallocate, Lock, Open, Read, Release, Seek, Write};

/// `SEEK_DATA` and `SEEK_HOLE` of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Bytes that one COPY_FILE_RANGE may copy: its answer has 32 bits for them.
const COPY_LEN_BYTES_MAX: u64 = u32::MAX as u64 & !(PAGE_LEN_BYTES as u64 - 1);

impl<F: Filesystem> Dispatcher<F> {
    pub(super) fn call_file(
        &self,
        header: &InHeader,
        opcode: Opcode,
        mut args: Arguments<'_>,
    ) -> Option<()> {
        let fs = &*self.filesystem;
        let caller = caller(header);
        match opcode {
            Opcode::Open => {
                let OpenIn { flags, open_flags } = args.take()?;
                let kill_suidgid = open_flags & OPEN_KILL_SUIDGID != 0;
                let open = Open { flags, kill_suidgid };
                fs.open(caller, header.nodeid, open, self.reply(header));
            }
            Opcode::Create => {
                let create = create(args.take()?);
                fs.create(caller, header.nodeid, args.name()?, create, self.reply(header));
            }
            Opcode::Tmpfile => {
                // The name after it stands for none.
                let create = create(args.take()?);
                fs.tmpfile(caller, header.nodeid, create, self.reply(header));
            }
            Opcode::Read => {
                let read: ReadIn = args.take()?;
                let lock_owner = (read.read_flags & READ_LOCKOWNER != 0).then_some(read.lock_owner);
                let ReadIn { fh, offset, flags, .. } = read;
                let size = self.read_len(read.size)?;
                let read = Read { offset, len_bytes: size, flags, lock_owner };
                fs.read(caller, fh, read, self.sized(header, size));
            }
            Opcode::Flush => {
                let FlushIn { fh, lock_owner, .. } = args.take()?;
                fs.flush(caller, fh, lock_owner, self.reply(header));
            }
            Opcode::Fsync => {
                let FsyncIn { fh, fsync_flags, .. } = args.take()?;
                let data_only = fsync_flags & FSYNC_FDATASYNC != 0;
                fs.fsync(caller, fh, data_only, self.reply(header));
            }
            Opcode::Release => {
                let ReleaseIn { fh, flags, release_flags, lock_owner } = args.take()?;
                let flock = release_flags & RELEASE_FLOCK_UNLOCK != 0;
                let release = Release { flags, flock_owner: flock.then_some(lock_owner) };
                fs.release(fh, release, self.reply(header));
            }
            Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => {
                let raw: LkIn = args.take()?;
                self.call_lock(header, opcode, raw.fh, Lock::new(&raw)?);
            }
            _ => return self.call_range(header, opcode, args),
        }
        Some(())
    }

    fn call_lock(&self, header: &InHeader, opcode: Opcode, file: u64, lock: Lock) {
        let (fs, caller) = (&*self.filesystem, caller(header));
        match opcode {
            Opcode::Getlk => fs.getlk(caller, file, lock, self.reply(header)),
            Opcode::Setlk => fs.setlk(caller, file, lock, self.reply(header)),
            _ => fs.setlkw(caller, file, lock, self.reply(header)),
        }
    }

    /// Requests about ranges of open files that are neither read nor written.
    fn call_range(&self, header: &InHeader, opcode: Opcode, mut args: Arguments<'_>) -> Option<()> {
        let fs = &*self.filesystem;
        let caller = caller(header);
        match opcode {
            Opcode::Fallocate => {
                let FallocateIn { fh, offset, length, mode, .. } = args.take()?;
                range(offset, length)?;
                let fallocate = Fallocate { mode, offset, len_bytes: length };
                fs.fallocate(caller, fh, fallocate, self.reply(header));
            }
            Opcode::Lseek => {
                let LseekIn { fh, offset, whence, .. } = args.take()?;
                let seek = match whence {
                    SEEK_DATA => Seek::Data(offset),
                    SEEK_HOLE => Seek::Hole(offset),
                    _ => return None,
                };
                fs.lseek(caller, fh, seek, self.reply(header));
            }
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
                let raw: CopyFileRangeIn = args.take()?;
                range(raw.off_in, raw.len).and(range(raw.off_out, raw.len))?;
                let wide = opcode == Opcode::CopyFileRange64;
                let copy = CopyFileRange {
                    file_in: raw.fh_in,
                    offset_in: raw.off_in,
                    nodeid_out: raw.nodeid_out,
                    file_out: raw.fh_out,
                    offset_out: raw.off_out,
                    len_bytes: if wide { raw.len } else { raw.len.min(COPY_LEN_BYTES_MAX) },
                    flags: raw.flags,
                };
                fs.copy_file_range(caller, copy, Reply::new(self.token(header).wide(wide)));
            }
            Opcode::Ioctl => {
                let IoctlIn { fh, cmd, .. } = args.take()?;
                fs.ioctl(caller, fh, cmd, self.reply(header));
            }
            _ => return None,
        }
        Some(())
    }

    /// A write, whose data may take the request's buffer along.
    pub(super) fn write(&self, header: &InHeader, request: &mut Request) -> Option<()> {
        let head = size_of::<InHeader>() + size_of::<WriteIn>();
        let (raw, data) =
            WriteIn::read_from_prefix(request.bytes().get(size_of::<InHeader>()..)?).ok()?;
        if data.len() != raw.size as usize {
            return None;
        }
        let WriteIn { fh, offset, size, write_flags, lock_owner, flags, .. } = raw;
        range(offset, u64::from(size))?;
        let has = |flag| write_flags & flag != 0;
        let write = Write {
            offset,
            flags,
            lock_owner: has(WRITE_LOCKOWNER).then_some(lock_owner),
            from_cache: has(WRITE_CACHE),
            kill_suidgid: has(WRITE_KILL_SUIDGID),
        };
        let data = request.share(head..head + size as usize);
        self.filesystem.write(caller(header), fh, write, data, self.sized(header, size));
        Some(())
    }
}

/// `None` for bytes that no file can have.
fn range(offset: u64, len: u64) -> Option<()> {
    (offset.checked_add(len)? <= i64::MAX as u64).then_some(())
}

fn create(raw: CreateIn) -> Create {
    let CreateIn { flags, mode, umask, open_flags } = raw;
    Create { flags, mode, umask, kill_suidgid: open_flags & OPEN_KILL_SUIDGID != 0 }
}
