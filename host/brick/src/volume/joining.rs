//! How a brick becomes a member of a volume: a gateway tells it which, once.
//!
//! What must hold: a brick that is a member is never made another one, or of another volume; a volume
//! grows and never shrinks.

use std::sync::Arc;

use portcullis_core::Status;
use portcullis_core::watch::Change;
use portcullis_wire::Reply;
use portcullis_wire::message::{Failure, Membership};
use rustix::fs::Dir;
use tracing::info;

use super::Member;
use super::member::is_possible;
use crate::error::{BrickError, failure};
use crate::handles::Handles;
use crate::name;
use crate::tree::Tree;

/// What a file system of its own has in its root.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Has the handles know which part of a volume the brick was given earlier, if it was.
pub(crate) fn find(handles: &Handles) -> Result<(), BrickError> {
    let export = handles.export();
    let found = Member::find(export).and_then(|member| {
        let Some(member) = member.map(Arc::new) else { return Ok(()) };
        handles.join(member.clone())?;
        let membership = member.membership();
        info!(number = membership.member, count = membership.count, "a member of a volume");
        member.recover(handles)
    });
    found.map_err(|error| BrickError::Volume {
        path: export.path().to_owned(),
        source: error.into(),
    })
}

/// Which part of a volume the brick is, from now on `membership` if there is one. Blocks.
pub(crate) fn join(tree: &Tree, membership: Option<Membership>) -> Result<Reply, Failure> {
    // One at a time: the second finds what the first was given.
    let _turn = tree.joining.lock();
    let handles = &tree.handles;
    match (membership, handles.member()) {
        (Some(wanted), Some(member)) => grow(member, &wanted)?,
        (Some(wanted), None) => found(tree, wanted)?,
        (None, _) => {}
    }
    let membership = handles.member().map(|member| member.membership());
    Ok(Reply::Joined { membership, has_files: has_files(handles).map_err(failure)? })
}

fn found(tree: &Tree, wanted: Membership) -> Result<(), Failure> {
    if !is_possible(&wanted) {
        let detail = format!("there is no member {} of {}", wanted.member, wanted.count);
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    let member = Member::found(tree.handles.export(), wanted).map_err(|error| {
        let failed = failure(error);
        let detail = format!("the brick cannot keep what a member of a volume keeps: {failed}");
        Failure::new(failed.status, detail)
    })?;
    tree.handles.join(Arc::new(member)).map_err(failure)?;
    info!(number = wanted.member, count = wanted.count, "a member of a volume from now on");
    // Whoever asked before that was told of other handles.
    tree.direct.forget_all();
    drop(tree.watching.begin_change(None, &[Change::All]));
    Ok(())
}

fn grow(member: &Member, wanted: &Membership) -> Result<(), Failure> {
    let known = member.membership();
    let refuse = |detail: String| Err(Failure::new(Status::InvalidArgument, detail));
    if wanted.volume != known.volume {
        return refuse(format!(
            "the brick is member {} of another volume, {:032x}",
            known.member, known.volume
        ));
    }
    if wanted.member != known.member || wanted.root_layout != known.root_layout {
        return refuse(format!(
            "the brick is member {} of its volume, not {}: name the bricks in the order in which \
             they were named first",
            known.member, wanted.member
        ));
    }
    if wanted.count < known.count || !is_possible(wanted) {
        return refuse(format!(
            "the volume has {} members, not {}: none can be left out",
            known.count, wanted.count
        ));
    }
    member.grow(wanted.count, wanted.joined).map_err(failure)
}

/// Whether somebody who looks at the root sees anything.
fn has_files(handles: &Handles) -> rustix::io::Result<bool> {
    let export = handles.export();
    for entry in Dir::read_from(export.open_for_list(export.root())?)? {
        let entry = entry?;
        let seen = entry.file_name().to_bytes();
        let is_usual = matches!(seen, b"." | b"..") || seen == LOST_AND_FOUND;
        if !is_usual && !name::is_own(seen) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Why somebody is not answered any more who joined the volume when it had fewer members.
pub(crate) fn outgrown(member: &Member) -> Failure {
    let count = member.membership().count;
    let detail = format!(
        "the volume has {count} bricks by now, more than this gateway was given: start it again, and \
         name all of them"
    );
    Failure::new(Status::Unavailable, detail)
}

/// Why somebody who did not join the volume is not answered.
pub(crate) fn not_joined(member: &Member) -> Failure {
    let Membership { member, count, volume, .. } = member.membership();
    let detail = format!(
        "this brick is member {member} of the {count} of volume {volume:032x}: name all of them to \
         the gateway, in order"
    );
    Failure::new(Status::InvalidArgument, detail)
}
