//! Who may take a name from a directory with the sticky bit: its owner, that of the file, and root.
//!
//! A brick judges by the owner of what it has under the name. Where that is a pointer, its owner is that
//! of the file when the pointer was made; since then the file may have been given away, where it lies. So
//! before a name is taken, its pointer gets the owner that the file has now.

use std::sync::Arc;

use portcullis_core::volume::{Ask, MemberId, Owner, Place, member_of};
use portcullis_core::{Attr, Handle};
use portcullis_wire::Reply;
use portcullis_wire::message::Mutation;

use crate::asks::Asks;
use crate::effects::names;
use crate::volume::Volume;

/// inode(7).
const STICKY_BIT: u32 = 0o1000;

impl Asks {
    /// Gives the pointers that a mutation takes their owners, where those decide whether it may.
    pub(crate) async fn own_pointers(&mut self, mutation: &Mutation) {
        let takes = matches!(
            mutation,
            Mutation::Unlink { .. } | Mutation::Rmdir { .. } | Mutation::Rename { .. }
        );
        if !takes || self.caller.uid == 0 {
            return;
        }
        for (dir, name) in names(mutation).into_iter().flatten() {
            let place = Place { dir, name: name.to_vec() };
            let volume = self.volume.clone();
            if let Some((handle, uid)) = volume.owner_of_pointer(&place, self.caller.uid).await {
                let member = place.arbiter();
                // Where it fails, the brick judges by what it knows.
                self.ask(member, Ask::Own { place, handle, uid }, None).await;
            }
        }
    }
}

impl Volume {
    /// What a name leads to that is a pointer in a directory with the sticky bit which is not the
    /// caller's, and the owner of that.
    async fn owner_of_pointer(
        self: &Arc<Self>,
        place: &Place,
        caller_uid: u32,
    ) -> Option<(Handle, u32)> {
        let dir = self.attributes(place.dir).await?;
        if dir.mode & STICKY_BIT == 0 || dir.uid == caller_uid {
            return None;
        }
        let Ok(Reply::Entry(entry)) = self.lookup(None, place.dir, place.name.clone()).await else {
            return None;
        };
        if !is_pointer(&entry.handle, place.arbiter()) {
            return None;
        }
        let attr = match entry.attr {
            Some(attr) => attr,
            None => self.attributes(entry.handle).await?,
        };
        Some((entry.handle, attr.uid))
    }

    async fn attributes(self: &Arc<Self>, handle: Handle) -> Option<Attr> {
        match self.getattr(None, handle).await {
            Ok(Reply::Attr(attr)) => Some(attr),
            // The operation itself meets the same.
            _ => None,
        }
    }
}

/// Whether the arbiter of a name has a pointer for it, and not the file itself.
fn is_pointer(handle: &Handle, arbiter: MemberId) -> bool {
    match member_of(handle) {
        Owner::Spread(_) => true,
        Owner::Member(member) => member != arbiter,
    }
}
