//! A tree in memory. A node is a place in a vector, the root the first; its nodeid is one more.
//! Every node carries the answer of a lookup, ready to be sent.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use portcullis_fuse::abi::{Attr, EntryOut, encode_dev};
use rustix::fs::FileType;

/// How long the kernel may believe what it is told, in seconds: longer than any benchmark.
const VALID_S: u64 = 86_400;
/// Block size that stat(2) shows.
const BLOCK_BYTES: u32 = 4096;
/// Unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// When everything was made: the first second of 2024.
const MADE_S: u64 = 1_704_067_200;

/// A directory of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dir(usize);

/// See the module.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
}

/// A file or directory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: Box<[u8]>,
    /// What a lookup answers.
    pub(crate) entry: EntryOut,
    pub(crate) parent: usize,
    pub(crate) content: Content,
}

/// What a node holds.
#[derive(Debug)]
pub(crate) enum Content {
    /// A directory: its nodes in the order of their listing, and by name.
    Directory { children: Vec<usize>, by_name: HashMap<Box<[u8]>, usize> },
    /// The target of a symbolic link.
    Link(Box<[u8]>),
    /// Zeros, as many as the size says, or nothing that can be read.
    File,
}

impl Tree {
    /// An empty root.
    pub fn new() -> Self {
        let mut tree = Self { nodes: Vec::new() };
        tree.add(0, b"", attr(FileType::Directory, 0o755, 0), directory());
        tree
    }

    /// `files` files in the root and beside them `dirs` directories of `per_dir` files each.
    pub fn wide(files: usize, dirs: usize, per_dir: usize) -> Self {
        let mut tree = Self::new();
        let root = tree.root();
        tree.add_files(root, 0..files);
        for dir in 0..dirs {
            let dir = tree.add_dir(root, format!("dir-{dir:011}").as_bytes());
            tree.add_files(dir, 0..per_dir);
        }
        tree
    }

    /// Directories `levels` deep, `width` in each of those above the lowest, which have `per_dir`
    /// files: `deep(3, 10, 10)` are 1,111 directories with the root, and 10,000 files.
    pub fn deep(levels: usize, width: usize, per_dir: usize) -> Self {
        let mut tree = Self::new();
        let mut lowest = vec![tree.root()];
        for _ in 0..levels {
            let mut below = Vec::with_capacity(lowest.len() * width);
            for dir in lowest {
                for nth in 0..width {
                    below.push(tree.add_dir(dir, format!("dir-{nth:011}").as_bytes()));
                }
            }
            lowest = below;
        }
        for dir in lowest {
            tree.add_files(dir, 0..per_dir);
        }
        tree
    }

    /// The names and attributes that there are below a directory. Content is zeros.
    ///
    /// # Errors
    /// Of listing it or looking at its files.
    pub fn like(path: &Path) -> io::Result<Self> {
        let mut tree = Self::new();
        tree.nodes[0].entry = entry(0, attr_of(&path.symlink_metadata()?));
        let mut todo = vec![(path.to_owned(), tree.root())];
        while let Some((path, Dir(parent))) = todo.pop() {
            for found in path.read_dir()? {
                let found = found?;
                let (metadata, name) = (found.metadata()?, found.file_name());
                let content = if metadata.is_dir() {
                    directory()
                } else if metadata.is_symlink() {
                    Content::Link(found.path().read_link()?.into_os_string().into_vec().into())
                } else {
                    Content::File
                };
                let at = tree.add(parent, name.as_bytes(), attr_of(&metadata), content);
                if metadata.is_dir() {
                    todo.push((found.path(), Dir(at)));
                }
            }
        }
        Ok(tree)
    }

    /// The root.
    pub fn root(&self) -> Dir {
        Dir(0)
    }

    /// Adds an empty directory, mode 0755. The name is new there.
    pub fn add_dir(&mut self, parent: Dir, name: &[u8]) -> Dir {
        self.nodes[parent.0].entry.attr.nlink += 1;
        Dir(self.add(parent.0, name, attr(FileType::Directory, 0o755, 0), directory()))
    }

    /// Adds a file of `size_bytes` zeros, mode 0644. The name is new there.
    pub fn add_file(&mut self, parent: Dir, name: &[u8], size_bytes: u64) {
        let attr = attr(FileType::RegularFile, 0o644, size_bytes);
        self.add(parent.0, name, attr, Content::File);
    }

    /// Adds files with these numbers in their names, each as many bytes long as its number.
    fn add_files(&mut self, parent: Dir, numbers: Range<usize>) {
        for number in numbers {
            self.add_file(parent, format!("file-{number:011}").as_bytes(), number as u64);
        }
    }

    /// Files and directories, the root included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is but the root.
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// The node of a nodeid.
    pub(crate) fn node(&self, nodeid: u64) -> Option<&Node> {
        self.nodes.get(usize::try_from(nodeid).ok()?.checked_sub(1)?)
    }

    /// The node at a place.
    pub(crate) fn at(&self, place: usize) -> Option<&Node> {
        self.nodes.get(place)
    }

    fn add(&mut self, parent: usize, name: &[u8], attr: Attr, content: Content) -> usize {
        let place = self.nodes.len();
        let entry = entry(place, attr);
        self.nodes.push(Node { name: name.into(), entry, parent, content });
        // The root is nobody's child.
        if place > 0
            && let Content::Directory { children, by_name } = &mut self.nodes[parent].content
        {
            children.push(place);
            let before = by_name.insert(name.into(), place);
            debug_assert!(before.is_none(), "each name is new");
        }
        place
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Node {
    /// The type as a listing tells it.
    pub(crate) fn dtype(&self) -> u8 {
        ((self.entry.attr.mode >> 12) & 0o17) as u8
    }
}

fn directory() -> Content {
    Content::Directory { children: Vec::new(), by_name: HashMap::new() }
}

/// What a lookup answers for the node at `place`.
fn entry(place: usize, attr: Attr) -> EntryOut {
    let nodeid = place as u64 + 1;
    let attr = Attr { ino: nodeid, ..attr };
    EntryOut { nodeid, entry_valid: VALID_S, attr_valid: VALID_S, attr, ..EntryOut::default() }
}

/// Attributes of something made up.
fn attr(kind: FileType, mode: u32, size: u64) -> Attr {
    Attr {
        size,
        blocks: size.div_ceil(SECTOR_BYTES),
        atime: MADE_S,
        mtime: MADE_S,
        ctime: MADE_S,
        mode: kind.as_raw_mode() | mode,
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        blksize: BLOCK_BYTES,
        ..Attr::default()
    }
}

/// Attributes of something that there is, its inode number excepted.
fn attr_of(metadata: &std::fs::Metadata) -> Attr {
    let rdev = metadata.rdev();
    Attr {
        ino: 0,
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
        rdev: encode_dev(rustix::fs::major(rdev), rustix::fs::minor(rdev)),
        blksize: metadata.blksize() as u32,
        flags: 0,
    }
}
