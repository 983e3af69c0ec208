//! A note on disk that somebody may hold a lease: what tells the next life of a brick that it has
//! to wait.
//!
//! A brick that is killed forgets its sessions, but not so those who hold them: they may answer from
//! what they were told until their leases end. So while there are sessions a file says so, outside
//! the export, where it is gone after a boot of the machine, which takes longer than any lease. A
//! brick that finds it at its start lets no change return before those leases are over
//! ([`Watching::wait_for_earlier_life`]).
//!
//! [`Watching::wait_for_earlier_life`]: portcullis_transport::Watching::wait_for_earlier_life

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tracing::warn;

use crate::attr::Stat;

/// Where programs of root keep what lasts until the next boot.
const RUN_DIR: &str = "/run";

/// The note of one export.
pub(crate) struct LeaseNote {
    path: PathBuf,
    /// Whether it is there.
    written: Mutex<bool>,
}

impl LeaseNote {
    /// The note of the export whose root has this stat, and whether an earlier life left it.
    pub(crate) fn find(root: &Stat) -> (Self, bool) {
        Self::find_in(&state_dir(), root)
    }

    fn find_in(dir: &Path, root: &Stat) -> (Self, bool) {
        // With its birth, since inode numbers are used again.
        let (birth, dev, ino) = (root.birth(), root.dev(), root.ino());
        let name = format!("portcullis-{dev:x}-{ino:x}-{:x}{:08x}.leases", birth.secs, birth.nanos);
        let path = dir.join(name);
        // What cannot be looked at may be there.
        let left = std::fs::symlink_metadata(&path)
            .err()
            .is_none_or(|error| error.kind() != ErrorKind::NotFound);
        (Self { path, written: Mutex::new(left) }, left)
    }

    /// Begins a session by `begin`, with the note written before. Blocks.
    pub(crate) fn with<T>(&self, begin: impl FnOnce() -> T) -> T {
        let mut written = self.written.lock();
        if !*written {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            match options.open(&self.path) {
                Ok(_) => *written = true,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => *written = true,
                Err(error) => warn!(
                    path = %self.path.display(), %error,
                    "leases cannot be noted: after a crash, changes may be seen up to 5 s late"
                ),
            }
        }
        begin()
    }

    /// Removes the note where `is_idle` says that there are no sessions. Blocks.
    pub(crate) fn clear_if(&self, is_idle: impl FnOnce() -> bool) {
        let mut written = self.written.lock();
        if *written && is_idle() {
            // One that cannot be removed makes the next start wait for nothing.
            let _ = std::fs::remove_file(&self.path);
            *written = false;
        }
    }
}

fn state_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() && Path::new(RUN_DIR).is_dir() {
        return RUN_DIR.into();
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_note_is_there_while_there_are_sessions_and_found_by_the_next_life() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = std::fs::File::open(dir.path()).expect("it opens");
        let root = crate::attr::stat(root.as_fd()).expect("stat");
        let find = || LeaseNote::find_in(dir.path(), &root);
        let (note, left) = find();
        assert!(!left);
        assert!(!note.with(|| find().0.path.symlink_metadata().is_err()), "written before");
        note.clear_if(|| false);
        let (next, left) = find();
        assert!(left, "the first life was killed");
        next.with(|| {});
        next.clear_if(|| true);
        assert!(!find().1);
        note.clear_if(|| true);
    }
}
