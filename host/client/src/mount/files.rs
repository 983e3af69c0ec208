//! Open files: opening, making, reading, writing, closing.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::Attr;
use portcullis_core::limits::NAME_LEN_MAX;
use portcullis_fuse::abi::{FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE};
use portcullis_fuse::request::{
    CopyFileRange, Create, Fallocate, Open, Read, Release, Seek, Write,
};
use portcullis_fuse::{Caller, Delivery, Errno, Reply, reply};
use portcullis_wire::message::Mutation;

use super::attr::{PERMISSIONS, errno_of_handle};
use super::inodes::{Inode, Seen};
use super::names::learnt;
use super::open::File;
use super::under_way::{Guard, Work};
use super::volume::{Found, Volume, errno_of_name, on_behalf, on_behalf_of_opener};
use crate::{Changed, OpenFile};

/// open(2).
const O_ACCMODE: u32 = 0o3;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;

impl Volume {
    pub(super) fn open(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        open: Open,
        reply: Reply<reply::Opened>,
    ) {
        let flags = open.flags & (O_ACCMODE | O_APPEND);
        if flags == 0
            && let Some(file) = self.open_in_place(nodeid)
        {
            return self.answer_opened(reply, file);
        }
        let volume = self.clone();
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let opened = volume.client.open_with(&inode.handle, flags).await;
            opened.map_err(|error| errno_of_handle(&error))
        };
        self.ask(caller, nodeid, reply, ask, move |reply, file| {
            let flags = volume.cache_flags(nodeid, file.appends(), file.attr());
            volume.answer_opened(reply, (File::opened(file, nodeid), flags));
        });
    }

    /// Opens a file for reading whose content is in place, without a request.
    fn open_in_place(&self, nodeid: u64) -> Option<(File, u32)> {
        // What is being written goes past the contents.
        if self.under_way.is(nodeid, Work::Writing) {
            return None;
        }
        let inode = self.inodes.get(nodeid)?;
        let content = self.contents.open(&self.client, &inode.handle)?;
        let flags = self.cache_flags(nodeid, false, content.attr());
        Some((File::in_place(content, inode.handle, nodeid), flags))
    }

    fn answer_opened(&self, reply: Reply<reply::Opened>, (file, flags): (File, u32)) {
        let number = self.insert(file);
        if reply.opened(number, flags) == Delivery::Lost {
            self.remove(number);
        }
    }

    /// How the kernel may cache a file that is opened. Appended bytes land where the brick finds
    /// the end, which the kernel does not know: such files go past its cache.
    fn cache_flags(&self, nodeid: u64, appends: bool, attr: &Attr) -> u32 {
        if appends {
            return FOPEN_DIRECT_IO;
        }
        let seen = Seen {
            epoch: self.client.epoch(),
            size_bytes: attr.size_bytes,
            mtime: attr.mtime,
            ctime: attr.ctime,
        };
        let is_good = self.inodes.lock().opened(nodeid, seen);
        if is_good && self.client.lease_left_ms() > 0 { FOPEN_KEEP_CACHE } else { 0 }
    }

    pub(super) fn create(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        create: Create,
        reply: Reply<reply::Created>,
    ) {
        if name.len() > NAME_LEN_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        let flags = create.flags & (O_ACCMODE | O_EXCL | O_TRUNC | O_APPEND);
        let made = name.to_vec();
        self.make_file(caller, parent, name, create, reply, move |dir, mode| Mutation::Create {
            dir,
            name: made,
            mode,
            flags,
        });
    }

    pub(super) fn tmpfile(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        create: Create,
        reply: Reply<reply::Created>,
    ) {
        let flags = create.flags & (O_ACCMODE | O_EXCL | O_APPEND);
        self.make_file(caller, parent, b"", create, reply, move |dir, mode| Mutation::Tmpfile {
            dir,
            mode,
            flags,
        });
    }

    fn make_file(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        create: Create,
        reply: Reply<reply::Created>,
        mutation: impl FnOnce(portcullis_core::Handle, u32) -> Mutation + Send + 'static,
    ) {
        let before = self.before();
        let under_way = self.under_way.begin(parent, Work::Names);
        let (name, volume, by) = (name.to_vec(), self.clone(), on_behalf(caller));
        let ask = |volume: Arc<Volume>, dir: Inode| async move {
            let mode = volume.masked(&dir, create.mode, create.umask).await? & PERMISSIONS;
            let mutation = mutation(dir.handle, mode);
            let made = volume.client.create(by, mutation).await.map_err(errno_of_name)?;
            let ((entry, file), changed) = made.split();
            let found: Found = volume.with_attr(entry).await?;
            Ok((dir, found, file, changed))
        };
        self.ask(caller, parent, reply, ask, move |reply, (dir, found, file, changed)| {
            let _under_way = under_way;
            let attr = found.1;
            let learnt =
                if name.is_empty() { Vec::new() } else { learnt(&dir, &name, &found, false) };
            let out = volume.entry_out(&dir, &name, found, before.stamp);
            volume.learnt(before, &changed, learnt);
            let out = match out {
                Ok(out) => out,
                Err(errno) => return reply.error(errno),
            };
            let flags = volume.cache_flags(out.nodeid, file.appends(), &attr);
            let number = volume.insert(File::opened(file, out.nodeid));
            if reply.created(&out, number, flags) == Delivery::Lost {
                volume.remove(number);
                volume.inodes.forget(out.nodeid, 1);
            }
        });
    }

    pub(super) fn read(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        read: Read,
        reply: Reply<reply::Data>,
    ) {
        let Read { offset, len_bytes, .. } = read;
        if let Ok(file) = self.file(file)
            && !self.under_way.is(file.nodeid, Work::Writing)
            && let Some(data) = file.read_in_place(&self.client, offset, len_bytes)
        {
            reply.data(&[data]);
            return;
        }
        let ask = |volume: Arc<Volume>, file: Arc<File>| async move {
            let opened = match file.open(&volume.client).await {
                Ok(opened) => opened,
                Err(Errno::STALE) => {
                    let last = file.read_last(offset, len_bytes).ok_or(Errno::STALE)?;
                    return Ok(vec![Bytes::copy_from_slice(last)]);
                }
                Err(errno) => return Err(errno),
            };
            let data = opened.read(offset, len_bytes).await;
            data.map_err(|error| errno_of_handle(&error))
        };
        self.ask_of_file(caller, file, reply, ask, |reply, data: Vec<Bytes>| {
            let parts: Vec<&[u8]> = data.iter().map(|piece| &piece[..]).collect();
            reply.data(&parts);
        });
    }

    pub(super) fn write(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        write: Write,
        data: Bytes,
        reply: Reply<reply::Written>,
    ) {
        let by = on_behalf_of_opener(caller);
        let ask = |volume: Arc<Volume>, file: Arc<File>| async move {
            let (opened, writing) = volume.begin_writing(&file).await?;
            let written = opened.write(by, write.offset, data, write.kill_suidgid).await;
            let written = volume.changed(written)?;
            if write.kill_suidgid {
                // The kernel keeps the mode that it knew.
                volume.kernel.drop_attrs(&[file.nodeid]);
            }
            if opened.appends() {
                volume.drop_pages(file.nodeid).await;
            }
            Ok((written, writing))
        };
        self.ask_of_file(caller, file, reply, ask, |reply, (written, _writing)| {
            reply.written(u32::try_from(written).unwrap_or(u32::MAX));
        });
    }

    pub(super) fn fallocate(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        fallocate: Fallocate,
        reply: Reply<reply::Done>,
    ) {
        let by = on_behalf_of_opener(caller);
        let ask = |volume: Arc<Volume>, file: Arc<File>| async move {
            let (opened, writing) = volume.begin_writing(&file).await?;
            let Fallocate { mode, offset, len_bytes } = fallocate;
            volume.changed(opened.fallocate(by, mode, offset, len_bytes).await)?;
            Ok(writing)
        };
        self.ask_of_file(caller, file, reply, ask, |reply, _writing| reply.done());
    }

    pub(super) fn copy_file_range(
        self: &Arc<Self>,
        caller: Caller,
        copy: CopyFileRange,
        reply: Reply<reply::Copied>,
    ) {
        let to = match self.file(copy.file_out) {
            Ok(to) if copy.flags == 0 => to,
            Ok(_) => return reply.error(Errno::INVAL),
            Err(errno) => return reply.error(errno),
        };
        let by = on_behalf_of_opener(caller);
        let ask = |volume: Arc<Volume>, from: Arc<File>| async move {
            let from = from.open(&volume.client).await?;
            let (to, writing) = volume.begin_writing(&to).await?;
            let CopyFileRange { offset_in, offset_out, len_bytes, .. } = copy;
            let copied = from.copy_to(by, offset_in, to, offset_out, len_bytes).await;
            Ok((volume.changed(copied)?, writing))
        };
        self.ask_of_file(caller, copy.file_in, reply, ask, |reply, (copied, _writing)| {
            reply.copied(copied);
        });
    }

    pub(super) fn lseek(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        seek: Seek,
        reply: Reply<reply::Position>,
    ) {
        let (offset, hole) = match seek {
            Seek::Data(offset) => (offset, false),
            Seek::Hole(offset) => (offset, true),
        };
        let ask = |volume: Arc<Volume>, file: Arc<File>| async move {
            let file = file.open(&volume.client).await?;
            file.lseek(offset, hole).await.map_err(|error| errno_of_handle(&error))
        };
        self.ask_of_file(caller, file, reply, ask, |reply, offset| reply.position(offset));
    }

    pub(super) fn flush(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        lock_owner: u64,
        reply: Reply<reply::Done>,
    ) {
        let ask = |volume: Arc<Volume>, file: Arc<File>| {
            // Locks are given back also where whoever closes is being killed.
            Self::to_its_end(async move {
                let file = file.open(&volume.client).await?;
                file.flush(lock_owner).await.map_err(|error| errno_of_handle(&error))
            })
        };
        match self.file(file) {
            Ok(open) if !open.at_gateway().is_some_and(|file| file.may_hold(lock_owner)) => {
                reply.done();
            }
            _ => self.ask_of_file(caller, file, reply, ask, |reply, ()| reply.done()),
        }
    }

    pub(super) fn fsync(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        data_only: bool,
        reply: Reply<reply::Done>,
    ) {
        let ask = |volume: Arc<Volume>, file: Arc<File>| async move {
            let file = file.open(&volume.client).await?;
            file.fsync(data_only).await.map_err(|error| errno_of_handle(&error))
        };
        self.ask_of_file(caller, file, reply, ask, |reply, ()| reply.done());
    }

    pub(super) fn release(
        self: &Arc<Self>,
        file: u64,
        release: Release,
        reply: Reply<reply::Done>,
    ) {
        // The gateway is told in the background, with the last request of the file.
        let _entered = self.runtime.enter();
        if let Some(file) = self.remove(file)
            && let Some(opened) = file.at_gateway()
        {
            opened.ends_flock(release.flock_owner);
        }
        reply.done();
    }

    /// The content of a file is about to be changed: from now on nobody is given what is in place.
    async fn begin_writing<'a>(&self, file: &'a File) -> Result<(&'a OpenFile, Guard), Errno> {
        let writing = self.under_way.begin(file.nodeid, Work::Writing);
        self.contents.changing(file.handle());
        Ok((file.open(&self.client).await?, writing))
    }

    /// Notes what a change of our own brought along.
    fn changed<T>(&self, changed: Result<Changed<T>, crate::ClientError>) -> Result<T, Errno> {
        let changed = changed.map_err(|error| errno_of_handle(&error))?;
        self.noted(&changed.changes);
        Ok(changed.value)
    }
}
