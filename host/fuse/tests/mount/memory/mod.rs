//! An in-memory tree: the second file system behind a session.
//!
//! - `filesystem`: what it answers.
//! - `changes`: how it changes.
//! - `locks`: who has locked what, and who waits.
//!
//! A node's nodeid is its place in the table plus one; nodes stay there when their names are gone.
//! Some files misbehave on purpose; see [`Quirk`]. Time is counted in changes, so that no two share
//! one. A test keeps a clone of the tree and changes it behind the kernel's back.

mod changes;
mod filesystem;
mod locks;

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use portcullis_fuse::abi::{self, AttrOut, EntryOut};
use portcullis_fuse::reply::Entry;
use portcullis_fuse::{Caller, Notifier, Reply};

use self::locks::Locks;

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
    /// What is read and written goes past the page cache.
    Direct,
    /// So it does, and writes are done only when the test says so.
    HoldsWrites,
}

/// The name of a directory that is made only when the test says so.
pub(crate) const HELD_NAME: &[u8] = b"held back";

/// What the tests look at from outside.
#[derive(Default)]
pub(crate) struct Observed {
    /// Lookup references given and not returned, by nodeid.
    pub(crate) references: Mutex<HashMap<u64, u64>>,
    /// Who made directories, with supplementary groups.
    pub(crate) makers: Mutex<Vec<(Caller, Vec<u32>)>>,
    pub(crate) lookups: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) blocked: AtomicUsize,
    pub(crate) largest_read_bytes: AtomicUsize,
    pub(crate) largest_write_bytes: AtomicUsize,
    pub(crate) destroyed: AtomicUsize,
}

struct Node {
    attr: abi::Attr,
    quirk: Quirk,
    content: Content,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

enum Content {
    Directory(Entries),
    Bytes(Vec<u8>),
}

/// Entries of a directory, by name and by position.
#[derive(Default)]
struct Entries {
    by_position: BTreeMap<u64, (Vec<u8>, usize)>,
    positions: HashMap<Vec<u8>, u64>,
    last: u64,
}

impl Entries {
    fn get(&self, name: &[u8]) -> Option<usize> {
        self.by_position.get(self.positions.get(name)?).map(|&(_, index)| index)
    }

    /// Sets what a name is; what it was before.
    fn set(&mut self, name: &[u8], index: usize) -> Option<usize> {
        let before = self.remove(name);
        self.last += 1;
        self.by_position.insert(self.last, (name.to_vec(), index));
        self.positions.insert(name.to_vec(), self.last);
        before
    }

    fn remove(&mut self, name: &[u8]) -> Option<usize> {
        let position = self.positions.remove(name)?;
        self.by_position.remove(&position).map(|(_, index)| index)
    }
}

struct State {
    nodes: Vec<Node>,
    files: HashMap<u64, OpenFile>,
    next_file: u64,
    locks: Locks,
    notifier: Option<Notifier>,
    /// Directories that are not made yet.
    held: Vec<Reply<Entry>>,
    /// Writes that are not done yet.
    held_writes: Vec<Box<dyn FnOnce() + Send>>,
    ttl: Duration,
    /// How long the kernel may believe that a name is not there.
    absent_ttl: Option<Duration>,
    /// Answers to OPEN say that the page cache stays.
    keep_cache: bool,
    next_nodeid: u64,
    clock: u64,
}

#[derive(Clone, Copy)]
struct OpenFile {
    index: usize,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct MemoryTree {
    state: Arc<Mutex<State>>,
    observed: Arc<Observed>,
}

impl MemoryTree {
    /// An empty root directory.
    pub(crate) fn new() -> Self {
        let mut state = State {
            nodes: Vec::new(),
            files: HashMap::new(),
            next_file: 1,
            locks: Locks::default(),
            notifier: None,
            held: Vec::new(),
            held_writes: Vec::new(),
            ttl: Duration::from_secs(60),
            absent_ttl: None,
            keep_cache: false,
            next_nodeid: 1 << 40,
            clock: 1_600_000_000,
        };
        state.add_node(0o040_755, Content::Directory(Entries::default()), Quirk::None);
        Self { state: Arc::new(Mutex::new(state)), observed: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn with_ttl(self, ttl: Duration) -> Self {
        self.lock().ttl = ttl;
        self
    }

    /// Lets the kernel believe for a minute that a name is not there, and keep pages over opens.
    pub(crate) fn with_everything_cached(self) -> Self {
        self.lock().absent_ttl = Some(Duration::from_secs(60));
        self.lock().keep_cache = true;
        self
    }

    pub(crate) fn observed(&self) -> Arc<Observed> {
        self.observed.clone()
    }

    /// Adds a file to the root; its nodeid.
    pub(crate) fn file(&self, name: &[u8], bytes: &[u8], quirk: Quirk) -> u64 {
        let mut state = self.lock();
        let index = state.add_node(0o100_644, Content::Bytes(bytes.to_vec()), quirk);
        state.entries(0).set(name, index);
        index as u64 + 1
    }

    /// Gives a file an extended attribute.
    pub(crate) fn xattr(&self, nodeid: u64, name: &[u8], value: &[u8]) {
        let mut state = self.lock();
        state.nodes[place(nodeid)].xattrs.insert(name.to_vec(), value.to_vec());
    }

    /// Removes a name from the root.
    pub(crate) fn remove(&self, name: &[u8]) {
        self.lock().entries(0).remove(name).unwrap();
    }

    /// Gives a file another content.
    pub(crate) fn overwrite(&self, nodeid: u64, bytes: &[u8]) {
        let mut state = self.lock();
        let index = place(nodeid);
        *state.bytes(index) = bytes.to_vec();
        state.touch(index);
    }

    pub(crate) fn content(&self, name: &[u8]) -> Vec<u8> {
        let mut state = self.lock();
        let index = state.entries(0).get(name).unwrap();
        state.bytes(index).clone()
    }

    /// How many locks are held, and how many waited for.
    pub(crate) fn locks(&self) -> (usize, usize) {
        self.lock().locks.counts()
    }

    /// How many directories are waiting to be made.
    pub(crate) fn held(&self) -> usize {
        self.lock().held.len()
    }

    /// Refuses to make the directories that wait.
    pub(crate) fn release_held(&self) {
        let held = std::mem::take(&mut self.lock().held);
        held.into_iter().for_each(|reply| reply.error(portcullis_fuse::Errno::OPNOTSUPP));
    }

    /// How many writes are waiting to be done.
    pub(crate) fn held_writes(&self) -> usize {
        self.lock().held_writes.len()
    }

    /// Does the writes that wait, and from now on all.
    pub(crate) fn release_writes(&self, nodeid: u64) {
        self.lock().nodes[place(nodeid)].quirk = Quirk::Direct;
        let held = std::mem::take(&mut self.lock().held_writes);
        held.into_iter().for_each(|write| write());
    }

    /// Adds a copy of what lies in a local directory, inode numbers and all.
    pub(crate) fn copy_of(local: &Path) -> Self {
        let tree = Self::new();
        let mut state = tree.lock();
        state.copy_attr(0, local);
        state.copy_entries(0, local, &mut HashMap::new());
        drop(state);
        tree
    }
}

/// Where in the table a node is. A changing nodeid has that in its low half.
fn place(nodeid: u64) -> usize {
    (nodeid & 0xffff_ffff) as usize - 1
}

impl State {
    fn add_node(&mut self, mode: u32, content: Content, quirk: Quirk) -> usize {
        let index = self.nodes.len();
        let directory = matches!(content, Content::Directory(_));
        let attr = abi::Attr {
            ino: index as u64 + 1000,
            mode,
            nlink: if directory { 2 } else { 1 },
            blksize: 4096,
            ..abi::Attr::default()
        };
        self.nodes.push(Node { attr, quirk, content, xattrs: BTreeMap::new() });
        self.touch(index);
        index
    }

    fn entries(&mut self, index: usize) -> &mut Entries {
        match &mut self.nodes[index].content {
            Content::Directory(entries) => entries,
            Content::Bytes(_) => unreachable!("not a directory"),
        }
    }

    fn bytes(&mut self, index: usize) -> &mut Vec<u8> {
        match &mut self.nodes[index].content {
            Content::Bytes(bytes) => bytes,
            Content::Directory(_) => unreachable!("a directory"),
        }
    }

    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The content changed.
    fn touch(&mut self, index: usize) {
        let now = self.now();
        let node = &mut self.nodes[index];
        (node.attr.mtime, node.attr.ctime) = (now, now);
        if let Content::Bytes(bytes) = &node.content {
            node.attr.size = bytes.len() as u64;
            node.attr.blocks = node.attr.size.div_ceil(512);
        }
    }

    fn copy_entries(&mut self, parent: usize, local: &Path, seen: &mut HashMap<u64, usize>) {
        for entry in local.read_dir().unwrap().map(Result::unwrap) {
            let path = entry.path();
            let metadata = path.symlink_metadata().unwrap();
            let name = entry.file_name();
            if let Some(&index) = seen.get(&metadata.ino()) {
                self.entries(parent).set(name.as_bytes(), index);
                continue;
            }
            let content = if metadata.is_dir() {
                Content::Directory(Entries::default())
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
            self.entries(parent).set(name.as_bytes(), index);
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

    fn attr_out(&self, index: usize) -> AttrOut {
        AttrOut {
            attr_valid: self.ttl.as_secs(),
            attr_valid_nsec: self.ttl.subsec_nanos(),
            dummy: 0,
            attr: self.nodes[index].attr,
        }
    }

    /// What a lookup answers, with one more reference counted.
    fn reference(&mut self, index: usize, observed: &Observed) -> EntryOut {
        let mut nodeid = index as u64 + 1;
        if self.nodes[index].quirk == Quirk::Changes {
            self.next_nodeid += 1 << 32;
            nodeid |= self.next_nodeid;
        }
        *observed.references.lock().unwrap().entry(nodeid).or_default() += 1;
        EntryOut {
            nodeid,
            generation: 0,
            entry_valid: self.ttl.as_secs(),
            attr_valid: self.ttl.as_secs(),
            entry_valid_nsec: self.ttl.subsec_nanos(),
            attr_valid_nsec: self.ttl.subsec_nanos(),
            attr: self.nodes[index].attr,
        }
    }
}
