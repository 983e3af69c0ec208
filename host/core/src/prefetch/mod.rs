//! Prefetch: which directories are listed before anybody asks for them.
//!
//! Three parties meet here, as in [`eviction`](crate::eviction):
//!
//! - the **host** (a mount, or a gateway for one client) lists directories, for its client and ahead
//!   of it, and has the cache that they go into;
//! - the [`Prefetcher`] gives directories their ids, keeps to the [`Budget`], counts what came of
//!   each listing ahead, and carries events and answers between the host and the policy;
//! - a **policy** ([`PrefetchPolicy`]) chooses. There are three: [`Nothing`]; [`Statahead`], which goes
//!   ahead within one directory; and [`Crawl`], which recognises the walk of a tree.
//!
//! What a policy sees and answers are numbers alone, so that it may as well be a component.
//!
//! What must hold: a policy proposes, the host decides: ids that were never given out, or stand for
//! a directory that is listed already, are dropped. No client waits for a policy.

pub mod crawl;
mod dirs;
mod packed;
mod prefetcher;
mod room;
#[cfg(test)]
mod simulation;
pub mod statahead;

use std::str::FromStr;
use std::sync::Arc;

pub use crawl::Crawl;
pub use packed::{ClientId, Told};
pub use prefetcher::{Answered, Budget, Meeting, Order, PrefetchCounters, Prefetcher};
pub use statahead::Statahead;

/// A directory as a policy knows it. An id never stands for another directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirId(pub u64);

/// How a directory stood when its client began to list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Entry {
    /// It had been listed ahead.
    Used = 0,
    /// It was being listed ahead, and the client waits for the rest of that.
    Late = 1,
    /// It was known for another reason.
    Known = 2,
    /// It has to be asked for.
    Missed = 3,
}

/// Why a directory that a policy chose is not listed ahead, or was so in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Loss {
    /// It is known already.
    Known = 0,
    /// It could not be listed.
    Failed = 1,
    /// It was changed before it was used.
    Invalidated = 2,
    /// It left the cache before it was used, or is too large to be listed ahead.
    Dropped = 3,
}

/// Something that happened to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client began to list it.
    Entered {
        /// The directory.
        dir: DirId,
        /// How it stood.
        entry: Entry,
    },
    /// A listing of `dir`, for the client or ahead of it, told of this subdirectory, which is new.
    /// They come in the order of the listing.
    Subdir {
        /// The directory.
        dir: DirId,
        /// The subdirectory.
        subdir: DirId,
    },
    /// A listing of it is over: no more subdirectories will be told.
    Listed {
        /// The directory.
        dir: DirId,
    },
    /// It was chosen by the policy, and nothing came of that.
    Lost {
        /// The directory.
        dir: DirId,
        /// Why.
        loss: Loss,
    },
}

/// What a policy wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// List this directory ahead.
    List(DirId),
    /// It is not wanted any more. Where it is being listed that is given up.
    Cancel(DirId),
    /// The policy has done with it: its id is not used again.
    Forget(DirId),
}

/// A prefetch policy, for one client.
///
/// The caller guarantees: a directory is first told by `Subdir`, or by `Entered` where its parent was
/// not; each id of [`Answer::List`] that is not cancelled or forgotten comes to `Entered`, `Listed`
/// or `Lost` in the end, and is held for the policy until then.
///
/// The implementor must: keep what it remembers within a fixed multiple of the ids that it has not
/// forgotten; forget ids that it has done with; and do the same for the same events and times.
pub trait PrefetchPolicy: Send {
    /// Takes a batch of events. `now_ms` is monotonic, from an arbitrary start.
    fn on_events(&mut self, now_ms: u64, events: &[Event]);

    /// Adds what it wants now to `answers`, with at most `want` directories to be listed.
    fn propose(&mut self, now_ms: u64, want: usize, answers: &mut Vec<Answer>);
}

/// A policy that does something else for each event.
trait Follower {
    fn entered(&mut self, now_ms: u64, dir: DirId, entry: Entry);
    fn subdir(&mut self, dir: DirId, subdir: DirId);
    fn listed(&mut self, dir: DirId);
    fn lost(&mut self, dir: DirId, loss: Loss);

    /// Takes a batch of them.
    fn follow(&mut self, now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Entered { dir, entry } => self.entered(now_ms, dir, entry),
                Event::Subdir { dir, subdir } => self.subdir(dir, subdir),
                Event::Listed { dir } => self.listed(dir),
                Event::Lost { dir, loss } => self.lost(dir, loss),
            }
        }
    }
}

/// The engine of one client, as the driver of a policy sees it that works for several of them.
pub trait PrefetchHost: Send + Sync {
    /// As [`Prefetcher::drain`]; `None`, once, where all that was told before is void, since too much
    /// had come together to be told.
    fn drain(&self, events: &mut Vec<Event>) -> Option<usize>;

    /// As [`Prefetcher::answer`]; what is to be done is done.
    fn answer(self: Arc<Self>, want: usize, answers: &[Answer]) -> Answered;

    /// Another policy is at work from now on, and knows nothing: that of the driver, or a native
    /// one, which this engine makes and asks itself. As [`Prefetcher::restart`].
    fn restart(self: Arc<Self>, native: Option<PrefetchChoice>);
}

/// The policy that fetches nothing ahead.
#[derive(Debug, Default)]
pub struct Nothing;

impl Nothing {
    /// Name by which the policy is known.
    pub const NAME: &str = "none";
}

impl PrefetchPolicy for Nothing {
    fn on_events(&mut self, _now_ms: u64, _events: &[Event]) {}

    fn propose(&mut self, _now_ms: u64, _want: usize, _answers: &mut Vec<Answer>) {}
}

/// The policies that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefetchChoice {
    /// [`Nothing`].
    Nothing,
    /// [`Statahead`].
    Statahead,
    /// [`Crawl`].
    #[default]
    Crawl,
}

impl PrefetchChoice {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => Nothing::NAME,
            Self::Statahead => Statahead::NAME,
            Self::Crawl => Crawl::NAME,
        }
    }

    /// A policy for one client.
    pub fn policy(self) -> Box<dyn PrefetchPolicy> {
        match self {
            Self::Nothing => Box::new(Nothing),
            Self::Statahead => Box::<Statahead>::default(),
            Self::Crawl => Box::<Crawl>::default(),
        }
    }
}

impl FromStr for PrefetchChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut known = [Self::Nothing, Self::Statahead, Self::Crawl].into_iter();
        let found = known.find(|choice| choice.name() == name);
        let what = || format!("{name} is no prefetch policy: there are none, statahead and crawl");
        found.ok_or_else(what)
    }
}
