//! Copies of spread directories, and what they are like.

use std::os::fd::AsFd;

use portcullis_core::Status;
use portcullis_core::volume::{CopyAttr, DirId, Duty, Intent, MemberId, MemberSet, Told, TxId};
use portcullis_wire::message::Failure;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chownat, utimensat};

use super::Asked;
use crate::attr::stat;
use crate::error::failure;
use crate::handles::Directory;
use crate::mutate::Changes;
use crate::volume::copies::{give, like};

impl Asked<'_> {
    pub(super) fn parent(&self, id: &DirId) -> Result<Told, Failure> {
        let dir = self.at_home(id)?;
        let card = self.member.cards().read(dir.fd.as_fd()).map_err(failure)?;
        let detail = "the root has no parent";
        let none = || Failure::new(Status::InvalidArgument, detail);
        card.parent.map(Told::Parent).ok_or_else(none)
    }

    pub(super) fn expect_copy(&self, id: &DirId) -> Result<Told, Failure> {
        let mut tickets = self.member.tickets().turn();
        match self.handles().directory(&id.handle()) {
            Ok(_) => Ok(Told::Done),
            Err(failure) if failure.status == Status::NoCopy => Ok(Told::Ticket(tickets.give(id))),
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn enlist(
        &self,
        id: &DirId,
        member: MemberId,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        let dir = self.at_home(id)?;
        if !id.is_root() {
            let enlist = |card: &mut crate::volume::cards::Card| {
                card.copies = card.copies.with(member).without(self.member.number());
            };
            self.member.change_card(dir.fd.as_fd(), enlist).map_err(failure)?;
            let fd = self.handles().export().open_for_list(dir.fd.as_fd()).map_err(failure)?;
            rustix::fs::fsync(&fd).map_err(failure)?;
            // Whoever takes it for empty, and watches it only here, is told before it is not.
            changes.names(id.handle());
        }
        self.copy_of(id, &dir)
    }

    pub(super) fn make_copy(
        &self,
        id: &DirId,
        ticket: u64,
        attr: &CopyAttr,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        // Whoever seals it does so before it takes its turn here.
        let mut tickets = self.member.tickets().turn();
        match self.handles().directory(&id.handle()) {
            Ok(_) => return Ok(Told::Done),
            Err(failure) if failure.status == Status::NoCopy => {}
            Err(failure) => return Err(failure),
        }
        if !tickets.is_good(id, ticket) || self.member.holds().is_sealed(&id.handle()) {
            return Ok(Told::NoTicket);
        }
        self.member.copies().make(id, attr, self.member.cards()).map_err(failure)?;
        tickets.end(id);
        if let Some(watcher) = &self.asker.watcher {
            watcher.names(&self.handles().directory(&id.handle())?);
        }
        // Whoever was told that it has no name here was not yet told of what other programs do in it.
        changes.names(id.handle());
        Ok(Told::Done)
    }

    pub(super) fn mark(&self, tx: TxId, id: &DirId) -> Result<Told, Failure> {
        self.at_home(id)?;
        let duties = vec![Duty::Refresh { id: *id }];
        let intent = Intent { tx, held: Vec::new(), duties, cause: None };
        self.member.transactions().mark(intent, &self.asker.is_closed).map_err(failure)?;
        Ok(Told::Done)
    }

    pub(super) fn read_copy(&self, id: &DirId) -> Result<Told, Failure> {
        let dir = self.at_home(id)?;
        self.copy_of(id, &dir)
    }

    fn copy_of(&self, id: &DirId, dir: &Directory) -> Result<Told, Failure> {
        let card = self.member.cards().read(dir.fd.as_fd()).map_err(failure)?;
        let attr = like(dir.fd.as_fd(), card.version).map_err(failure)?;
        let stat = stat(dir.fd.as_fd()).map_err(failure)?.attr();
        let copies =
            if id.is_root() { id.members().without(self.member.number()) } else { card.copies };
        let stat = self.handles().told(&id.handle(), stat);
        Ok(Told::Copy { attr, stat, copies: MemberSet::of_bits(copies.bits()) })
    }

    pub(super) fn set_copy(
        &self,
        id: &DirId,
        attr: &CopyAttr,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        let mut tickets = self.member.tickets().turn();
        tickets.end(id);
        let dir = match self.handles().directory(&id.handle()) {
            Ok(dir) => dir,
            Err(failure) if matches!(failure.status, Status::NoCopy | Status::Stale) => {
                return Ok(Told::Done);
            }
            Err(failure) => return Err(failure),
        };
        let version = self.member.cards().read(dir.fd.as_fd()).map_err(failure)?.version;
        if attr.version > version {
            give(dir.fd.as_fd(), attr).map_err(failure)?;
            let set = |card: &mut crate::volume::cards::Card| card.version = attr.version;
            self.member.change_card(dir.fd.as_fd(), set).map_err(failure)?;
            changes.attr(id.handle());
        }
        Ok(Told::Done)
    }

    pub(super) fn touch(&self, id: &DirId, changes: &mut Changes) -> Result<Told, Failure> {
        let dir = match self.at_home(id) {
            Err(failure) if failure.status == Status::Stale => return Ok(Told::Done),
            dir => dir?,
        };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: omit, last_modification: now };
        utimensat(&dir.fd, c"", &times, AtFlags::EMPTY_PATH).map_err(failure)?;
        changes.attr(id.handle());
        Ok(Told::Done)
    }

    pub(super) fn renamed(&self, id: &DirId, changes: &mut Changes) -> Result<Told, Failure> {
        match self.at_home(id) {
            Err(failure) if failure.status == Status::Stale => {}
            dir => self.change_status(&dir?, changes)?,
        }
        Ok(Told::Done)
    }

    /// Gives a directory its time of last status change, and changes nothing else.
    pub(super) fn change_status(
        &self,
        dir: &Directory,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        chownat(&dir.fd, c"", None, None, AtFlags::EMPTY_PATH).map_err(failure)?;
        changes.attr(dir.handle);
        Ok(())
    }
}
