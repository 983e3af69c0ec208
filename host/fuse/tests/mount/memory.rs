//! An in-memory tree: the second file system behind a session.
//!
//! A node's nodeid is its place in the table plus one. Some files misbehave on purpose; see [`Quirk`].

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use portcullis_fuse::abi::{self, AttrOut, EntryOut, ROOT_ID, StatfsOut};
use portcullis_fuse::directory::DirectoryEntry;
use portcullis_fuse::reply::{Attr, Data, Directory, Done, Entry, Opened, Reply, Statfs, Xattr};
use portcullis_fuse::{Caller, Delivery, Errno, Filesystem};

/// How a file departs from an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// It does not.
    None,
    /// Reads wait until they are interrupted. It is read directly: a program waits for readahead
    /// on its own, and the kernel interrupts no request for it.
    Blocks,
    /// Replies to reads are dropped.
    Drops,
    /// Reads panic.
    Panics,
    /// Reads answer more than was asked for.
    TooLong,
    /// Listings do not give its attributes.
    NoAttributes,
    /// Each lookup gives another nodeid.
    Changes,
}

pub(crate) struct Node {
    attr: abi::Attr,
    quirk: Quirk,
    content: Content,
}

enum Content {
    Directory(Vec<(Vec<u8>, usize)>),
    Bytes(Vec<u8>),
}

/// What the tests look at from outside.
#[derive(Default)]
pub(crate) struct Observed {
    /// Lookup references given and not returned, by nodeid.
    pub(crate) references: Mutex<HashMap<u64, u64>>,
    pub(crate) lookups: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) blocked: AtomicUsize,
    pub(crate) destroyed: AtomicUsize,
}

pub(crate) struct MemoryTree {
    nodes: Vec<Node>,
    names: Vec<HashMap<Vec<u8>, usize>>,
    ttl: Duration,
    next_nodeid: AtomicU64,
    observed: Arc<Observed>,
}

impl MemoryTree {
    /// An empty root directory.
    pub(crate) fn new() -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            names: Vec::new(),
            ttl: Duration::from_secs(60),
            next_nodeid: AtomicU64::new(1 << 40),
            observed: Arc::default(),
        };
        tree.add_node(0o040_755, Content::Directory(Vec::new()), Quirk::None);
        tree
    }

    pub(crate) fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    pub(crate) fn observed(&self) -> Arc<Observed> {
        self.observed.clone()
    }

    fn add_node(&mut self, mode: u32, content: Content, quirk: Quirk) -> usize {
        let index = self.nodes.len();
        let size = match &content {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Directory(_) => 0,
        };
        let attr = abi::Attr {
            ino: index as u64 + 1000,
            size,
            mode,
            nlink: 1,
            mtime: 1_600_000_000 + index as u64,
            blksize: 4096,
            ..abi::Attr::default()
        };
        self.nodes.push(Node { attr, quirk, content });
        self.names.push(HashMap::new());
        index
    }

    fn link(&mut self, parent: usize, name: &[u8], index: usize) {
        if let Content::Directory(entries) = &mut self.nodes[parent].content {
            entries.push((name.to_vec(), index));
        }
        self.names[parent].insert(name.to_vec(), index);
    }

    /// Adds a file to the root.
    pub(crate) fn file(&mut self, name: &[u8], bytes: &[u8], quirk: Quirk) {
        let index = self.add_node(0o100_644, Content::Bytes(bytes.to_vec()), quirk);
        self.link(0, name, index);
    }

    /// Adds a copy of what lies in a local directory, inode numbers and all.
    pub(crate) fn copy_of(local: &Path) -> Self {
        let mut tree = Self::new();
        tree.copy_attr(0, local);
        tree.copy_entries(0, local, &mut HashMap::new());
        tree
    }

    fn copy_entries(&mut self, parent: usize, local: &Path, seen: &mut HashMap<u64, usize>) {
        for entry in local.read_dir().unwrap().map(Result::unwrap) {
            let path = entry.path();
            let metadata = path.symlink_metadata().unwrap();
            if let Some(&index) = seen.get(&metadata.ino()) {
                self.link(parent, entry.file_name().as_bytes(), index);
                continue;
            }
            let content = if metadata.is_dir() {
                Content::Directory(Vec::new())
            } else if metadata.is_symlink() {
                Content::Bytes(path.read_link().unwrap().as_os_str().as_bytes().to_vec())
            } else if metadata.is_file() {
                Content::Bytes(std::fs::read(&path).unwrap())
            } else {
                Content::Bytes(Vec::new())
            };
            let index = self.add_node(metadata.mode(), content, Quirk::None);
            seen.insert(metadata.ino(), index);
            self.copy_attr(index, &path);
            self.link(parent, entry.file_name().as_bytes(), index);
            if metadata.is_dir() {
                self.copy_entries(index, &path, seen);
            }
        }
    }

    fn copy_attr(&mut self, index: usize, local: &Path) {
        let metadata = local.symlink_metadata().unwrap();
        let rdev = metadata.rdev();
        self.nodes[index].attr = abi::Attr {
            ino: metadata.ino(),
            size: metadata.size(),
            blocks: metadata.blocks(),
            atime: metadata.atime() as u64,
            mtime: metadata.mtime() as u64,
            ctime: metadata.ctime() as u64,
            atimensec: metadata.atime_nsec() as u32,
            mtimensec: metadata.mtime_nsec() as u32,
            ctimensec: metadata.ctime_nsec() as u32,
            mode: metadata.mode(),
            nlink: metadata.nlink() as u32,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: abi::encode_dev(rustix::fs::major(rdev), rustix::fs::minor(rdev)),
            blksize: metadata.blksize() as u32,
            flags: 0,
        };
    }

    fn node(&self, nodeid: u64) -> &Node {
        // A changing nodeid has the table's place in its low half.
        &self.nodes[(nodeid & 0xffff_ffff) as usize - 1]
    }

    fn reference(&self, index: usize) -> EntryOut {
        let node = &self.nodes[index];
        let mut nodeid = index as u64 + 1;
        if node.quirk == Quirk::Changes {
            nodeid |= self.next_nodeid.fetch_add(1 << 32, Ordering::Relaxed);
        }
        *self.observed.references.lock().unwrap().entry(nodeid).or_default() += 1;
        EntryOut {
            nodeid,
            generation: 0,
            entry_valid: self.ttl.as_secs(),
            attr_valid: self.ttl.as_secs(),
            entry_valid_nsec: self.ttl.subsec_nanos(),
            attr_valid_nsec: self.ttl.subsec_nanos(),
            attr: node.attr,
        }
    }
}

impl Filesystem for MemoryTree {
    fn lookup(&self, _: Caller, parent: u64, name: &[u8], reply: Reply<Entry>) {
        self.observed.lookups.fetch_add(1, Ordering::Relaxed);
        if name.len() > 255 {
            return reply.error(Errno::NAMETOOLONG);
        }
        match self.names[(parent & 0xffff_ffff) as usize - 1].get(name) {
            Some(&index) => {
                let entry = self.reference(index);
                if reply.entry(&entry) == Delivery::Lost {
                    self.forget(entry.nodeid, 1);
                }
            }
            None => reply.error(Errno::NOENT),
        }
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        let mut references = self.observed.references.lock().unwrap();
        if nodeid == ROOT_ID {
            return;
        }
        let count = references.get_mut(&nodeid).expect("only what was given is returned");
        *count = count.checked_sub(nlookup).expect("no more is returned than was given");
        if *count == 0 {
            references.remove(&nodeid);
        }
    }

    fn getattr(&self, _: Caller, nodeid: u64, reply: Reply<Attr>) {
        let attr = self.node(nodeid).attr;
        reply.attr(&AttrOut {
            attr_valid: self.ttl.as_secs(),
            attr_valid_nsec: self.ttl.subsec_nanos(),
            dummy: 0,
            attr,
        });
    }

    fn readlink(&self, _: Caller, nodeid: u64, reply: Reply<Data>) {
        match &self.node(nodeid).content {
            Content::Bytes(target) => reply.data(&[target]),
            Content::Directory(_) => reply.error(Errno::INVAL),
        }
    }

    fn open(&self, _: Caller, nodeid: u64, _: u32, reply: Reply<Opened>) {
        self.observed.open.fetch_add(1, Ordering::Relaxed);
        let direct = self.node(nodeid).quirk == Quirk::Blocks;
        if reply.opened(nodeid, if direct { abi::FOPEN_DIRECT_IO } else { 0 }) == Delivery::Lost {
            self.observed.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn read(&self, _: Caller, file: u64, offset: u64, len: u32, mut reply: Reply<Data>) {
        let node = self.node(file);
        match node.quirk {
            Quirk::Blocks => {
                let (interrupted, interrupt) = mpsc::sync_channel(1);
                reply.on_interrupt(move || _ = interrupted.try_send(()));
                self.observed.blocked.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let _ = interrupt.recv();
                    reply.error(Errno::INTR);
                });
                return;
            }
            Quirk::Drops => return,
            Quirk::Panics => unreachable!("on purpose"),
            Quirk::TooLong => return reply.data(&[&vec![0; len as usize], b"x"]),
            Quirk::None | Quirk::NoAttributes | Quirk::Changes => {}
        }
        let Content::Bytes(bytes) = &node.content else { return reply.error(Errno::ISDIR) };
        let start = (offset as usize).min(bytes.len());
        let end = (start + len as usize).min(bytes.len());
        // In two parts, as data that comes in frames would be.
        let middle = start + (end - start) / 2;
        reply.data(&[&bytes[start..middle], &bytes[middle..end]]);
    }

    fn release(&self, _: u64, reply: Reply<Done>) {
        self.observed.open.fetch_sub(1, Ordering::Relaxed);
        reply.done();
    }

    fn opendir(&self, caller: Caller, nodeid: u64, reply: Reply<Opened>) {
        self.open(caller, nodeid, 0, reply);
    }

    fn readdir(&self, _: Caller, dir: u64, offset: u64, reply: Reply<Directory>) {
        let node = self.node(dir);
        let Content::Directory(entries) = &node.content else {
            return reply.error(Errno::NOTDIR);
        };
        let mut buffer = reply.buffer();
        for (index, name) in [b".".as_slice(), b".."].into_iter().enumerate().skip(offset as usize)
        {
            let offset = index as u64 + 1;
            let entry = DirectoryEntry { name, ino: node.attr.ino, dtype: 4, offset };
            if !buffer.push(&entry, || None) {
                break;
            }
        }
        for (index, (name, child)) in
            entries.iter().enumerate().skip((offset as usize).saturating_sub(2))
        {
            let child_node = &self.nodes[*child];
            let entry = DirectoryEntry {
                name,
                ino: child_node.attr.ino,
                dtype: (child_node.attr.mode >> 12) as u8,
                offset: index as u64 + 3,
            };
            let known = child_node.quirk != Quirk::NoAttributes;
            if !buffer.push(&entry, || known.then(|| self.reference(*child))) {
                break;
            }
        }
        if reply.directory(&buffer) == Delivery::Lost {
            buffer.nodeids().for_each(|nodeid| self.forget(nodeid, 1));
        }
    }

    fn releasedir(&self, dir: u64, reply: Reply<Done>) {
        self.release(dir, reply);
    }

    fn statfs(&self, _: Caller, _: u64, reply: Reply<Statfs>) {
        reply.statfs(&StatfsOut {
            blocks: 1000,
            bfree: 600,
            bavail: 500,
            files: self.nodes.len() as u64,
            ffree: 7,
            bsize: 4096,
            namelen: 255,
            frsize: 512,
            ..StatfsOut::default()
        });
    }

    fn getxattr(&self, _: Caller, _: u64, name: &[u8], reply: Reply<Xattr>) {
        match name {
            b"user.colour" => reply.value(b"vermilion"),
            b"user.empty" => reply.value(b""),
            b"security.selinux" => reply.error(Errno::OPNOTSUPP),
            _ => reply.error(Errno::NODATA),
        }
    }

    fn listxattr(&self, _: Caller, _: u64, reply: Reply<Xattr>) {
        reply.value(b"user.colour\0user.empty\0");
    }

    fn destroy(&self) {
        self.observed.destroyed.fetch_add(1, Ordering::Relaxed);
    }
}
