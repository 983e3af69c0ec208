//! Names that lead elsewhere from now on, while what they stood for stays: the two halves of an exchange
//! between members, by which one commits and the other finishes.
//!
//! What must hold: at every moment the name stands for the one or the other, also after a crash; a body
//! has its hidden name before it loses the other; what is done again changes nothing.

use std::os::fd::AsFd;

use portcullis_core::volume::{Duty, LinkId, Named, Place, Pointer, TxId};
use portcullis_core::{Entry, FileKind, Handle, Status};
use portcullis_wire::message::Failure;
use rustix::fs::{AtFlags, linkat, renameat, unlinkat};
use rustix::io::{Errno, Result as IoResult};

use super::Asked;
use super::committing::Leaves;
use super::promises::gone_is_fine;
use crate::error::failure;
use crate::handles::Directory;
use crate::mutate::Changes;
use crate::volume::noted::Check;
use crate::volume::records::{self, Found};
use crate::volume::transactions::sync_dir;

impl Asked<'_> {
    /// Commits by what the coordinator's name leads to from now on.
    pub(super) fn swap(
        &self,
        tx: TxId,
        place: &Place,
        (pointer, uid): (&Pointer, u32),
        (replaced, link): (Handle, LinkId),
        leaves: Leaves,
        changes: &mut Changes,
    ) -> Result<Vec<Duty>, Failure> {
        let dir = self.dir_to_make(place)?;
        let found = self.find_replaced(&dir, place, Some(replaced))?;
        if found.as_ref().and_then(|found| found.body.as_ref()).is_some_and(is_dir) {
            return Err(Status::CrossDevice.into());
        }
        let new = target(pointer);
        let noted = self.noted(tx, Check::Swapped(place.clone(), new, link), None, leaves);
        let committed = self.commit_noted(noted, &[&dir], || {
            self.lead_elsewhere(tx, (place, &dir), found.as_ref(), (pointer, uid), link)
        });
        if committed.is_err()
            && let Ok(Some(found)) = self.find(&dir, place)
            && found.record.what.handle() == replaced
        {
            // It has its name yet, and nothing leads to the hidden one.
            let path = records::body_path(link);
            let _ = unlinkat(self.member.bodies().dir(), path, AtFlags::empty());
        }
        let intent = committed?;
        changes.name(place.dir, &place.name);
        changes.attr(new);
        changes.attr(replaced);
        Ok(intent.duties)
    }

    /// Does what was prepared for the other name.
    pub(super) fn finish_replace(
        &self,
        tx: TxId,
        place: &Place,
        (pointer, uid): (&Pointer, u32),
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
        let new = target(pointer);
        if found.as_ref().is_none_or(|found| found.record.what.handle() != new) {
            let replaced = found.as_ref().map(|found| found.record.what.handle());
            self.lead_elsewhere(tx, (place, &dir), found.as_ref(), (pointer, uid), link)
                .map_err(failure)?;
            replaced.into_iter().for_each(|handle| changes.attr(handle));
        }
        changes.name(place.dir, &place.name);
        changes.attr(new);
        sync_dir(dir.fd.as_fd()).map_err(failure)
    }

    /// Has a name lead elsewhere, in one step; before that a body gets a hidden name.
    fn lead_elsewhere(
        &self,
        tx: TxId,
        (place, dir): (&Place, &Directory),
        found: Option<&Found>,
        (pointer, uid): (&Pointer, u32),
        link: LinkId,
    ) -> IoResult<()> {
        let (bodies, name) = (self.member.bodies(), &place.name[..]);
        if let Some(body) = found.and_then(|found| found.body.as_ref()) {
            let part = bodies.part(records::body_part(link))?;
            match linkat(&dir.fd, name, &part, records::body_name(link), AtFlags::empty()) {
                Ok(()) | Err(Errno::EXIST) => {}
                linked => linked?,
            }
            sync_dir(part.as_fd())?;
            self.body_is_at(link, &body.handle, body.kind);
        }
        match *pointer {
            Pointer::File { handle, kind, link } if pointer.home() == self.member.number() => {
                renameat(bodies.dir(), records::body_path(link), &dir.fd, name)?;
                self.handles().moved(dir, name, &handle, kind);
            }
            _ => {
                let aside = format!("{:032x}-{:016x}", tx.gateway, tx.number);
                records::make_aside(self.handles(), self.member, &aside, pointer, uid)?;
                renameat(self.member.copies().new_dir(), &aside, &dir.fd, name)?;
            }
        }
        Ok(())
    }
}

fn is_dir(body: &Entry) -> bool {
    body.kind == FileKind::Directory
}

fn target(pointer: &Pointer) -> Handle {
    Named::Pointer(*pointer).handle()
}
