//! What a member does alone: names that it arbitrates.

use std::os::fd::AsFd;

use portcullis_core::volume::{DirId, Duty, Named, Place, Pointer, Told, TxId};
use portcullis_core::{FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::fs::{AtFlags, Dir, Mode, RenameFlags, renameat_with, symlinkat, unlinkat};
use rustix::io::{Errno, Result as IoResult};
use tracing::warn;

use super::Asked;
use super::committing::Leaves;
use crate::caller::as_caller;
use crate::error::failure;
use crate::handles::Directory;
use crate::mutate::{self, Changes};
use crate::volume::Member;
use crate::volume::cards::Card;
use crate::volume::holds::Needed;
use crate::volume::noted::Check;
use crate::volume::records::Found;

/// The transaction of a seal of a directory that no other member knows of.
fn own_seal(id: &DirId) -> TxId {
    let [.., a, b, c, d, e, f, g, h] = *id.as_bytes();
    TxId { gateway: 0, number: u64::from_le_bytes([a, b, c, d, e, f, g, h]) }
}

impl Asked<'_> {
    pub(super) fn mkdir(
        &self,
        place: &Place,
        mode: u32,
        id: &DirId,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        let count = self.member.membership().count;
        if id.home() != self.member.number() || id.is_root() || id.layout() > count {
            let detail = "no id that a directory made here can have";
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        let dir = self.dir_to_make(place)?;
        let pointer = Pointer::Dir(*id);
        match self.find(&dir, place)?.and_then(|found| found.pointer()) {
            Some(found) if found == pointer => {}
            _ => self.make_dir(&dir, place, mode, id, changes)?,
        }
        let entry = self.handles().pointer_entry(&pointer, |_, _| {});
        Ok(Told::Made(self.told(entry)))
    }

    fn make_dir(
        &self,
        dir: &Directory,
        place: &Place,
        mode: u32,
        id: &DirId,
        changes: &mut Changes,
    ) -> Result<(), Failure> {
        if self.find(dir, place)?.is_some() {
            return Err(Status::Exists.into());
        }
        let copies = self.member.copies();
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.may_change(dir)?;
        copies
            .make_in(id, dir.fd.as_fd(), self.caller, mode)
            .map_err(|error| self.failed_in(dir, error))?;
        let named = self.name_dir(dir, place, id);
        if named.is_err() {
            // Nothing is in it yet.
            let _ = copies.remove(id);
        }
        named.map_err(|error| self.failed_in(dir, error))?;
        changes.name(place.dir, &place.name);
        Ok(())
    }

    fn name_dir(&self, dir: &Directory, place: &Place, id: &DirId) -> IoResult<()> {
        let copy = self.member.copies().open_copy(id)?;
        let card = Card { parent: Some(place.dir), ..Card::default() };
        self.member.cards().write(copy.as_fd(), &card)?;
        let target = Member::target_of(&Pointer::Dir(*id), |bytes| self.handles().tag(bytes));
        as_caller(self.caller, || symlinkat(&target[..], &dir.fd, &place.name[..]))
    }

    pub(super) fn unlink(
        &self,
        tx: TxId,
        place: &Place,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        if let Some(intent) = self.member.transactions().intent(tx) {
            return Ok(Told::Committed { duties: intent.duties });
        }
        let dir = self.dir_to_take(place)?;
        let found = self.find(&dir, place)?.ok_or(Status::NotFound)?;
        let (handle, duty) = match found.record.what {
            Named::Body { .. } => {
                let at = mutate::Place { dir: &place.dir, name: &place.name };
                self.mutator().unlink(self.caller, at, changes)?;
                return Ok(Told::Committed { duties: Vec::new() });
            }
            Named::Pointer(Pointer::Dir(_)) => return Err(Status::IsDirectory.into()),
            Named::Pointer(pointer @ Pointer::File { handle, link, .. }) => {
                (handle, Duty::RemoveBody { member: pointer.home(), link })
            }
        };
        let leaves = Leaves { duties: vec![duty], ..Leaves::default() };
        let noted = self.noted(tx, Check::NameGone(place.clone()), None, leaves);
        let unlink =
            || as_caller(self.caller, || unlinkat(&dir.fd, &place.name[..], AtFlags::empty()));
        let intent = self.commit_noted(noted, &[&dir], unlink)?;
        changes.name(place.dir, &place.name);
        changes.attr(handle);
        Ok(Told::Committed { duties: intent.duties })
    }

    pub(super) fn rmdir(&self, place: &Place, changes: &mut Changes) -> Result<Told, Failure> {
        let dir = self.dir_to_take(place)?;
        let found = self.find(&dir, place)?.ok_or(Status::NotFound)?;
        let id = match found.record.what {
            Named::Body { .. } => {
                let at = mutate::Place { dir: &place.dir, name: &place.name };
                self.mutator().rmdir(self.caller, at, changes)?;
                return Ok(Told::Done);
            }
            Named::Pointer(Pointer::File { .. }) => return Err(Status::NotDirectory.into()),
            Named::Pointer(Pointer::Dir(id)) => id,
        };
        if id.home() != self.member.number() {
            return Ok(Told::Elsewhere);
        }
        let copy = self.handles().directory(&id.handle())?;
        let card = self.member.cards().read(copy.fd.as_fd()).map_err(failure)?;
        let tx = own_seal(&id);
        let holds = self.member.holds();
        if !card.copies.is_empty() || !holds.try_seal(&id.handle(), tx, self.asker.session) {
            return Ok(Told::Elsewhere);
        }
        let removed = self.remove_dir(&dir, place, &copy, &id, changes);
        holds.keep(tx, &Needed::default());
        removed
    }

    /// Removes a directory of which nobody else has a copy, sealed here.
    fn remove_dir(
        &self,
        dir: &Directory,
        place: &Place,
        copy: &Directory,
        id: &DirId,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        // As it is since the seal.
        let card = self.member.cards().read(copy.fd.as_fd()).map_err(failure)?;
        if !card.copies.is_empty() {
            return Ok(Told::Elsewhere);
        }
        if !is_empty(self, copy).map_err(failure)? {
            return Err(Status::NotEmpty.into());
        }
        let unlink =
            || as_caller(self.caller, || unlinkat(&dir.fd, &place.name[..], AtFlags::empty()));
        unlink().map_err(|error| self.failed_in(dir, error))?;
        changes.name(place.dir, &place.name);
        self.remove_copy(id, changes)?;
        Ok(Told::Done)
    }

    pub(super) fn link(
        &self,
        handle: &Handle,
        place: &Place,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        self.check_arbiter(place)?;
        let at = mutate::Place { dir: &place.dir, name: &place.name };
        let entry = self.mutator().link(self.caller, handle, at, changes)?;
        Ok(Told::Made(self.told(entry)))
    }

    pub(super) fn rename(
        &self,
        tx: TxId,
        from: &Place,
        to: &Place,
        flags: u32,
        changes: &mut Changes,
    ) -> Result<Told, Failure> {
        if let Some(intent) = self.member.transactions().intent(tx) {
            return Ok(Told::Committed { duties: intent.duties });
        }
        let flags = RenameFlags::from_bits_retain(flags);
        let is_exchange = flags == RenameFlags::EXCHANGE;
        if !flags.is_empty() && !is_exchange && flags != RenameFlags::NOREPLACE {
            let detail = "of the flags of a rename only NOREPLACE and EXCHANGE are taken";
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        let from_dir = self.dir_to_take(from).map_err(|failure| match failure.status {
            Status::NoCopy => Status::NotFound.into(),
            _ => failure,
        })?;
        let to_dir = self.dir_to_make(to)?;
        let moved = self.find(&from_dir, from)?.ok_or(Status::NotFound)?;
        let other = self.find(&to_dir, to)?;
        match check_rename(from, to, &moved, other.as_ref(), flags)? {
            Course::Nothing => {
                return Ok(Told::Renamed { duties: Vec::new(), moved: Vec::new() });
            }
            Course::Elsewhere => return Ok(Told::Elsewhere),
            Course::Goes => {}
        }
        let rename = |_| {
            as_caller(self.caller, || {
                renameat_with(&from_dir.fd, &from.name[..], &to_dir.fd, &to.name[..], flags)
            })
        };
        let victim = other.as_ref().filter(|_| !is_exchange);
        let (at, to_at) = ((from, &from_dir), (to, &to_dir));
        let duties = self.move_record(tx, at, to_at, victim, Leaves::default(), rename)?;
        self.told_of_rename((from, &from_dir), (to, &to_dir), &moved, other.as_ref(), changes);
        let other = other.filter(|_| is_exchange);
        let renamed = std::iter::once(&moved).chain(&other);
        let moved = self.renamed_elsewhere(renamed, changes);
        Ok(Told::Renamed { duties, moved })
    }

    /// Of directories that have another name now: those at home here get their time, the others are told.
    fn renamed_elsewhere<'a>(
        &self,
        renamed: impl Iterator<Item = &'a Found>,
        changes: &mut Changes,
    ) -> Vec<DirId> {
        let dirs = renamed.filter_map(|found| found.record.what.spread());
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            dirs.partition(|id| id.home() == self.member.number());
        for id in here {
            if let Err(failure) = self.renamed(&id, changes) {
                warn!(%id, %failure, "a directory that was renamed keeps its time");
            }
        }
        elsewhere
    }

    /// What a rename made untrue, and where its files are since.
    pub(super) fn told_of_rename(
        &self,
        (from, from_dir): (&Place, &Directory),
        (to, to_dir): (&Place, &Directory),
        moved: &Found,
        other: Option<&Found>,
        changes: &mut Changes,
    ) {
        changes.name(from.dir, &from.name);
        changes.name(to.dir, &to.name);
        changes.attr(moved.record.what.handle());
        self.has_moved(to_dir, to, moved);
        if let Some(other) = other {
            changes.attr(other.record.what.handle());
            self.has_moved(from_dir, from, other);
        }
        if let Some(body) = other.and_then(|other| other.body.as_ref())
            && body.kind == FileKind::Directory
        {
            changes.removed_dir(body.handle);
        }
    }

    fn has_moved(&self, dir: &Directory, place: &Place, found: &Found) {
        if let Some(body) = &found.body {
            self.handles().moved(dir, &place.name, &body.handle, body.kind);
        }
    }
}

/// What comes of a rename on one member.
enum Course {
    Goes,
    /// Both names are of one file: they stay.
    Nothing,
    /// Other members are needed.
    Elsewhere,
}

fn check_rename(
    from: &Place,
    to: &Place,
    moved: &Found,
    other: Option<&Found>,
    flags: RenameFlags,
) -> Result<Course, Failure> {
    let (moved, other) = (moved.record.what, other.map(|other| other.record.what));
    let is_dir = |what: &Named| what.kind() == FileKind::Directory;
    let lies_whole = |what: &Named| is_dir(what) && what.spread().is_none();
    let gets_parent = from.dir != to.dir;
    let is_spread = |dir: &Handle| DirId::of_handle(dir).is_some();
    if flags == RenameFlags::EXCHANGE {
        let Some(other) = other else { return Err(Status::NotFound.into()) };
        if gets_parent && (moved.spread().is_some() || other.spread().is_some()) {
            return Err(Status::InvalidArgument.into());
        }
        let is_stuck = |what: &Named, dir: &Handle| lies_whole(what) && is_spread(dir);
        if gets_parent && (is_stuck(&moved, &to.dir) || is_stuck(&other, &from.dir)) {
            return Err(Status::CrossDevice.into());
        }
        return Ok(Course::Goes);
    }
    if let Some(other) = &other {
        if flags == RenameFlags::NOREPLACE {
            return Err(Status::Exists.into());
        }
        if moved.handle() == other.handle() {
            return Ok(Course::Nothing);
        }
        match (is_dir(&moved), is_dir(other)) {
            (true, false) => return Err(Status::NotDirectory.into()),
            (false, true) => return Err(Status::IsDirectory.into()),
            (true, true) if lies_whole(&moved) != lies_whole(other) => {
                return Err(Status::CrossDevice.into());
            }
            _ => {}
        }
    }
    if lies_whole(&moved) && gets_parent && is_spread(&to.dir) {
        return Err(Status::CrossDevice.into());
    }
    let moves_spread = moved.spread().is_some() && gets_parent;
    let replaces_spread = other.is_some_and(|other| other.spread().is_some());
    Ok(if moves_spread || replaces_spread { Course::Elsewhere } else { Course::Goes })
}

/// Whether a directory has no name at all.
pub(super) fn is_empty(asked: &Asked<'_>, dir: &Directory) -> IoResult<bool> {
    let list = asked.handles().export().open_for_list(dir.fd.as_fd())?;
    for entry in Dir::read_from(&list)? {
        match entry {
            Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
            Ok(_) => return Ok(false),
            // The directory was removed.
            Err(Errno::NOENT) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
