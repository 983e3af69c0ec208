//! Contents of small files that came along with their attributes.
//!
//! - [`packed`]: how they travel: runs of contents before the chunk of a listing that has their entries.
//! - [`ContentCache`]: those that a gateway or a mount keeps, under a quota of bytes of their own.
//!
//! A content is worth nothing without the attributes it travelled with: whoever answers with one has looked
//! whether they still hold. So it may leave before its entry does, and costs a request then.
//!
//! What must hold: a content that was asked for before its file was invalidated never enters; one that
//! leaves, for whatever reason, says so to everybody who still has it ([`Content::is_current`]), and whoever
//! is told that it was forgotten is told after that.

pub mod packed;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

pub use packed::{Arriving, ContentError, ContentRun, ContentRunBuilder, Listed, Packing};

use crate::cache::fence::{Asked, Fence, Mark};
use crate::limits::{CONTENT_OVERHEAD_BYTES, INLINE_DIR_SHARE};
use crate::watch::Change;
use crate::{Attr, Handle};

/// Of the contents of a directory that were asked for, one in so many may have left before the directory
/// is asked for them again.
const LOST_SHARE: u64 = 4;
/// Directories that are remembered as asked for their contents.
const DIRS_MAX: usize = 64 * 1024;

/// The whole content of a file, and its attributes with it.
#[derive(Debug)]
pub struct Content {
    /// The directory in whose listing it came.
    pub dir: Handle,
    /// The attributes that it belongs to; their size is its length.
    pub attr: Attr,
    /// The content.
    pub bytes: Bytes,
    id: u64,
    filled_ms: u64,
    is_current: AtomicBool,
    was_used: AtomicBool,
    was_touched: AtomicBool,
}

/// See the module.
pub struct ContentCache {
    capacity_bytes: u64,
    max_age_ms: u64,
    fence: Fence,
    hasher: FixedState,
    state: Mutex<State>,
    counters: Counters,
}

/// The right to take in the contents of one directory, for as much as a directory gets.
pub struct ContentTicket {
    asked: Asked,
    dir: Handle,
    size_bytes_max: u32,
    left_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    contents: HashMap<Handle, Arc<Content>, FixedState>,
    /// In the order of their coming, with what has left or come again in between.
    order: VecDeque<(Handle, u64)>,
    dirs: HashMap<Handle, Dir, FixedState>,
    used_bytes: u64,
    last_id: u64,
}

/// A directory whose contents were asked for.
struct Dir {
    size_bytes_max: u32,
    asked_ms: u64,
    came: u64,
    lost: u64,
}

#[derive(Default)]
struct Counters {
    filled: AtomicU64,
    late: AtomicU64,
    used: AtomicU64,
    evicted: AtomicU64,
    invalidated: AtomicU64,
}

/// What a cache of contents has, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentCounters {
    /// Bytes allowed.
    pub capacity_bytes: u64,
    /// Bytes held, with what contents take beside their own.
    pub used_bytes: u64,
    /// Contents held.
    pub contents: u64,
    /// Contents that entered.
    pub filled: u64,
    /// Contents that did not, since they were older than an invalidation.
    pub late: u64,
    /// Answers given with one.
    pub used: u64,
    /// Contents that left for others.
    pub evicted: u64,
    /// Contents that left because they were no longer true.
    pub invalidated: u64,
}

impl Content {
    /// Whether it is still the file's, as far as anybody has told.
    pub fn is_current(&self) -> bool {
        self.is_current.load(Ordering::SeqCst)
    }

    /// Whether this is the first time that it is used.
    pub fn use_first(&self) -> bool {
        !self.was_used.swap(true, Ordering::Relaxed)
    }

    /// Whether it belongs to these attributes.
    pub fn is_of(&self, attr: &Attr) -> bool {
        let Attr { size_bytes, mtime, ctime, .. } = self.attr;
        (size_bytes, mtime, ctime) == (attr.size_bytes, attr.mtime, attr.ctime)
    }

    /// What it takes in a cache.
    pub fn weight_bytes(&self) -> u64 {
        self.bytes.len() as u64 + CONTENT_OVERHEAD_BYTES
    }
}

impl ContentTicket {
    /// Up to which size contents were asked for.
    pub fn size_bytes_max(&self) -> u32 {
        self.size_bytes_max
    }
}

impl ContentCache {
    /// An empty cache of so many bytes, of which nothing gets older than `max_age_ms`; with 0 bytes it
    /// stays empty.
    pub fn new(capacity_bytes: u64, max_age_ms: u64) -> Self {
        Self {
            capacity_bytes,
            max_age_ms,
            fence: Fence::default(),
            hasher: FixedState::default(),
            state: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// Whether it keeps anything.
    pub fn is_used(&self) -> bool {
        self.capacity_bytes > 0
    }

    /// Call it before the contents of `dir` are asked for, of files of at most `size_bytes_max`.
    pub fn ask(&self, dir: &Handle, size_bytes_max: u32) -> ContentTicket {
        ContentTicket {
            asked: self.fence.ask(),
            dir: *dir,
            size_bytes_max,
            left_bytes: AtomicU64::new(self.capacity_bytes / INLINE_DIR_SHARE),
        }
    }

    /// Takes in the content of a file, which is copied: `bytes` may be part of something larger. Answers
    /// whether it was taken.
    pub fn fill(
        &self,
        now_ms: u64,
        ticket: &ContentTicket,
        (handle, attr): (&Handle, &Attr),
        bytes: &[u8],
    ) -> bool {
        let weight_bytes = bytes.len() as u64 + CONTENT_OVERHEAD_BYTES;
        let take = |left: u64| left.checked_sub(weight_bytes);
        let order = Ordering::Relaxed;
        if attr.size_bytes != bytes.len() as u64
            || ticket.left_bytes.fetch_update(order, order, take).is_err()
        {
            return false;
        }
        let mut content = Content {
            dir: ticket.dir,
            attr: *attr,
            bytes: Bytes::copy_from_slice(bytes),
            id: 0,
            filled_ms: now_ms,
            is_current: AtomicBool::new(true),
            was_used: AtomicBool::new(false),
            was_touched: AtomicBool::new(false),
        };
        let mut state = self.state.lock();
        // Under the lock, which whoever forgets takes after raising the fence.
        if self.fence.is_late(ticket.asked, &[self.mark(handle)]) {
            self.counters.late.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        state.remove(handle);
        state.last_id += 1;
        content.id = state.last_id;
        state.order.push_back((*handle, content.id));
        state.used_bytes += weight_bytes;
        state.contents.insert(*handle, Arc::new(content));
        if let Some(dir) = state.dirs.get_mut(&ticket.dir) {
            dir.came += 1;
        }
        self.counters.filled.fetch_add(1, Ordering::Relaxed);
        let evicted = state.make_room(self.capacity_bytes);
        self.counters.evicted.fetch_add(evicted, Ordering::Relaxed);
        true
    }

    /// The contents of a directory begin to come. It need not be asked again before a good part of them has
    /// left.
    pub fn begin(&self, now_ms: u64, ticket: &ContentTicket) {
        let mut state = self.state.lock();
        if state.dirs.len() >= DIRS_MAX {
            state.dirs.clear();
        }
        let size_bytes_max = ticket.size_bytes_max;
        state.dirs.insert(ticket.dir, Dir { size_bytes_max, asked_ms: now_ms, came: 0, lost: 0 });
    }

    /// They did not come to their end.
    pub fn abandon(&self, ticket: &ContentTicket) {
        self.state.lock().dirs.remove(&ticket.dir);
    }

    /// Whether the contents of a directory, up to a size or more than half of it, were asked for and are mostly
    /// here. Those of empty files alone are not worth a question.
    pub fn covers(&self, now_ms: u64, dir: &Handle, size_bytes_max: u32) -> bool {
        let state = self.state.lock();
        size_bytes_max == 0
            || state.dirs.get(dir).is_some_and(|dir| {
                dir.size_bytes_max.saturating_mul(2) > size_bytes_max
                    && now_ms.saturating_sub(dir.asked_ms) < self.max_age_ms
                    && dir.lost * LOST_SHARE <= dir.came
            })
    }

    /// The content of a file.
    pub fn get(&self, now_ms: u64, handle: &Handle) -> Option<Arc<Content>> {
        if !self.is_used() {
            return None;
        }
        let state = self.state.lock();
        let content = state.contents.get(handle)?;
        if now_ms.saturating_sub(content.filled_ms) >= self.max_age_ms {
            return None;
        }
        content.was_touched.store(true, Ordering::Relaxed);
        self.counters.used.fetch_add(1, Ordering::Relaxed);
        Some(content.clone())
    }

    /// Forgets what is no longer true.
    pub fn forget(&self, changes: &[Change]) {
        if changes.contains(&Change::All) {
            return self.forget_all();
        }
        let files = changes.iter().filter_map(|change| match change {
            Change::Attr { handle } => Some(*handle),
            _ => None,
        });
        let files: Vec<Handle> = files.collect();
        if files.is_empty() || !self.is_used() {
            return;
        }
        let marks: Vec<Mark> = files.iter().map(|handle| self.mark(handle)).collect();
        self.fence.raise(&marks);
        let mut state = self.state.lock();
        let gone = files.iter().filter(|handle| state.remove(handle)).count();
        self.counters.invalidated.fetch_add(gone as u64, Ordering::Relaxed);
    }

    /// Forgets everything.
    pub fn forget_all(&self) {
        self.fence.raise_all();
        let mut state = self.state.lock();
        let gone = state.contents.len() as u64;
        for content in state.contents.values() {
            content.is_current.store(false, Ordering::SeqCst);
        }
        *state = State { last_id: state.last_id, ..State::default() };
        self.counters.invalidated.fetch_add(gone, Ordering::Relaxed);
    }

    /// What it has, and what was counted.
    pub fn counters(&self) -> ContentCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let state = self.state.lock();
        ContentCounters {
            capacity_bytes: self.capacity_bytes,
            used_bytes: state.used_bytes,
            contents: state.contents.len() as u64,
            filled: load(&self.counters.filled),
            late: load(&self.counters.late),
            used: load(&self.counters.used),
            evicted: load(&self.counters.evicted),
            invalidated: load(&self.counters.invalidated),
        }
    }

    fn mark(&self, handle: &Handle) -> Mark {
        Mark(self.hasher.hash_one(handle))
    }
}

impl State {
    /// Takes a content out; answers whether there was one.
    fn remove(&mut self, handle: &Handle) -> bool {
        let Some(content) = self.contents.remove(handle) else { return false };
        content.is_current.store(false, Ordering::SeqCst);
        self.used_bytes -= content.weight_bytes();
        if let Some(dir) = self.dirs.get_mut(&content.dir) {
            dir.lost += 1;
        }
        // What has left is passed over below, and must not pile up where nothing is evicted.
        if self.order.len() > 2 * self.contents.len() + 64 {
            let contents = &self.contents;
            self.order.retain(|(handle, id)| contents.get(handle).is_some_and(|it| it.id == *id));
        }
        true
    }

    /// Evicts in the order of coming, and spares once what was used since; answers how many left.
    fn make_room(&mut self, capacity_bytes: u64) -> u64 {
        let mut evicted = 0;
        while self.used_bytes > capacity_bytes {
            let Some((handle, id)) = self.order.pop_front() else { break };
            let Some(content) = self.contents.get(&handle).filter(|it| it.id == id) else {
                continue;
            };
            if content.was_touched.swap(false, Ordering::Relaxed) {
                self.order.push_back((handle, id));
            } else {
                evicted += u64::from(self.remove(&handle));
            }
        }
        evicted
    }
}

#[cfg(test)]
mod tests;
