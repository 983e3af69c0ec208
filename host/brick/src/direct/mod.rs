//! Changes that other programs make in the exported directory: how the brick notices them.
//!
//! - [`fanotify`]: the kernel tells at once, by marks on the directories whose names or children
//!   some session watches; [`event`] reads what it tells, [`own`] knows what of it we did.
//! - [`polling`]: where that does not work, what is watched is examined every second.
//!
//! Either is begun before the state is read that a session is told, so no change falls in between.
//! Both tell [`Watching`], and wait for nobody: whoever made the change waits for nobody either.
//! Stores through mmap(2) are seen by neither.

mod event;
mod fanotify;
pub(crate) mod own;
mod polling;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use portcullis_core::watch::Change;
use portcullis_core::{Entry, FileKind, Handle};
use portcullis_transport::Watching;
use portcullis_wire::message::Notices;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::HandleChoice;
use crate::attr::Stat;
use crate::handles::{Directory, Handles};
use fanotify::Fanotify;
use polling::Polling;

/// What is counted of the changes that other programs make.
#[derive(Debug, Default)]
pub struct DirectCounters {
    /// Whether it is by polling; otherwise it is by fanotify(7).
    pub is_polling: AtomicBool,
    /// Changes told.
    pub changes: AtomicU64,
    /// How often something was lost, so that everything counted as changed.
    pub overflows: AtomicU64,
    /// Directories and files that are marked or examined.
    pub watched: AtomicUsize,
    /// Of these, how many could not be: changes of other programs go unnoticed there.
    pub unwatched: AtomicU64,
}

impl DirectCounters {
    /// How changes are noticed.
    pub fn notices(&self) -> Notices {
        if self.is_polling.load(Ordering::Relaxed) { Notices::Polling } else { Notices::Fanotify }
    }
}

/// Notices the changes of other programs in one export.
pub(crate) struct Direct {
    means: Means,
    counters: Arc<DirectCounters>,
    task: JoinHandle<()>,
}

enum Means {
    Fanotify(Arc<Fanotify>),
    Polling(Arc<Polling>),
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Direct {
    /// Begins to notice; within a tokio runtime, until it is dropped.
    pub(crate) fn start(
        handles: Arc<Handles>,
        watching: Arc<Watching>,
        counters: Arc<DirectCounters>,
        polling: bool,
    ) -> Arc<Self> {
        let teller = Teller { watching, counters: counters.clone() };
        let by_kernel = match handles.choice() {
            _ if polling => Err("polling was asked for".to_owned()),
            HandleChoice::MapByStat => Err("the file system has no handles that last".to_owned()),
            _ => Fanotify::new(handles.clone()).map_err(|error| error.to_string()),
        };
        let (means, task) = match by_kernel {
            Ok(fanotify) => {
                let fanotify = Arc::new(fanotify);
                let task = tokio::spawn(fanotify::listen(fanotify.clone(), teller));
                (Means::Fanotify(fanotify), task)
            }
            Err(reason) => {
                info!(reason, "changes by other programs are noticed by polling, every second");
                counters.is_polling.store(true, Ordering::Relaxed);
                let polling = Arc::new(Polling::new(handles));
                let task = tokio::spawn(polling::poll(polling.clone(), teller));
                (Means::Polling(polling), task)
            }
        };
        Arc::new(Self { means, counters, task })
    }

    /// How changes are noticed.
    pub(crate) fn notices(&self) -> Notices {
        self.counters.notices()
    }

    /// From now on changes to names of `dir`, and to the attributes of its children, are noticed.
    pub(crate) fn watch_names(&self, dir: &Directory) {
        match &self.means {
            Means::Fanotify(fanotify) => {
                self.count(fanotify.mark(&dir.handle, dir.fd.as_fd(), true));
            }
            Means::Polling(polling) => polling.watch_names(dir),
        }
        self.count_watched();
    }

    /// From now on changes to attributes and content of a file are noticed.
    pub(crate) fn watch_file(&self, handle: &Handle, fd: BorrowedFd<'_>, stat: &Stat) {
        match &self.means {
            Means::Fanotify(fanotify) => {
                let is_dir = stat.kind() == FileKind::Directory;
                if is_dir || stat.nlink() > 1 || !fanotify.is_covered(handle) {
                    self.count(fanotify.mark(handle, fd, is_dir));
                }
            }
            Means::Polling(polling) => polling.watch_file(handle, fd),
        }
        self.count_watched();
    }

    /// Whether a child of a directory with watched names has to be watched by itself before it is
    /// read: a directory, whose attributes change with its own names, and a file that can be
    /// reached by other directories.
    pub(crate) fn needs_watch(&self, entry: &Entry) -> bool {
        match &self.means {
            Means::Fanotify(fanotify) => {
                let has_more_names = entry.attr.is_some_and(|attr| attr.nlink > 1);
                (entry.kind == FileKind::Directory || has_more_names)
                    // What is not told of here is watched where it lies.
                    && entry.attr.is_some()
                    && !Handles::is_edge(&entry.handle)
                    && !fanotify.is_marked(&entry.handle)
            }
            Means::Polling(_) => false,
        }
    }

    /// A child of a directory with watched names was read, and watched by itself where it needs it.
    pub(crate) fn watch_child(&self, entry: &Entry) {
        match &self.means {
            Means::Fanotify(fanotify) => fanotify.cover(&entry.handle),
            Means::Polling(polling) => polling.watch_entry(entry),
        }
    }

    /// A file may have left the directory by which it was watched.
    pub(crate) fn moved(&self, handle: &Handle) {
        if let Means::Fanotify(fanotify) = &self.means {
            fanotify.uncover(handle);
        }
    }

    /// Nobody watches any more.
    pub(crate) fn forget_all(&self) {
        match &self.means {
            Means::Fanotify(fanotify) => fanotify.flush(),
            Means::Polling(polling) => polling.forget_all(),
        }
        self.count_watched();
    }

    fn count(&self, marked: rustix::io::Result<()>) {
        if let Err(error) = marked
            && self.counters.unwatched.fetch_add(1, Ordering::Relaxed) == 0
        {
            warn!(%error, "a directory or file cannot be marked: what other programs change there \
                           goes unnoticed");
        }
    }

    fn count_watched(&self) {
        let count = match &self.means {
            Means::Fanotify(fanotify) => fanotify.marks(),
            Means::Polling(polling) => polling.count(),
        };
        self.counters.watched.store(count, Ordering::Relaxed);
    }
}

/// Passes changes on.
struct Teller {
    watching: Arc<Watching>,
    counters: Arc<DirectCounters>,
}

impl Teller {
    fn tell(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        self.counters.changes.fetch_add(changes.len() as u64, Ordering::Relaxed);
        if changes.contains(&Change::All) {
            self.counters.overflows.fetch_add(1, Ordering::Relaxed);
        }
        // Nobody waits for those who are told.
        drop(self.watching.begin_change(None, changes));
    }
}
