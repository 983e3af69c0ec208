//! Entries of a listing in the kernel's records, with the references counted for them.
//!
//! They are packed straight from the chunks that they came in, a chunk at a time: under one lock of
//! the inodes, and with one look at what was forgotten since they were asked for.
//!
//! What must hold: references that the kernel does not take are taken back; nothing that was
//! forgotten since it was asked for is told to be believed.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::{EntryRef, FileKind};
use portcullis_fuse::abi::EntryOut;
use portcullis_fuse::directory::{DirectoryBuffer, DirectoryEntry};
use portcullis_fuse::{Delivery, Reply, reply};

use super::attr::to_kernel;
use super::directories::{Dot, Run, Sink};
use super::fence::{Since, Stamp};
use super::inodes::{Inode, Table};
use super::volume::{Volume, entry_out};

/// What names may be believed longer than they should: less than what the lease is cut by for the
/// kernel.
const SLACK: Duration = Duration::from_millis(10);

/// Entries packed; see the module.
pub(super) struct Packed {
    buffer: DirectoryBuffer,
    volume: Arc<Volume>,
    dir: Inode,
    /// Before the first of them was looked at.
    stamp: Stamp,
    /// The longest that one of them is told to be believed.
    valid: Duration,
    taken: bool,
}

impl Packed {
    pub(super) fn new(reply: &Reply<reply::Directory>, volume: &Arc<Volume>, dir: Inode) -> Self {
        let (volume, stamp) = (volume.clone(), volume.fence.stamp());
        let valid = Duration::ZERO;
        Self { buffer: reply.buffer(), volume, dir, stamp, valid, taken: false }
    }

    /// Answers with what was packed, and tells how long the kernel may believe all of it.
    pub(super) fn answer(mut self, reply: Reply<reply::Directory>) -> Duration {
        let volume = self.volume.clone();
        let (holds, _answering) = volume.fence.answering(self.stamp);
        let valid = if holds { volume.ttl() } else { Duration::ZERO };
        if valid + SLACK < self.valid || !holds {
            self.buffer.believe_for(valid);
        }
        self.taken = reply.directory(&self.buffer) == Delivery::Taken;
        valid
    }
}

impl Sink for Packed {
    fn dot(&mut self, offset: u64, dot: Dot) -> bool {
        let (name, ino): (&[u8], _) = match dot {
            Dot::Here => (b".", self.dir.ino),
            Dot::Above => (b"..", self.dir.parent_ino),
        };
        let dtype = FileKind::Directory.dtype();
        // Without attributes: the kernel knows both.
        self.buffer.push(&DirectoryEntry { name, ino, dtype, offset }, || None)
    }

    fn run(&mut self, run: &Run<'_>) -> usize {
        let volume = &*self.volume;
        let valid = volume.ttl();
        self.valid = self.valid.max(valid);
        let mut node = Node {
            dir: &self.dir,
            since: volume.fence.since(run.stamp),
            name_valid: if volume.kernel.trusts_names() { valid } else { Duration::ZERO },
            attr_valid: valid,
            // Last, so that nothing is waited for with the lock held.
            inodes: &mut volume.inodes.lock(),
        };
        for index in run.index..run.chunk.count() {
            let entry = run.chunk.entry(index);
            let dirent = DirectoryEntry {
                name: entry.name,
                ino: entry.attr.map_or(0, |attr| attr.ino),
                dtype: entry.kind.dtype(),
                offset: run.offset + (index - run.index) as u64,
            };
            if !self.buffer.push(&dirent, || node.reference(&entry)) {
                return index - run.index;
            }
        }
        run.chunk.count() - run.index
    }

    fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// What makes an entry one that the kernel can use without a lookup.
struct Node<'a> {
    dir: &'a Inode,
    since: Since<'a>,
    name_valid: Duration,
    attr_valid: Duration,
    inodes: &'a mut Table,
}

impl Node<'_> {
    /// Counts a reference. `None` where the name goes alone, and the kernel looks it up itself:
    /// without attributes, or where they do not hold.
    fn reference(&mut self, entry: &EntryRef<'_>) -> Option<EntryOut> {
        let attr = entry.attr.as_ref()?;
        let holds = self.since.attr_holds(&entry.handle)
            && self.since.name_holds(&self.dir.handle, entry.name);
        let kernel = to_kernel(attr).filter(|_| holds)?;
        let nodeid = self.inodes.reference(Inode {
            handle: entry.handle,
            ino: attr.ino,
            parent_ino: self.dir.ino,
            is_dir: attr.is_dir(),
            target: entry.target.map(Box::from),
        })?;
        Some(entry_out(nodeid, kernel, self.name_valid, self.attr_valid))
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        if !self.taken {
            let mut inodes = self.volume.inodes.lock();
            self.buffer.nodeids().for_each(|nodeid| inodes.forget(nodeid, 1));
        }
    }
}
