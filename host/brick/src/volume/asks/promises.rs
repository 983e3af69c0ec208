//! What is promised for a transaction, and then finished or undone.

use std::os::fd::{AsFd, BorrowedFd};

use portcullis_core::volume::{
    DirId, Duty, LinkId, MemberId, MemberSet, Named, Place, Preparation, Record, Told, TxId,
};
use portcullis_core::{FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::fs::{AtFlags, CWD, linkat, renameat, unlinkat};
use rustix::io::Errno;
use tracing::warn;

use super::Asked;
use super::names::is_empty;
use crate::caller::as_caller;
use crate::error::failure;
use crate::export::proc_path;
use crate::handles::Directory;
use crate::mutate::Changes;
use crate::volume::member::{BODIES_DIR, VOLUME_DIR, open_dir};
use crate::volume::records;
use crate::volume::transactions::sync_dir;

impl Asked<'_> {
    pub(super) fn prepare(
        &self,
        tx: TxId,
        coordinator: MemberId,
        part: &Preparation,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        let known = self.member.transactions().prepared(tx);
        let is_known = known.is_some_and(|prepared| prepared.parts.contains(part));
        let checked = match part {
            Preparation::Leave { place, .. } | Preparation::Replace { place, .. } => {
                self.check_leave(place, is_known)
            }
            Preparation::Link { handle, .. } => self.check_link(handle, is_known),
            Preparation::Seal { id } => self.check_seal(id),
            Preparation::Reparent { id, .. } => {
                let dir = self.at_home(id);
                let may = |dir| if is_known { Ok(()) } else { self.may_write(&dir) };
                dir.and_then(may).map(|()| (None, MemberSet::EMPTY))
            }
        };
        let prepared = checked.and_then(|told| {
            let transactions = self.member.transactions();
            let promised = transactions.prepare(tx, coordinator, part, &self.asker.is_closed);
            promised.map_err(failure)?;
            self.member.holds().add(tx, &transactions.needed(tx));
            Ok(told)
        });
        let (record, copies) = match prepared {
            Ok(told) => told,
            Err(failure) => {
                if let Preparation::Seal { .. } = part {
                    self.give_up_seal(tx);
                }
                return Err(failure);
            }
        };
        if let Preparation::Link { handle, link } = part {
            // Promised first: a hidden name without a promise would stay for good.
            self.link_body(handle, *link)?;
            changes.attr(*handle);
        }
        Ok(Told::Prepared { record, copies })
    }

    fn check_leave(
        &self,
        place: &Place,
        is_known: bool,
    ) -> Result<(Option<Record>, MemberSet), Failure> {
        let dir = self.dir_to_take(place)?;
        let found = self.find(&dir, place)?.ok_or(Status::NotFound)?;
        if !is_known {
            self.may_take(&dir, &found.record)?;
        }
        Ok((Some(found.record), MemberSet::EMPTY))
    }

    fn check_link(
        &self,
        handle: &Handle,
        is_known: bool,
    ) -> Result<(Option<Record>, MemberSet), Failure> {
        let object = self.handles().object(handle)?;
        let kind = object.stat.kind();
        if kind == FileKind::Directory {
            return Err(Status::NotPermitted.into());
        }
        if !is_known && object.stat.nlink() == 0 && !self.tree.orphans.is_orphan(handle) {
            return Err(Status::NotFound.into());
        }
        let what = Named::Body { handle: *handle, kind };
        Ok((Some(Record { what, uid: object.stat.attr().uid }), MemberSet::EMPTY))
    }

    /// The directory is sealed by now; it was, or it is until this request is answered.
    fn check_seal(&self, id: &DirId) -> Result<(Option<Record>, MemberSet), Failure> {
        self.member.tickets().turn().end(id);
        let is_home = id.home() == self.member.number();
        let dir = match self.handles().directory(&id.handle()) {
            Err(failure) if failure.status == Status::NoCopy && !is_home => {
                return Ok((None, MemberSet::EMPTY));
            }
            dir => dir?,
        };
        if !is_empty(self, &dir).map_err(failure)? {
            return Err(Status::NotEmpty.into());
        }
        let card = self.member.cards().read(dir.fd.as_fd()).map_err(failure)?;
        Ok((None, if is_home { card.copies } else { MemberSet::EMPTY }))
    }

    /// A seal is not kept that was taken for a promise which could not be made.
    fn give_up_seal(&self, tx: TxId) {
        let holds = self.member.holds();
        let needed = self.member.transactions().needed(tx);
        holds.unseal_all_but(tx, &needed);
    }

    /// Gives a file a hidden name, unless it has that.
    fn link_body(&self, handle: &Handle, link: LinkId) -> Result<(), Failure> {
        let bodies = self.member.bodies();
        let (part, name) = (records::body_part(link), records::body_name(link));
        let part = bodies.part(part).map_err(failure)?;
        if crate::attr::stat_name(part.as_fd(), name.as_bytes()).is_ok() {
            return Ok(());
        }
        let object = self.handles().object(handle)?;
        let path = proc_path(object.fd.as_fd());
        // Made where the caller may, since the kernel asks whose links somebody may make.
        let aside = self.member.copies().new_dir();
        let make = || {
            let made = as_caller(self.caller, || {
                linkat(CWD, &path, aside, &name, AtFlags::SYMLINK_FOLLOW)
            });
            match made {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            }
        };
        self.tree.orphans.linking(handle, make).map_err(failure)?;
        renameat(aside, &name, &part, &name).map_err(failure)?;
        self.body_is_at(link, handle, object.stat.kind());
        sync_dir(part.as_fd()).map_err(failure)
    }

    /// The part of the hidden names that one lies in.
    fn body_dir(&self, link: LinkId) -> Result<Directory, Failure> {
        let part = format!("{:02x}", records::body_part(link));
        let handles = self.handles();
        let own = |dir: BorrowedFd<'_>, parent: Option<&Directory>, name: &[u8]| {
            handles.own_directory_in(parent, open_dir(dir, name)?, name)
        };
        let open = || {
            let volume = own(handles.export().root(), None, VOLUME_DIR)?;
            let bodies = own(volume.fd.as_fd(), Some(&volume), BODIES_DIR)?;
            own(bodies.fd.as_fd(), Some(&bodies), part.as_bytes())
        };
        open().map_err(failure)
    }

    /// A file has a hidden name now by which it can be found.
    pub(super) fn body_is_at(&self, link: LinkId, handle: &Handle, kind: FileKind) {
        if let Ok(dir) = self.body_dir(link) {
            self.handles().moved(&dir, records::body_name(link).as_bytes(), handle, kind);
        }
    }

    pub(super) fn finish(&self, tx: TxId, changes: &mut Changes) -> Result<Told, Failure> {
        let transactions = self.member.transactions();
        let prepared = transactions.prepared(tx);
        transactions.led(tx, &self.asker.is_closed);
        for part in prepared.iter().flat_map(|prepared| &prepared.parts) {
            match part {
                Preparation::Leave { place, link } => self.finish_leave(place, *link, changes)?,
                Preparation::Replace { place, pointer, uid, link } => {
                    self.finish_replace(tx, place, (pointer, *uid), *link, changes)?;
                }
                Preparation::Link { handle, .. } => changes.attr(*handle),
                Preparation::Seal { id } => self.remove_copy(id, changes)?,
                Preparation::Reparent { id, parent } => {
                    if let Some(dir) = gone_is_fine(self.at_home(id))? {
                        let parent = Some(*parent);
                        let change = self.member.change_card(dir.fd.as_fd(), |card| {
                            card.parent = parent;
                        });
                        change.map_err(failure)?;
                        sync_dir(dir.fd.as_fd()).map_err(failure)?;
                    }
                }
            }
        }
        if prepared.is_some() {
            transactions.end_prepared(tx).map_err(failure)?;
        }
        self.member.holds().keep(tx, &transactions.needed(tx));
        Ok(Told::Done)
    }

    fn finish_leave(
        &self,
        place: &Place,
        link: LinkId,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        let Some(dir) = gone_is_fine(self.handles().directory(&place.dir))? else {
            return Ok(());
        };
        let found = match self.find(&dir, place) {
            Err(failure) if failure.status == Status::Stale => return Ok(()),
            found => found?,
        };
        let Some(found) = found else { return Ok(()) };
        let handle = found.record.what.handle();
        match &found.body {
            None => unlinkat(&dir.fd, &place.name[..], AtFlags::empty()).map_err(failure)?,
            Some(body) => {
                let part = records::body_part(link);
                let part = self.member.bodies().part(part).map_err(failure)?;
                let name = records::body_name(link);
                renameat(&dir.fd, &place.name[..], &part, &name).map_err(failure)?;
                self.body_is_at(link, &handle, body.kind);
                sync_dir(part.as_fd()).map_err(failure)?;
            }
        }
        changes.name(place.dir, &place.name);
        changes.attr(handle);
        sync_dir(dir.fd.as_fd()).map_err(failure)
    }

    pub(super) fn abort(&self, tx: TxId, changes: &mut Changes) -> Result<Told, Failure> {
        let transactions = self.member.transactions();
        if transactions.intent(tx).is_some() {
            let detail = "the transaction is committed, and cannot be undone";
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        let prepared = transactions.prepared(tx);
        let was_prepared = prepared.is_some();
        for part in prepared.iter().flat_map(|prepared| &prepared.parts) {
            if let Preparation::Link { link, .. } = part {
                self.remove_body(*link, changes)?;
            }
        }
        if was_prepared {
            transactions.end_prepared(tx).map_err(failure)?;
        }
        let held = self.member.holds().keep(tx, &transactions.needed(tx));
        Ok(Told::Aborted { was_there: was_prepared || held })
    }

    pub(super) fn settle(&self, tx: TxId) -> Told {
        let transactions = self.member.transactions();
        let is_committed = transactions.intent(tx).is_some();
        if !is_committed {
            self.member.holds().keep(tx, &transactions.needed(tx));
        }
        Told::Settled { is_committed }
    }

    pub(super) fn forget(&self, tx: TxId, version: Option<u64>) -> Result<Told, Failure> {
        let transactions = self.member.transactions();
        let Some(intent) = transactions.intent(tx) else { return Ok(Told::Done) };
        if let Some(version) = version {
            for duty in &intent.duties {
                if let Duty::Refresh { id } = duty
                    && let Some(dir) = gone_is_fine(self.at_home(id))?
                    && self.member.cards().read(dir.fd.as_fd()).map_err(failure)?.version != version
                {
                    return Ok(Told::Changed);
                }
            }
        }
        transactions.forget(tx).map_err(failure)?;
        self.member.holds().keep(tx, &transactions.needed(tx));
        Ok(Told::Done)
    }

    pub(super) fn remove_body(&self, link: LinkId, changes: &mut Changes) -> Result<(), Failure> {
        let bodies = self.member.bodies();
        let path = records::body_path(link);
        let unlink = || unlinkat(bodies.dir(), &path, AtFlags::empty());
        // An interrupted link may have left it where it is made.
        let _ =
            unlinkat(self.member.copies().new_dir(), records::body_name(link), AtFlags::empty());
        let dir = match self.body_dir(link) {
            Err(failure) if failure.status == Status::NotFound => return Ok(()),
            dir => dir?,
        };
        let entry = match self.handles().entry(&dir, records::body_name(link).as_bytes()) {
            Err(Errno::NOENT) => return Ok(()),
            entry => entry.map_err(failure)?,
        };
        changes.attr(entry.handle);
        match self.mutator().removing(&entry, unlink) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failure(error)),
        }
    }

    /// The copy of a directory that was removed goes; what another program put there is kept.
    pub(super) fn remove_copy(&self, id: &DirId, changes: &mut Changes) -> Result<(), Failure> {
        let copies = self.member.copies();
        match copies.remove(id) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                warn!(%id, "another program made files in a directory that was just removed; they \
                            are in `lost` of the brick's hidden directory");
                copies.lose(self.member.dir(), id).map_err(failure)?;
            }
            removed => removed.map_err(failure)?,
        }
        self.member.tickets().turn().end(id);
        changes.removed_dir(id.handle());
        Ok(())
    }
}

/// A directory, if it is there.
pub(super) fn gone_is_fine<T>(dir: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match dir {
        Ok(dir) => Ok(Some(dir)),
        Err(failure) if matches!(failure.status, Status::NoCopy | Status::Stale) => Ok(None),
        Err(failure) => Err(failure),
    }
}
