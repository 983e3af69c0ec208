//! What a file system answers.

use bytes::Bytes;
use rustix::io::Errno;

use crate::caller::Caller;
use crate::negotiate::Negotiated;
use crate::notify::Notifier;
use crate::reply::{
    Attr, Copied, Created, Data, Directory, Done, Entry, LockFound, Opened, Position, Reply,
    Statfs, Written, Xattr,
};
use crate::request::{
    CopyFileRange, Create, Fallocate, Lock, Mknod, Open, Read, Release, Rename, Seek, SetAttr,
    SetXattr, Write,
};

/// A file system behind a [`Session`](crate::Session). Its users are the client's mount and the
/// in-memory tree of this crate's tests.
///
/// The session guarantees:
/// - `init` is called once, first; `destroy` once, last. Between them, methods are called from the
///   session's threads, many at once, in no order but the kernel's.
/// - A nodeid it passes is [`ROOT_ID`](crate::abi::ROOT_ID), or one that an answer gave and whose
///   references `forget` has not all returned.
/// - A file number it passes is one that `open`, `create`, `tmpfile` (or `opendir`) gave and that was
///   not released; `release` comes once for each number the kernel took, unless the mount is torn
///   away.
/// - Names have no `/` and no NUL and are not empty, but may be longer than 255 bytes.
/// - The kernel has checked permissions by mode, owner and group (`default_permissions`), from
///   attributes that may be as old as their validity: the file system checks again where it matters.
///
/// The implementor must:
/// - not block in a method: a request that has to wait moves its reply to a task or thread;
/// - answer every reply, in time; what it drops is answered EIO;
/// - count one reference for each entry it gives, in `lookup` and all that make an entry, and in a
///   plus buffer, and keep the nodeid's meaning until `forget` has returned them all; give no nodeid
///   to another file afterwards (nodeid and generation are unique for the life of the mount);
/// - take back what an answer gave when its delivery was lost ([`crate::Delivery`]);
/// - answer ESTALE, not ENOENT, for a nodeid whose file is gone: then the kernel walks the path anew;
/// - apply the umask that comes with `mknod`, `mkdir`, `create` and `tmpfile` (unless the directory
///   has a default ACL that counts instead): the kernel leaves it to us;
/// - clear set-user-id and set-group-id as the flags `kill_suidgid` say, on every change of owner or
///   group also without a flag, and drop `security.capability` on each write, truncation and change
///   of owner: the kernel leaves that to us, too (FUSE_HANDLE_KILLPRIV_V2). It does not ask for the
///   mode again after a write or an open that cleared bits of it, so it has to be told
///   ([`Notifier::inval_inode`] with an offset of -1), before the answer;
/// - where it takes locks ([`Config::locks`](crate::Config::locks)): drop the fcntl(2) locks of an
///   owner in `flush`, and in `release` whatever was locked through that file and is still held
///   (locks of open file descriptions end without another word).
///
/// What a default body answers makes a read-only file system without locks: changes are refused
/// with EROFS; ENOSYS makes the kernel do without that request for the life of the mount.
#[expect(unused_variables, reason = "the names of arguments are part of the documentation")]
pub trait Filesystem: Send + Sync + 'static {
    /// What was agreed with the kernel, and how to tell it of changes. No request comes before this
    /// returns.
    fn init(&self, negotiated: &Negotiated, notifier: &Notifier) {}

    /// The mount is gone; no request follows.
    fn destroy(&self) {}

    // ---- names -----------------------------------------------------------------------------

    /// The entry `name` of a directory, or ENOENT.
    fn lookup(&self, caller: Caller, parent: u64, name: &[u8], reply: Reply<Entry>);

    /// The kernel returns `nlookup` references.
    fn forget(&self, nodeid: u64, nlookup: u64);

    /// The kernel returns references to many nodeids: pairs of nodeid and `nlookup`.
    fn batch_forget(&self, forgets: impl Iterator<Item = (u64, u64)>) {
        forgets.for_each(|(nodeid, nlookup)| self.forget(nodeid, nlookup));
    }

    /// Makes a file of any type, a directory excepted.
    fn mknod(&self, caller: Caller, parent: u64, name: &[u8], mknod: Mknod, reply: Reply<Entry>) {
        reply.error(Errno::ROFS);
    }

    /// Makes a directory. `mode` is before the umask.
    fn mkdir(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        reply: Reply<Entry>,
    ) {
        reply.error(Errno::ROFS);
    }

    /// Makes a symbolic link.
    fn symlink(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        target: &[u8],
        reply: Reply<Entry>,
    ) {
        reply.error(Errno::ROFS);
    }

    /// Gives the file of a nodeid another name. The entry answered has its nodeid again.
    fn link(
        &self,
        caller: Caller,
        nodeid: u64,
        new_parent: u64,
        new_name: &[u8],
        reply: Reply<Entry>,
    ) {
        reply.error(Errno::ROFS);
    }

    /// Removes a name of a file that is no directory. Open files live on.
    fn unlink(&self, caller: Caller, parent: u64, name: &[u8], reply: Reply<Done>) {
        reply.error(Errno::ROFS);
    }

    /// Removes an empty directory.
    fn rmdir(&self, caller: Caller, parent: u64, name: &[u8], reply: Reply<Done>) {
        reply.error(Errno::ROFS);
    }

    /// Renames. Flags that are not known are answered EINVAL.
    fn rename(&self, caller: Caller, rename: Rename<'_>, reply: Reply<Done>) {
        reply.error(Errno::ROFS);
    }

    /// The target of a symbolic link.
    fn readlink(&self, caller: Caller, nodeid: u64, reply: Reply<Data>);

    // ---- attributes ------------------------------------------------------------------------

    /// Attributes; `file` is the open file they were asked through, if any.
    fn getattr(&self, caller: Caller, nodeid: u64, file: Option<u64>, reply: Reply<Attr>);

    /// Changes attributes; answers with all of them as they are then.
    fn setattr(&self, caller: Caller, nodeid: u64, setattr: SetAttr, reply: Reply<Attr>) {
        reply.error(Errno::ROFS);
    }

    /// The value of an extended attribute. ENOSYS ends all such requests of this mount.
    ///
    /// With [`Config::posix_acl`](crate::Config::posix_acl) a file without an access list answers
    /// ENODATA: the kernel asks while it checks permissions, and any other error, EOPNOTSUPP as
    /// well, becomes that of the system call.
    fn getxattr(&self, caller: Caller, nodeid: u64, name: &[u8], reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// The names of the extended attributes, each ended by NUL. ENOSYS ends all such requests.
    fn listxattr(&self, caller: Caller, nodeid: u64, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// Sets an extended attribute. ENOSYS ends all such requests.
    fn setxattr(&self, caller: Caller, nodeid: u64, setxattr: SetXattr<'_>, reply: Reply<Done>) {
        reply.error(Errno::ROFS);
    }

    /// Removes an extended attribute. ENOSYS ends all such requests.
    fn removexattr(&self, caller: Caller, nodeid: u64, name: &[u8], reply: Reply<Done>) {
        reply.error(Errno::ROFS);
    }

    /// access(2). Does not come with `default_permissions`, which every mount has.
    fn access(&self, caller: Caller, nodeid: u64, mask: u32, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }

    /// Space and inodes.
    fn statfs(&self, caller: Caller, nodeid: u64, reply: Reply<Statfs>);

    // ---- open files ------------------------------------------------------------------------

    /// Opens a regular file.
    fn open(&self, caller: Caller, nodeid: u64, open: Open, reply: Reply<Opened>);

    /// Makes a regular file and opens it, or opens the one that is there (EEXIST with `O_EXCL`), in
    /// one step.
    fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        create: Create,
        reply: Reply<Created>,
    ) {
        reply.error(Errno::ROFS);
    }

    /// Makes a regular file without a name and opens it (`O_TMPFILE`). Without `O_EXCL`, `link` may
    /// give it a name later. ENOSYS ends all such requests, which programs see as EOPNOTSUPP.
    fn tmpfile(&self, caller: Caller, parent: u64, create: Create, reply: Reply<Created>) {
        reply.error(Errno::NOSYS);
    }

    /// Reads from an open file; fewer bytes than asked for only at its end.
    fn read(&self, caller: Caller, file: u64, read: Read, reply: Reply<Data>);

    /// Writes to an open file. `data` is a slice of the buffer that the kernel filled: keeping a
    /// part keeps all of it.
    fn write(&self, caller: Caller, file: u64, write: Write, data: Bytes, reply: Reply<Written>) {
        reply.error(Errno::ROFS);
    }

    /// close(2) of one of the descriptors of an open file; comes any number of times. ENOSYS ends
    /// all such requests.
    fn flush(&self, caller: Caller, file: u64, lock_owner: u64, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }

    /// fsync(2); `data_only` for fdatasync(2). ENOSYS is success, for good.
    fn fsync(&self, caller: Caller, file: u64, data_only: bool, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }

    /// Closes an open file, after its last descriptor and mapping. Nobody waits for the answer.
    fn release(&self, file: u64, release: Release, reply: Reply<Done>);

    /// fallocate(2).
    fn fallocate(&self, caller: Caller, file: u64, fallocate: Fallocate, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }

    /// lseek(2) for data and holes; ENXIO beyond the end. With ENOSYS the kernel takes all for data.
    fn lseek(&self, caller: Caller, file: u64, seek: Seek, reply: Reply<Position>) {
        reply.error(Errno::NOSYS);
    }

    /// copy_file_range(2) between two open files of this mount. With ENOSYS the kernel reads and
    /// writes.
    fn copy_file_range(&self, caller: Caller, copy: CopyFileRange, reply: Reply<Copied>) {
        reply.error(Errno::NOSYS);
    }

    /// ioctl(2) with this command. ENOTTY: there is no such command.
    fn ioctl(&self, caller: Caller, file: u64, command: u32, reply: Reply<Done>) {
        reply.error(Errno::NOTTY);
    }

    // ---- locks, where Config::locks is set ---------------------------------------------------

    /// Which lock is in the way of this one: `F_GETLK`.
    fn getlk(&self, caller: Caller, file: u64, lock: Lock, reply: Reply<LockFound>) {
        reply.error(Errno::NOSYS);
    }

    /// Locks or unlocks at once, or EAGAIN.
    fn setlk(&self, caller: Caller, file: u64, lock: Lock, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }

    /// Locks once it can. The kernel forwards a signal of whoever waits as an interrupt
    /// ([`Reply::on_interrupt`]); answered EINTR, it ends or restarts the system call.
    fn setlkw(&self, caller: Caller, file: u64, lock: Lock, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }

    // ---- directories -----------------------------------------------------------------------

    /// Opens a directory.
    fn opendir(&self, caller: Caller, nodeid: u64, reply: Reply<Opened>);

    /// Entries of an open directory: from the start for offset 0, else those after the entry that
    /// was packed with this offset. For READDIR and READDIRPLUS alike; the reply's buffer knows.
    fn readdir(&self, caller: Caller, dir: u64, offset: u64, reply: Reply<Directory>);

    /// fsync(2) of a directory. ENOSYS is success, for good.
    fn fsyncdir(&self, caller: Caller, dir: u64, data_only: bool, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }

    /// Closes an open directory.
    fn releasedir(&self, dir: u64, reply: Reply<Done>);

    // ---- the whole ---------------------------------------------------------------------------

    /// syncfs(2). Linux sends it to virtiofs only, up to 6.18.
    fn syncfs(&self, caller: Caller, nodeid: u64, reply: Reply<Done>) {
        reply.error(Errno::NOSYS);
    }
}
