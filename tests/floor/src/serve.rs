//! The file system of a tree. Every request is answered where it is read, from memory. References
//! are not counted and open files have no state, so an answer that is lost needs no taking back.

use std::sync::Arc;

use portcullis_fuse::abi::{AttrOut, FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, Opcode, StatfsOut};
use portcullis_fuse::directory::DirectoryEntry;
use portcullis_fuse::request::{Open, Read, Release};
use portcullis_fuse::{Caller, Errno, Filesystem, Reply, reply};
use tokio::sync::Notify;

use crate::requests::Counts;
use crate::tree::{Content, Node, Tree};

/// Offsets after `.` and `..`; the entry at `n` is followed by `DOTS + n + 1`.
const DOTS: u64 = 2;
/// What files consist of; the most that one read asks for.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
/// Answered EOPNOTSUPP always, as our mount does.
const UNSUPPORTED: [&[u8]; 2] = [b"security.selinux", b"security.capability"];
/// Answered EOPNOTSUPP where access lists were not negotiated.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Longest name that statfs tells.
const NAME_LEN_MAX: u32 = 255;
/// Block size that statfs tells.
const BLOCK_BYTES: u32 = 4096;

/// A tree, served.
pub(crate) struct Served {
    tree: Tree,
    acl: bool,
    counts: Arc<Counts>,
    gone: Arc<Notify>,
}

impl Served {
    pub(crate) fn new(tree: Tree, acl: bool, counts: &Arc<Counts>, gone: &Arc<Notify>) -> Self {
        Self { tree, acl, counts: counts.clone(), gone: gone.clone() }
    }

    /// Counts a request for a node, and finds it.
    fn asked(&self, opcode: Opcode, nodeid: u64) -> Result<&Node, Errno> {
        self.counts.count(opcode);
        self.tree.node(nodeid).ok_or(Errno::STALE)
    }

    fn find(&self, parent: u64, name: &[u8]) -> Result<&Node, Errno> {
        let Content::Directory { by_name, .. } = &self.asked(Opcode::Lookup, parent)?.content
        else {
            return Err(Errno::NOTDIR);
        };
        let place = by_name.get(name).ok_or(Errno::NOENT)?;
        self.tree.at(*place).ok_or(Errno::NOENT)
    }

    /// Packs what follows `offset` in `dir`, as far as there is room.
    fn pack(&self, dir: &Node, offset: u64, buffer: &mut portcullis_fuse::DirectoryBuffer) {
        let Content::Directory { children, .. } = &dir.content else { return };
        let dots = [(b".".as_slice(), dir), (b"..", self.tree.at(dir.parent).unwrap_or(dir))];
        for (nth, (name, node)) in (1..).zip(dots).skip(offset as usize) {
            let entry =
                DirectoryEntry { name, ino: node.entry.attr.ino, dtype: node.dtype(), offset: nth };
            if !buffer.push(&entry, || None) {
                return;
            }
        }
        let first = offset.saturating_sub(DOTS);
        let rest = children.get(first as usize..).unwrap_or_default();
        for (offset, &place) in (DOTS + first + 1..).zip(rest) {
            let Some(node) = self.tree.at(place) else { return };
            let entry = DirectoryEntry {
                name: &node.name,
                ino: node.entry.attr.ino,
                dtype: node.dtype(),
                offset,
            };
            if !buffer.push(&entry, || Some(node.entry)) {
                return;
            }
        }
    }

    fn xattr_error(&self, name: &[u8]) -> Errno {
        let unsupported = UNSUPPORTED.contains(&name) || !self.acl && ACLS.contains(&name);
        if unsupported { Errno::OPNOTSUPP } else { Errno::NODATA }
    }
}

impl Filesystem for Served {
    fn destroy(&self) {
        self.gone.notify_one();
    }

    fn lookup(&self, _: Caller, parent: u64, name: &[u8], reply: Reply<reply::Entry>) {
        match self.find(parent, name) {
            Ok(node) => {
                let _ = reply.entry(&node.entry);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _: u64, _: u64) {
        self.counts.count(Opcode::Forget);
    }

    fn batch_forget(&self, _: impl Iterator<Item = (u64, u64)>) {
        self.counts.count(Opcode::BatchForget);
    }

    fn readlink(&self, _: Caller, nodeid: u64, reply: Reply<reply::Data>) {
        match self.asked(Opcode::Readlink, nodeid).map(|node| &node.content) {
            Ok(Content::Link(target)) => reply.data(&[target]),
            Ok(_) => reply.error(Errno::INVAL),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: Caller, nodeid: u64, _: Option<u64>, reply: Reply<reply::Attr>) {
        match self.asked(Opcode::Getattr, nodeid) {
            Ok(Node { entry, .. }) => reply.attr(&AttrOut {
                attr_valid: entry.attr_valid,
                attr_valid_nsec: 0,
                dummy: 0,
                attr: entry.attr,
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn getxattr(&self, _: Caller, nodeid: u64, name: &[u8], reply: Reply<reply::Xattr>) {
        match self.asked(Opcode::Getxattr, nodeid) {
            Ok(_) => reply.error(self.xattr_error(name)),
            Err(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, _: Caller, nodeid: u64, reply: Reply<reply::Xattr>) {
        match self.asked(Opcode::Listxattr, nodeid) {
            Ok(_) => reply.value(b""),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _: Caller, nodeid: u64, reply: Reply<reply::Statfs>) {
        match self.asked(Opcode::Statfs, nodeid) {
            Ok(_) => reply.statfs(&StatfsOut {
                files: self.tree.len() as u64,
                bsize: BLOCK_BYTES,
                frsize: BLOCK_BYTES,
                namelen: NAME_LEN_MAX,
                ..StatfsOut::default()
            }),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: Caller, nodeid: u64, _: Open, reply: Reply<reply::Opened>) {
        match self.asked(Opcode::Open, nodeid) {
            // The number is the nodeid: nothing is kept for an open file.
            Ok(_) => {
                let _ = reply.opened(nodeid, FOPEN_KEEP_CACHE);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(&self, _: Caller, file: u64, read: Read, reply: Reply<reply::Data>) {
        match self.asked(Opcode::Read, file) {
            Ok(node) => {
                let left = node.entry.attr.size.saturating_sub(read.offset);
                let len = left.min(u64::from(read.len_bytes)) as usize;
                reply.data(&[ZEROS.get(..len).unwrap_or(&ZEROS)]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn release(&self, _: u64, _: Release, reply: Reply<reply::Done>) {
        self.counts.count(Opcode::Release);
        reply.done();
    }

    fn opendir(&self, _: Caller, nodeid: u64, reply: Reply<reply::Opened>) {
        match self.asked(Opcode::Opendir, nodeid) {
            Ok(_) => {
                let _ = reply.opened(nodeid, FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(&self, _: Caller, dir: u64, offset: u64, reply: Reply<reply::Directory>) {
        let mut buffer = reply.buffer();
        let opcode = if buffer.is_plus() { Opcode::Readdirplus } else { Opcode::Readdir };
        match self.asked(opcode, dir) {
            Ok(dir) => {
                self.pack(dir, offset, &mut buffer);
                let _ = reply.directory(&buffer);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(&self, _: u64, reply: Reply<reply::Done>) {
        self.counts.count(Opcode::Releasedir);
        reply.done();
    }
}
