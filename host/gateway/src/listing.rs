//! A listing as one client gets it: chunks from the cache, from a shared scan or from the bricks.
//!
//! The client's position (one cookie a brick, `core::position`) is the only thing that lasts:
//! wherever the chunks come from, the listing can go on from elsewhere after any of them. It does
//! so when the client is slow or a shared scan has passed it by.
//!
//! The cache may know the names and not all the attributes. Those that are missing are asked for one
//! by one, side by side, before their chunk is sent.
//!
//! A client that caches watches the names from before anything is read, and each entry's attributes
//! as its chunk passes; those that changed after they were read are taken from the cache, or left
//! out.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use portcullis_core::cache::ListedChunk;
use portcullis_core::limits::POSITION_COOKIES_MAX;
use portcullis_core::position::{Delivered, advance, is_start, of_bricks};
use portcullis_core::scan::Step;
use portcullis_core::watch::{Reading, Watched};
use portcullis_core::{Attr, Chunk, ChunkBuilder, EntryRef, Handle, Status};
use portcullis_transport::ReplySink;
use portcullis_transport::serve::PeerGone;
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, Request};

use crate::ahead::Ahead;
use crate::inlining::{Along, Taker};
use crate::merged::{Merged, Piece};
use crate::outflow::{Interrupt, send};
use crate::scans::{Joined, Reader};
use crate::volume::Volume;

/// Where chunks come from.
enum Source {
    Cached(std::vec::IntoIter<ListedChunk>),
    Scan(Reader),
    /// With the names that came before those in the order of the bricks.
    Bricks(Box<Merged>, Delivered),
}

enum Next {
    /// Entries, and those of them whose attributes are to be asked for, a bit each.
    Chunk(Chunk, u128),
    End {
        complete: bool,
    },
    /// This source goes no further, the listing does.
    Elsewhere,
}

impl Volume {
    /// Sends the entries of `dir` after a position; answers whether that is all of them. `ahead` is
    /// told of it. To a `taker` contents of small files go along as its class has it.
    pub(crate) async fn list(
        self: &Arc<Self>,
        watched: Option<&Watched>,
        dir: Handle,
        after: Vec<u64>,
        (ahead, taker): (&Arc<Ahead>, Option<Taker>),
        reply: &mut ReplySink,
    ) -> Result<bool, Interrupt> {
        if after.len() > POSITION_COOKIES_MAX {
            let detail =
                format!("a position of {} cookies, over {POSITION_COOKIES_MAX}", after.len());
            return Err(Failure::new(Status::InvalidArgument, detail).into());
        }
        if let Some(watched) = watched {
            watched.watch_names(&dir);
        }
        // Only who watches the files may keep contents.
        let taker = taker.filter(|_| watched.is_some());
        let mut along = self.inlining.along(&dir, taker);
        let mut reading = self.watching.grantor().read();
        let mut position = after;
        let mut source = if is_start(&position) && self.may_cache() {
            Some(match self.join_scan(dir, along.as_ref().and_then(|along| along.wanted)) {
                Joined::Cached(chunks) => Source::Cached(chunks.into_iter()),
                Joined::Scan(reader) => Source::Scan(reader),
            })
        } else {
            None
        };
        let is_cached = matches!(source, Some(Source::Cached(_)));
        let entered = source.is_some().then(|| ahead.enter(dir, is_cached, taker));
        loop {
            let from = match &mut source {
                Some(from) => from,
                None => {
                    reading = self.watching.grantor().read();
                    source.insert(self.resume(dir, &position))
                }
            };
            let next = from.next().await.inspect_err(|failure| {
                self.note(
                    &Request::List { dir, after: Vec::new(), acl: false, contents: None },
                    failure,
                );
            });
            match next? {
                Next::Chunk(chunk, missing) => {
                    advance(&mut position, &chunk, chunk.count() - 1);
                    let Some(chunk) = from.leave_out(chunk) else { continue };
                    entered.iter().for_each(|entered| entered.told(&chunk));
                    let chunk = match missing {
                        0 => chunk,
                        _ => self.complete_attrs(watched, chunk, missing).await,
                    };
                    let chunk = match watched {
                        Some(watched) => self.watch_entries(watched, reading, chunk).await,
                        None => chunk,
                    };
                    let let_go = || source.take().into_iter().for_each(Source::let_go);
                    match along.as_mut().filter(|_| self.may_cache()) {
                        Some(along) => {
                            send(self.send_along(along, &chunk, reply), let_go).await?;
                        }
                        None => send(reply.chunk(&chunk), let_go).await?,
                    }
                }
                Next::End { complete } => return Ok(complete),
                Next::Elsewhere => source = None,
            }
        }
    }

    /// Sends a chunk, in parts where contents go along.
    async fn send_along(
        &self,
        along: &mut Along,
        chunk: &Chunk,
        reply: &mut ReplySink,
    ) -> Result<(), PeerGone> {
        let Some(_turn) = self.inlining.turn() else { return reply.chunk(chunk).await };
        let mut at = 0;
        while at < chunk.count() {
            for part in self.inlining.next_part(self.now_ms(), along, chunk, &mut at) {
                for run in &part.contents {
                    reply.contents(run).await?;
                }
                reply.chunk(&part.chunk).await?;
            }
        }
        Ok(())
    }

    /// Registers watches on the entries of a chunk. Attributes of those that changed since `reading`
    /// may be older than that: they are those that the cache knows now, or none.
    async fn watch_entries(
        self: &Arc<Self>,
        watched: &Watched,
        reading: Reading,
        chunk: Chunk,
    ) -> Chunk {
        let handles = (0..chunk.count()).filter_map(|entry| Handle::new(chunk.handle_bytes(entry)));
        handles.for_each(|handle| watched.watch_attr(&handle));
        if !self.watching.grantor().anything_changed_since(reading) {
            return chunk;
        }
        let mut attrs = Vec::with_capacity(chunk.count());
        for entry in 0..chunk.count() {
            let EntryRef { handle, attr, .. } = chunk.entry(entry);
            let changed = self.watching.grantor().attr_changed_since(reading, &handle);
            attrs.push(match attr {
                Some(_) if changed => self.known_attr(watched, handle).await,
                attr => attr,
            });
        }
        with_attrs(chunk, &attrs)
    }

    /// A chunk with the attributes that are `missing` from it, a bit an entry, as far as they can be
    /// had.
    async fn complete_attrs(
        self: &Arc<Self>,
        watched: Option<&Watched>,
        chunk: Chunk,
        missing: u128,
    ) -> Chunk {
        let mut attrs: Vec<_> = chunk.entries().map(|entry| entry.attr).collect();
        let mut reads = Vec::new();
        for entry in (0..chunk.count()).filter(|entry| missing >> entry & 1 != 0) {
            let mut read = Box::pin(self.getattr(watched, chunk.entry(entry).handle));
            // Begun: all are under way before the first is waited for.
            let begun = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx))).await;
            reads.push((entry, begun, read));
        }
        for (entry, begun, read) in reads {
            let read = match begun {
                Poll::Ready(read) => read,
                Poll::Pending => read.await,
            };
            if let Ok(Reply::Attr(attr)) = read {
                attrs[entry] = Some(attr);
            }
        }
        with_attrs(chunk, &attrs)
    }

    /// The attributes of a file, if they are known without waiting. Otherwise they are on their way:
    /// the client is about to ask for them.
    async fn known_attr(self: &Arc<Self>, watched: &Watched, handle: Handle) -> Option<Attr> {
        if !self.may_cache() {
            return None;
        }
        tokio::select! {
            biased;
            read = self.getattr(Some(watched), handle) => match read {
                Ok(Reply::Attr(attr)) => Some(attr),
                _ => None,
            },
            () = std::future::ready(()) => None,
        }
    }

    /// A source of the entries after a position, for one client alone.
    fn resume(self: &Arc<Self>, dir: Handle, position: &[u64]) -> Source {
        if self.may_cache()
            && let Some(rest) = self.cache.list(self.now_ms(), &dir, position)
        {
            return Source::Cached(rest.into_iter());
        }
        let merged = Merged::new(self, dir, of_bricks(position), None);
        Source::Bricks(Box::new(merged), Delivered::of(position))
    }
}

impl Source {
    async fn next(&mut self) -> Result<Next, Failure> {
        match self {
            Source::Cached(chunks) => Ok(match chunks.next() {
                Some(ListedChunk { chunk, missing }) => Next::Chunk(chunk, missing),
                None => Next::End { complete: true },
            }),
            Source::Scan(reader) => match reader.next().await {
                Step::Chunk(chunk) => Ok(Next::Chunk(chunk, 0)),
                Step::End(Ok(complete)) => Ok(Next::End { complete }),
                Step::End(Err(failure)) => Err(failure),
                Step::Wait | Step::Passed => Ok(Next::Elsewhere),
            },
            Source::Bricks(merged, _) => match merged.next().await? {
                Piece::Chunk(chunk) => Ok(Next::Chunk(chunk, 0)),
                Piece::End { complete } => Ok(Next::End { complete }),
            },
        }
    }

    /// A chunk without the entries that came before; `None` where it has no others.
    fn leave_out(&self, chunk: Chunk) -> Option<Chunk> {
        match self {
            Source::Bricks(_, delivered) => delivered.leave_out(chunk),
            Source::Cached(_) | Source::Scan(_) => Some(chunk),
        }
    }

    fn let_go(self) {
        if let Source::Scan(reader) = self {
            reader.let_go();
        }
    }
}

/// The chunk with these attributes of its entries.
fn with_attrs(chunk: Chunk, attrs: &[Option<Attr>]) -> Chunk {
    let is_same = |(entry, attr): (EntryRef<'_>, &Option<Attr>)| entry.attr == *attr;
    if chunk.entries().zip(attrs).all(is_same) {
        return chunk;
    }
    let build = |keep: bool| {
        let mut builder = ChunkBuilder::default();
        let fits = chunk.entries().zip(attrs).all(|(entry, attr)| {
            let attr = attr.filter(|attr| keep || entry.attr == Some(*attr));
            builder.push(&EntryRef { attr, ..entry })
        });
        if fits { builder.finish(chunk.brick()) } else { None }
    };
    // Attributes may take more room than before. Without the new ones what fitted once fits again.
    build(true).or_else(|| build(false)).unwrap_or(chunk)
}

#[cfg(test)]
mod tests {
    use portcullis_core::FileKind;

    use super::*;

    #[test]
    fn only_entries_that_changed_get_other_attributes() {
        let mut builder = ChunkBuilder::default();
        for number in 0..5u64 {
            let attr = Attr { ino: number, mode: 0o100_644, ..Default::default() };
            assert!(builder.push(&EntryRef {
                name: format!("name-{number}").as_bytes(),
                handle: Handle::new(&number.to_le_bytes()).expect("8 bytes"),
                attr: Some(attr),
                kind: FileKind::Regular,
                target: None,
                cookie: number + 1,
            }));
        }
        let chunk = builder.finish(0).expect("entries");
        let mut attrs: Vec<_> = chunk.entries().map(|entry| entry.attr).collect();
        assert_eq!(with_attrs(chunk.clone(), &attrs), chunk);
        attrs[3] = None;
        attrs[1] = attrs[1].map(|attr| Attr { size_bytes: 77, ..attr });
        let left = with_attrs(chunk.clone(), &attrs);
        let cookies = |chunk: &Chunk| chunk.entries().map(|entry| entry.cookie).collect::<Vec<_>>();
        assert_eq!(cookies(&left), cookies(&chunk));
        assert_eq!(left.entries().map(|entry| entry.attr).collect::<Vec<_>>(), attrs);
    }
}
