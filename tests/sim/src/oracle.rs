//! What each client may be told.
//!
//! The history of a name is the list of its versions. A change that the gateway has acknowledged
//! is seen by every request that begins afterwards: an answer must be of the version that was
//! acknowledged last when the request was sent, or of a later one. A brick completes the changes
//! of one name in their order: one counts as acknowledged when those before it are, too.

use std::collections::{HashMap, HashSet};

use bytes::{Bytes, BytesMut};
use portcullis_core::Status;
use portcullis_wire::{Reply, ReplyFrame, Request, codec, frame};

use crate::brick::{NAMES, name_index};

/// A version of a name, or that there is none.
pub type State = Option<u64>;

/// What a client asked, and what it may not be told any more.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request, for the report.
    pub request: Request,
    /// Directory asked about.
    pub dir: usize,
    /// Name asked about; `None` for a listing.
    pub name: Option<usize>,
    /// For each name of the directory, the change acknowledged last when this was asked.
    floor: [usize; NAMES],
}

/// The histories of all names.
#[derive(Debug, Default)]
pub struct Oracle {
    /// States of (directory, name) in order; index 0 is "never existed".
    histories: HashMap<(usize, usize), Vec<State>>,
    /// How many changes of (directory, name) are acknowledged without a gap.
    acknowledged: HashMap<(usize, usize), usize>,
    /// Acknowledged ones, as (directory, name, index).
    early: HashSet<(usize, usize, usize)>,
    changes: HashMap<u64, (usize, usize, usize)>,
}

impl Oracle {
    /// A change is made at the brick.
    pub fn change(&mut self, change: u64, dir: usize, name: usize, state: State) {
        let history = self.histories.entry((dir, name)).or_insert_with(|| vec![None]);
        history.push(state);
        self.changes.insert(change, (dir, name, history.len() - 1));
    }

    /// The gateway has acted on a change.
    pub fn acknowledge(&mut self, change: u64) {
        if let Some((dir, name, index)) = self.changes.remove(&change) {
            let acknowledged = self.acknowledged.entry((dir, name)).or_default();
            self.early.insert((dir, name, index));
            while self.early.remove(&(dir, name, *acknowledged + 1)) {
                *acknowledged += 1;
            }
        }
    }

    /// A client asks.
    pub fn ask(&self, request: Request, dir: usize, name: Option<usize>) -> Asked {
        let floor = std::array::from_fn(|name| {
            self.acknowledged.get(&(dir, name)).copied().unwrap_or_default()
        });
        Asked { request, dir, name, floor }
    }

    /// Judges an answer.
    ///
    /// # Errors
    /// What the client was told that it must not be told.
    pub fn judge(&self, asked: &Asked, frames: &[Bytes]) -> Result<(), String> {
        let replies = frames.iter().map(decode).collect::<Result<Vec<_>, _>>()?;
        match (asked.name, replies.as_slice()) {
            (_, [.., ReplyFrame::Failure(failure)]) if failure.status == Status::Unavailable => {
                Ok(())
            }
            (Some(name), [ReplyFrame::Reply(reply)]) => {
                self.admit(asked, name, Some(version_of(reply)?))
            }
            (Some(name), [ReplyFrame::Failure(failure)])
                if matches!(failure.status, Status::NotFound | Status::Stale) =>
            {
                self.admit(asked, name, None)
            }
            (None, [chunks @ .., ReplyFrame::End { complete: true }]) => {
                self.judge_listing(asked, chunks)
            }
            (_, other) => Err(format!("{:?} was answered {other:?}", asked.request)),
        }
    }

    fn judge_listing(&self, asked: &Asked, chunks: &[ReplyFrame]) -> Result<(), String> {
        let mut told: [State; NAMES] = [None; NAMES];
        for chunk in chunks {
            let ReplyFrame::Chunk(chunk) = chunk else {
                return Err(format!("{chunk:?} in a listing"));
            };
            for entry in chunk.entries() {
                let name = name_index(entry.name).ok_or("a name that never existed")?;
                let version = entry.attr.ok_or("no attributes")?.size_bytes;
                if told[name].replace(version).is_some() {
                    return Err(format!("name {name} twice in one listing"));
                }
            }
        }
        (0..NAMES).try_for_each(|name| self.admit(asked, name, told[name]))
    }

    fn admit(&self, asked: &Asked, name: usize, told: State) -> Result<(), String> {
        let never = vec![None];
        let history = self.histories.get(&(asked.dir, name)).unwrap_or(&never);
        let floor = asked.floor[name];
        if history[floor..].contains(&told) {
            return Ok(());
        }
        Err(format!(
            "{:?}: name {name} told as {told:?}, but {:?} was acknowledged before it was asked \
             (history {history:?})",
            asked.request, history[floor]
        ))
    }
}

fn decode(bytes: &Bytes) -> Result<ReplyFrame, String> {
    let frame =
        frame::take(&mut BytesMut::from(bytes.clone())).map_err(|error| error.to_string())?;
    codec::decode_reply(frame.ok_or("half a frame")?).map_err(|error| error.to_string())
}

fn version_of(reply: &Reply) -> Result<u64, String> {
    match reply {
        Reply::Entry(entry) => Ok(entry.attr.ok_or("no attributes")?.size_bytes),
        Reply::Attr(attr) => Ok(attr.size_bytes),
        other => Err(format!("{other:?} instead of an entry")),
    }
}
