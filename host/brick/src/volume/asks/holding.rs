//! Names that are held for a transaction, and what its caller needs to be permitted.

use std::os::fd::AsFd;

use portcullis_core::volume::{Place, Purpose, Record, Told, TxId};
use portcullis_core::{Handle, Status};
use portcullis_wire::message::Failure;
use rustix::fs::{Access, AtFlags, CWD, Gid, Uid, accessat, chownat};

use super::Asked;
use crate::attr::stat;
use crate::caller::{as_caller, changes_identity};
use crate::error::failure;
use crate::export::proc_path;
use crate::handles::Directory;
use crate::volume::holds::tree_of;
use crate::volume::records::Found;

impl Asked<'_> {
    pub(super) fn hold(&self, tx: TxId, place: &Place, purpose: Purpose) -> Result<Told, Failure> {
        let dir = match purpose {
            Purpose::Take => self.dir_to_take(place).map_err(|failure| match failure.status {
                Status::NoCopy => Status::NotFound.into(),
                _ => failure,
            })?,
            Purpose::Make | Purpose::Replace => self.dir_to_make(place)?,
        };
        let record = self.find(&dir, place)?.map(|found| found.record);
        match (purpose, &record) {
            (Purpose::Take, None) => return Err(Status::NotFound.into()),
            (Purpose::Make, Some(_)) => return Err(Status::Exists.into()),
            (Purpose::Take | Purpose::Replace, Some(record)) => self.may_take(&dir, record)?,
            (Purpose::Make | Purpose::Replace, None) => self.may_change(&dir)?,
        }
        let name = (place.dir, place.name.clone());
        self.member.holds().hold(&name, tx, self.asker.session)?;
        Ok(Told::Record(record))
    }

    pub(super) fn hold_tree(&self, tx: TxId) -> Result<Told, Failure> {
        if self.member.number() != 0 {
            return Err(Failure::new(Status::InvalidArgument, "member 0 holds the tree"));
        }
        let tree = tree_of(self.handles().root());
        self.member.holds().hold(&tree, tx, self.asker.session)?;
        Ok(Told::Done)
    }

    /// A pointer gets the owner of what it leads to.
    pub(super) fn own(&self, place: &Place, handle: &Handle, uid: u32) -> Result<Told, Failure> {
        let dir = self.dir_to_take(place)?;
        let found = self.find(&dir, place)?;
        let is_it = |found: &Found| {
            let Record { what, uid: owner } = found.record;
            found.pointer().is_some() && what.handle() == *handle && owner != uid
        };
        if changes_identity() && found.as_ref().is_some_and(is_it) {
            let (name, owner) = (&place.name[..], Some(Uid::from_raw(uid)));
            let chown = chownat(&dir.fd, name, owner, None::<Gid>, AtFlags::SYMLINK_NOFOLLOW);
            chown.map_err(failure)?;
        }
        Ok(Told::Done)
    }

    /// Whether the caller may make names in a directory and take them.
    pub(super) fn may_change(&self, dir: &Directory) -> Result<(), Failure> {
        self.may(dir, Access::WRITE_OK | Access::EXEC_OK)
    }

    /// Whether the caller may write to a directory.
    pub(super) fn may_write(&self, dir: &Directory) -> Result<(), Failure> {
        self.may(dir, Access::WRITE_OK)
    }

    /// Whether the caller may take a name, by what it stands for: in a directory with the sticky bit
    /// only the owner of either does, and root.
    pub(super) fn may_take(&self, dir: &Directory, record: &Record) -> Result<(), Failure> {
        self.may_change(dir)?;
        let attr = stat(dir.fd.as_fd()).map_err(failure)?.attr();
        let uid = self.caller.uid;
        let is_sticky = attr.mode & libc::S_ISVTX != 0 && changes_identity();
        if is_sticky && uid != 0 && uid != attr.uid && uid != record.uid {
            return Err(Status::NotPermitted.into());
        }
        Ok(())
    }

    fn may(&self, dir: &Directory, access: Access) -> Result<(), Failure> {
        // Asked of the identity that files are reached by, which is the caller's meanwhile.
        let path = proc_path(dir.fd.as_fd());
        let ask = || as_caller(self.caller, || accessat(CWD, &path, access, AtFlags::EACCESS));
        ask().map_err(failure)
    }
}
