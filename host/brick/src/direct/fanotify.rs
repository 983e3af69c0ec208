//! Changes as the kernel tells them, fanotify(7).
//!
//! A mark on a directory tells of its names, and of what happens to its children's attributes and
//! content by these names. What a child directory's own attributes follow is not told that way, nor
//! what happens to a file by a name in another directory: these are marked by themselves. A mark on
//! the whole file system would cost everybody who writes on it.
//!
//! One thing the kernel does not tell: which file lost its only name to a rename onto it. The name
//! is told; whoever still has the file open may be told that it has one.
//!
//! Our own changes come back as events too; they were told already, and are known by their thread,
//! or by the process where a brick may not know threads. Where more happens than the queue holds,
//! everything counts as changed.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use portcullis_core::Handle;
use portcullis_core::entry::is_valid_name;
use portcullis_core::volume::DirId;
use portcullis_core::watch::Change;
use rustix::io::{Errno, Result};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::error;

use super::event::{self, Event, RawHandle};
use super::{Teller, own};
use crate::export::proc_path;
use crate::handles::Handles;

/// Directories and files marked at once; each keeps its inode in the kernel's memory. Beyond it
/// everything counts as changed, and marking begins anew.
const MARKS_MAX: usize = 512 * 1024;
/// Children of marked directories that are known to be that; they cost 8 bytes each.
const COVERED_MAX: usize = 8 * 1024 * 1024;
/// Bytes of events read at once.
const BUFFER_LEN_BYTES: usize = 64 * 1024;

/// What happens to a directory's names, and to its children by them.
const DIR_MASK: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MOVED_FROM
    | libc::FAN_MOVED_TO
    | libc::FAN_ONDIR
    | libc::FAN_EVENT_ON_CHILD
    | FILE_MASK;
/// What happens to a file.
const FILE_MASK: u64 =
    libc::FAN_MODIFY | libc::FAN_ATTRIB | libc::FAN_DELETE_SELF | libc::FAN_MOVE_SELF;

/// A group of marks, and what is marked.
pub(super) struct Fanotify {
    group: OwnedFd,
    handles: Arc<Handles>,
    /// Events tell threads, not processes.
    tells_threads: bool,
    hasher: RandomState,
    marked: Mutex<HashSet<u64>>,
    /// The handles of marked copies of spread directories, by those that events tell.
    copies: Mutex<HashMap<Handle, Handle>>,
    covered: Mutex<HashSet<u64>>,
    /// Held shared while marks are made, and alone while all are taken away.
    flushing: RwLock<()>,
    /// Marks were taken away that are needed: everything has to be told.
    is_lost: Mutex<bool>,
    lost: tokio::sync::Notify,
}

impl Fanotify {
    /// A group, and whether the export's file system takes a mark.
    pub(super) fn new(handles: Arc<Handles>) -> Result<Self> {
        let (group, tells_threads) = init()?;
        mark(&group, libc::FAN_MARK_ADD, DIR_MASK, handles.export().root())?;
        let fanotify = Self {
            group,
            handles,
            tells_threads,
            hasher: RandomState::new(),
            marked: Mutex::default(),
            copies: Mutex::default(),
            covered: Mutex::default(),
            flushing: RwLock::new(()),
            is_lost: Mutex::new(false),
            lost: tokio::sync::Notify::new(),
        };
        mark(&fanotify.group, libc::FAN_MARK_FLUSH, 0, fanotify.handles.export().root())?;
        Ok(fanotify)
    }

    /// Marks a file or directory, unless it is marked.
    pub(super) fn mark(&self, handle: &Handle, fd: BorrowedFd<'_>, is_dir: bool) -> Result<()> {
        let hash = self.hash(handle);
        if self.marked.lock().contains(&hash) {
            return Ok(());
        }
        if self.marks() >= MARKS_MAX {
            self.begin_anew();
        }
        let mask = if is_dir { DIR_MASK } else { FILE_MASK };
        let add = || {
            let _shared = self.flushing.read();
            if DirId::of_handle(handle).is_some()
                && let Some(told) = self.handles.handle_in_events(fd)
            {
                self.copies.lock().insert(told, *handle);
            }
            mark(&self.group, libc::FAN_MARK_ADD, mask, fd)?;
            // Only now: whoever finds it there relies on the mark.
            self.marked.lock().insert(hash);
            Ok(())
        };
        match add() {
            // More than the kernel lets this user have.
            Err(Errno::NOSPC) => {
                self.begin_anew();
                add()
            }
            added => added,
        }
    }

    pub(super) fn is_marked(&self, handle: &Handle) -> bool {
        self.marked.lock().contains(&self.hash(handle))
    }

    /// Whether a file is marked, or a directory that it lies in.
    pub(super) fn is_covered(&self, handle: &Handle) -> bool {
        let hash = self.hash(handle);
        self.covered.lock().contains(&hash) || self.marked.lock().contains(&hash)
    }

    /// A file lies in a marked directory.
    pub(super) fn cover(&self, handle: &Handle) {
        if self.covered.lock().len() >= COVERED_MAX {
            self.begin_anew();
        }
        self.covered.lock().insert(self.hash(handle));
    }

    /// A file may lie elsewhere by now.
    pub(super) fn uncover(&self, handle: &Handle) {
        self.covered.lock().remove(&self.hash(handle));
    }

    /// How many marks there are.
    pub(super) fn marks(&self) -> usize {
        self.marked.lock().len()
    }

    /// Takes all marks away; nobody watches.
    pub(super) fn flush(&self) {
        let _alone = self.flushing.write();
        self.covered.lock().clear();
        self.copies.lock().clear();
        if std::mem::take(&mut *self.marked.lock()).is_empty() {
            return;
        }
        if let Err(error) = mark(&self.group, libc::FAN_MARK_FLUSH, 0, self.handles.export().root())
        {
            error!(%error, "marks cannot be taken away");
        }
    }

    /// Takes all marks away and has everybody told, since there are too many.
    fn begin_anew(&self) {
        self.flush();
        *self.is_lost.lock() = true;
        self.lost.notify_one();
    }

    fn hash(&self, handle: &Handle) -> u64 {
        self.hasher.hash_one(handle)
    }

    /// What an event makes untrue.
    fn changes(&self, event: &Event<'_>, changes: &mut Vec<Change>) {
        if event.mask & libc::FAN_Q_OVERFLOW != 0 {
            return changes.push(Change::All);
        }
        let is_own = match self.tells_threads {
            true => own::is_own(event.by),
            false => event.by == std::process::id() as i32,
        };
        if is_own {
            return;
        }
        let handle = |raw: RawHandle<'_>| {
            let handle = self.handles.of_kernel(raw.kind, raw.bytes)?;
            Some(self.copies.lock().get(&handle).copied().unwrap_or(handle))
        };
        let mut add = |change: Change| {
            if !changes.contains(&change) {
                changes.push(change);
            }
        };
        let names = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
        if let Some((dir, name)) = event.at
            && let Some(dir) = handle(dir)
        {
            if event.mask & names != 0 && is_valid_name(name) {
                add(Change::Attr { handle: dir });
                add(Change::Name { dir, name: name.to_vec() });
            } else if name == b"." {
                add(Change::Attr { handle: dir });
                if event.mask & libc::FAN_DELETE_SELF != 0 {
                    add(Change::Names { dir });
                }
            }
        }
        if let Some(target) = event.target.and_then(handle) {
            if event.mask & (libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO | libc::FAN_MOVE_SELF) != 0 {
                self.uncover(&target);
            }
            if event.mask & libc::FAN_DELETE_SELF != 0 {
                // The kernel has taken the mark away with the file.
                self.marked.lock().remove(&self.hash(&target));
                if DirId::of_handle(&target).is_some() {
                    self.copies.lock().retain(|_, copy| *copy != target);
                }
                add(Change::Names { dir: target });
            }
            add(Change::Attr { handle: target });
        }
    }
}

/// Tells what the kernel tells, until it is aborted.
pub(super) async fn listen(fanotify: Arc<Fanotify>, teller: Teller) {
    let group = Group(fanotify.clone());
    // SAFETY: `Group` answers the same descriptor each time, and owns a share of what keeps it
    // open, so that it stays registered for as long as it is this one.
    let group = match unsafe { AsyncFd::register_with_interest(group, Interest::READABLE) } {
        Ok(group) => group,
        Err(error) => {
            error!(%error, "events cannot be waited for: changes by other programs go unnoticed");
            return;
        }
    };
    let mut buffer = vec![0; BUFFER_LEN_BYTES];
    loop {
        let read = tokio::select! {
            () = fanotify.lost.notified() => {
                if std::mem::take(&mut *fanotify.is_lost.lock()) {
                    teller.tell(&[Change::All]);
                }
                continue;
            }
            read = group.async_io(Interest::READABLE, |group| {
                Ok(rustix::io::read(&group.0.group, &mut buffer)?)
            }) => read,
        };
        let mut changes = Vec::new();
        match read {
            Ok(len) => {
                let mut rest = &buffer[..len];
                while let Some(event) = event::take(&mut rest) {
                    fanotify.changes(&event, &mut changes);
                }
                if !rest.is_empty() {
                    changes = vec![Change::All];
                }
            }
            // An event that could not be made, for want of memory.
            Err(error) => {
                error!(%error, "an event was lost");
                changes.push(Change::All);
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
        teller.tell(&changes);
    }
}

/// The group's descriptor, for the runtime to wait for.
struct Group(Arc<Fanotify>);

impl AsRawFd for Group {
    fn as_raw_fd(&self) -> i32 {
        self.0.group.as_raw_fd()
    }
}

/// A group, and whether its events tell threads.
fn init() -> Result<(OwnedFd, bool)> {
    let usual = libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_CLASS_NOTIF
        | libc::FAN_REPORT_DFID_NAME_TARGET;
    // Only root may know threads, and have as many marks as it likes; others have what the
    // administrator allows.
    let privileged = usual | libc::FAN_UNLIMITED_MARKS | libc::FAN_REPORT_TID;
    init_with(privileged)
        .map(|group| (group, true))
        .or_else(|_| init_with(usual).map(|group| (group, false)))
}

fn init_with(flags: u32) -> Result<OwnedFd> {
    // SAFETY: the call takes two integers.
    let fd = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC) as u32) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn mark(group: &OwnedFd, action: u32, mask: u64, file: BorrowedFd<'_>) -> Result<()> {
    use rustix::path::Arg;
    // Descriptors are O_PATH, which is refused here; the path in /proc leads to the same file.
    proc_path(file).into_with_c_str(|path| {
        // SAFETY: `group` is open while it is borrowed, and `path` is a C string.
        let marked = unsafe {
            libc::fanotify_mark(
                group.as_fd().as_raw_fd(),
                action,
                mask,
                libc::AT_FDCWD,
                path.as_ptr(),
            )
        };
        if marked == 0 { Ok(()) } else { Err(last_error()) }
    })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
