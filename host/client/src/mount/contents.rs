//! Contents of small files that came along with listings, so that opening and reading them asks nobody.
//!
//! A file whose content is in place is opened and read without a request. It holds as attributes in memory
//! do: while the lease lasts, and until a change is recalled, which drops it before that is acknowledged. An
//! open file that was served so far goes on with a request then ([`files`](super::files)).
//!
//! What must hold: no content that was asked for before its file changed is taken in, whoever changed
//! it; what open files hold beside the cache is bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::contents::{Content, ContentCache, ContentTicket};
use portcullis_core::limits::{
    INLINE_BYTES_MAX, INLINE_TOLD_DIRS_MAX, MOUNT_CONTENT_AGE_MS_MAX, MOUNT_PINNED_BYTES_MAX,
};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Chunk, Handle};
use tokio::time::Instant;

use crate::Client;

/// See the module.
pub(super) struct Contents {
    cache: ContentCache,
    started: Instant,
    /// The connection that all of it was told over.
    epoch: Mutex<u64>,
    pinned_bytes: Arc<AtomicU64>,
    /// How many were opened for the first time, by directory, since that was told last.
    opened: Mutex<HashMap<Handle, u32>>,
}

/// The right to take in what a listing brings along.
pub(super) struct Bringing {
    ticket: ContentTicket,
    epoch: u64,
}

/// The content of a file that is open.
pub(super) struct Pinned {
    content: Arc<Content>,
    epoch: u64,
    pinned_bytes: Arc<AtomicU64>,
}

impl Contents {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Self {
            cache: ContentCache::new(capacity_bytes, MOUNT_CONTENT_AGE_MS_MAX),
            started: Instant::now(),
            epoch: Mutex::new(0),
            pinned_bytes: Arc::default(),
            opened: Mutex::default(),
        }
    }

    /// Call it before `dir` is listed; `None` where nothing may be kept.
    pub(super) fn begin(&self, client: &Client, dir: &Handle) -> Option<Bringing> {
        let epoch = self.holding(client)?;
        Some(Bringing { ticket: self.cache.ask(dir, INLINE_BYTES_MAX as u32), epoch })
    }

    /// Takes in what came along with a chunk.
    pub(super) fn take_in(
        &self,
        client: &Client,
        bringing: Option<&Bringing>,
        chunk: &Chunk,
        contents: Vec<(usize, Bytes)>,
    ) {
        let Some(bringing) = bringing else { return };
        if contents.is_empty() || client.recalling_epoch() != Some(bringing.epoch) {
            return;
        }
        let now_ms = self.now_ms();
        for (index, bytes) in contents {
            let entry = chunk.entry(index);
            if let Some(attr) = entry.attr {
                self.cache.fill(now_ms, &bringing.ticket, (&entry.handle, &attr), &bytes);
            }
        }
    }

    /// The content of a file that is opened for reading, where it is in place and holds.
    pub(super) fn open(&self, client: &Client, handle: &Handle) -> Option<Pinned> {
        let epoch = self.holding(client)?;
        let content = self.cache.get(self.now_ms(), handle)?;
        let weight_bytes = content.weight_bytes();
        let pinned_bytes = self.pinned_bytes.clone();
        let before = pinned_bytes.fetch_add(weight_bytes, Ordering::Relaxed);
        let pinned = Pinned { content, epoch, pinned_bytes };
        if before + weight_bytes > MOUNT_PINNED_BYTES_MAX {
            return None;
        }
        // Empty ones are left out where they are delivered, too.
        if pinned.content.use_first() && !pinned.content.bytes.is_empty() {
            let mut opened = self.opened.lock();
            if opened.len() < INLINE_TOLD_DIRS_MAX || opened.contains_key(&pinned.content.dir) {
                *opened.entry(pinned.content.dir).or_default() += 1;
            }
        }
        Some(pinned)
    }

    /// Tells the gateway what was read without asking it, as far as there is room for that.
    pub(super) fn tell_opened(&self, client: &Client) {
        let opened = std::mem::take(&mut *self.opened.lock());
        if !opened.is_empty() {
            let client = client.clone();
            // It is for statistics alone, and nobody waits for it.
            tokio::spawn(
                async move { _ = client.read_in_place(opened.into_iter().collect()).await },
            );
        }
    }

    /// Forgets what is no longer true.
    pub(super) fn forget(&self, changes: &[Change]) {
        self.cache.forget(changes);
    }

    /// The content of a file is about to be changed by this mount.
    pub(super) fn changing(&self, handle: &Handle) {
        self.cache.forget(&[Change::Attr { handle: *handle }]);
    }

    /// Contents that were used, and that there are.
    pub(super) fn counts(&self) -> (u64, u64) {
        let counters = self.cache.counters();
        (counters.used, counters.contents)
    }

    /// The connection over which what is told may be kept. What an earlier one told is forgotten first.
    fn holding(&self, client: &Client) -> Option<u64> {
        if !self.cache.is_used() {
            return None;
        }
        let epoch = client.recalling_epoch()?;
        let mut told_over = self.epoch.lock();
        if *told_over != epoch {
            self.cache.forget_all();
            *told_over = epoch;
        }
        Some(epoch)
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

impl Pinned {
    /// Its attributes.
    pub(super) fn attr(&self) -> &Attr {
        &self.content.attr
    }

    /// Whether it is what the file has now.
    pub(super) fn holds(&self, client: &Client) -> bool {
        self.content.is_current() && client.recalling_epoch() == Some(self.epoch)
    }

    /// So many bytes from `offset` on, fewer at the end.
    pub(super) fn read(&self, offset_bytes: u64, len_bytes: u32) -> &[u8] {
        let bytes = &self.content.bytes;
        let start = usize::try_from(offset_bytes).unwrap_or(usize::MAX).min(bytes.len());
        &bytes[start..start.saturating_add(len_bytes as usize).min(bytes.len())]
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.pinned_bytes.fetch_sub(self.content.weight_bytes(), Ordering::Relaxed);
    }
}
