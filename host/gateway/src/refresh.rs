//! Owner, mode and access control lists of a directory that is spread over bricks: changed at its
//! home, and then on every copy, so that each brick checks permissions alike.
//!
//! The home notes first that copies are to be refreshed. So where this gateway ends half way, another
//! one does it (`redo`).

use std::sync::Arc;

use portcullis_core::Status;
use portcullis_core::volume::steps::Operation;
use portcullis_core::volume::{Ask, DirId, Duty, Told};
use portcullis_core::watch::Change;
use portcullis_wire::message::{Caller, Failure, Mutation};

use crate::asks::Asks;
use crate::steps::Lead;
use crate::volume::Volume;

/// Access control lists, which every copy of a directory has.
const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// A directory whose copies are to be refreshed.
pub(crate) struct Marked {
    id: DirId,
    lead: Lead,
}

impl Volume {
    /// Notes at the home of a directory that a mutation is about to change what copies have too.
    pub(crate) async fn mark(
        self: &Arc<Self>,
        mutation: &Mutation,
    ) -> Result<Option<Marked>, Failure> {
        let Some(id) = self.bricks.are_several().then(|| refreshed(mutation)).flatten() else {
            return Ok(None);
        };
        let lead = self.lead();
        let mut asks = Asks::new(self, Caller::ROOT);
        match asks.ask(id.home(), Ask::Mark { tx: lead.tx, id }, None).await {
            Told::Done => Ok(Some(Marked { id, lead })),
            Told::Failed(status) => Err(asks.failure(status)),
            _ => Err(Failure::new(Status::Unavailable, asks.doubt().detail)),
        }
    }

    /// Refreshes the copies, and adds what that made untrue. What cannot be reached now is refreshed
    /// when it is back.
    pub(crate) async fn refresh(
        self: &Arc<Self>,
        marked: Option<Marked>,
        changes: &mut Vec<Change>,
    ) {
        let Some(Marked { id, lead }) = marked else { return };
        let mut asks = Asks::new(self, Caller::ROOT);
        let duties = vec![Duty::Refresh { id }];
        let operation = Operation::Complete { tx: lead.tx, coordinator: id.home(), duties };
        let end = asks.run(operation, None).await;
        asks.ask_all(end.after).await;
        changes.append(&mut asks.changes);
    }
}

/// The spread directory of which a mutation changes what its copies have too.
fn refreshed(mutation: &Mutation) -> Option<DirId> {
    match mutation {
        Mutation::Setattr { handle, set, .. } => {
            let changes_it = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
            DirId::of_handle(handle).filter(|_| changes_it)
        }
        Mutation::Setxattr { handle, name, .. } | Mutation::Removexattr { handle, name } => {
            DirId::of_handle(handle).filter(|_| ACL_NAMES.contains(&&name[..]))
        }
        _ => None,
    }
}
