//! What a brick that is a member of a volume keeps beside its files, in one hidden directory in the
//! root of its export.
//!
//! ```text
//! .portcullis-volume/member        which member of which volume          stored
//!                   /dirs/5f/...   copies of spread directories           copies
//!                   /bodies/a0/... files whose names lie elsewhere        bodies
//!                   /new/          directories that are just being made   copies
//! ```
//! All of it is the brick's own: nothing of it is reached by a name, told, or made as a caller, except
//! that what lies in a copy is as it would be in any directory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use portcullis_core::Handle;
use portcullis_core::limits::BRICKS_MAX;
use portcullis_core::volume::{DirId, MemberId, MemberSet, Outcomes, Pointer};
use portcullis_wire::message::Membership;
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2};
use rustix::io::{Errno, Result};

use super::cards::{Card, Cards};
use super::copies::Copies;
use super::holds::Holds;
use super::records::was_done;
use super::shelves::Shelves;
use super::stored;
use super::tickets::Tickets;
use super::transactions::Transactions;
use crate::export::Export;
use crate::handles::Handles;

/// The hidden directory, in the root of the export.
pub(crate) const VOLUME_DIR: &[u8] = b".portcullis-volume";

/// In it, the files whose names lie elsewhere.
pub(super) const BODIES_DIR: &[u8] = b"bodies";

/// A brick's part of a volume.
pub(crate) struct Member {
    /// Only how many members there are changes.
    membership: RwLock<Membership>,
    number: MemberId,
    /// The handle of the root, where that is spread.
    root: Option<Handle>,
    dir: OwnedFd,
    copies: Copies,
    bodies: Shelves,
    cards: Cards,
    /// One at a time reads a card and changes it.
    changing_cards: Mutex<()>,
    tickets: Tickets,
    transactions: Transactions,
    holds: Arc<Holds>,
}

impl Member {
    /// The part that `export` was given earlier, if it was.
    pub(crate) fn find(export: &Export) -> Result<Option<Self>> {
        let dir = match open_dir(export.root(), VOLUME_DIR) {
            Err(Errno::NOENT) => return Ok(None),
            dir => dir?,
        };
        stored::load(dir.as_fd())?.map(|membership| Self::open(dir, membership)).transpose()
    }

    /// Gives `export` its part. It must not have one.
    pub(crate) fn found(export: &Export, membership: Membership) -> Result<Self> {
        make_dir(export.root(), VOLUME_DIR)?;
        let dir = open_dir(export.root(), VOLUME_DIR)?;
        let member = Self::open(dir, membership)?;
        stored::store(member.dir.as_fd(), &membership)?;
        Ok(member)
    }

    fn open(dir: OwnedFd, membership: Membership) -> Result<Self> {
        if !is_possible(&membership) {
            return Err(Errno::BADMSG);
        }
        // A root that is not spread is member 0's own.
        let root = DirId::root(membership.root_layout).filter(|_| membership.root_layout > 1);
        Ok(Self {
            number: membership.member,
            root: root.map(|id| id.handle()),
            copies: Copies::open(dir.as_fd())?,
            bodies: Shelves::open(dir.as_fd(), BODIES_DIR)?,
            cards: Cards::choose(dir.as_fd())?,
            changing_cards: Mutex::default(),
            tickets: Tickets::default(),
            transactions: Transactions::open(dir.as_fd())?,
            holds: Arc::default(),
            membership: RwLock::new(membership),
            dir,
        })
    }

    /// Its number.
    pub(crate) fn number(&self) -> MemberId {
        self.number
    }

    /// What it was told, as it is now.
    pub(crate) fn membership(&self) -> Membership {
        *self.membership.read()
    }

    /// The handle of the root, where that is spread over members.
    pub(crate) fn root(&self) -> Option<&Handle> {
        self.root.as_ref()
    }

    /// Whether this member has a copy of the root.
    pub(crate) fn has_root(&self) -> bool {
        self.number < self.membership.read().root_layout
    }

    /// So many members from now on, if that is more, and these have joined, too.
    pub(crate) fn grow(&self, count: u8, joined: MemberSet) -> Result<()> {
        let mut membership = self.membership.write();
        let count = membership.count.max(count);
        let joined = MemberSet::of_bits(membership.joined.bits() | joined.bits());
        let grown = Membership { count, joined, ..*membership };
        if grown != *membership {
            stored::store(self.dir.as_fd(), &grown)?;
            *membership = grown;
        }
        Ok(())
    }

    /// The copies of spread directories.
    pub(crate) fn copies(&self) -> &Copies {
        &self.copies
    }

    /// The files whose names lie elsewhere.
    pub(crate) fn bodies(&self) -> &Shelves {
        &self.bodies
    }

    /// Where cards are kept.
    pub(crate) fn cards(&self) -> Cards {
        self.cards
    }

    /// Changes the card of a copy.
    pub(crate) fn change_card(
        &self,
        copy: BorrowedFd<'_>,
        change: impl FnOnce(&mut Card),
    ) -> Result<Card> {
        let _turn = self.changing_cards.lock();
        let mut card = self.cards.read(copy)?;
        let before = card;
        change(&mut card);
        if card != before {
            self.cards.write(copy, &card)?;
        }
        Ok(card)
    }

    /// Permissions to make a copy.
    pub(crate) fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    /// Changes on several members.
    pub(crate) fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// What is held for them.
    pub(crate) fn holds(&self) -> &Arc<Holds> {
        &self.holds
    }

    /// Takes over what an earlier life of the brick left. To be called once the handles know that
    /// the brick is this member, and before anybody is answered.
    pub(crate) fn recover(&self, handles: &Handles) -> Result<()> {
        self.transactions.recover(|check| was_done(handles, self, check))?;
        for (tx, needed) in self.transactions.all_needed() {
            self.holds.add(tx, &needed);
        }
        Ok(())
    }

    /// What came of operations that it coordinated in earlier lives, as far as that is on disk.
    pub(crate) fn recover_outcomes(&self, outcomes: &mut Outcomes) {
        for (tx, cause) in self.transactions.causes() {
            outcomes.commit(&cause, tx);
        }
    }

    /// The hidden directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The pointer that a symbolic link with this target is, if its tag is right.
    pub(crate) fn pointer_in(target: &[u8], tag: impl FnOnce(&[u8]) -> u64) -> Option<Pointer> {
        let (payload, found) = Pointer::parse_target(target)?;
        if found != tag(&payload).to_le_bytes() {
            return None;
        }
        Pointer::of_payload(&payload)
    }

    /// The target of the symbolic link that is this pointer.
    pub(crate) fn target_of(pointer: &Pointer, tag: impl FnOnce(&[u8]) -> u64) -> Vec<u8> {
        let payload = pointer.to_payload();
        let tag = tag(&payload).to_le_bytes();
        Pointer::to_target(&payload, &tag)
    }
}

/// Whether there can be such a member.
pub(super) fn is_possible(membership: &Membership) -> bool {
    let Membership { volume: _, member, count, root_layout, joined } = *membership;
    usize::from(count) <= BRICKS_MAX
        && member < count
        && (1..=count).contains(&root_layout)
        && joined.bits() & !MemberSet::first(count).bits() == 0
}

/// An `O_PATH` descriptor of a directory of the brick's own.
pub(super) fn open_dir(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    openat2(dir, path, flags, Mode::empty(), resolve)
}

/// Makes a directory of the brick's own, unless it is there.
pub(super) fn make_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    match mkdirat(dir, name, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}
