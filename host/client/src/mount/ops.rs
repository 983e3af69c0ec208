//! The file system that the kernel talks to: each request in the terms of the client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::limits::{NAME_LEN_MAX, XATTR_NAME_LEN_MAX};
use portcullis_core::{Attr, Entry, Handle};
use portcullis_fuse::abi::{AttrOut, EntryOut};
use portcullis_fuse::directory::{DirectoryBuffer, DirectoryEntry};
use portcullis_fuse::{Caller, Delivery, Errno, Filesystem, Reply, reply};
use tokio::runtime;
use tokio::sync::Notify;

use super::attr::{errno, errno_of_handle, statfs_to_kernel, to_kernel};
use super::directories::{Directories, Directory, Item, Sink};
use super::inodes::{Inode, Inodes};
use super::task::answer;
use crate::{Client, ClientError, OpenFile};

/// Extended attributes that programs ask for with every file they list, answered EOPNOTSUPP
/// without a request. coreutils then stop asking; answered ENODATA, `ls -l` of 100,000 files takes
/// ten times as long. None of them has an effect here: ACLs are not enforced, file capabilities do
/// not work on a nosuid mount, and labels belong to the brick's own policy.
const UNSUPPORTED_XATTRS: [&[u8]; 4] = [
    b"security.selinux",
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
];
/// Extended attributes that only a privileged user may see.
const TRUSTED: &[u8] = b"trusted.";

/// The mount as the session sees it.
pub(super) struct MountedVolume {
    volume: Arc<Volume>,
    runtime: runtime::Handle,
}

/// What all requests share.
pub(super) struct Volume {
    client: Client,
    inodes: Inodes,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    next_file: AtomicU64,
    pub(super) directories: Directories,
    attr_ttl: Duration,
    /// Told when the mount is gone.
    pub(super) gone: Notify,
}

impl Volume {
    pub(super) fn new(client: Client, root: &Handle, attr: &Attr, attr_ttl_ms: u64) -> Self {
        let root = Inode { handle: *root, ino: attr.ino, parent_ino: attr.ino, target: None };
        Self {
            client,
            inodes: Inodes::new(root),
            files: Mutex::default(),
            next_file: AtomicU64::new(0),
            directories: Directories::default(),
            attr_ttl: Duration::from_millis(attr_ttl_ms),
            gone: Notify::new(),
        }
    }

    /// The file of a nodeid.
    fn inode(&self, nodeid: u64) -> Result<Inode, Errno> {
        self.inodes.get(nodeid).ok_or(Errno::STALE)
    }

    fn entry_out(&self, nodeid: u64, attr: portcullis_fuse::abi::Attr) -> EntryOut {
        EntryOut {
            nodeid,
            generation: 0,
            entry_valid: self.attr_ttl.as_secs(),
            attr_valid: self.attr_ttl.as_secs(),
            entry_valid_nsec: self.attr_ttl.subsec_nanos(),
            attr_valid_nsec: self.attr_ttl.subsec_nanos(),
            attr,
        }
    }

    /// An entry and its attributes, asked for where the entry came without.
    async fn lookup(&self, dir: &Inode, name: &[u8]) -> Result<(Entry, Attr), Errno> {
        let entry = self.client.lookup(&dir.handle, name).await.map_err(|error| errno(&error))?;
        let attr = match entry.attr {
            Some(attr) => attr,
            None => {
                self.client.getattr(&entry.handle).await.map_err(|error| errno_of_handle(&error))?
            }
        };
        Ok((entry, attr))
    }

    /// Opens a file, to the end also where the caller does not wait for it: an open that is
    /// dropped half way would leave the gateway with a file nobody closes.
    async fn open(self: Arc<Self>, inode: Inode) -> Result<OpenFile, Errno> {
        let opening = tokio::spawn(async move { self.client.open(&inode.handle).await });
        let opened = opening.await.map_err(|_| Errno::IO)?;
        opened.map_err(|error| errno_of_handle(&error))
    }
}

impl MountedVolume {
    pub(super) fn new(volume: Arc<Volume>, runtime: runtime::Handle) -> Self {
        Self { volume, runtime }
    }

    /// Answers a request about the file of a nodeid by a request to the gateway.
    fn ask<A, T, F>(
        &self,
        caller: Caller,
        nodeid: u64,
        reply: Reply<A>,
        ask: impl FnOnce(Arc<Volume>, Inode) -> F,
        finish: impl FnOnce(Reply<A>, T) + Send + 'static,
    ) where
        A: 'static,
        T: Send + 'static,
        F: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        match self.volume.inode(nodeid) {
            Ok(inode) => {
                let ask = ask(self.volume.clone(), inode);
                answer(&self.runtime, caller, reply, ask, finish);
            }
            Err(errno) => reply.error(errno),
        }
    }
}

impl Filesystem for MountedVolume {
    fn lookup(&self, caller: Caller, parent: u64, name: &[u8], reply: Reply<reply::Entry>) {
        if name.len() > NAME_LEN_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        let (name, volume) = (name.to_vec(), self.volume.clone());
        let ask = |volume: Arc<Volume>, dir: Inode| async move {
            let (entry, attr) = volume.lookup(&dir, &name).await?;
            Ok((dir.ino, entry, attr))
        };
        self.ask(caller, parent, reply, ask, move |reply, (parent_ino, entry, attr)| {
            let Some(kernel) = to_kernel(&attr) else { return reply.error(Errno::IO) };
            let target = entry.target.map(Vec::into_boxed_slice);
            let inode = Inode { handle: entry.handle, ino: attr.ino, parent_ino, target };
            // A statement of its own, so that the lock is gone before the kernel is told.
            let nodeid = volume.inodes.lock().reference(inode);
            let Some(nodeid) = nodeid else { return reply.error(Errno::NOMEM) };
            if reply.entry(&volume.entry_out(nodeid, kernel)) == Delivery::Lost {
                volume.inodes.forget(nodeid, 1);
            }
        });
    }

    fn forget(&self, nodeid: u64, nlookup: u64) {
        self.volume.inodes.forget(nodeid, nlookup);
    }

    fn getattr(&self, caller: Caller, nodeid: u64, reply: Reply<reply::Attr>) {
        let ttl = self.volume.attr_ttl;
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            volume.client.getattr(&inode.handle).await.map_err(|error| errno_of_handle(&error))
        };
        self.ask(caller, nodeid, reply, ask, move |reply, attr| match to_kernel(&attr) {
            Some(attr) => reply.attr(&AttrOut {
                attr_valid: ttl.as_secs(),
                attr_valid_nsec: ttl.subsec_nanos(),
                dummy: 0,
                attr,
            }),
            None => reply.error(Errno::IO),
        });
    }

    fn readlink(&self, caller: Caller, nodeid: u64, reply: Reply<reply::Data>) {
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            match inode.target {
                Some(target) => Ok(target.into_vec()),
                None => volume
                    .client
                    .readlink(&inode.handle)
                    .await
                    .map_err(|error| errno_of_handle(&error)),
            }
        };
        self.ask(caller, nodeid, reply, ask, |reply, target| reply.data(&[&target]));
    }

    fn open(&self, caller: Caller, nodeid: u64, _flags: u32, reply: Reply<reply::Opened>) {
        let volume = self.volume.clone();
        self.ask(caller, nodeid, reply, Volume::open, move |reply, file| {
            let number = volume.next_file.fetch_add(1, Ordering::Relaxed);
            volume.files.lock().insert(number, Arc::new(file));
            // No FOPEN_KEEP_CACHE: nothing tells this mount of changes yet, so what was read under
            // an earlier open may be old.
            if reply.opened(number, 0) == Delivery::Lost {
                volume.files.lock().remove(&number);
            }
        });
    }

    fn read(
        &self,
        caller: Caller,
        file: u64,
        offset: u64,
        len_bytes: u32,
        reply: Reply<reply::Data>,
    ) {
        let Some(file) = self.volume.files.lock().get(&file).cloned() else {
            return reply.error(Errno::BADF);
        };
        let ask = async move {
            file.read(offset, len_bytes).await.map_err(|error| errno_of_handle(&error))
        };
        answer(&self.runtime, caller, reply, ask, |reply, data| reply.data(&[&data]));
    }

    fn release(&self, file: u64, reply: Reply<reply::Done>) {
        // Dropping the file tells the gateway, in the background.
        let _entered = self.runtime.enter();
        let removed = self.volume.files.lock().remove(&file);
        drop(removed);
        reply.done();
    }

    fn opendir(&self, _caller: Caller, nodeid: u64, reply: Reply<reply::Opened>) {
        let inode = match self.volume.inode(nodeid) {
            Ok(inode) => inode,
            Err(errno) => return reply.error(errno),
        };
        // No request: a directory that is gone says so when it is listed.
        let Some(number) = self.volume.directories.insert(Directory::new(inode)) else {
            return reply.error(Errno::NFILE);
        };
        if reply.opened(number, 0) == Delivery::Lost {
            self.volume.directories.remove(number);
        }
    }

    fn readdir(&self, caller: Caller, dir: u64, offset: u64, reply: Reply<reply::Directory>) {
        let Some(dir) = self.volume.directories.get(dir) else {
            return reply.error(Errno::BADF);
        };
        let volume = self.volume.clone();
        let mut packed = Packed {
            buffer: reply.buffer(),
            volume: volume.clone(),
            ino: dir.inode.ino,
            parent_ino: dir.inode.parent_ino,
            taken: false,
        };
        let ask = async move {
            dir.read(&volume.client, offset, &mut packed).await?;
            Ok(packed)
        };
        answer(&self.runtime, caller, reply, ask, |reply, mut packed| {
            packed.taken = reply.directory(&packed.buffer) == Delivery::Taken;
        });
    }

    fn releasedir(&self, dir: u64, reply: Reply<reply::Done>) {
        let _entered = self.runtime.enter();
        self.volume.directories.remove(dir);
        reply.done();
    }

    fn statfs(&self, caller: Caller, nodeid: u64, reply: Reply<reply::Statfs>) {
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            volume.client.statfs(&inode.handle).await.map_err(|error| errno_of_handle(&error))
        };
        self.ask(caller, nodeid, reply, ask, |reply, statfs| {
            reply.statfs(&statfs_to_kernel(&statfs));
        });
    }

    fn getxattr(&self, caller: Caller, nodeid: u64, name: &[u8], reply: Reply<reply::Xattr>) {
        if UNSUPPORTED_XATTRS.contains(&name) {
            return reply.error(Errno::OPNOTSUPP);
        }
        if name.len() > XATTR_NAME_LEN_MAX {
            return reply.error(Errno::RANGE);
        }
        let name = name.to_vec();
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let value = volume.client.getxattr(&inode.handle, &name).await;
            value.map_err(|error| errno_of_handle(&error))
        };
        self.ask(caller, nodeid, reply, ask, |reply, value| reply.value(&value));
    }

    fn listxattr(&self, caller: Caller, nodeid: u64, reply: Reply<reply::Xattr>) {
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let names = volume.client.listxattr(&inode.handle).await;
            names.map_err(|error: ClientError| errno_of_handle(&error))
        };
        let privileged = caller.uid == 0;
        self.ask(caller, nodeid, reply, ask, move |reply, names| {
            reply.value(&visible_xattrs(&names, privileged));
        });
    }

    fn destroy(&self) {
        self.volume.gone.notify_one();
    }
}

/// Of a list of names each ended by NUL, those that getxattr answers to this caller.
fn visible_xattrs(names: &[u8], privileged: bool) -> Vec<u8> {
    names
        .split_inclusive(|&byte| byte == 0)
        .filter(|name| {
            let bare = name.strip_suffix(b"\0").unwrap_or(name);
            !UNSUPPORTED_XATTRS.contains(&bare) && (privileged || !bare.starts_with(TRUSTED))
        })
        .flatten()
        .copied()
        .collect()
}

/// Entries packed for the kernel, with the references counted for them; those are taken back
/// unless the kernel takes the buffer.
struct Packed {
    buffer: DirectoryBuffer,
    volume: Arc<Volume>,
    ino: u64,
    parent_ino: u64,
    taken: bool,
}

impl Sink for Packed {
    fn push(&mut self, offset: u64, item: Item<'_>) -> bool {
        let (name, ino): (&[u8], _) = match &item {
            Item::Dot => (b".", self.ino),
            Item::DotDot => (b"..", self.parent_ino),
            Item::Entry(entry) => (entry.name, entry.attr.map_or(0, |attr| attr.ino)),
        };
        let dtype = match &item {
            Item::Dot | Item::DotDot => portcullis_core::FileKind::Directory.dtype(),
            Item::Entry(entry) => entry.kind.dtype(),
        };
        let dirent = DirectoryEntry { name, ino, dtype, offset };
        let (volume, parent_ino) = (&self.volume, self.ino);
        self.buffer.push(&dirent, || {
            let Item::Entry(entry) = item else { return None };
            // Without attributes the name goes alone: nodeid 0, and the kernel looks it up itself.
            let attr = to_kernel(&entry.attr?)?;
            let target = entry.target.map(Box::from);
            let inode = Inode { handle: entry.handle, ino: attr.ino, parent_ino, target };
            let nodeid = volume.inodes.lock().reference(inode)?;
            Some(volume.entry_out(nodeid, attr))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_xattrs_names_only_what_can_be_read() {
        let names = b"user.a\0security.selinux\0trusted.b\0system.posix_acl_access\0user.c\0";
        assert_eq!(visible_xattrs(names, true), b"user.a\0trusted.b\0user.c\0");
        assert_eq!(visible_xattrs(names, false), b"user.a\0user.c\0");
        assert_eq!(visible_xattrs(b"", true), b"");
    }
}
