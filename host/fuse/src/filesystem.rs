//! What a file system answers.

use rustix::io::Errno;

use crate::reply::{Attr, Data, Directory, Done, Entry, Opened, Reply, Statfs, Xattr};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Thread, 0 where it has no number in the pid namespace of the mounting process.
    pub pid: u32,
}

/// A read-only file system behind a [`Session`](crate::Session). Its users are the client's mount
/// and the in-memory tree of this crate's tests.
///
/// The session guarantees:
/// - Methods are called from its threads, many at once, in no order but the kernel's.
/// - A nodeid it passes is [`ROOT_ID`](crate::abi::ROOT_ID), or one that an answer gave and whose
///   references `forget` has not all returned.
/// - A file number it passes is one that `open` (or `opendir`) gave and that was not released;
///   `release` comes once for each number the kernel took, unless the mount is torn away.
/// - Names have no `/` and no NUL and are not empty, but may be longer than 255 bytes.
/// - `destroy` is called once, last.
///
/// The implementor must:
/// - not block in a method: a request that has to wait moves its reply to a task or thread;
/// - answer every reply, in time; what it drops is answered EIO;
/// - count one reference for each entry it gives, in `lookup` and in a plus buffer, and keep the
///   nodeid's meaning until `forget` has returned them all; give no nodeid to another file
///   afterwards (nodeid and generation are unique for the life of the mount);
/// - take back what an answer gave when its delivery was lost ([`crate::Delivery`]);
/// - answer ESTALE, not ENOENT, for a nodeid whose file is gone: then the kernel walks the path anew.
pub trait Filesystem: Send + Sync + 'static {
    /// The entry `name` of a directory, or ENOENT.
    fn lookup(&self, caller: Caller, parent: u64, name: &[u8], reply: Reply<Entry>);

    /// The kernel returns `nlookup` references.
    fn forget(&self, nodeid: u64, nlookup: u64);

    /// Attributes.
    fn getattr(&self, caller: Caller, nodeid: u64, reply: Reply<Attr>);

    /// The target of a symbolic link.
    fn readlink(&self, caller: Caller, nodeid: u64, reply: Reply<Data>);

    /// Opens a regular file. `flags` are those of open(2).
    fn open(&self, caller: Caller, nodeid: u64, flags: u32, reply: Reply<Opened>);

    /// Reads from an open file; fewer than `len_bytes` only at its end.
    fn read(&self, caller: Caller, file: u64, offset: u64, len_bytes: u32, reply: Reply<Data>);

    /// Closes an open file.
    fn release(&self, file: u64, reply: Reply<Done>);

    /// Opens a directory.
    fn opendir(&self, caller: Caller, nodeid: u64, reply: Reply<Opened>);

    /// Entries of an open directory: from the start for offset 0, else those after the entry that
    /// was packed with this offset. For READDIR and READDIRPLUS alike; the reply's buffer knows.
    fn readdir(&self, caller: Caller, dir: u64, offset: u64, reply: Reply<Directory>);

    /// Closes an open directory.
    fn releasedir(&self, dir: u64, reply: Reply<Done>);

    /// Space and inodes.
    fn statfs(&self, caller: Caller, nodeid: u64, reply: Reply<Statfs>);

    /// The value of an extended attribute. ENOSYS ends all such requests of this mount.
    fn getxattr(&self, _caller: Caller, _nodeid: u64, _name: &[u8], reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// The names of the extended attributes, each ended by NUL. ENOSYS ends all such requests.
    fn listxattr(&self, _caller: Caller, _nodeid: u64, reply: Reply<Xattr>) {
        reply.error(Errno::NOSYS);
    }

    /// The mount is gone; no request follows.
    fn destroy(&self) {}
}
