//! One directory as all its bricks list it: asked at once, merged as chunks arrive.
//!
//! Each brick sends into a buffer of its own (the window of its stream), so one that is slow delays
//! its own entries only. Chunks pass as they are, but for entries whose attributes the brick does not
//! have, because they lie elsewhere: those are fetched from there before the chunk passes.
//!
//! What must hold: the end is told when all bricks have said theirs; a brick that cannot be asked
//! makes the listing incomplete, which is told after what the others have.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use portcullis_core::contents::{Arriving, ContentError, ContentTicket};
use portcullis_core::{Chunk, ChunkBuilder, Entry, EntryRef, Handle, Status};
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::brick_call::{BrickStream, Fault};
use crate::brick_link::BrickLink;
use crate::volume::Volume;

/// How often the listing of one brick is taken up again whose connection is lost on the way.
const RESUMES_MAX: usize = 2;

/// See the module.
pub(crate) struct Merged {
    parts: Vec<Option<Turn>>,
    /// The part that is looked at first, so that each gets its turn.
    first: usize,
    ready: VecDeque<Chunk>,
    under_way: usize,
    complete: bool,
    /// Some brick has said its end.
    answered: bool,
    /// Why the first brick could not be asked that could not be.
    failure: Option<Failure>,
}

/// What comes next of a listing.
pub(crate) enum Piece {
    Chunk(Chunk),
    End { complete: bool },
}

/// A part on its way to its next frame.
type Turn = Pin<Box<dyn Future<Output = (Part, Result<Received, Failure>)> + Send>>;

/// The listing of one brick.
struct Part {
    volume: Arc<Volume>,
    brick: Arc<BrickLink>,
    dir: Handle,
    /// Behind the last entry that came.
    cookie: u64,
    stream: Option<BrickStream>,
    is_alone: bool,
    /// The right to keep contents, where some are asked for, and those that came for the next chunk.
    contents: Option<Arc<ContentTicket>>,
    arriving: Arriving,
}

enum Received {
    Chunks(Vec<Chunk>),
    End { complete: bool },
}

impl Merged {
    /// Begins to list `dir` behind a position. With `contents`, those of small files are asked for too, and
    /// kept before their chunk passes.
    pub(crate) fn new(
        volume: &Arc<Volume>,
        dir: Handle,
        position: &[u64],
        contents: Option<&Arc<ContentTicket>>,
    ) -> Self {
        let bricks = volume.bricks.holding(&dir);
        let asked = bricks.len();
        let parts = bricks.into_iter().map(|brick| {
            let part = Part {
                volume: volume.clone(),
                brick: brick.clone(),
                dir,
                cookie: position.get(brick.number).copied().unwrap_or(0),
                stream: None,
                is_alone: asked == 1,
                contents: contents.cloned(),
                arriving: Arriving::default(),
            };
            Some(part.turn())
        });
        Self {
            parts: parts.collect(),
            first: 0,
            ready: VecDeque::new(),
            under_way: asked,
            complete: true,
            answered: false,
            failure: None,
        }
    }

    /// The next piece; after an end or a failure there is none, and the caller stops asking. Safe to
    /// cancel: no chunk is lost.
    pub(crate) async fn next(&mut self) -> Result<Piece, Failure> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(Piece::Chunk(chunk));
            }
            if self.under_way == 0 {
                return match self.failure.take().filter(|_| !self.answered) {
                    Some(failure) => Err(failure),
                    None => Ok(Piece::End { complete: self.complete }),
                };
            }
            let (at, part, received) = std::future::poll_fn(|cx| self.poll(cx)).await;
            match received {
                Ok(Received::Chunks(chunks)) => {
                    self.ready.extend(chunks);
                    self.parts[at] = Some(part.turn());
                }
                Ok(Received::End { complete }) => {
                    self.complete &= complete;
                    self.answered = true;
                    self.under_way -= 1;
                }
                Err(failure) if part.is_alone || !is_away(&failure) => return Err(failure),
                Err(failure) => {
                    debug!(brick = %part.brick.address, %failure, "a brick is left out of a listing");
                    self.complete = false;
                    self.under_way -= 1;
                    self.failure.get_or_insert(failure);
                }
            }
        }
    }

    /// Looks which part has a frame, beginning with the one whose turn it is.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Part, Result<Received, Failure>)> {
        let count = self.parts.len();
        for at in (self.first..count).chain(0..self.first) {
            let Some(turn) = &mut self.parts[at] else { continue };
            if let Poll::Ready((part, received)) = turn.as_mut().poll(cx) {
                self.parts[at] = None;
                self.first = (at + 1) % count;
                return Poll::Ready((at, part, received));
            }
        }
        Poll::Pending
    }
}

/// Whether a brick failed in a way that says nothing about the directory.
fn is_away(failure: &Failure) -> bool {
    matches!(failure.status, Status::Unavailable | Status::Io | Status::BadFrame | Status::Busy)
}

impl Part {
    fn turn(mut self) -> Turn {
        Box::pin(async move {
            let received = self.receive().await;
            (self, received)
        })
    }

    async fn receive(&mut self) -> Result<Received, Failure> {
        let mut resumes = 0;
        loop {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                none => {
                    let after = if self.cookie == 0 { Vec::new() } else { vec![self.cookie] };
                    let request = Request::List {
                        dir: self.dir,
                        after,
                        acl: self.volume.wants_acl.load(Ordering::Relaxed),
                        contents: self.contents.as_ref().map(|ticket| ticket.size_bytes_max()),
                    };
                    self.arriving = Arriving::default();
                    none.insert(self.brick.list(&request).await?)
                }
            };
            match stream.next().await {
                Ok(ReplyFrame::Contents(run)) => {
                    let pushed = self.arriving.push(run);
                    pushed.map_err(|error| self.malformed(&error))?;
                }
                Ok(ReplyFrame::Chunk(chunk)) => {
                    self.keep_contents(&chunk)?;
                    self.cookie = chunk.cookie(chunk.count() - 1);
                    return Ok(Received::Chunks(self.completed(chunk).await));
                }
                Ok(ReplyFrame::End { complete }) => return Ok(Received::End { complete }),
                Ok(ReplyFrame::Failure(failure)) | Err(Fault::Failed(failure)) => {
                    return Err(failure);
                }
                Ok(ReplyFrame::Reply(_) | ReplyFrame::Data(_)) => {
                    return Err(self.brick.nonsense(Verb::List));
                }
                Err(Fault::Lost) if self.is_alone || resumes == RESUMES_MAX => {
                    return Err(stream.lost());
                }
                Err(Fault::Lost) => {
                    resumes += 1;
                    self.stream = None;
                }
            }
        }
    }

    /// Keeps the contents that came for a chunk.
    fn keep_contents(&mut self, chunk: &Chunk) -> Result<(), Failure> {
        let came = self.arriving.take(chunk).map_err(|error| self.malformed(&error))?;
        let Some(ticket) = &self.contents else { return Ok(()) };
        for (index, bytes) in came {
            let EntryRef { handle, attr, .. } = chunk.entry(index);
            if let Some(attr) = attr {
                let contents = &self.volume.inlining.contents;
                contents.fill(self.volume.now_ms(), ticket, (&handle, &attr), &bytes);
            }
        }
        Ok(())
    }

    fn malformed(&self, error: &ContentError) -> Failure {
        let address = &self.brick.address;
        warn!(brick = %address, %error, "a brick sends contents that belong to no entry");
        self.brick.nonsense(Verb::List)
    }

    /// The chunk with the attributes of what lies on other bricks. Those that cannot be had stay out.
    async fn completed(&self, chunk: Chunk) -> Vec<Chunk> {
        let bricks = &self.volume.bricks;
        let mut elsewhere: Vec<Vec<(usize, Handle)>> = Vec::new();
        for (at, entry) in chunk.entries().enumerate().filter(|(_, entry)| entry.attr.is_none()) {
            let brick = bricks.of(&entry.handle).number;
            if brick != self.brick.number {
                elsewhere.resize(elsewhere.len().max(brick + 1), Vec::new());
                elsewhere[brick].push((at, entry.handle));
            }
        }
        let mut asking = JoinSet::new();
        for (brick, wanted) in elsewhere.into_iter().enumerate() {
            if !wanted.is_empty() {
                asking.spawn(getattrs(bricks.all()[brick].clone(), wanted));
            }
        }
        if asking.is_empty() {
            return vec![chunk];
        }
        let mut found: Vec<Option<Entry>> = vec![None; chunk.count()];
        for (at, entry) in asking.join_all().await.into_iter().flatten() {
            found[at] = entry;
        }
        with_found(&chunk, &found)
    }
}

/// What a brick knows of files of its own, each with its place in a chunk.
async fn getattrs(
    brick: Arc<BrickLink>,
    wanted: Vec<(usize, Handle)>,
) -> Vec<(usize, Option<Entry>)> {
    let handles = wanted.iter().map(|(_, handle)| *handle).collect();
    match brick.call(&Request::Getattrs { handles }, brick.deadline()).await {
        Ok(Reply::Entries(entries)) => wanted.into_iter().map(|(at, _)| at).zip(entries).collect(),
        Ok(_) => Vec::new(),
        Err(failure) => {
            debug!(brick = %brick.address, %failure, "entries are listed without attributes");
            Vec::new()
        }
    }
}

/// The chunk with what was found of its entries. It may take more room than one chunk has.
fn with_found(chunk: &Chunk, found: &[Option<Entry>]) -> Vec<Chunk> {
    let mut chunks = Vec::with_capacity(2);
    let mut builder = ChunkBuilder::default();
    for (entry, found) in chunk.entries().zip(found) {
        let entry = match found {
            Some(found) => EntryRef { attr: found.attr, target: found.target.as_deref(), ..entry },
            None => entry,
        };
        if !builder.push(&entry) {
            chunks.extend(builder.finish(chunk.brick()));
            // An entry of any size fits an empty chunk.
            builder.push(&entry);
        }
    }
    chunks.extend(builder.finish(chunk.brick()));
    chunks
}

#[cfg(test)]
mod tests {
    use portcullis_core::limits::{CHUNK_ENTRIES_MAX, NAME_LEN_MAX};
    use portcullis_core::{Attr, FileKind};

    use super::*;

    #[test]
    fn a_chunk_that_grows_over_its_limit_becomes_two() {
        let names: Vec<_> = (0..CHUNK_ENTRIES_MAX).map(|n| format!("{n:0NAME_LEN_MAX$}")).collect();
        let handle = Handle::new(&[7; 60]).expect("60 bytes");
        let mut builder = ChunkBuilder::default();
        for (cookie, name) in (1..).zip(&names) {
            let name = name.as_bytes();
            let kind = FileKind::Directory;
            let entry = EntryRef { name, handle, attr: None, kind, target: None, cookie };
            assert!(builder.push(&entry));
        }
        let chunk = builder.finish(3).expect("entries");
        let attr = Attr { mode: 0o040_755, ..Attr::default() };
        let kind = FileKind::Directory;
        let found = Entry { handle, attr: Some(attr), kind, target: None };
        let chunks = with_found(&chunk, &vec![Some(found); chunk.count()]);
        let entries: Vec<_> = chunks.iter().flat_map(Chunk::entries).collect();
        assert_eq!(entries.len(), CHUNK_ENTRIES_MAX);
        assert!(entries.iter().all(|entry| entry.attr == Some(attr)));
        assert!((1..).zip(&entries).all(|(cookie, entry)| entry.cookie == cookie));
        assert!(chunks.iter().all(|chunk| chunk.brick() == 3));
    }
}
