//! A listing as one client gets it: chunks from the cache, from a shared scan or from the brick.
//!
//! The client's position (one cookie a brick) is the only thing that lasts: wherever the chunks
//! come from, the listing can go on from elsewhere after any of them. It does so when the client
//! is slow or a shared scan has passed it by.

use std::sync::Arc;

use portcullis_core::limits::BRICKS_MAX;
use portcullis_core::scan::Step;
use portcullis_core::{Chunk, ChunkBuilder, Handle, Status};
use portcullis_transport::ReplySink;
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{ReplyFrame, Request};

use crate::brick_call::{BrickStream, Fault};
use crate::outflow::{Interrupt, send};
use crate::scans::{Joined, Reader};
use crate::volume::Volume;

/// Where chunks come from.
enum Source {
    Cached(std::vec::IntoIter<Chunk>),
    Scan(Reader),
    Brick(Box<BrickStream>),
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
        dir: Handle,
        after: Vec<u64>,
        reply: &mut ReplySink,
    ) -> Result<bool, Interrupt> {
        if after.len() > BRICKS_MAX {
            let detail = format!("a position of {} bricks, over {BRICKS_MAX}", after.len());
            return Err(Failure::new(Status::InvalidArgument, detail).into());
        }
        let mut position = after;
        let mut source = if position.iter().all(|&cookie| cookie == 0) {
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
                None => source.insert(self.resume(dir, &position).await?),
            };
            match from.next(self).await? {
                Next::Chunk(chunk) => {
                    advance(&mut position, &chunk);
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

    /// A source of the entries after a position, for one client alone.
    async fn resume(&self, dir: Handle, position: &[u64]) -> Result<Source, Failure> {
        if let Some(rest) =
            self.cache.list(self.now_ms(), &dir).and_then(|chunks| rest_of(chunks, position))
        {
            return Ok(Source::Cached(rest.into_iter()));
        }
        let request = Request::List { dir, after: position.to_vec() };
        match self.brick.list(&request).await {
            Ok(stream) => Ok(Source::Brick(Box::new(stream))),
            Err(failure) => {
                self.note(&request, &failure);
                Err(failure)
            }
        }
    }
}

impl Source {
    async fn next(&mut self, volume: &Volume) -> Result<Next, Failure> {
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
            Source::Brick(stream) => match stream.next().await {
                Ok(ReplyFrame::Chunk(chunk)) => Ok(Next::Chunk(chunk)),
                Ok(ReplyFrame::End { complete }) => Ok(Next::End { complete }),
                Ok(ReplyFrame::Failure(failure)) | Err(Fault::Failed(failure)) => Err(failure),
                Ok(ReplyFrame::Reply(_) | ReplyFrame::Data(_)) => {
                    Err(volume.brick.nonsense(Verb::List))
                }
                Err(Fault::Lost) => Err(stream.lost()),
            },
        }
    }

    fn let_go(self) {
        if let Source::Scan(reader) = self {
            reader.let_go();
        }
    }
}

/// Moves a position behind the last entry of a chunk.
fn advance(position: &mut Vec<u64>, chunk: &Chunk) {
    let brick = usize::from(chunk.brick());
    if position.len() <= brick {
        position.resize(brick + 1, 0);
    }
    position[brick] = chunk.cookie(chunk.count() - 1);
}

/// What is left of a whole listing after a position; `None` where the position is not in it, or
/// is in several bricks.
fn rest_of(mut chunks: Vec<Chunk>, position: &[u64]) -> Option<Vec<Chunk>> {
    let [cookie] = *position else { return None };
    if cookie == 0 {
        return Some(chunks);
    }
    // Nearly always a position is the end of a chunk.
    if let Some(at) = chunks.iter().position(|chunk| chunk.cookie(chunk.count() - 1) == cookie) {
        return Some(chunks.split_off(at + 1));
    }
    let (at, entry) = chunks.iter().enumerate().find_map(|(at, chunk)| {
        let entry = (0..chunk.count()).find(|&entry| chunk.cookie(entry) == cookie)?;
        Some((at, entry))
    })?;
    let mut rest = chunks.split_off(at);
    let mut builder = ChunkBuilder::default();
    for entry in rest[0].entries().skip(entry + 1) {
        // What fitted a chunk fits one again.
        if !builder.push(&entry) {
            return None;
        }
    }
    rest[0] = builder.finish(rest[0].brick())?;
    Some(rest)
}

#[cfg(test)]
mod tests {
    use portcullis_core::{EntryRef, FileKind};

    use super::*;

    fn chunk(cookies: std::ops::Range<u64>) -> Chunk {
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
        builder.finish(0).expect("entries")
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
        assert!(rest_of(chunks(), &[1, 1]).is_none(), "not of one brick");
    }

    #[test]
    fn a_position_moves_behind_the_last_entry_received() {
        let mut position = Vec::new();
        advance(&mut position, &chunk(3..7));
        assert_eq!(position, [6]);
    }
}
