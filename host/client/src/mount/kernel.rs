//! Telling the kernel what is no longer true, and how long it may believe what it is told.
//!
//! The kernel may keep what it is told for as long as the session's lease lasts. Before that a
//! recall makes it forget:
//! - attributes and content: `inval_inode`. For attributes it never waits; pages it waits for while
//!   they are read or written. Where this mount itself writes the file, that write may be waiting,
//!   at the brick, for another mount that waits for ours: so we do not wait long, and the pages are
//!   dropped as soon as the kernel lets go of them;
//! - names: `inval_entry` waits for whatever is under way in the directory. Where something is, or
//!   turns out to be, a new epoch has every name looked up again, at once. A kernel without epochs
//!   is waited for, and believes no names from then on where that took too long;
//! - listings are pages of their directories, dropped where [`kept`](super::kept) says so.
//!
//! What must hold: nothing here is called under a lock; what cannot be forgotten in time is said
//! not to be.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use portcullis_core::watch::Change;
use portcullis_core::{Handle, Status};
use portcullis_fuse::{Errno, Notifier};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::inodes::Table;
use super::under_way::Work;
use super::volume::Volume;
use crate::session::Forgetting;

/// How long something is waited for that may be waiting for us.
const SHORT_MS: u64 = 20;
/// How long anything else is waited for: less than a lease, which ends without an answer.
const LONG_MS: u64 = 2_500;
/// Names in one word of changes that are looked at for a rename.
const RENAMED_MAX: usize = 8;
/// Files whose attributes are forgotten one by one where everything is to be forgotten; what more
/// there are the kernel believes no longer than the lease.
const INODES_MAX: usize = 32 * 1024;

/// The kernel as something that remembers.
#[derive(Default)]
pub(super) struct Kernel {
    notifier: OnceLock<Notifier>,
    has_epoch: AtomicBool,
    /// Names have to be looked up each time.
    distrusts_names: AtomicBool,
    /// How often all names were to be looked up again.
    names_epoch: AtomicU64,
}

/// What the kernel has to be told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Everything is to be forgotten.
    all: bool,
    /// All names are to be looked up again.
    epoch: bool,
    /// Not everything can be told.
    partial: bool,
    /// Nodeids whose attributes changed.
    attrs: Vec<u64>,
    /// Nodeids whose content may be cached and changed.
    pages: Vec<u64>,
    /// Names, each with the nodeid of its directory.
    names: Vec<(u64, Vec<u8>)>,
    /// Nodeids of directories whose listing the kernel may have and is to drop.
    listings: Vec<u64>,
}

impl Kernel {
    pub(super) fn init(&self, notifier: &Notifier, has_epoch: bool) {
        self.has_epoch.store(has_epoch, Ordering::Relaxed);
        // It is called once.
        let _ = self.notifier.set(notifier.clone());
    }

    /// Whether the kernel may believe names.
    pub(super) fn trusts_names(&self) -> bool {
        !self.distrusts_names.load(Ordering::Relaxed)
    }

    /// Counts how often the kernel was told to look up all names again.
    pub(super) fn names_epoch(&self) -> u64 {
        self.names_epoch.load(Ordering::SeqCst)
    }

    /// Has the kernel drop what it has of the listings of directories. It waits for no request, but
    /// for programs that are just being given names.
    pub(super) async fn drop_listings(&self, nodeids: Vec<u64>) -> bool {
        let Some(notifier) = self.notifier.get().cloned().filter(|_| !nodeids.is_empty()) else {
            return true;
        };
        // All of them, also where one cannot be dropped.
        let dropping = spawn_blocking(move || {
            nodeids.into_iter().filter(|&nodeid| !drop_pages_of(&notifier, nodeid)).count() == 0
        });
        let limit = Duration::from_millis(LONG_MS);
        matches!(timeout(limit, dropping).await, Ok(Ok(true)))
    }

    /// As [`Kernel::drop_listings`], on this thread.
    pub(super) fn drop_listing(&self, nodeid: u64) -> bool {
        self.notifier.get().is_none_or(|notifier| drop_pages_of(notifier, nodeid))
    }

    /// Has the kernel drop the pages of a file, waiting at most `limit_ms`.
    async fn drop_pages(&self, nodeid: u64, limit_ms: u64) -> bool {
        let Some(notifier) = self.notifier.get().cloned() else { return true };
        let dropping = spawn_blocking(move || drop_pages_of(&notifier, nodeid));
        let limit = Duration::from_millis(limit_ms);
        match timeout(limit, dropping).await {
            Ok(dropped) => dropped.unwrap_or(false),
            Err(_) => false,
        }
    }

    /// Has the kernel look up all names again.
    fn next_epoch(&self) -> bool {
        let Some(notifier) = self.notifier.get() else { return true };
        self.names_epoch.fetch_add(1, Ordering::SeqCst);
        match notifier.inc_epoch() {
            Ok(done) => done,
            Err(errno) => told("inc_epoch", Err(errno)),
        }
    }

    /// Has the kernel look names up again, or, where they are `gone`, take them out of its cache.
    async fn drop_names(&self, names: Vec<(u64, Vec<u8>)>, gone: bool, limit_ms: u64) -> bool {
        let Some(notifier) = self.notifier.get().cloned() else { return true };
        let dropping = spawn_blocking(move || {
            let drop_name = |(dir, name): &(u64, Vec<u8>)| {
                // What is open or mounted below stays where the name still is the same file.
                told("inval_entry", notifier.inval_entry(*dir, name, !gone))
            };
            names.iter().all(drop_name)
        });
        let limit = Duration::from_millis(limit_ms);
        matches!(timeout(limit, dropping).await, Ok(Ok(true)))
    }

    /// Has the kernel ask again for attributes; never waits.
    pub(super) fn drop_attrs(&self, nodeids: &[u64]) -> bool {
        let Some(notifier) = self.notifier.get() else { return true };
        nodeids.iter().all(|&nodeid| told("inval_inode", notifier.inval_inode(nodeid, -1, 0)))
    }
}

fn drop_pages_of(notifier: &Notifier, nodeid: u64) -> bool {
    told("inval_inode", notifier.inval_inode(nodeid, 0, 0))
}

fn told(what: &'static str, result: Result<(), Errno>) -> bool {
    match result {
        Ok(()) => true,
        Err(errno) => {
            warn!(what, %errno, "the kernel cannot be told of a change");
            false
        }
    }
}

/// Forgets what the client is told of, until the mount ends.
pub(super) async fn forget_as_told(
    volume: Arc<Volume>,
    mut forgettings: mpsc::Receiver<Forgetting>,
) {
    while let Some(forgetting) = forgettings.recv().await {
        let volume = volume.clone();
        tokio::spawn(async move {
            let whole = volume.forget(forgetting.changes()).await;
            forgetting.forgotten(whole);
        });
    }
}

impl Volume {
    /// Forgets what is no longer true, here and in the kernel; `false` where some of it may remain.
    pub(super) async fn forget(self: &Arc<Self>, changes: &[Change]) -> bool {
        // The memory first, so that what it answers after the fence was entered is true; the fence
        // before the kernel, so that answers on their way are not believed: they look there last.
        self.memory.forget(changes);
        self.contents.forget(changes);
        self.ahead.forgotten(changes);
        self.fence.enter(changes);
        let mut plan = self.plan(changes);
        let mut whole = !plan.partial;
        whole &= if plan.attrs.len() <= 64 {
            self.kernel.drop_attrs(&plan.attrs)
        } else {
            let (volume, attrs) = (self.clone(), std::mem::take(&mut plan.attrs));
            spawn_blocking(move || volume.kernel.drop_attrs(&attrs)).await.unwrap_or(false)
        };
        whole &= self.kernel.drop_listings(std::mem::take(&mut plan.listings)).await;
        // A rename changes two names at least. Many at once are something else.
        let is_rename = (2..=RENAMED_MAX).contains(&plan.names.len());
        let moved = if is_rename { plan.names.clone() } else { Vec::new() };
        whole &= self.forget_names(&mut plan).await;
        self.forget_moved(moved).await;
        whole &= self.forget_pages(&plan).await;
        debug!(?changes, whole, "forgotten");
        whole
    }

    async fn forget_names(&self, plan: &mut Plan) -> bool {
        let has_epoch = self.kernel.has_epoch.load(Ordering::Relaxed);
        let names = std::mem::take(&mut plan.names);
        let dirs: Vec<u64> = names.iter().map(|(dir, _)| *dir).collect();
        let everywhere = plan.epoch;
        plan.epoch |= dirs.iter().any(|&dir| self.under_way.is(dir, Work::Names));
        if plan.epoch && has_epoch {
            // Names of a listing are entered in the epoch in which that is done.
            self.under_way.entered(if everywhere { &[] } else { &dirs }).await;
            return self.kernel.next_epoch();
        }
        let limit_ms = if has_epoch { SHORT_MS } else { LONG_MS / 5 };
        if names.is_empty() && !plan.epoch || self.kernel.drop_names(names, false, limit_ms).await {
            // Without epochs, not all names can be dropped one by one.
            if !plan.epoch {
                return true;
            }
        } else if has_epoch {
            self.under_way.entered(&dirs).await;
            return self.kernel.next_epoch();
        }
        if !self.kernel.distrusts_names.swap(true, Ordering::Relaxed) {
            warn!(
                "this kernel cannot be told of all changes in time: names are looked up each time"
            );
        }
        false
    }

    /// Takes the names that are gone out of the kernel's cache. A directory that it still has under
    /// an old name cannot be renamed by its new one: that would take a lock which the rename has
    /// (`__d_unalias` in fs/dcache.c), and ends in ESTALE.
    async fn forget_moved(&self, names: Vec<(u64, Vec<u8>)>) {
        let mut gone = Vec::new();
        for (dir, name) in names {
            let Some(inode) = self.inodes.get(dir) else { continue };
            let found = self.client.lookup(&inode.handle, &name).await;
            if found.is_err_and(|error| error.status() == Status::NotFound) {
                gone.push((dir, name));
            }
        }
        if !gone.is_empty() {
            // Where it takes longer it is done later.
            self.kernel.drop_names(gone, true, SHORT_MS).await;
        }
    }

    async fn forget_pages(self: &Arc<Self>, plan: &Plan) -> bool {
        // The usual case: one file.
        let Some((&first, others)) = plan.pages.split_first() else { return true };
        let mut tasks = JoinSet::new();
        for &nodeid in others {
            let (volume, all) = (self.clone(), plan.all);
            tasks.spawn(async move { volume.forget_pages_of(nodeid, all).await });
        }
        let mut whole = self.forget_pages_of(first, plan.all).await;
        while let Some(dropped) = tasks.join_next().await {
            whole &= dropped.unwrap_or(false);
        }
        whole
    }

    async fn forget_pages_of(&self, nodeid: u64, all: bool) -> bool {
        let writing = self.under_way.is(nodeid, Work::Writing);
        let limit_ms = if writing || all { SHORT_MS } else { LONG_MS };
        // Pages that are being written are dropped before the kernel lets anybody else have them.
        self.kernel.drop_pages(nodeid, limit_ms).await || writing && !all
    }

    /// Drops the pages of a file after a write that went where the kernel does not know.
    pub(super) async fn drop_pages(&self, nodeid: u64) {
        if self.inodes.lock().has_pages(nodeid) {
            self.kernel.drop_pages(nodeid, LONG_MS).await;
        }
    }

    fn plan(&self, changes: &[Change]) -> Plan {
        let mut plan = Plan::default();
        let mut inodes = self.inodes.lock();
        for change in changes {
            match change {
                Change::Attr { handle } => {
                    for nodeid in inodes.find(handle) {
                        // Of a directory the pages are its names, which these are not.
                        if !inodes.is_dir(nodeid) && inodes.forget_content(nodeid) {
                            plan.pages.push(nodeid);
                        } else {
                            plan.attrs.push(nodeid);
                        }
                    }
                }
                Change::Name { dir, name } => {
                    let dirs = inodes.find(dir).into_iter();
                    plan.names.extend(dirs.map(|dir| (dir, name.clone())));
                    plan.listings.extend(self.listings_of(&mut inodes, dir));
                }
                Change::Names { dir } => {
                    plan.epoch |= !inodes.find(dir).is_empty();
                    plan.listings.extend(self.listings_of(&mut inodes, dir));
                }
                Change::All => plan.all = true,
            }
        }
        if plan.all {
            plan = Plan { all: true, epoch: true, ..Plan::default() };
            plan.partial = inodes.len() > INODES_MAX;
            for nodeid in inodes.nodeids() {
                let is_dir = inodes.is_dir(nodeid);
                if is_dir && self.has_listing(&mut inodes, nodeid) {
                    plan.listings.push(nodeid);
                }
                if !is_dir && inodes.forget_content(nodeid) {
                    plan.pages.push(nodeid);
                } else if !plan.partial {
                    plan.attrs.push(nodeid);
                }
            }
        }
        plan
    }

    /// Names of a directory changed: answers where the kernel may have its listing, and is to drop it.
    pub(super) fn listings_of(&self, inodes: &mut Table, dir: &Handle) -> Vec<u64> {
        let mut dirs = inodes.find(dir);
        dirs.retain(|&dir| self.has_listing(inodes, dir));
        dirs
    }

    fn has_listing(&self, inodes: &mut Table, dir: u64) -> bool {
        self.kept.changed(dir).unwrap_or_else(|| inodes.forget_listing(dir))
    }
}
