//! Attributes: reading and setting them, and the target of a symbolic link.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Attr;
use portcullis_core::cache::Learnt;
use portcullis_fuse::abi::ROOT_ID;
use portcullis_fuse::request::SetAttr;
use portcullis_fuse::{Caller, Errno, Reply, reply};

use tokio::time::timeout;

use super::attr::{errno_of_handle, set_attr};
use super::inodes::Inode;
use super::under_way::Work;
use super::volume::{Volume, on_behalf};

/// How long the root's attributes are waited for before it is looked whether anybody is there.
const ROOT_WAIT_MS: u64 = 1_000;

impl Volume {
    pub(super) fn getattr(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        reply: Reply<reply::Attr>,
    ) {
        self.counters.getattrs.add(1);
        let (volume, stamp) = (self.clone(), self.fence.stamp());
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let attr = match nodeid {
                ROOT_ID => volume.root_attr(&inode).await?,
                _ => match volume.attr(&inode.handle).await {
                    Err(Errno::STALE) => volume.last_attr(nodeid).ok_or(Errno::STALE)?,
                    known => known?,
                },
            };
            Ok((inode.handle, attr))
        };
        self.ask(caller, nodeid, reply, ask, move |reply, (handle, attr)| {
            volume.answer_attr(reply, &handle, &attr, stamp);
        });
    }

    /// The attributes of the root, the last ones that are known while the gateway is away: df(1)
    /// and umount(8) look at it first, and must not hang.
    async fn root_attr(&self, root: &Inode) -> Result<Attr, Errno> {
        let mut asking = pin!(self.attr(&root.handle));
        loop {
            let limit = Duration::from_millis(ROOT_WAIT_MS);
            match timeout(limit, asking.as_mut()).await {
                Ok(attr) => {
                    let attr = attr?;
                    *self.last_root.lock() = attr;
                    return Ok(attr);
                }
                Err(_) if self.client.lease_left_ms() > 0 => {}
                Err(_) => return Ok(*self.last_root.lock()),
            }
        }
    }

    pub(super) fn setattr(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        setattr: SetAttr,
        reply: Reply<reply::Attr>,
    ) {
        let (volume, before, by) = (self.clone(), self.before(), on_behalf(caller));
        let file = setattr.file.and_then(|file| self.file(file).ok());
        let writing = setattr.size.map(|_| self.under_way.begin(nodeid, Work::Writing));
        let set = set_attr(&setattr);
        let ask = |volume: Arc<Volume>, inode: Inode| async move {
            let changed = match file {
                Some(file) => {
                    volume.contents.changing(&inode.handle);
                    file.open(&volume.client).await?.setattr(by, set).await
                }
                None => volume.client.setattr(by, &inode.handle, set).await,
            };
            Ok((inode.handle, changed.map_err(|error| errno_of_handle(&error))?))
        };
        self.ask(caller, nodeid, reply, ask, move |reply, (handle, changed)| {
            let _writing = writing;
            let valid = volume.attr_ttl(before.stamp, &handle);
            let learnt = [Learnt::Attr { handle, attr: changed.value }];
            volume.learnt(before, &changed, learnt.to_vec());
            volume.answer_valid_attr(reply, &changed.value, valid);
        });
    }

    pub(super) fn readlink(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        reply: Reply<reply::Data>,
    ) {
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
        self.ask(caller, nodeid, reply, ask, |reply, target: Vec<u8>| match target.is_empty() {
            true => reply.error(Errno::IO),
            false => reply.data(&[&target]),
        });
    }
}
