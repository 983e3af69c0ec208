//! What somebody left unfinished on a member is brought to its end, whoever it was and however far
//! it had come. Two may do this at once, also while the one who began is still at it: each question
//! can be asked again, and a transaction ends one way only.

use super::completion::complete;
use super::{Members, Told};
use crate::status::Status;
use crate::volume::ask::Ask;
use crate::volume::member::MemberId;
use crate::volume::transaction::{TxId, Unfinished};

/// # Errors
///
/// `Unavailable` where something is left, since a member that is needed does not answer.
pub(super) async fn redo(
    members: &Members,
    member: MemberId,
    unfinished: Vec<Unfinished>,
) -> Result<(), Status> {
    let mut is_all_done = true;
    for unfinished in unfinished {
        is_all_done &= match unfinished {
            Unfinished::Prepared { tx, coordinator } => {
                settle(members, member, tx, coordinator).await
            }
            Unfinished::Committed { tx, duties } => {
                let completed = complete(members, tx, member, duties, Vec::new()).await;
                let told = members.ask_all(completed.after).await;
                completed.is_complete && told.iter().all(|told| *told == Told::Done)
            }
        };
    }
    if is_all_done { Ok(()) } else { Err(Status::Unavailable) }
}

/// Ends what a member has prepared in the way the coordinator says; `false` where it does not say.
async fn settle(members: &Members, member: MemberId, tx: TxId, coordinator: MemberId) -> bool {
    let ask = match members.ask(coordinator, Ask::Settle { tx }).await {
        Told::Settled { is_committed: true } => Ask::Finish { tx },
        Told::Settled { is_committed: false } => Ask::Abort { tx },
        _ => return false,
    };
    matches!(members.ask(member, ask).await, Told::Done | Told::Aborted { .. })
}
