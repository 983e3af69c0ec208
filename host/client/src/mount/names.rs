//! Names: looking them up, and all that makes, moves and removes them.

use std::sync::Arc;

use portcullis_core::cache::{Filled, Learnt};
use portcullis_core::limits::{LINK_TARGET_LEN_MAX, NAME_LEN_MAX};
use portcullis_core::watch::Change;
use portcullis_core::{Entry, Handle};
use portcullis_fuse::abi::decode_dev;
use portcullis_fuse::request::{Mknod, Rename};
use portcullis_fuse::{Caller, Errno, Reply, reply};
use portcullis_wire::message::{Mutated, Mutation};

use super::attr::{PERMISSIONS, errno, errno_of_handle};
use super::inodes::Inode;
use super::memory::Known;
use super::task::answer;
use super::under_way::Work;
use super::volume::{Found, Volume, errno_of_name, on_behalf};
use crate::Changed;

/// The type in a mode, and that of a regular file.
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
/// Flags of renameat2(2).
const RENAME_NOREPLACE: u32 = 1 << 0;
const RENAME_EXCHANGE: u32 = 1 << 1;

impl Volume {
    pub(super) fn lookup(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        reply: Reply<reply::Entry>,
    ) {
        if name.len() > NAME_LEN_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        self.counters.lookups.add(1);
        let stamp = self.fence.stamp();
        let under_way = self.under_way.begin(parent, Work::Names);
        let (name, volume) = (name.to_vec(), self.clone());
        let asked = name.clone();
        let ask = |volume: Arc<Volume>, dir: Inode| async move {
            let found = match volume.find(&dir.handle, &asked).await? {
                Some(entry) => Some(volume.with_attr(entry).await?),
                None => None,
            };
            Ok((dir, found))
        };
        self.ask(caller, parent, reply, ask, move |reply, (dir, found)| {
            let _under_way = under_way;
            match found {
                Some(found) => {
                    let out = volume.entry_out(&dir, &name, found, stamp);
                    volume.answer_entry(reply, out);
                }
                None => {
                    let valid = volume.name_ttl(stamp, &dir.handle, &name);
                    if valid.is_zero() { reply.error(Errno::NOENT) } else { reply.no_entry(valid) }
                }
            }
        });
    }

    /// What a name stands for, from memory where that is known.
    async fn find(&self, dir: &Handle, name: &[u8]) -> Result<Option<Entry>, Errno> {
        let filling = match self.memory.lookup(&self.client, dir, name) {
            Known::This(entry) => return Ok(Some(entry)),
            Known::Absent => return Ok(None),
            Known::Nothing(filling) => filling,
        };
        let (found, filled) = match self.client.lookup(dir, name).await {
            Ok(entry) => (Some(entry.clone()), Filled::Entry(entry)),
            Err(error) => match errno(&error) {
                Errno::NOENT => (None, Filled::Absent),
                errno => return Err(errno),
            },
        };
        if let Some(filling) = filling {
            filling.fill(&filled);
        }
        Ok(found)
    }

    pub(super) fn mknod(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mknod: Mknod,
        reply: Reply<reply::Entry>,
    ) {
        let kind = if mknod.mode & S_IFMT == 0 { S_IFREG } else { mknod.mode & S_IFMT };
        let (major, minor) = decode_dev(mknod.rdev);
        let rdev = rustix::fs::makedev(major, minor);
        let made = name.to_vec();
        self.make(caller, parent, name, mknod.mode, mknod.umask, reply, move |dir, mode| {
            Mutation::Mknod { dir, name: made, mode: kind | mode, rdev }
        });
    }

    pub(super) fn mkdir(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        reply: Reply<reply::Entry>,
    ) {
        let made = name.to_vec();
        self.make(caller, parent, name, mode, umask, reply, move |dir, mode| Mutation::Mkdir {
            dir,
            name: made,
            mode,
        });
    }

    pub(super) fn symlink(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        target: &[u8],
        reply: Reply<reply::Entry>,
    ) {
        if target.len() > LINK_TARGET_LEN_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        let (made, target) = (name.to_vec(), target.to_vec());
        self.make(caller, parent, name, 0, 0, reply, move |dir, _| Mutation::Symlink {
            dir,
            name: made,
            target,
        });
    }

    pub(super) fn link(
        self: &Arc<Self>,
        caller: Caller,
        nodeid: u64,
        new_parent: u64,
        new_name: &[u8],
        reply: Reply<reply::Entry>,
    ) {
        let handle = match self.inode(nodeid) {
            Ok(inode) => inode.handle,
            Err(errno) => return reply.error(errno),
        };
        let made = new_name.to_vec();
        self.make(caller, new_parent, new_name, 0, 0, reply, move |dir, _| Mutation::Link {
            handle,
            dir,
            name: made,
        });
    }

    pub(super) fn unlink(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        reply: Reply<reply::Done>,
    ) {
        let removed = name.to_vec();
        self.remove_name(caller, parent, name, reply, |dir| Mutation::Unlink {
            dir,
            name: removed,
        });
    }

    pub(super) fn rmdir(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        reply: Reply<reply::Done>,
    ) {
        let removed = name.to_vec();
        self.remove_name(caller, parent, name, reply, |dir| Mutation::Rmdir { dir, name: removed });
    }

    pub(super) fn rename(
        self: &Arc<Self>,
        caller: Caller,
        rename: Rename<'_>,
        reply: Reply<reply::Done>,
    ) {
        if rename.name.len().max(rename.new_name.len()) > NAME_LEN_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        if !matches!(rename.flags, 0 | RENAME_NOREPLACE | RENAME_EXCHANGE) {
            return reply.error(Errno::INVAL);
        }
        let parents = (self.inode(rename.parent), self.inode(rename.new_parent));
        let (dir, new_dir, inos) = match parents {
            (Ok(dir), Ok(new_dir)) => (dir.handle, new_dir.handle, [dir.ino, new_dir.ino]),
            (Err(errno), _) | (_, Err(errno)) => return reply.error(errno),
        };
        let mutation = Mutation::Rename {
            dir,
            name: rename.name.to_vec(),
            new_dir,
            new_name: rename.new_name.to_vec(),
            flags: rename.flags,
        };
        let dirs = [rename.parent, rename.new_parent];
        let under_way = dirs.map(|dir| self.under_way.begin(dir, Work::Names));
        let (parents, volume) = ([dir, new_dir], self.clone());
        let renamed = move |changes: &[Change]| volume.renamed(parents, inos, changes);
        // Two names of one file stay both, so nothing is learnt.
        self.change_names(caller, mutation, Vec::new(), reply, under_way, renamed);
    }

    /// Makes a name and answers with what it stands for.
    #[allow(clippy::too_many_arguments, reason = "the kernel's own, and what differs")]
    fn make(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        reply: Reply<reply::Entry>,
        mutation: impl FnOnce(Handle, u32) -> Mutation + Send + 'static,
    ) {
        if name.len() > NAME_LEN_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        let before = self.before();
        let under_way = self.under_way.begin(parent, Work::Names);
        let (name, volume, by) = (name.to_vec(), self.clone(), on_behalf(caller));
        let ask = |volume: Arc<Volume>, dir: Inode| async move {
            let mode = volume.masked(&dir, mode, umask).await? & PERMISSIONS;
            let mutation = mutation(dir.handle, mode);
            let is_dir = matches!(mutation, Mutation::Mkdir { .. });
            let made = volume.client.mutate(by, mutation, None).await.map_err(errno_of_name)?;
            let (made, changed) = made.split();
            let found = volume.made(made).await?;
            Ok((dir, found, is_dir, changed))
        };
        self.ask(caller, parent, reply, ask, move |reply, (dir, found, is_dir, changed)| {
            let _under_way = under_way;
            let names = Change::Names { dir: found.0.handle };
            let is_empty = is_dir && !changed.changes.contains(&names);
            let learnt = learnt(&dir, &name, &found, is_empty);
            let out = volume.entry_out(&dir, &name, found, before.stamp);
            volume.learnt(before, &changed, learnt);
            volume.answer_entry(reply, out);
        });
    }

    async fn made(&self, result: Mutated) -> Result<Found, Errno> {
        match result {
            Mutated::Entry(entry) => self.with_attr(entry).await,
            _ => Err(Errno::IO),
        }
    }

    /// The mode of something new. Where its directory has a default access list, that counts
    /// instead of the umask; a mount without access lists leaves it to the umask to take away.
    pub(super) async fn masked(&self, dir: &Inode, mode: u32, umask: u32) -> Result<u32, Errno> {
        let has_default = self.acl
            && umask != 0
            && !self.has_no_acl(&dir.handle)
            && match self.client.getxattr(&dir.handle, super::xattrs::ACL_DEFAULT).await {
                Ok(_) => true,
                Err(error) => match errno_of_handle(&error) {
                    Errno::NODATA | Errno::OPNOTSUPP => false,
                    errno => return Err(errno),
                },
            };
        Ok(if has_default { mode } else { mode & !umask })
    }

    fn remove_name(
        self: &Arc<Self>,
        caller: Caller,
        parent: u64,
        name: &[u8],
        reply: Reply<reply::Done>,
        mutation: impl FnOnce(Handle) -> Mutation,
    ) {
        if name.len() > NAME_LEN_MAX {
            return reply.error(Errno::NAMETOOLONG);
        }
        let under_way = self.under_way.begin(parent, Work::Names);
        match self.inode(parent) {
            Ok(dir) => {
                let absent = Learnt::Absent { dir: dir.handle, name: name.to_vec() };
                let mutation = mutation(dir.handle);
                self.change_names(caller, mutation, vec![absent], reply, under_way, |_| {});
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// Carries out a change of names that has nothing to tell.
    fn change_names(
        self: &Arc<Self>,
        caller: Caller,
        mutation: Mutation,
        learnt: Vec<Learnt>,
        reply: Reply<reply::Done>,
        under_way: impl Send + 'static,
        done: impl FnOnce(&[Change]) + Send + 'static,
    ) {
        let before = self.before();
        let (volume, by) = (self.clone(), on_behalf(caller));
        let asked = self.clone();
        let ask = async move {
            let changed = asked.client.mutate(by, mutation, None).await.map_err(errno_of_name)?;
            Ok(changed)
        };
        answer(&self.runtime, caller, reply, ask, move |reply, changed: Changed<Mutated>| {
            let _under_way = under_way;
            volume.learnt(before, &changed, learnt);
            done(&changed.changes);
            reply.done();
        });
    }

    /// The kernel moves what it renames itself from one parent to the other, and what it exchanges
    /// that for the other way; a file that was replaced is gone.
    fn renamed(&self, parents: [Handle; 2], inos: [u64; 2], changes: &[Change]) {
        if parents[0] == parents[1] {
            return;
        }
        let mut inodes = self.inodes.lock();
        for change in changes {
            if let Change::Attr { handle } = change
                && !parents.contains(handle)
            {
                inodes.moved(handle, inos);
            }
        }
    }
}

/// What is known once a name was made.
pub(super) fn learnt(dir: &Inode, name: &[u8], found: &Found, is_empty_dir: bool) -> Vec<Learnt> {
    let (entry, attr) = found;
    let entry = Entry { attr: Some(*attr), ..entry.clone() };
    let handle = entry.handle;
    let mut learnt = vec![Learnt::Entry { dir: dir.handle, name: name.to_vec(), entry }];
    learnt.extend(is_empty_dir.then_some(Learnt::EmptyDir { dir: handle }));
    learnt
}
