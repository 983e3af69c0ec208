//! What all requests of a mount share, and how each is carried out: a request becomes a task that
//! asks the gateway, then answers the kernel.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::cache::{Filled, Learnt, MutationStamp};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Entry, Handle};
use portcullis_fuse::abi::{self, AttrOut, EntryOut};
use portcullis_fuse::{Caller, Delivery, Errno, Reply, reply};
use portcullis_wire::message;
use tokio::runtime;
use tokio::sync::Notify;

use super::ahead::{Ahead, Asked};
use super::attr::{errno, errno_of_handle, to_kernel};
use super::contents::Contents;
use super::counters::Counters;
use super::directories::Directories;
use super::fence::{Fence, Stamp};
use super::inodes::{Inode, Inodes};
use super::kept::Kept;
use super::kernel::Kernel;
use super::memory::{Known, Memory};
use super::open::File;
use super::options::MountOptions;
use super::space::Space;
use super::task::answer;
use super::under_way::UnderWay;
use crate::{Changed, Client};

/// Taken off what is left of the lease, for the kernel's coarser clock.
const LEASE_MARGIN_MS: u64 = 20;

/// See the module.
pub(super) struct Volume {
    pub(super) client: Client,
    pub(super) runtime: runtime::Handle,
    pub(super) inodes: Inodes,
    files: Mutex<HashMap<u64, Arc<File>>>,
    next_file: AtomicU64,
    pub(super) directories: Directories,
    pub(super) kept: Kept,
    pub(super) counters: Counters,
    pub(super) fence: Arc<Fence>,
    pub(super) memory: Arc<Memory>,
    pub(super) contents: Arc<Contents>,
    pub(super) ahead: Ahead,
    pub(super) kernel: Kernel,
    pub(super) under_way: Arc<UnderWay>,
    pub(super) space: Space,
    /// The root's attributes as they were told last.
    pub(super) last_root: Mutex<Attr>,
    attr_ttl_ms: u64,
    /// POSIX access lists are passed through.
    pub(super) acl: bool,
    /// Told when the mount is gone.
    pub(super) gone: Notify,
}

/// The moment before something was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) stamp: Stamp,
    mutation: Option<MutationStamp>,
}

/// What a name was found to stand for.
pub(super) type Found = (Entry, Attr);

impl Volume {
    /// Call it within a runtime.
    pub(super) fn new(client: Client, root: &Handle, attr: &Attr, options: &MountOptions) -> Self {
        let root = Inode {
            handle: *root,
            ino: attr.ino,
            parent_ino: attr.ino,
            is_dir: true,
            target: None,
        };
        let (fence, memory) = (Arc::new(Fence::new()), Arc::new(Memory::new(options.cache_bytes)));
        let contents = Arc::new(Contents::new(options.content_bytes));
        let asked = Asked { client: &client, memory: &memory, contents: &contents, fence: &fence };
        let ahead = Ahead::new(options.prefetch, options.cache_bytes, asked);
        Self {
            client,
            runtime: runtime::Handle::current(),
            inodes: Inodes::new(root),
            files: Mutex::default(),
            next_file: AtomicU64::new(0),
            directories: Directories::default(),
            kept: Kept::default(),
            counters: Counters::default(),
            fence,
            memory,
            contents,
            ahead,
            kernel: Kernel::default(),
            under_way: Arc::default(),
            space: Space::default(),
            last_root: Mutex::new(*attr),
            attr_ttl_ms: options.attr_ttl_ms,
            acl: options.acl,
            gone: Notify::new(),
        }
    }

    /// The file of a nodeid.
    pub(super) fn inode(&self, nodeid: u64) -> Result<Inode, Errno> {
        self.inodes.get(nodeid).ok_or(Errno::STALE)
    }

    /// The open file of a number.
    pub(super) fn file(&self, number: u64) -> Result<Arc<File>, Errno> {
        self.files.lock().get(&number).cloned().ok_or(Errno::BADF)
    }

    /// Gives an open file a number.
    pub(super) fn insert(&self, file: File) -> u64 {
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        self.files.lock().insert(number, Arc::new(file));
        number
    }

    /// The attributes of a file that is gone, which a program has open by a content that was in place.
    pub(super) fn last_attr(&self, nodeid: u64) -> Option<Attr> {
        let files = self.files.lock();
        let mut open = files.values().filter(|file| file.nodeid == nodeid);
        open.find_map(|file| file.last_attr())
    }

    /// Takes the number back.
    pub(super) fn remove(&self, number: u64) -> Option<Arc<File>> {
        self.files.lock().remove(&number)
    }

    /// Answers a request about the file of a nodeid by a request to the gateway.
    pub(super) fn ask<A, T, F>(
        self: &Arc<Self>,
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
        match self.inode(nodeid) {
            Ok(inode) => {
                let ask = self.clone().looking_anew(ask(self.clone(), inode));
                answer(&self.runtime, caller, reply, ask, finish);
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// Answers a request about an open file by a request to the gateway.
    pub(super) fn ask_of_file<A, T, F>(
        self: &Arc<Self>,
        caller: Caller,
        file: u64,
        reply: Reply<A>,
        ask: impl FnOnce(Arc<Volume>, Arc<File>) -> F,
        finish: impl FnOnce(Reply<A>, T) + Send + 'static,
    ) where
        A: 'static,
        T: Send + 'static,
        F: Future<Output = Result<T, Errno>> + Send + 'static,
    {
        match self.file(file) {
            Ok(file) => {
                let ask = self.clone().looking_anew(ask(self.clone(), file));
                answer(&self.runtime, caller, reply, ask, finish);
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// Where a file turns out to be gone the kernel looks its name up again, which must not be
    /// answered from memory.
    async fn looking_anew<T>(
        self: Arc<Self>,
        ask: impl Future<Output = Result<T, Errno>>,
    ) -> Result<T, Errno> {
        let answered = ask.await;
        if matches!(answered, Err(Errno::STALE)) {
            self.memory.forget(&[Change::All]);
            self.ahead.forgotten(&[Change::All]);
        }
        answered
    }

    /// Waits for `work` also where whoever asked is killed meanwhile: for what must not be left
    /// half done.
    pub(super) async fn to_its_end<T: Send + 'static>(
        work: impl Future<Output = Result<T, Errno>> + Send + 'static,
    ) -> Result<T, Errno> {
        tokio::spawn(work).await.unwrap_or(Err(Errno::IO))
    }

    /// The attributes of a file, from memory where they are known.
    pub(super) async fn attr(&self, handle: &Handle) -> Result<Attr, Errno> {
        let filling = match self.memory.getattr(&self.client, handle) {
            Known::This(attr) => return Ok(attr),
            Known::Absent => None,
            Known::Nothing(filling) => filling,
        };
        let attr = self.client.getattr(handle).await.map_err(|error| errno_of_handle(&error))?;
        if let Some(filling) = filling {
            filling.fill(&Filled::Attr(attr));
        }
        Ok(attr)
    }

    /// Notes changes of our own that the kernel learns of from our answer.
    pub(super) fn noted(&self, changes: &[Change]) {
        self.memory.forget(changes);
        self.contents.forget(changes);
        self.ahead.forgotten(changes);
        self.fence.enter(changes);
        self.changed_by_kernel(changes);
    }

    /// As [`Volume::noted`], and what came of them: `learnt`, and what the directories are like.
    pub(super) fn learnt<T>(&self, before: Before, changed: &Changed<T>, mut learnt: Vec<Learnt>) {
        let dirs = changed.dirs.iter();
        learnt.extend(dirs.map(|&(handle, attr)| Learnt::Attr { handle, attr }));
        self.memory.learn(before.mutation, &changed.changes, &learnt);
        self.contents.forget(&changed.changes);
        self.ahead.forgotten(&changed.changes);
        // After the memory: what is remembered once this is entered is true.
        self.fence.enter(&changed.changes);
        self.changed_by_kernel(&changed.changes);
    }

    /// Names changed by what the kernel itself asked for. It waits for our answer with the directory
    /// locked, so nobody is being given its names and dropping them does not wait.
    fn changed_by_kernel(&self, changes: &[Change]) {
        for change in changes {
            if let Change::Name { dir, .. } | Change::Names { dir } = change {
                let listings = self.listings_of(&mut self.inodes.lock(), dir);
                listings.into_iter().for_each(|dir| _ = self.kernel.drop_listing(dir));
            }
        }
    }

    /// Call it before anything is asked.
    pub(super) fn before(&self) -> Before {
        Before { stamp: self.fence.stamp(), mutation: self.memory.before() }
    }

    /// An entry with its attributes, asked for where it came without.
    pub(super) async fn with_attr(&self, entry: Entry) -> Result<Found, Errno> {
        let attr = match entry.attr {
            Some(attr) => attr,
            None => self.attr(&entry.handle).await?,
        };
        Ok((entry, attr))
    }

    /// How long the kernel may believe what it is told now.
    pub(super) fn ttl(&self) -> Duration {
        let lease_ms = self.client.lease_left_ms().saturating_sub(LEASE_MARGIN_MS);
        Duration::from_millis(self.attr_ttl_ms.min(lease_ms))
    }

    /// How long it may believe a name, or that there is none, which was asked for at `stamp`.
    pub(super) fn name_ttl(&self, stamp: Stamp, dir: &Handle, name: &[u8]) -> Duration {
        let holds = self.fence.name_holds(stamp, dir, name) && self.kernel.trusts_names();
        if holds { self.ttl() } else { Duration::ZERO }
    }

    /// How long it may believe attributes that were asked for at `stamp`.
    pub(super) fn attr_ttl(&self, stamp: Stamp, handle: &Handle) -> Duration {
        if self.fence.attr_holds(stamp, handle) { self.ttl() } else { Duration::ZERO }
    }

    /// Attributes for the kernel, which were asked for at `stamp`.
    pub(super) fn answer_attr(
        &self,
        reply: Reply<reply::Attr>,
        handle: &Handle,
        attr: &Attr,
        stamp: Stamp,
    ) {
        self.answer_valid_attr(reply, attr, self.attr_ttl(stamp, handle));
    }

    /// Attributes for the kernel, which may believe them so long.
    pub(super) fn answer_valid_attr(
        &self,
        reply: Reply<reply::Attr>,
        attr: &Attr,
        valid: Duration,
    ) {
        match to_kernel(attr) {
            Some(attr) => reply.attr(&AttrOut {
                attr_valid: valid.as_secs(),
                attr_valid_nsec: valid.subsec_nanos(),
                dummy: 0,
                attr,
            }),
            None => reply.error(Errno::IO),
        }
    }

    /// Counts a reference to a file, and gives what the kernel is told of it. The reference comes
    /// first: whoever forgets something from now on finds the nodeid.
    pub(super) fn entry_out(
        &self,
        dir: &Inode,
        name: &[u8],
        found: Found,
        stamp: Stamp,
    ) -> Result<EntryOut, Errno> {
        let (entry, attr) = found;
        let kernel = to_kernel(&attr).ok_or(Errno::IO)?;
        let target = entry.target.map(Vec::into_boxed_slice);
        let (is_dir, parent_ino) = (attr.is_dir(), dir.ino);
        let inode = Inode { handle: entry.handle, ino: attr.ino, parent_ino, is_dir, target };
        let nodeid = self.inodes.lock().reference(inode).ok_or(Errno::NOMEM)?;
        let entry_valid = self.name_ttl(stamp, &dir.handle, name);
        let attr_valid = self.attr_ttl(stamp, &entry.handle);
        Ok(entry_out(nodeid, kernel, entry_valid, attr_valid))
    }

    /// An entry for the kernel.
    pub(super) fn answer_entry(&self, reply: Reply<reply::Entry>, out: Result<EntryOut, Errno>) {
        match out {
            Ok(out) => {
                if reply.entry(&out) == Delivery::Lost {
                    self.inodes.forget(out.nodeid, 1);
                }
            }
            Err(errno) => reply.error(errno),
        }
    }
}

/// On whose behalf something is changed, by all that permissions depend on.
pub(super) fn on_behalf(caller: Caller) -> message::Caller {
    message::Caller::new(caller.uid, caller.gid, caller.groups())
}

/// The same where what may be done was decided when the file was opened.
pub(super) fn on_behalf_of_opener(caller: Caller) -> message::Caller {
    message::Caller::new(caller.uid, caller.gid, Vec::new())
}

/// The errno of a failed change of names: "no such file" speaks of one of them.
pub(super) fn errno_of_name(error: crate::ClientError) -> Errno {
    errno(&error)
}

pub(super) fn entry_out(
    nodeid: u64,
    attr: abi::Attr,
    entry_valid: Duration,
    attr_valid: Duration,
) -> EntryOut {
    EntryOut {
        nodeid,
        generation: 0,
        entry_valid: entry_valid.as_secs(),
        attr_valid: attr_valid.as_secs(),
        entry_valid_nsec: entry_valid.subsec_nanos(),
        attr_valid_nsec: attr_valid.subsec_nanos(),
        attr,
    }
}
