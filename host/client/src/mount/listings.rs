//! Open directories in the kernel's terms: entries packed with the references counted for them.

use std::sync::Arc;

use portcullis_core::FileKind;
use portcullis_fuse::directory::{DirectoryBuffer, DirectoryEntry};
use portcullis_fuse::{Caller, Delivery, Errno, Reply, reply};

use super::attr::errno_of_handle;
use super::directories::{Directory, Item, Sink};
use super::fence::Stamp;
use super::inodes::Inode;
use super::under_way::Work;
use super::volume::Volume;

impl Volume {
    pub(super) fn opendir(self: &Arc<Self>, nodeid: u64, reply: Reply<reply::Opened>) {
        let inode = match self.inode(nodeid) {
            Ok(inode) => inode,
            Err(errno) => return reply.error(errno),
        };
        // No request: a directory that is gone says so when it is listed.
        let Some(number) = self.directories.insert(Directory::new(inode, nodeid)) else {
            return reply.error(Errno::NFILE);
        };
        if reply.opened(number, 0) == Delivery::Lost {
            self.directories.remove(number);
        }
    }

    pub(super) fn readdir(
        self: &Arc<Self>,
        caller: Caller,
        dir: u64,
        offset: u64,
        reply: Reply<reply::Directory>,
    ) {
        let Some(dir) = self.directories.get(dir) else {
            return reply.error(Errno::BADF);
        };
        let under_way = self.under_way.begin(dir.nodeid, Work::Names);
        // The kernel asks for more: it has entered what it was given before.
        drop(dir.listed.lock().take());
        let (volume, open) = (self.clone(), dir.clone());
        let mut packed = Packed {
            buffer: reply.buffer(),
            volume: volume.clone(),
            dir: dir.inode.clone(),
            stamp: self.fence.stamp(),
            taken: false,
        };
        let ask = async move {
            dir.read(&volume.client, &volume.fence, offset, &mut packed).await?;
            Ok(packed)
        };
        super::task::answer(&self.runtime, caller, reply, ask, move |reply, mut packed| {
            let _under_way = under_way;
            let volume = packed.volume.clone();
            let (holds, _answering) = volume.fence.answering(packed.stamp);
            if !holds {
                packed.buffer.distrust();
            }
            *open.listed.lock() = Some(volume.under_way.listed(open.nodeid));
            packed.taken = reply.directory(&packed.buffer) == Delivery::Taken;
        });
    }

    pub(super) fn fsyncdir(self: &Arc<Self>, caller: Caller, dir: u64, reply: Reply<reply::Done>) {
        let Some(dir) = self.directories.get(dir) else {
            return reply.error(Errno::BADF);
        };
        let volume = self.clone();
        let ask = async move {
            let synced = volume.client.fsyncdir(&dir.inode.handle).await;
            synced.map_err(|error| errno_of_handle(&error))
        };
        super::task::answer(&self.runtime, caller, reply, ask, |reply, ()| reply.done());
    }

    pub(super) fn releasedir(self: &Arc<Self>, dir: u64, reply: Reply<reply::Done>) {
        let _entered = self.runtime.enter();
        self.directories.remove(dir);
        reply.done();
    }
}

/// Entries packed for the kernel; the references counted for them are taken back unless the kernel
/// takes the buffer.
struct Packed {
    buffer: DirectoryBuffer,
    volume: Arc<Volume>,
    dir: Inode,
    /// Before the first of them was looked at.
    stamp: Stamp,
    taken: bool,
}

impl Sink for Packed {
    fn push(&mut self, offset: u64, item: Item<'_>) -> bool {
        let (name, ino): (&[u8], _) = match &item {
            Item::Dot => (b".", self.dir.ino),
            Item::DotDot => (b"..", self.dir.parent_ino),
            Item::Entry(entry, _) => (entry.name, entry.attr.map_or(0, |attr| attr.ino)),
        };
        let dtype = match &item {
            Item::Dot | Item::DotDot => FileKind::Directory.dtype(),
            Item::Entry(entry, _) => entry.kind.dtype(),
        };
        let dirent = DirectoryEntry { name, ino, dtype, offset };
        let (volume, dir) = (&self.volume, &self.dir);
        self.buffer.push(&dirent, || {
            let Item::Entry(entry, stamp) = item else { return None };
            // Without attributes that hold the name goes alone: nodeid 0, and the kernel looks it
            // up itself.
            let attr = entry.attr?;
            let holds = volume.fence.attr_holds(stamp, &entry.handle)
                && volume.fence.name_holds(stamp, &dir.handle, entry.name);
            let found = (entry.to_entry(), attr);
            if holds { volume.entry_out(dir, entry.name, found, stamp).ok() } else { None }
        })
    }

    fn is_empty(&self) -> bool {
        self.buffer.is_empty()
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
