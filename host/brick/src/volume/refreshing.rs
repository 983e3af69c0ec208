//! Changes of what copies of a spread directory are to be like.

use std::os::fd::AsFd;

use portcullis_core::Status;
use portcullis_core::volume::DirId;
use portcullis_wire::message::{Failure, Mutation};

use super::{ACL_ACCESS, ACL_DEFAULT, Member};
use crate::error::failure;
use crate::handles::Handles;

impl Member {
    /// To be called before owner, mode or an access control list of a file is changed. Where that is
    /// a spread directory, somebody must have promised to tell its copies, and they are told that it
    /// is another since.
    pub(crate) fn check_refreshed(
        &self,
        handles: &Handles,
        mutation: &Mutation,
    ) -> Result<(), Failure> {
        let handle = match mutation {
            Mutation::Setattr { handle, set, .. }
                if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() =>
            {
                handle
            }
            Mutation::Setxattr { handle, name, .. } | Mutation::Removexattr { handle, name }
                if [ACL_ACCESS, ACL_DEFAULT].contains(&&name[..]) =>
            {
                handle
            }
            _ => return Ok(()),
        };
        let Some(id) = DirId::of_handle(handle) else { return Ok(()) };
        if id.home() != self.number() {
            return Err(Failure::new(Status::InvalidArgument, "the directory has another home"));
        }
        if !self.transactions().refreshes(&id) {
            let detail = "nobody has promised to tell the copies of the directory; mark it first";
            return Err(Failure::new(Status::Busy, detail));
        }
        let dir = handles.directory(handle)?;
        // Even where it is changed to nothing else, or not at all: that costs a word too many.
        let changed = self.change_card(dir.fd.as_fd(), |card| card.version += 1);
        changed.map(drop).map_err(failure)
    }
}
