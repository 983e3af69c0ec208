//! The change that commits a transaction: noted, done, and left as an intent.

use std::os::fd::AsFd;

use portcullis_core::volume::{
    Before, Cause, Change, DirId, Duty, Intent, MemberSet, Named, Place, Pointer, Told, TxId,
};
use portcullis_core::{FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::fs::{AtFlags, RenameFlags, renameat_with, unlinkat};
use rustix::io::{Errno, Result as IoResult};
use tracing::warn;

use super::Asked;
use crate::error::failure;
use crate::handles::Directory;
use crate::mutate::Changes;
use crate::volume::noted::{Check, Noted};
use crate::volume::records::{self, Found};
use crate::volume::transactions::sync_dir;

/// A name, and its directory.
pub(super) type At<'a> = (&'a Place, &'a Directory);

/// What a commit leaves beside what it replaces.
#[derive(Default)]
pub(super) struct Leaves {
    pub(super) held: Vec<Place>,
    pub(super) duties: Vec<Duty>,
    pub(super) cause: Option<Cause>,
}

impl Asked<'_> {
    pub(super) fn commit(
        &self,
        tx: TxId,
        change: &Change,
        (prepared, cause): (MemberSet, Option<Cause>),
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        if let Some(intent) = self.member.transactions().intent(tx) {
            return Ok(Told::Committed { duties: intent.duties });
        }
        if let Some(cause) = &cause {
            let outcomes = self.tree.outcomes.lock();
            if outcomes.is_committed(cause, tx) {
                // And forgotten since: all is done.
                return Ok(Told::Committed { duties: Vec::new() });
            }
            if !outcomes.may_commit(cause, tx) {
                return Ok(Told::NotHeld);
            }
        }
        let places = match change {
            Change::Place { place, .. } | Change::Swap { place, .. } | Change::Remove { place } => {
                vec![place]
            }
            Change::Move { from, to, .. } => vec![from, to],
        };
        let holds = self.member.holds();
        if !places.iter().all(|place| holds.is_held(&(place.dir, place.name.clone()), tx)) {
            return Ok(Told::NotHeld);
        }
        let duties: Vec<Duty> = prepared.iter().map(|member| Duty::Finish { member }).collect();
        let held = match change {
            Change::Place { place, .. }
            | Change::Swap { place, .. }
            | Change::Move { to: place, .. } => vec![place.clone()],
            Change::Remove { .. } => Vec::new(),
        };
        let leaves = Leaves { held, duties, cause };
        let duties = match change {
            Change::Place { place, pointer, uid, replaced } => {
                self.place(tx, place, (pointer, *uid), *replaced, leaves, changes)?
            }
            Change::Swap { place, pointer, uid, replaced, link } => {
                self.swap(tx, place, (pointer, *uid), (*replaced, *link), leaves, changes)?
            }
            Change::Move { from, to, replaced } => {
                self.move_held(tx, from, to, *replaced, leaves, changes)?
            }
            Change::Remove { place } => self.remove_dir_name(tx, place, leaves, changes)?,
        };
        if let Some(cause) = &cause {
            self.tree.outcomes.lock().commit(cause, tx);
        }
        Ok(Told::Committed { duties })
    }

    pub(super) fn take_over(&self, tx: TxId, cause: &Cause) -> Result<Told, Failure> {
        let committed = match self.tree.outcomes.lock().take_over(cause, tx) {
            Before::TakenOver => None,
            Before::Committed(by) => Some(by),
            Before::Unknown => {
                let detail = "the brick that knew whether it was applied was restarted meanwhile; look \
                              before you repeat it";
                return Err(Failure::new(Status::InDoubt, detail));
            }
        };
        let duties = |by| {
            let intent = self.member.transactions().intent(by);
            (by, intent.map(|intent| intent.duties).unwrap_or_default())
        };
        Ok(Told::TakenOver { committed: committed.map(duties) })
    }

    fn place(
        &self,
        tx: TxId,
        place: &Place,
        (pointer, uid): (&Pointer, u32),
        replaced: Option<Handle>,
        leaves: Leaves,
        changes: &mut Changes,
    ) -> Result<Vec<Duty>, Failure> {
        let dir = self.dir_to_make(place)?;
        let victim = self.find_replaced(&dir, place, replaced)?;
        let new = Named::Pointer(*pointer);
        if let Some(victim) = &victim {
            may_replace(&new, &victim.record.what)?;
        }
        let duties = match *pointer {
            Pointer::File { handle, kind, link } if pointer.home() == self.member.number() => {
                let noted = self.noted(tx, Check::LinkGone(link), victim.as_ref(), leaves);
                let bodies = self.member.bodies();
                let path = records::body_path(link);
                let is_same = victim.as_ref().is_some_and(|it| it.record.what.handle() == handle);
                let duties = self.commit_noted(noted, &[&dir], || {
                    if is_same {
                        // rename(2) between two names of one file does nothing.
                        return unlinkat(bodies.dir(), &path, AtFlags::empty());
                    }
                    self.replacing(victim.as_ref(), |flags| {
                        let name = &place.name[..];
                        renameat_with(bodies.dir(), &path, &dir.fd, name, flags)
                    })
                })?;
                self.handles().moved(&dir, &place.name, &handle, kind);
                duties.duties
            }
            _ => {
                let check = Check::NameIs(place.clone(), *pointer);
                let noted = self.noted(tx, check, victim.as_ref(), leaves);
                let aside = format!("{:032x}-{:016x}", tx.gateway, tx.number);
                records::make_aside(self.handles(), self.member, &aside, pointer, uid)
                    .map_err(failure)?;
                let new_dir = self.member.copies().new_dir();
                let committed = self.commit_noted(noted, &[&dir], || {
                    self.replacing(victim.as_ref(), |flags| {
                        renameat_with(new_dir, &aside, &dir.fd, &place.name[..], flags)
                    })
                });
                if committed.is_err() {
                    // The next start removes what is left.
                    let _ = unlinkat(new_dir, &aside, AtFlags::empty());
                }
                committed?.duties
            }
        };
        changes.name(place.dir, &place.name);
        changes.attr(new.handle());
        replaced.into_iter().for_each(|handle| changes.attr(handle));
        Ok(duties)
    }

    fn move_held(
        &self,
        tx: TxId,
        from: &Place,
        to: &Place,
        replaced: Option<Handle>,
        leaves: Leaves,
        changes: &mut Changes,
    ) -> Result<Vec<Duty>, Failure> {
        let from_dir = self.dir_to_take(from)?;
        let to_dir = self.dir_to_make(to)?;
        let moved = self.find(&from_dir, from)?.ok_or(Status::Busy)?;
        let victim = self.find_replaced(&to_dir, to, replaced)?;
        self.may_take(&from_dir, &moved.record)?;
        if let Some(victim) = &victim {
            may_replace(&moved.record.what, &victim.record.what)?;
        }
        let lies_whole =
            moved.record.what.kind() == FileKind::Directory && moved.record.what.spread().is_none();
        if lies_whole && from.dir != to.dir && DirId::of_handle(&to.dir).is_some() {
            return Err(Status::CrossDevice.into());
        }
        let (at, to_at) = ((from, &from_dir), (to, &to_dir));
        let duties = self.move_record(tx, at, to_at, victim.as_ref(), leaves, |flags| {
            renameat_with(&from_dir.fd, &from.name[..], &to_dir.fd, &to.name[..], flags)
        })?;
        self.told_of_rename(at, to_at, &moved, victim.as_ref(), changes);
        Ok(duties)
    }

    fn remove_dir_name(
        &self,
        tx: TxId,
        place: &Place,
        leaves: Leaves,
        changes: &mut Changes,
    ) -> Result<Vec<Duty>, Failure> {
        let dir = self.dir_to_take(place)?;
        let found = self.find(&dir, place)?.ok_or(Status::Busy)?;
        let Some(id) = found.record.what.spread() else { return Err(Status::Busy.into()) };
        let noted = self.noted(tx, Check::NameGone(place.clone()), None, leaves);
        let intent = self.commit_noted(noted, &[&dir], || {
            unlinkat(&dir.fd, &place.name[..], AtFlags::empty())
        })?;
        changes.name(place.dir, &place.name);
        changes.removed_dir(id.handle());
        Ok(intent.duties)
    }

    /// Moves a record by `rename`, which is given the flags for it. Where that needs no other member
    /// to know, nothing is noted.
    pub(super) fn move_record(
        &self,
        tx: TxId,
        (from, from_dir): At<'_>,
        (_, to_dir): At<'_>,
        victim: Option<&Found>,
        leaves: Leaves,
        rename: impl FnOnce(RenameFlags) -> IoResult<()>,
    ) -> Result<Vec<Duty>, Failure> {
        let is_held = !leaves.duties.is_empty();
        let noted = self.noted(tx, Check::NameGone(from.clone()), victim, leaves);
        if noted.intent.duties.is_empty() && !is_held {
            let renamed = self.replacing(victim, rename);
            renamed.map_err(|error| self.failed_in(from_dir, error))?;
            self.member.holds().keep(tx, &self.member.transactions().needed(tx));
            return Ok(Vec::new());
        }
        let dirs = [from_dir, to_dir];
        let intent = self.commit_noted(noted, &dirs, || self.replacing(victim, rename))?;
        Ok(intent.duties)
    }

    /// A commit that replaces `victim`.
    pub(super) fn noted(
        &self,
        tx: TxId,
        check: Check,
        victim: Option<&Found>,
        leaves: Leaves,
    ) -> Noted {
        let Leaves { held, mut duties, cause } = leaves;
        if let Some(pointer @ Pointer::File { link, .. }) = victim.and_then(Found::pointer) {
            duties.push(Duty::RemoveBody { member: pointer.home(), link });
        }
        Noted { check, intent: Intent { tx, held, duties, cause } }
    }

    /// Does `rename` onto `victim`, or onto nothing. A body that is replaced is kept where it is open.
    fn replacing(
        &self,
        victim: Option<&Found>,
        rename: impl FnOnce(RenameFlags) -> IoResult<()>,
    ) -> IoResult<()> {
        match victim {
            None => rename(RenameFlags::NOREPLACE),
            Some(Found { body: Some(body), .. }) => {
                self.mutator().removing(body, || rename(RenameFlags::empty()))
            }
            Some(_) => rename(RenameFlags::empty()),
        }
    }

    /// Commits by `change`, which changes names of `dirs`.
    pub(super) fn commit_noted(
        &self,
        noted: Noted,
        dirs: &[&Directory],
        change: impl FnOnce() -> IoResult<()>,
    ) -> Result<Intent, Failure> {
        let tx = noted.intent.tx;
        let transactions = self.member.transactions();
        let committed = transactions.commit(noted, &self.asker.is_closed, || {
            change()?;
            // It is done from here on, and cannot be undone.
            for dir in dirs {
                if let Err(error) = sync_dir(dir.fd.as_fd()) {
                    warn!(%error, "a change may not outlive a crash of the machine");
                }
            }
            Ok(())
        });
        let intent = committed.map_err(|error| match error {
            Errno::EXIST => Status::Busy.into(),
            _ => failure(error),
        })?;
        self.member.holds().keep(tx, &transactions.needed(tx));
        Ok(intent)
    }

    /// What is to be replaced, if it is still that.
    pub(super) fn find_replaced(
        &self,
        dir: &Directory,
        place: &Place,
        replaced: Option<Handle>,
    ) -> Result<Option<Found>, Failure> {
        let found = self.find(dir, place)?;
        if found.as_ref().map(|found| found.record.what.handle()) != replaced {
            return Err(Failure::new(Status::Busy, "the name stands for something else by now"));
        }
        match &found {
            Some(found) => self.may_take(dir, &found.record)?,
            None => self.may_change(dir)?,
        }
        Ok(found)
    }
}

/// Whether one thing may take the place of another, as rename(2) has it; a directory that lies on one
/// member as a whole is replaced by its like only.
fn may_replace(new: &Named, old: &Named) -> Result<(), Failure> {
    let is_dir = |what: &Named| what.kind() == FileKind::Directory;
    match (is_dir(new), is_dir(old)) {
        (true, false) => Err(Status::NotDirectory.into()),
        (false, true) => Err(Status::IsDirectory.into()),
        (true, true) if new.spread().is_some() != old.spread().is_some() => {
            Err(Status::CrossDevice.into())
        }
        _ => Ok(()),
    }
}
