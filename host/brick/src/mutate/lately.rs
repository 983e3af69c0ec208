//! Files that lost their last name a moment ago: kept, so that whoever was just told of one can
//! still open it.
//!
//! A client looks a name up and then opens what it stands for. Where somebody replaces the file in
//! between, again and again, every open would fail as stale, which no local file system does: there
//! the lookup itself holds the file. So the brick holds a file for [`LATELY_MS`] after its name
//! went, by a descriptor that needs no name.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a file is kept: longer than an open takes after its lookup.
const LATELY_MS: u64 = 1000;
/// Files kept at once; the oldest goes first.
const FILES_MAX: usize = 1024;

/// The files of one export.
#[derive(Default)]
pub(super) struct Lately(Mutex<VecDeque<(Instant, Arc<OwnedFd>)>>);

impl Lately {
    /// Keeps a file by its descriptor.
    pub(super) fn keep(&self, file: Arc<OwnedFd>) {
        let mut files = self.0.lock();
        files.push_back((Instant::now(), file));
        // Closing the last descriptor of a large file may take long: not under the lock.
        let oldest = if files.len() > FILES_MAX { files.pop_front() } else { None };
        drop(files);
        drop(oldest);
    }

    /// Lets go of those kept for long enough, as of `now`. Call it now and then.
    pub(super) fn sweep(&self, now: Instant) {
        loop {
            let limit = Duration::from_millis(LATELY_MS);
            let over = self.0.lock().pop_front_if(|(since, _)| now.duration_since(*since) >= limit);
            if over.is_none() {
                return;
            }
        }
    }
}
