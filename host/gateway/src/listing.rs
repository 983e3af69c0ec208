//! A listing as one client gets it: chunks from the cache, from a shared scan or from the bricks.
//!
//! The client's position (one cookie a brick) is the only thing that lasts: wherever the chunks
//! come from, the listing can go on from elsewhere after any of them. It does so when the client
//! is slow or a shared scan has passed it by.
//!
//! A client that caches watches the names from before anything is read, and each entry's attributes
//! as its chunk passes; those that changed after they were read are taken from the cache, or left
//! out.

use std::sync::Arc;

use portcullis_core::limits::BRICKS_MAX;
use portcullis_core::scan::Step;
use portcullis_core::watch::{Reading, Watched};
use portcullis_core::{Attr, Chunk, ChunkBuilder, EntryRef, Handle, Status};
use portcullis_transport::ReplySink;
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, Request};

use crate::merged::{Merged, Piece};
use crate::outflow::{Interrupt, send};
use crate::scans::{Joined, Reader};
use crate::volume::Volume;

/// Where chunks come from.
enum Source {
    Cached(std::vec::IntoIter<Chunk>),
    Scan(Reader),
    Bricks(Box<Merged>),
}

enum Next {
    Chunk(Chunk),
    End {
        complete: bool,
    },
    /// This source goes no further, the listing does.
    Elsewhere,
}

impl Volume {
    /// Sends the entries of `dir` after a position; answers whether that is all of them.
    pub(crate) async fn list(
        self: &Arc<Self>,
        watched: Option<&Watched>,
        dir: Handle,
        after: Vec<u64>,
        reply: &mut ReplySink,
    ) -> Result<bool, Interrupt> {
        if after.len() > BRICKS_MAX {
            let detail = format!("a position of {} bricks, over {BRICKS_MAX}", after.len());
            return Err(Failure::new(Status::InvalidArgument, detail).into());
        }
        if let Some(watched) = watched {
            watched.watch_names(&dir);
        }
        let mut reading = self.watching.grantor().read();
        let mut position = after;
        let from_start = position.iter().all(|&cookie| cookie == 0);
        let mut source = if from_start && self.may_cache() {
            Some(match self.join_scan(dir) {
                Joined::Cached(chunks) => Source::Cached(chunks.into_iter()),
                Joined::Scan(reader) => Source::Scan(reader),
            })
        } else {
            None
        };
        loop {
            let from = match &mut source {
                Some(from) => from,
                None => {
                    reading = self.watching.grantor().read();
                    source.insert(self.resume(dir, &position))
                }
            };
            let next = from.next().await.inspect_err(|failure| {
                self.note(&Request::List { dir, after: Vec::new() }, failure);
            });
            match next? {
                Next::Chunk(chunk) => {
                    advance(&mut position, &chunk);
                    let chunk = match watched {
                        Some(watched) => self.watch_entries(watched, reading, chunk).await,
                        None => chunk,
                    };
                    send(reply.chunk(&chunk), || {
                        source.take().into_iter().for_each(Source::let_go)
                    })
                    .await?;
                }
                Next::End { complete } => return Ok(complete),
                Next::Elsewhere => source = None,
            }
        }
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
            && let Some(chunks) = self.cache.list(self.now_ms(), &dir)
            && let Some(rest) = rest_of(chunks, position)
        {
            return Source::Cached(rest.into_iter());
        }
        Source::Bricks(Box::new(Merged::new(self, dir, position)))
    }
}

impl Source {
    async fn next(&mut self) -> Result<Next, Failure> {
        match self {
            Source::Cached(chunks) => {
                Ok(chunks.next().map_or(Next::End { complete: true }, Next::Chunk))
            }
            Source::Scan(reader) => match reader.next().await {
                Step::Chunk(chunk) => Ok(Next::Chunk(chunk)),
                Step::End(Ok(complete)) => Ok(Next::End { complete }),
                Step::End(Err(failure)) => Err(failure),
                Step::Wait | Step::Passed => Ok(Next::Elsewhere),
            },
            Source::Bricks(merged) => match merged.next().await? {
                Piece::Chunk(chunk) => Ok(Next::Chunk(chunk)),
                Piece::End { complete } => Ok(Next::End { complete }),
            },
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

/// Moves a position behind the last entry of a chunk.
fn advance(position: &mut Vec<u64>, chunk: &Chunk) {
    let brick = usize::from(chunk.brick());
    if position.len() <= brick {
        position.resize(brick + 1, 0);
    }
    position[brick] = chunk.cookie(chunk.count() - 1);
}

/// What is left of a whole listing after a position; `None` where the position is not in it. Chunks
/// of one brick are in its order; a brick that the position does not reach has all of its own left.
fn rest_of(mut chunks: Vec<Chunk>, position: &[u64]) -> Option<Vec<Chunk>> {
    for (brick, &cookie) in position.iter().enumerate().filter(|(_, cookie)| **cookie != 0) {
        let is_its = |chunk: &Chunk| usize::from(chunk.brick()) == brick;
        let ends_there = |chunk: &Chunk| chunk.cookie(chunk.count() - 1) == cookie;
        let has_it = |chunk: &Chunk| entry_at(chunk, cookie).is_some();
        // Nearly always a position is the end of a chunk.
        let at = chunks
            .iter()
            .position(|chunk| is_its(chunk) && ends_there(chunk))
            .or_else(|| chunks.iter().position(|chunk| is_its(chunk) && has_it(chunk)))?;
        let rest = rest_of_chunk(&chunks[at], cookie);
        let mut number = 0;
        chunks.retain(|chunk| {
            number += 1;
            number > at + 1 || !is_its(chunk)
        });
        if let Some(rest) = rest {
            // Before the others of its brick; where among those of other bricks does not matter.
            chunks.insert(0, rest);
        }
    }
    Some(chunks)
}

fn entry_at(chunk: &Chunk, cookie: u64) -> Option<usize> {
    (0..chunk.count()).find(|&entry| chunk.cookie(entry) == cookie)
}

/// The entries of a chunk behind the one with this cookie; `None` where there are none.
fn rest_of_chunk(chunk: &Chunk, cookie: u64) -> Option<Chunk> {
    let mut builder = ChunkBuilder::default();
    for entry in chunk.entries().skip(entry_at(chunk, cookie)? + 1) {
        // What fitted a chunk fits one again.
        builder.push(&entry);
    }
    builder.finish(chunk.brick())
}

#[cfg(test)]
mod tests {
    use portcullis_core::FileKind;

    use super::*;

    fn chunk(cookies: std::ops::Range<u64>) -> Chunk {
        on(0, cookies)
    }

    fn on(brick: u16, cookies: std::ops::Range<u64>) -> Chunk {
        let mut builder = ChunkBuilder::default();
        for cookie in cookies {
            let name = format!("name-{cookie}");
            assert!(builder.push(&EntryRef {
                name: name.as_bytes(),
                handle: Handle::new(&cookie.to_le_bytes()).expect("8 bytes"),
                attr: None,
                kind: FileKind::Regular,
                target: None,
                cookie,
            }));
        }
        builder.finish(brick).expect("entries")
    }

    fn cookies(chunks: &[Chunk]) -> Vec<u64> {
        chunks.iter().flat_map(|chunk| chunk.entries().map(|entry| entry.cookie)).collect()
    }

    #[test]
    fn a_listing_goes_on_after_any_entry_of_it() {
        let chunks = || vec![chunk(1..4), chunk(4..5), chunk(5..9)];
        for after in 0..9 {
            let rest = rest_of(chunks(), &[after]).expect("it is in the listing");
            assert_eq!(cookies(&rest), (after + 1..9).collect::<Vec<_>>(), "after {after}");
        }
        assert!(rest_of(chunks(), &[77]).is_none(), "not a position of this listing");
        assert!(rest_of(chunks(), &[1, 1]).is_none(), "not of brick 1");
    }

    #[test]
    fn a_listing_of_several_bricks_goes_on_behind_a_position_in_each() {
        let chunks = || vec![on(0, 1..4), on(2, 1..3), on(0, 4..6), on(2, 3..5)];
        for (first, second) in (0..6).flat_map(|first| (0..5).map(move |second| (first, second))) {
            let rest = rest_of(chunks(), &[first, 0, second]).expect("it is in the listing");
            let left = |brick| {
                let its: Vec<_> =
                    rest.iter().filter(|chunk| chunk.brick() == brick).cloned().collect();
                cookies(&its)
            };
            assert_eq!(left(0), (first + 1..6).collect::<Vec<_>>(), "{first} {second}");
            assert_eq!(left(2), (second + 1..5).collect::<Vec<_>>(), "{first} {second}");
        }
        let rest = rest_of(chunks(), &[5]).expect("a brick was added since");
        assert_eq!(cookies(&rest), [1, 2, 3, 4]);
    }

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
        let one = std::slice::from_ref;
        assert_eq!(cookies(one(&left)), cookies(one(&chunk)));
        assert_eq!(left.entries().map(|entry| entry.attr).collect::<Vec<_>>(), attrs);
    }

    #[test]
    fn a_position_moves_behind_the_last_entry_received() {
        let mut position = Vec::new();
        advance(&mut position, &chunk(3..7));
        assert_eq!(position, [6]);
    }
}
