//! Contents of small files that travel along with listings.
//!
//! Which do is a matter of rules, one a class of directory and client, that a policy makes of what is
//! counted here (`portcullis_policy`, `core::inlining`). The brick is asked for contents with the listing;
//! they are kept beside the dentry cache, under a quota of their own, and go out before the chunk that has
//! their entries. A directory whose listing is cached, but not the contents that its class gets, is
//! listed anew.
//!
//! What must hold: a content goes out only while the gateway has its lease, to a client that watches the
//! file by then, and with the attributes that it was read with; where no policy works nothing is counted,
//! kept or sent, and nothing is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use portcullis_core::contents::{ContentCache, Listed, Packing};
use portcullis_core::inlining::{ClassId, Ledger, Line};
use portcullis_core::limits::{INLINE_LISTING_BYTES_MAX, INLINE_SENDS_MAX, INLINE_TOLD_DIRS_MAX};
use portcullis_core::{Chunk, EntryRef, FileKind, Handle, Status};
use portcullis_policy::InliningControl;
use portcullis_wire::Reply;
use portcullis_wire::message::Failure;
use portcullis_wire::stats::InliningStats;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Of the time that opens take at bricks, one in so many parts is that of the last one.
const OPEN_US_SHARE: u64 = 8;

/// What all clients share.
pub(crate) struct Inlining {
    pub(crate) contents: ContentCache,
    pub(crate) control: Arc<InliningControl>,
    ledger: Arc<Ledger>,
    /// What opening a file at its brick takes, smoothed.
    open_us: AtomicU64,
    turns: Semaphore,
}

/// A client that takes contents along with listings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker {
    pub(crate) client: u128,
    /// Up to which size.
    pub(crate) size_bytes_max: u32,
    /// What its line carries in bytes a second, and the time of a round trip in microseconds.
    pub(crate) line: (u64, u64),
}

/// What travels along with one listing.
pub(crate) struct Along {
    taker: Taker,
    class: ClassId,
    /// Contents of files of at most so many bytes; `None` for none.
    pub(crate) wanted: Option<u32>,
    left_bytes: u64,
}

impl Inlining {
    pub(crate) fn new(
        contents: ContentCache,
        control: Arc<InliningControl>,
        ledger: Arc<Ledger>,
    ) -> Self {
        let turns = Semaphore::new(INLINE_SENDS_MAX);
        Self { contents, control, ledger, open_us: AtomicU64::new(0), turns }
    }

    /// Whether a policy works.
    pub(crate) fn is_on(&self) -> bool {
        self.ledger.is_on() && self.contents.is_used()
    }

    /// What travels along with a listing of `dir` for a client; `None` where there is nothing to decide.
    pub(crate) fn along(&self, dir: &Handle, taker: Option<Taker>) -> Option<Along> {
        let taker = taker.filter(|_| self.is_on())?;
        let class = self.ledger.class(dir, taker.client);
        let rule = self.ledger.size_bytes_max(class);
        let wanted = rule.map(|size| size.min(taker.size_bytes_max));
        Some(Along { taker, class, wanted, left_bytes: INLINE_LISTING_BYTES_MAX })
    }

    /// The next entries of a chunk, from `at` on, with the contents that go out before them.
    pub(crate) fn next_part(
        &self,
        now_ms: u64,
        along: &mut Along,
        chunk: &Chunk,
        at: &mut usize,
    ) -> Vec<Listed> {
        let (first, mut packing, mut has_contents) = (*at, Packing::new(chunk.brick()), false);
        let mut files = Vec::with_capacity(chunk.count() - first);
        while *at < chunk.count() && !packing.is_full() {
            let entry = chunk.entry(*at);
            let content = self.content(now_ms, along, &entry);
            has_contents |= content.is_some();
            if let Some(attr) = entry.attr.filter(|_| entry.kind == FileKind::Regular) {
                files.push((entry.handle, attr.size_bytes, content.is_some()));
            }
            packing.push(&entry, content);
            *at += 1;
        }
        let files = files.iter().map(|(handle, size, is_along)| (handle, *size, *is_along));
        let Taker { client, line, .. } = along.taker;
        self.ledger.delivered(along.class, client, self.line(line), files);
        if first == 0 && !has_contents {
            return vec![Listed { contents: Vec::new(), chunk: chunk.clone() }];
        }
        packing.finish()
    }

    fn content(&self, now_ms: u64, along: &mut Along, entry: &EntryRef<'_>) -> Option<Bytes> {
        let size_bytes_max = u64::from(along.wanted?).min(along.left_bytes);
        let attr = entry.attr.filter(|attr| attr.size_bytes <= size_bytes_max)?;
        let content = self.contents.get(now_ms, &entry.handle)?;
        if entry.kind != FileKind::Regular || !content.is_of(&attr) {
            return None;
        }
        along.left_bytes -= attr.size_bytes;
        Some(content.bytes.clone())
    }

    /// A turn to send contents; `None` where so many are being sent that these stay.
    pub(crate) fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.try_acquire().ok()
    }

    /// A client opened a file to read it, which took so long at the brick.
    pub(crate) fn opened(&self, client: u128, handle: &Handle, took_us: u64) {
        if !self.is_on() {
            return;
        }
        let before = self.open_us.load(Ordering::Relaxed);
        let after = match before {
            0 => took_us,
            _ => (before * (OPEN_US_SHARE - 1) + took_us) / OPEN_US_SHARE,
        };
        // Of two at once, one is lost: it is an estimate.
        self.open_us.store(after.max(1), Ordering::Relaxed);
        self.ledger.opened(client, handle);
    }

    /// A client says what it has read that had travelled along.
    pub(crate) fn read_in_place(
        &self,
        client: u128,
        dirs: &[(Handle, u32)],
    ) -> Result<Reply, Failure> {
        if dirs.len() > INLINE_TOLD_DIRS_MAX {
            let detail =
                format!("{} directories at once; at most {INLINE_TOLD_DIRS_MAX}", dirs.len());
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        for (dir, files) in dirs {
            self.ledger.read_in_place(self.ledger.class(dir, client), u64::from(*files));
        }
        Ok(Reply::Done)
    }

    pub(crate) fn stats(&self) -> InliningStats {
        let status = self.control.standing().status;
        let (counts, contents) = (self.ledger.totals(), self.contents.counters());
        InliningStats {
            name: status.identity.name,
            kind: status.identity.kind.as_str().to_owned(),
            digest: status.identity.digest,
            fallback_reason: status.fallback_reason,
            calls: status.calls,
            rows: status.rows,
            rules: status.rules,
            cpu_ms: status.cpu_ms,
            delivered: counts.delivered,
            read: counts.read,
            inlined: counts.inlined,
            inlined_read: counts.inlined_read,
            inlined_bytes: counts.inlined_bytes,
            capacity_bytes: contents.capacity_bytes,
            used_bytes: contents.used_bytes,
            contents: contents.contents,
            filled: contents.filled,
            late: contents.late,
            evicted: contents.evicted,
            invalidated: contents.invalidated,
        }
    }

    /// Opening and reading a file are two requests, each over both ways.
    fn line(&self, (bandwidth_bytes_per_s, rtt_us): (u64, u64)) -> Line {
        let open_us = self.open_us.load(Ordering::Relaxed);
        Line { bandwidth_bytes_per_s, latency_us: 2 * rtt_us.saturating_add(open_us) }
    }
}
