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

use portcullis_core::contents::{Content, ContentCache, ContentRun, packed};
use portcullis_core::inlining::{ClassId, Ledger, Line};
use portcullis_core::limits::{INLINE_LISTING_BYTES_MAX, INLINE_TOLD_DIRS_MAX};
use portcullis_core::{Chunk, FileKind, Handle, Status};
use portcullis_policy::InliningControl;
use portcullis_wire::Reply;
use portcullis_wire::message::Failure;
use portcullis_wire::stats::InliningStats;

/// Of the time that opens take at bricks, one in so many parts is that of the last one.
const OPEN_US_SHARE: u64 = 8;

/// What all clients share.
pub(crate) struct Inlining {
    pub(crate) contents: ContentCache,
    pub(crate) control: Arc<InliningControl>,
    ledger: Arc<Ledger>,
    /// What opening a file at its brick takes, smoothed.
    open_us: AtomicU64,
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
        Self { contents, control, ledger, open_us: AtomicU64::new(0) }
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

    /// The contents that go out before a chunk.
    pub(crate) fn take(&self, now_ms: u64, along: &mut Along, chunk: &Chunk) -> Vec<ContentRun> {
        let mut contents = Vec::new();
        for (index, entry) in chunk.entries().enumerate() {
            let Some(wanted) = along.wanted else { break };
            let is_small = |size: u64| size <= u64::from(wanted).min(along.left_bytes);
            if let Some(attr) = entry.attr.filter(|attr| is_small(attr.size_bytes))
                && entry.kind == FileKind::Regular
                && let Some(content) = self.contents.get(now_ms, &entry.handle)
                && content.is_of(&attr)
            {
                along.left_bytes -= attr.size_bytes;
                contents.push((index, Bytes(content)));
            }
        }
        let runs = packed::pack(contents);
        let mut sent = runs.iter().flat_map(ContentRun::contents).map(|(index, _)| index).peekable();
        let files = chunk.entries().enumerate().filter_map(|(index, entry)| {
            let is_along = sent.next_if_eq(&index).is_some();
            let attr = entry.attr.filter(|_| entry.kind == FileKind::Regular)?;
            Some((entry.handle, attr.size_bytes, is_along))
        });
        let files: Vec<(Handle, u64, bool)> = files.collect();
        let files = files.iter().map(|(handle, size, is_along)| (handle, *size, *is_along));
        let Taker { client, line, .. } = along.taker;
        self.ledger.delivered(along.class, client, self.line(line), files);
        runs
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
            let detail = format!("{} directories at once; at most {INLINE_TOLD_DIRS_MAX}", dirs.len());
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

/// A content as bytes.
struct Bytes(Arc<Content>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}
