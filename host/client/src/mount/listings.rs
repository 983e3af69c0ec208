//! Open directories in the kernel's terms.

use std::sync::Arc;

use portcullis_fuse::abi::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE};
use portcullis_fuse::{Caller, Delivery, Errno, Reply, reply};
use tokio::time::Instant;

use super::attr::errno_of_handle;
use super::directories::{Directory, Origin, Sink};
use super::kept::{Now, Validity};
use super::packing::Packed;
use super::under_way::Work;
use super::volume::Volume;

impl Volume {
    pub(super) fn opendir(self: &Arc<Self>, nodeid: u64, reply: Reply<reply::Opened>) {
        let inode = match self.inode(nodeid) {
            Ok(inode) => inode,
            Err(errno) => return reply.error(errno),
        };
        // The kernel keeps a listing only while it would be told of changes.
        let now = self.client.recalling_epoch().map(|session| Now {
            now: Instant::now(),
            ttl: self.ttl(),
            names_epoch: self.kernel.names_epoch(),
            session,
        });
        let opening = self.kept.opened(nodeid, now.as_ref());
        self.counters.opendirs.add(1);
        self.counters.kept.add(u64::from(opening.keep));
        let keep = if opening.keep { FOPEN_KEEP_CACHE } else { 0 };
        let flags = if now.is_some() { FOPEN_CACHE_DIR | keep } else { 0 };
        self.inodes.lock().listed(nodeid);
        // No request: a directory that is gone says so when it is listed.
        let pass = opening.pass;
        let Some(number) = self.directories.insert(Directory::new(inode, nodeid, opening)) else {
            self.kept.closed(nodeid, &pass);
            return reply.error(Errno::NFILE);
        };
        if reply.opened(number, flags) == Delivery::Lost {
            self.close_dir(number);
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
        self.counters.readdirs.add(1);
        let under_way = self.under_way.begin(dir.nodeid, Work::Names);
        // The kernel asks for more: it has entered what it was given before.
        drop(dir.listed.lock().take());
        let names_epoch = self.kernel.names_epoch();
        self.kept.asked(dir.nodeid, &mut dir.pass.lock(), offset == 0);
        let mut packed = Packed::new(&reply, self, dir.inode.clone());
        let (volume, open) = (self.clone(), dir.clone());
        let ask = async move {
            let Volume { client, memory, contents, fence, counters, ahead, .. } = &*volume;
            let origin = Origin { client, memory, contents, fence, counters, ahead };
            dir.read(origin, offset, &mut packed).await?;
            if packed.is_empty() {
                volume.end_pass(&dir).await;
            }
            Ok((volume, packed))
        };
        super::task::answer(&self.runtime, caller, reply, ask, move |reply, (volume, packed)| {
            let _under_way = under_way;
            if packed.is_empty() {
                _ = packed.answer(reply);
                return;
            }
            volume.kept.told(open.nodeid, &open.pass.lock());
            *open.listed.lock() = Some(volume.under_way.listed(open.nodeid));
            let (now, valid) = (Instant::now(), packed.answer(reply));
            let mut pass = open.pass.lock();
            if valid.is_zero() {
                pass.valid = None;
            } else if offset == 0 {
                let session = volume.client.recalling_epoch();
                let until = now + valid;
                pass.valid = session.map(|session| Validity { until, names_epoch, session });
            }
        });
    }

    /// The kernel is about to be told the end of a directory.
    async fn end_pass(&self, dir: &Directory) {
        let pass = *dir.pass.lock();
        if !self.kept.ended(dir.nodeid, &pass) {
            self.kernel.drop_listings(vec![dir.nodeid]).await;
        }
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
        self.close_dir(dir);
        reply.done();
    }

    fn close_dir(&self, dir: u64) {
        if let Some(dir) = self.directories.remove(dir) {
            self.kept.closed(dir.nodeid, &dir.pass.lock());
        }
    }
}
