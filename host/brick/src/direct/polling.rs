//! Changes found by looking, where the kernel does not tell of them.
//!
//! What is watched is examined about once a second and compared with what it was when it was last
//! told. A difference is told once; whoever still wants to know asks again. What was changed just
//! before it was read may have been changed once more within the same tick of the file system's
//! clock, so that no difference shows; it is told once as changed, to be safe. What is not to be
//! found any more is given up ([`Handles::give_up`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Entry, Handle, Status};
use portcullis_wire::message::Failure;
use tokio::time::MissedTickBehavior;
use tracing::error;

use super::Teller;
use crate::attr::stat;
use crate::handles::{Directory, Handles, birth_now};

/// How often everything is examined; less often where that takes longer.
const POLL_MS: u64 = 1000;
/// How long after a change another one may leave no trace: the coarsest clock of a file system.
const TICK_SECS: i64 = 2;
/// Files and directories examined; beyond it everything counts as changed and is forgotten.
const WATCHED_MAX: usize = 512 * 1024;

/// What is examined.
pub(super) struct Polling {
    handles: Arc<Handles>,
    hasher: RandomState,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    watched: HashMap<Handle, Seen>,
    is_lost: bool,
    /// Files that the last pass did not find. The next one gives them up: a rename by this brick
    /// is finished by then.
    missing: Vec<Handle>,
}

/// What a file was when it was told.
#[derive(Clone, Copy)]
struct Seen {
    digest: u64,
    /// When a further change is sure to show.
    settles_at_secs: i64,
    /// Its names are watched as well.
    names: bool,
}

impl Polling {
    pub(super) fn new(handles: Arc<Handles>) -> Self {
        Self { handles, hasher: RandomState::new(), table: Mutex::default() }
    }

    pub(super) fn watch_names(&self, dir: &Directory) {
        self.watch(&dir.handle, dir.fd.as_fd(), true);
    }

    pub(super) fn watch_file(&self, handle: &Handle, fd: BorrowedFd<'_>) {
        self.watch(handle, fd, false);
    }

    pub(super) fn watch_entry(&self, entry: &Entry) {
        if let Some(attr) = entry.attr {
            self.insert(&entry.handle, &attr, false);
        }
    }

    pub(super) fn forget_all(&self) {
        self.table.lock().watched.clear();
    }

    pub(super) fn count(&self) -> usize {
        self.table.lock().watched.len()
    }

    fn watch(&self, handle: &Handle, fd: BorrowedFd<'_>, names: bool) {
        // What cannot be examined is found changed.
        let attr = stat(fd).map(|stat| stat.attr()).unwrap_or_default();
        self.insert(handle, &attr, names);
    }

    fn insert(&self, handle: &Handle, attr: &Attr, names: bool) {
        let now = birth_now().secs;
        let changed_at = attr.ctime.secs.max(attr.mtime.secs);
        let settles_at_secs = if changed_at + TICK_SECS >= now { now + TICK_SECS } else { 0 };
        let seen = Seen { digest: self.digest(attr), settles_at_secs, names };
        let mut table = self.table.lock();
        if table.watched.len() >= WATCHED_MAX {
            table.watched.clear();
            table.is_lost = true;
        }
        let known = table.watched.entry(*handle).or_insert(seen);
        if known.digest == seen.digest {
            known.names |= names;
            known.settles_at_secs = known.settles_at_secs.max(settles_at_secs);
        } else {
            // Others were told what it was before: as good as unsettled, so all are told.
            *known = Seen { settles_at_secs: now, names: known.names | names, ..seen };
        }
    }

    fn digest(&self, attr: &Attr) -> u64 {
        let Attr { size_bytes, mtime, ctime, mode, nlink, uid, gid, rdev, .. } = *attr;
        self.hasher.hash_one((size_bytes, mtime, ctime, mode, nlink, uid, gid, rdev))
    }

    /// Examines everything once. Blocks.
    fn pass(&self) -> Vec<Change> {
        self.give_up_missing();
        let watched: Vec<(Handle, Seen)> = {
            let mut table = self.table.lock();
            if std::mem::take(&mut table.is_lost) {
                return vec![Change::All];
            }
            table.watched.iter().map(|(handle, seen)| (*handle, *seen)).collect()
        };
        let now = birth_now().secs;
        let mut changes = Vec::new();
        for (handle, seen) in watched {
            let object = self.handles.object(&handle);
            let is_missing = is_stale(&object) && self.handles.number_of(&handle).is_some();
            let is_same =
                object.is_ok_and(|object| self.digest(&object.stat.attr()) == seen.digest);
            let is_settled = seen.settles_at_secs == 0 || now < seen.settles_at_secs;
            if is_same && is_settled {
                continue;
            }
            let mut table = self.table.lock();
            if is_missing {
                table.missing.push(handle);
            }
            let names = table.watched.remove(&handle).is_some_and(|known| known.names);
            changes.push(Change::Attr { handle });
            if names || seen.names {
                changes.push(Change::Names { dir: handle });
            }
        }
        changes
    }

    fn give_up_missing(&self) {
        let missing = std::mem::take(&mut self.table.lock().missing);
        for handle in missing {
            if is_stale(&self.handles.object(&handle)) {
                self.handles.give_up(&handle);
            }
        }
    }
}

fn is_stale<T>(found: &Result<T, Failure>) -> bool {
    found.as_ref().is_err_and(|failure| failure.status == Status::Stale)
}

/// Tells what is found, until it is aborted.
pub(super) async fn poll(polling: Arc<Polling>, teller: Teller) {
    let mut ticks = tokio::time::interval(Duration::from_millis(POLL_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let polling = polling.clone();
        match tokio::task::spawn_blocking(move || polling.pass()).await {
            Ok(changes) => teller.tell(&changes),
            Err(error) => error!(%error, "what is watched could not be examined"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::HandleChoice;
    use crate::testing::{handles_of, on_bindfs, reuse, until_reused};

    #[test]
    fn a_numbered_file_that_others_removed_is_given_up() {
        let test = "a_numbered_file_that_others_removed_is_given_up";
        on_bindfs(test, |source, path| {
            let handles = handles_of(path, HandleChoice::Auto);
            let root = handles.directory(handles.root()).expect("the root");
            let make = |name: &str| std::fs::write(source.join(name), b"").expect("written");
            let entry = |name: &str| handles.entry(&root, name.as_bytes()).expect("there");
            make("stays");
            let (polling, stays) = (Polling::new(handles.clone()), entry("stays"));
            until_reused(test, |round| {
                make(round);
                let gone = entry(round);
                polling.watch_entry(&gone);
                polling.watch_entry(&stays);
                let ino = source.join(round).metadata().expect("there").ino();
                std::fs::remove_file(source.join(round)).expect("removed");
                for _ in 0..2 {
                    polling.pass();
                }
                let again = reuse(source, round, ino, make)?;
                assert_ne!(entry(&again).handle, gone.handle);
                assert_eq!(entry("stays").handle, stays.handle);
                Some(())
            });
        });
    }
}
