//! Waiting for one's turn, before anything blocks: every operation on names of a member, on the
//! attributes of a spread directory or on a transaction enters what it works on.

use std::sync::Arc;

use portcullis_core::Handle;
use portcullis_core::volume::{Ask, Cause, Change, DirId, Duty, Place, Preparation, TxId};
use portcullis_wire::message::{Failure, Mutation};

use super::Member;
use super::holds::{Entered, NameOf, attributes_of, parent_of, tree_of, turn_of};

/// Waits until `mutation` may begin; `InUse` where that takes too long. What it enters is left when
/// the answer is dropped.
pub(crate) async fn enter(
    member: &Arc<Member>,
    root: &Handle,
    session: u64,
    mutation: &Mutation,
) -> Result<Option<Entered>, Failure> {
    let (names, tx) = match mutation {
        Mutation::Volume(ask) => asked(member, root, ask),
        other => (ordinary(other), None),
    };
    if names.is_empty() {
        return Ok(None);
    }
    let entered = member.holds().enter(names, tx).await?;
    if let Mutation::Volume(Ask::Prepare { tx, part: Preparation::Seal { id }, .. }) = mutation {
        // Whoever is at work there needs no turn of this transaction.
        member.holds().seal(&id.handle(), *tx, session).await?;
    }
    Ok(Some(entered))
}

/// What an operation works on that is one brick's alone.
fn ordinary(mutation: &Mutation) -> Vec<NameOf> {
    match mutation {
        Mutation::Create { dir, name, .. }
        | Mutation::Mknod { dir, name, .. }
        | Mutation::Symlink { dir, name, .. }
        | Mutation::Link { dir, name, .. } => vec![(*dir, name.clone())],
        Mutation::Setattr { handle, .. }
        | Mutation::Setxattr { handle, .. }
        | Mutation::Removexattr { handle, .. }
            if DirId::of_handle(handle).is_some() =>
        {
            vec![attributes_of(handle)]
        }
        _ => Vec::new(),
    }
}

/// What a part of a change works on, and for which transaction.
fn asked(member: &Member, root: &Handle, ask: &Ask) -> (Vec<NameOf>, Option<TxId>) {
    let of = |place: &Place| (place.dir, place.name.clone());
    let in_turn = |tx: &TxId, names: Vec<NameOf>| {
        let turn = turn_of(root, *tx);
        ([vec![turn], names].concat(), Some(*tx))
    };
    match ask {
        Ask::Mkdir { place, .. } | Ask::Rmdir { place } | Ask::Link { place, .. } => {
            (vec![of(place)], None)
        }
        Ask::Unlink { tx, place } | Ask::Hold { tx, place, .. } => in_turn(tx, vec![of(place)]),
        Ask::Rename { tx, from, to, .. } => in_turn(tx, vec![of(from), of(to)]),
        Ask::HoldTree { tx } => in_turn(tx, vec![tree_of(root)]),
        Ask::Prepare { tx, part, .. } => match part {
            Preparation::Leave { place, .. } | Preparation::Replace { place, .. } => {
                in_turn(tx, vec![of(place)])
            }
            Preparation::Reparent { id, .. } => in_turn(tx, vec![parent_of(id)]),
            Preparation::Link { .. } | Preparation::Seal { .. } => in_turn(tx, Vec::new()),
        },
        Ask::Commit { tx, change, cause, .. } => {
            let mut names = match change {
                Change::Place { place, .. }
                | Change::Swap { place, .. }
                | Change::Remove { place } => vec![of(place)],
                Change::Move { from, to, .. } => vec![of(from), of(to)],
            };
            names.extend(cause.iter().map(|cause| cause_of(root, cause)));
            in_turn(tx, names)
        }
        Ask::TakeOver { tx, cause, .. } => in_turn(tx, vec![cause_of(root, cause)]),
        Ask::Own { place, .. } => (vec![of(place)], None),
        Ask::Forget { tx, version: Some(_) } => {
            let intent = member.transactions().intent(*tx);
            let refreshed =
                intent.iter().flat_map(|intent| &intent.duties).filter_map(|duty| match duty {
                    Duty::Refresh { id } => Some(attributes_of(&id.handle())),
                    _ => None,
                });
            in_turn(tx, refreshed.collect())
        }
        Ask::Finish { tx }
        | Ask::Abort { tx }
        | Ask::Settle { tx }
        | Ask::Forget { tx, version: None } => in_turn(tx, Vec::new()),
        Ask::Parent { id } => (vec![parent_of(id)], None),
        Ask::Enlist { id, .. } | Ask::ReadCopy { id } | Ask::ExpectCopy { id } => {
            (vec![attributes_of(&id.handle())], None)
        }
        Ask::Mark { tx, id } => in_turn(tx, vec![attributes_of(&id.handle())]),
        Ask::RemoveBody { .. } | Ask::MakeCopy { .. } | Ask::SetCopy { .. } => (Vec::new(), None),
        Ask::Touch { .. } | Ask::Renamed { .. } => (Vec::new(), None),
    }
}

/// What a transaction carries out: it is committed, or taken over, by one at a time.
fn cause_of(root: &Handle, cause: &Cause) -> NameOf {
    turn_of(root, TxId { gateway: cause.client, number: cause.number })
}
