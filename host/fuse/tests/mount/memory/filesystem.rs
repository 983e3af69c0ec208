//! What the tree answers.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, mpsc};

use bytes::Bytes;
use portcullis_fuse::abi::{
    FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_PARALLEL_DIRECT_WRITES, ROOT_ID, StatfsOut,
};
use portcullis_fuse::directory::DirectoryEntry;
use portcullis_fuse::reply::{
    Attr, Copied, Created, Data, Directory, Done, Entry, LockFound, Opened, Position, Reply,
    Statfs, Written, Xattr,
};
use portcullis_fuse::request::{
    CopyFileRange, Create, Fallocate, Lock, Mknod, Open, Read, Release, Rename, Seek, SetAttr,
    SetXattr, Write,
};
use portcullis_fuse::{Caller, Delivery, Errno, Filesystem, Negotiated, Notifier};
use rustix::fs::XattrFlags;

use super::changes::Made;
use super::{Content, HELD_NAME, MemoryTree, OpenFile, Quirk, State, locks, place};

impl MemoryTree {
    /// Answers with an entry of its own.
    fn entry(&self, mut state: MutexGuard<'_, State>, index: usize, reply: Reply<Entry>) {
        let entry = state.reference(index, &self.observed);
        drop(state);
        if reply.entry(&entry) == Delivery::Lost {
            self.forget(entry.nodeid, 1);
        }
    }

    /// Makes a node, gives it a name, and answers with it.
    fn make(&self, caller: Caller, parent: u64, name: &[u8], made: Made, reply: Reply<Entry>) {
        let mut state = self.lock();
        match state.make(caller, place(parent), name, made) {
            Ok(index) => self.entry(state, index, reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn open_file(&self, state: &mut State, index: usize) -> (u64, u32) {
        self.observed.open.fetch_add(1, Ordering::Relaxed);
        state.next_file += 1;
        let file = state.next_file;
        state.files.insert(file, OpenFile { index });
        let flags = match state.nodes[index].quirk {
            Quirk::Blocks | Quirk::Direct | Quirk::HoldsWrites => {
                FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES
            }
            _ if state.keep_cache => FOPEN_KEEP_CACHE,
            _ => 0,
        };
        (file, flags)
    }

    fn close(&self, file: u64) {
        self.lock().files.remove(&file).expect("only what was opened is closed");
        self.observed.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn created(&self, mut state: MutexGuard<'_, State>, index: usize, reply: Reply<Created>) {
        let entry = state.reference(index, &self.observed);
        let (file, flags) = self.open_file(&mut state, index);
        drop(state);
        if reply.created(&entry, file, flags) == Delivery::Lost {
            self.forget(entry.nodeid, 1);
            self.close(file);
        }
    }
}

impl Filesystem for MemoryTree {
    fn init(&self, _: &Negotiated, notifier: &Notifier) {
        self.lock().notifier = Some(notifier.clone());
    }

    fn lookup(&self, _: Caller, parent: u64, name: &[u8], reply: Reply<Entry>) {
        self.observed.lookups.fetch_add(1, Ordering::Relaxed);
        if name.len() > 255 {
            return reply.error(Errno::NAMETOOLONG);
        }
        let mut state = self.lock();
        match (state.entries(place(parent)).get(name), state.absent_ttl) {
            (Some(index), _) => self.entry(state, index, reply),
            (None, Some(ttl)) => reply.no_entry(ttl),
            (None, None) => reply.error(Errno::NOENT),
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

    fn mknod(&self, caller: Caller, parent: u64, name: &[u8], mknod: Mknod, reply: Reply<Entry>) {
        let Mknod { mode, umask, rdev } = mknod;
        self.make(caller, parent, name, Made { mode, umask, rdev, bytes: Vec::new() }, reply);
    }

    fn mkdir(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        reply: Reply<Entry>,
    ) {
        self.observed.makers.lock().unwrap().push((caller, caller.groups()));
        if name == HELD_NAME {
            return self.lock().held.push(reply);
        }
        let mode = mode & 0o7777 | 0o040_000;
        self.make(caller, parent, name, Made { mode, umask, rdev: 0, bytes: Vec::new() }, reply);
    }

    fn symlink(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        target: &[u8],
        reply: Reply<Entry>,
    ) {
        let made = Made { mode: 0o120_777, umask: 0, rdev: 0, bytes: target.to_vec() };
        self.make(caller, parent, name, made, reply);
    }

    fn link(&self, _: Caller, nodeid: u64, new_parent: u64, new_name: &[u8], reply: Reply<Entry>) {
        let (index, parent) = (place(nodeid), place(new_parent));
        let mut state = self.lock();
        if state.entries(parent).get(new_name).is_some() {
            return reply.error(Errno::EXIST);
        }
        state.entries(parent).set(new_name, index);
        state.nodes[index].attr.nlink += 1;
        self.entry(state, index, reply);
    }

    fn unlink(&self, _: Caller, parent: u64, name: &[u8], reply: Reply<Done>) {
        done(self.lock().unlink(place(parent), name, false), reply);
    }

    fn rmdir(&self, _: Caller, parent: u64, name: &[u8], reply: Reply<Done>) {
        done(self.lock().unlink(place(parent), name, true), reply);
    }

    fn rename(&self, _: Caller, rename: Rename<'_>, reply: Reply<Done>) {
        done(self.lock().rename(&rename), reply);
    }

    fn readlink(&self, _: Caller, nodeid: u64, reply: Reply<Data>) {
        match &self.lock().nodes[place(nodeid)].content {
            Content::Bytes(target) => reply.data(&[target]),
            Content::Directory(_) => reply.error(Errno::INVAL),
        }
    }

    fn getattr(&self, _: Caller, nodeid: u64, _: Option<u64>, reply: Reply<Attr>) {
        reply.attr(&self.lock().attr_out(place(nodeid)));
    }

    fn setattr(&self, _: Caller, nodeid: u64, setattr: SetAttr, reply: Reply<Attr>) {
        let mut state = self.lock();
        state.setattr(place(nodeid), &setattr);
        reply.attr(&state.attr_out(place(nodeid)));
    }

    fn getxattr(&self, _: Caller, nodeid: u64, name: &[u8], reply: Reply<Xattr>) {
        let unsupported = name.starts_with(b"security.");
        match self.lock().nodes[place(nodeid)].xattrs.get(name) {
            Some(value) => reply.value(value),
            None if unsupported => reply.error(Errno::OPNOTSUPP),
            None => reply.error(Errno::NODATA),
        }
    }

    fn listxattr(&self, _: Caller, nodeid: u64, reply: Reply<Xattr>) {
        let state = self.lock();
        let names = state.nodes[place(nodeid)].xattrs.keys();
        reply.value(&names.flat_map(|name| [name, b"\0".as_slice()].concat()).collect::<Vec<_>>());
    }

    fn setxattr(&self, _: Caller, nodeid: u64, setxattr: SetXattr<'_>, reply: Reply<Done>) {
        let mut state = self.lock();
        let xattrs = &mut state.nodes[place(nodeid)].xattrs;
        let there = xattrs.contains_key(setxattr.name);
        let flags = XattrFlags::from_bits_retain(setxattr.flags);
        if there && flags == XattrFlags::CREATE {
            return reply.error(Errno::EXIST);
        }
        if !there && flags == XattrFlags::REPLACE {
            return reply.error(Errno::NODATA);
        }
        xattrs.insert(setxattr.name.to_vec(), setxattr.value.to_vec());
        reply.done();
    }

    fn removexattr(&self, _: Caller, nodeid: u64, name: &[u8], reply: Reply<Done>) {
        let removed = self.lock().nodes[place(nodeid)].xattrs.remove(name);
        done(removed.map(drop).ok_or(Errno::NODATA), reply);
    }

    fn statfs(&self, _: Caller, _: u64, reply: Reply<Statfs>) {
        reply.statfs(&StatfsOut {
            blocks: 1000,
            bfree: 600,
            bavail: 500,
            files: self.lock().nodes.len() as u64,
            ffree: 7,
            bsize: 4096,
            namelen: 255,
            frsize: 512,
            ..StatfsOut::default()
        });
    }

    fn open(&self, _: Caller, nodeid: u64, open: Open, reply: Reply<Opened>) {
        let mut state = self.lock();
        let index = place(nodeid);
        if open.flags & libc::O_TRUNC as u32 != 0 {
            state.setattr(index, &SetAttr { size: Some(0), ..SetAttr::default() });
            if open.kill_suidgid {
                state.kill_suidgid(index);
            }
        }
        let (file, flags) = self.open_file(&mut state, index);
        drop(state);
        if reply.opened(file, flags) == Delivery::Lost {
            self.close(file);
        }
    }

    fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        create: Create,
        reply: Reply<Created>,
    ) {
        let mut state = self.lock();
        let Create { flags, mode, umask, .. } = create;
        let exclusive = flags & libc::O_EXCL as u32 != 0;
        let index = match state.entries(place(parent)).get(name) {
            Some(_) if exclusive => return reply.error(Errno::EXIST),
            Some(index) => {
                if flags & libc::O_TRUNC as u32 != 0 {
                    state.setattr(index, &SetAttr { size: Some(0), ..SetAttr::default() });
                }
                index
            }
            None => {
                let made = Made { mode, umask, rdev: 0, bytes: Vec::new() };
                match state.make(caller, place(parent), name, made) {
                    Ok(index) => index,
                    Err(errno) => return reply.error(errno),
                }
            }
        };
        self.created(state, index, reply);
    }

    fn tmpfile(&self, caller: Caller, _: u64, create: Create, reply: Reply<Created>) {
        let mut state = self.lock();
        let Create { mode, umask, .. } = create;
        let made = Made { mode, umask, rdev: 0, bytes: Vec::new() };
        let index = state.make_unnamed(caller, made);
        state.nodes[index].attr.nlink = 0;
        self.created(state, index, reply);
    }

    fn read(&self, _: Caller, file: u64, read: Read, mut reply: Reply<Data>) {
        let mut state = self.lock();
        let index = state.index(file);
        let Read { offset, len_bytes: len, .. } = read;
        self.observed.largest_read_bytes.fetch_max(len as usize, Ordering::Relaxed);
        match state.nodes[index].quirk {
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
            Quirk::Panics => {
                // Not with the lock, which it would poison.
                drop(state);
                unreachable!("on purpose");
            }
            Quirk::TooLong => return reply.data(&[&vec![0; len as usize], b"x"]),
            Quirk::None
            | Quirk::NoAttributes
            | Quirk::Changes
            | Quirk::Direct
            | Quirk::HoldsWrites => {}
        }
        let bytes = state.bytes(index);
        let start = (offset as usize).min(bytes.len());
        let end = (start + len as usize).min(bytes.len());
        // In two parts, as data that comes in frames would be.
        let middle = start + (end - start) / 2;
        reply.data(&[&bytes[start..middle], &bytes[middle..end]]);
    }

    fn write(&self, _: Caller, file: u64, write: Write, data: Bytes, reply: Reply<Written>) {
        self.observed.largest_write_bytes.fetch_max(data.len(), Ordering::Relaxed);
        let tree = self.clone();
        let write = move || {
            let mut state = tree.lock();
            let index = state.index(file);
            let append = write.flags & libc::O_APPEND as u32 != 0 && !write.from_cache;
            let offset = if append { state.bytes(index).len() } else { write.offset as usize };
            state.write(index, offset, &data);
            if write.kill_suidgid {
                state.kill_suidgid(index);
            }
            drop(state);
            reply.written(data.len() as u32);
        };
        let mut state = self.lock();
        let index = state.index(file);
        if state.nodes[index].quirk == Quirk::HoldsWrites {
            return state.held_writes.push(Box::new(write));
        }
        drop(state);
        // On another thread, with the data, while this one reads on.
        std::thread::spawn(write);
    }

    fn flush(&self, _: Caller, file: u64, lock_owner: u64, reply: Reply<Done>) {
        let mut state = self.lock();
        let index = state.index(file);
        state.locks.drop_where(index, |_, lock| lock.owner == lock_owner && !lock.flock);
        state.locks.answer_waiting();
        reply.done();
    }

    fn fsync(&self, _: Caller, _: u64, _: bool, reply: Reply<Done>) {
        reply.done();
    }

    fn release(&self, file: u64, release: Release, reply: Reply<Done>) {
        let mut state = self.lock();
        let index = state.index(file);
        let flock_owner = release.flock_owner;
        state.locks.drop_where(index, |through, lock| {
            if lock.flock { flock_owner == Some(lock.owner) } else { through == file }
        });
        state.locks.answer_waiting();
        drop(state);
        self.close(file);
        reply.done();
    }

    fn fallocate(&self, _: Caller, file: u64, fallocate: Fallocate, reply: Reply<Done>) {
        let mut state = self.lock();
        let index = state.index(file);
        done(state.fallocate(index, &fallocate), reply);
    }

    fn lseek(&self, _: Caller, file: u64, seek: Seek, reply: Reply<Position>) {
        let mut state = self.lock();
        let index = state.index(file);
        match state.seek(index, seek) {
            Ok(offset) => reply.position(offset),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(&self, _: Caller, copy: CopyFileRange, reply: Reply<Copied>) {
        let mut state = self.lock();
        let (from, to) = (state.index(copy.file_in), state.index(copy.file_out));
        assert_eq!(to, place(copy.nodeid_out));
        let bytes = state.bytes(from);
        let start = (copy.offset_in as usize).min(bytes.len());
        let len = (bytes.len() - start).min(copy.len_bytes as usize);
        let data = bytes[start..start + len].to_vec();
        state.write(to, copy.offset_out as usize, &data);
        reply.copied(len as u64);
    }

    fn getlk(&self, _: Caller, file: u64, lock: Lock, reply: Reply<LockFound>) {
        let state = self.lock();
        reply.lock(state.locks.conflict(state.index(file), &lock));
    }

    fn setlk(&self, _: Caller, file: u64, lock: Lock, reply: Reply<Done>) {
        let mut state = self.lock();
        let index = state.index(file);
        let set = state.locks.set(index, file, lock);
        state.locks.answer_waiting();
        done(if set { Ok(()) } else { Err(Errno::AGAIN) }, reply);
    }

    fn setlkw(&self, _: Caller, file: u64, lock: Lock, reply: Reply<Done>) {
        let index = self.lock().index(file);
        locks::wait(self, index, file, lock, reply);
    }

    fn opendir(&self, caller: Caller, nodeid: u64, reply: Reply<Opened>) {
        self.open(caller, nodeid, Open { flags: 0, kill_suidgid: false }, reply);
    }

    fn readdir(&self, _: Caller, dir: u64, offset: u64, reply: Reply<Directory>) {
        let mut state = self.lock();
        let index = state.index(dir);
        let ino = state.nodes[index].attr.ino;
        let mut buffer = reply.buffer();
        for (nth, name) in [b".".as_slice(), b".."].into_iter().enumerate().skip(offset as usize) {
            let entry = DirectoryEntry { name, ino, dtype: 4, offset: nth as u64 + 1 };
            if !buffer.push(&entry, || None) {
                break;
            }
        }
        // Positions count from 1, and come after the two.
        let mut after = offset.saturating_sub(2);
        loop {
            let next = state.entries(index).by_position.range(after + 1..).next();
            let Some((position, (name, child))) = next.map(|(&at, entry)| (at, entry.clone()))
            else {
                break;
            };
            let attr = &state.nodes[child].attr;
            let (ino, dtype) = (attr.ino, (attr.mode >> 12) as u8);
            let known = state.nodes[child].quirk != Quirk::NoAttributes;
            let entry = DirectoryEntry { name: &name, ino, dtype, offset: position + 2 };
            if !buffer.push(&entry, || known.then(|| state.reference(child, &self.observed))) {
                break;
            }
            after = position;
        }
        drop(state);
        if reply.directory(&buffer) == Delivery::Lost {
            buffer.nodeids().for_each(|nodeid| self.forget(nodeid, 1));
        }
    }

    fn releasedir(&self, dir: u64, reply: Reply<Done>) {
        self.close(dir);
        reply.done();
    }

    fn destroy(&self) {
        self.observed.destroyed.fetch_add(1, Ordering::Relaxed);
    }
}

fn done(result: Result<(), Errno>, reply: Reply<Done>) {
    match result {
        Ok(()) => reply.done(),
        Err(errno) => reply.error(errno),
    }
}
