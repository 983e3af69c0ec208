//! Everything that a member is asked: each as [`Ask`] says. Blocks.
//!
//! - `names`: what one member does alone; `holding`: names that are held.
//! - `committing`: the change that commits; `promises`: what is prepared, finished and undone;
//!   `exchanging`: names that lead elsewhere while what they stood for stays.
//! - `directories`: copies of directories, and what they are like.
//!
//! Whoever calls has entered what is worked on ([`super::entering`]).

mod committing;
mod directories;
mod exchanging;
mod holding;
mod names;
mod promises;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use portcullis_core::volume::{Ask, DirId, Place, Told};
use portcullis_core::{Entry, Handle, Status};
use portcullis_wire::message::{Caller, Failure};
use rustix::io::Errno;

use super::Member;
use super::records::{self, Found};
use crate::answers::Asker;
use crate::error::failure;
use crate::handles::{Directory, Handles};
use crate::mutate::{Changes, Mutator};
use crate::name;
use crate::tree::Tree;

/// One thing that is asked.
pub(crate) struct Asked<'a> {
    tree: &'a Tree,
    member: &'a Arc<Member>,
    asker: &'a Asker,
    caller: &'a Caller,
}

/// Does what is asked. An entry that it tells is as it was found: watched by nobody.
pub(crate) fn apply(
    tree: &Tree,
    asker: &Asker,
    caller: &Caller,
    ask: Ask,
    changes: &mut Changes,
) -> Result<Told, Failure> {
    let Some(member) = tree.handles.member() else {
        let detail = "the brick is no member of a volume; join it first";
        return Err(Failure::new(Status::InvalidArgument, detail));
    };
    let asked = Asked { tree, member, asker, caller };
    let told = asked.apply(ask, changes);
    if asker.is_closed.load(Ordering::SeqCst) {
        // Its holds end with its session, also those that it took just now.
        member.holds().lose(asker.session);
    }
    told
}

impl Asked<'_> {
    fn apply(&self, ask: Ask, changes: &mut Changes) -> Result<Told, Failure> {
        match ask {
            Ask::Mkdir { place, mode, id } => self.mkdir(&place, mode, &id, changes),
            Ask::Unlink { tx, place } => taking(self.unlink(tx, &place, changes)),
            Ask::Rmdir { place } => taking(self.rmdir(&place, changes)),
            Ask::Rename { tx, from, to, flags } => self.rename(tx, &from, &to, flags, changes),
            Ask::Link { handle, place } => self.link(&handle, &place, changes),
            Ask::Hold { tx, place, purpose } => self.hold(tx, &place, purpose),
            Ask::HoldTree { tx } => self.hold_tree(tx),
            Ask::Prepare { tx, coordinator, part } => {
                taking(self.prepare(tx, coordinator, &part, changes))
            }
            Ask::Commit { tx, change, prepared, cause } => {
                self.commit(tx, &change, (prepared, cause), changes)
            }
            Ask::TakeOver { tx, cause } => self.take_over(tx, &cause),
            Ask::Finish { tx } => self.finish(tx, changes),
            Ask::Abort { tx } => self.abort(tx, changes),
            Ask::Settle { tx } => Ok(self.settle(tx)),
            Ask::Forget { tx, version } => self.forget(tx, version),
            Ask::RemoveBody { link } => self.remove_body(link, changes).map(|()| Told::Done),
            Ask::Parent { id } => self.parent(&id),
            Ask::ExpectCopy { id } => self.expect_copy(&id),
            Ask::Enlist { id, member } => self.enlist(&id, member, changes),
            Ask::MakeCopy { id, ticket, attr } => self.make_copy(&id, ticket, &attr, changes),
            Ask::Mark { tx, id } => self.mark(tx, &id),
            Ask::ReadCopy { id } => self.read_copy(&id),
            Ask::SetCopy { id, attr } => self.set_copy(&id, &attr, changes),
            Ask::Touch { id } => self.touch(&id, changes),
            Ask::Renamed { id } => self.renamed(&id, changes),
            Ask::Own { place, handle, uid } => self.own(&place, &handle, uid),
        }
    }

    fn handles(&self) -> &Handles {
        &self.tree.handles
    }

    fn mutator(&self) -> &Mutator {
        &self.tree.mutator
    }

    /// Whether this member arbitrates a name.
    fn check_arbiter(&self, place: &Place) -> Result<(), Failure> {
        check_arbiter(self.handles(), &place.dir, &place.name)
    }

    /// The directory of a name that is to be made.
    fn dir_to_make(&self, place: &Place) -> Result<Directory, Failure> {
        name::check_new(self.handles(), &place.dir, &place.name)?;
        self.dir_of(place)
    }

    /// The directory of a name that is to be there.
    fn dir_to_take(&self, place: &Place) -> Result<Directory, Failure> {
        name::check_known(self.handles(), &place.dir, &place.name)?;
        self.dir_of(place)
    }

    fn dir_of(&self, place: &Place) -> Result<Directory, Failure> {
        self.check_arbiter(place)?;
        self.handles().directory(&place.dir)
    }

    /// What a name is in a directory.
    fn find(&self, dir: &Directory, place: &Place) -> Result<Option<Found>, Failure> {
        match records::find(self.handles(), dir, &place.name) {
            Ok(None) if self.handles().export().is_removed(dir.fd.as_fd()) => {
                Err(Status::Stale.into())
            }
            found => found.map_err(failure),
        }
    }

    /// A spread directory whose home this is.
    fn at_home(&self, id: &DirId) -> Result<Directory, Failure> {
        if id.home() != self.member.number() {
            return Err(Failure::new(Status::InvalidArgument, "the directory has another home"));
        }
        self.handles().directory(&id.handle())
    }

    /// What is answered where an operation on a name of `dir` failed.
    fn failed_in(&self, dir: &Directory, error: Errno) -> Failure {
        self.mutator().failed_in(dir, error)
    }

    /// An entry as it is told to the one who asked.
    fn told(&self, entry: Entry) -> Entry {
        crate::mutations::told(self.tree, self.asker, entry)
    }
}

/// Whether this brick arbitrates a name; any brick that is no member does.
pub(crate) fn check_arbiter(handles: &Handles, dir: &Handle, name: &[u8]) -> Result<(), Failure> {
    match handles.member() {
        Some(member) if portcullis_core::volume::arbiter(dir, name) != member.number() => {
            let detail = "another member of the volume has this name";
            Err(Failure::new(Status::InvalidArgument, detail))
        }
        _ => Ok(()),
    }
}

/// Where there is no copy of a directory there is no name that could be taken.
fn taking(told: Result<Told, Failure>) -> Result<Told, Failure> {
    told.map_err(|failure| match failure.status {
        Status::NoCopy => Status::NotFound.into(),
        _ => failure,
    })
}
