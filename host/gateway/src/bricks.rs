//! The bricks of the volume, and which of them a request goes to.
//!
//! A handle says which brick it is of, and for a directory that is spread over several, which is its
//! home; of a name the arbiter is asked (`portcullis_core::volume`). Where there is one brick
//! everything goes there, without a look at the handle.

use std::sync::Arc;

use portcullis_core::Handle;
use portcullis_core::volume::{arbiter, member_of};
use portcullis_wire::Request;
use portcullis_wire::message::Notices;
use tokio::time::Instant;

use crate::brick_link::BrickLink;
use crate::membership::Formation;
use crate::volume::subject;

/// See the module.
#[derive(Debug)]
pub(crate) struct Bricks {
    links: Vec<Arc<BrickLink>>,
    pub(crate) formation: Formation,
}

impl Bricks {
    /// These bricks, at least one, in the order of the volume. `drawn`: the id of the volume, where
    /// this gateway makes it.
    pub(crate) fn new(links: Vec<Arc<BrickLink>>, drawn: u128) -> Self {
        let formation = Formation::new(links.len(), drawn);
        Self { links, formation }
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Arc<BrickLink>] {
        &self.links
    }

    /// The one that has the root directory.
    pub(crate) fn first(&self) -> &Arc<BrickLink> {
        &self.links[0]
    }

    /// Whether there are several.
    pub(crate) fn are_several(&self) -> bool {
        self.links.len() > 1
    }

    /// The brick that has a file, and the attributes of a directory. Of what no brick has the first one
    /// is asked, which says so.
    pub(crate) fn of(&self, handle: &Handle) -> &Arc<BrickLink> {
        if !self.are_several() {
            return self.first();
        }
        self.numbered(member_of(handle).home())
    }

    /// The brick that knows whether there is such a name, and what it stands for.
    pub(crate) fn arbiter(&self, dir: &Handle, name: &[u8]) -> &Arc<BrickLink> {
        if !self.are_several() {
            return self.first();
        }
        self.numbered(arbiter(dir, name))
    }

    /// The bricks that may have names of a directory.
    pub(crate) fn holding(&self, dir: &Handle) -> Vec<&Arc<BrickLink>> {
        if !self.are_several() {
            return vec![self.first()];
        }
        let members = member_of(dir).members();
        let holding = |brick: &&Arc<BrickLink>| members.contains(brick.number as u8);
        let found: Vec<_> = self.links.iter().filter(holding).collect();
        if found.is_empty() { vec![self.first()] } else { found }
    }

    /// The brick that a request about a file goes to.
    pub(crate) fn of_request(&self, request: &Request) -> &Arc<BrickLink> {
        subject(request).map_or(self.first(), |handle| self.of(handle))
    }

    /// The brick of a number; the first where there is none such.
    pub(crate) fn numbered(&self, member: u8) -> &Arc<BrickLink> {
        self.links.get(usize::from(member)).unwrap_or(self.first())
    }

    /// When a request that is asked now must have its answer.
    pub(crate) fn deadline(&self) -> Instant {
        self.first().deadline()
    }

    /// The same for what may take long.
    pub(crate) fn long_deadline(&self) -> Instant {
        self.first().long_deadline()
    }

    /// A number for the lives of all bricks: another one once any of them was started again. 0 where
    /// the only one is away.
    pub(crate) fn life(&self) -> u64 {
        if !self.are_several() {
            return self.first().any().map_or(0, |session| session.life);
        }
        // Multiplication by an odd number, as FNV-1a does, keeps which life is whose.
        let mixed = |all: u64, brick: &Arc<BrickLink>| {
            (all ^ brick.last_life()).wrapping_mul(0x0000_0100_0000_01b3)
        };
        self.links.iter().fold(0xcbf2_9ce4_8422_2325, mixed)
    }

    /// The life of a brick in which a client asked for something first, by what the client knows of the
    /// lives of all: 0, which none has, where any was started again since.
    pub(crate) fn life_of(&self, member: u8, known: u64) -> u64 {
        let is_same = known == self.life();
        if is_same { self.numbered(member).last_life() } else { 0 }
    }

    /// Waits until it is known which life every brick is in, as far as they are there: for what is asked
    /// again of a gateway that has just been started.
    pub(crate) async fn meet(&self) {
        for brick in self.links.iter().filter(|brick| brick.last_life() == 0) {
            // What needs one that is away fails for that.
            let _ = brick.session(0, self.deadline()).await;
        }
    }

    /// How changes are noticed that others make on the bricks: as on the one that does it worst.
    pub(crate) fn notices(&self) -> Notices {
        let rank = |notices: &Notices| match notices {
            Notices::None => 0,
            Notices::Polling => 1,
            Notices::Fanotify => 2,
        };
        let there = self.links.iter().filter_map(|brick| brick.any());
        there.map(|session| session.notices).min_by_key(rank).unwrap_or(Notices::None)
    }
}
