//! What is done after a commit: duties, and then the coordinator forgets.
//!
//! Nothing here can be refused. What cannot be done now, since a member is away, stays in the
//! intent, and is done by whoever finds it there.

use super::{Call, End, Members, Told};
use crate::limits::COPY_TRIES_MAX;
use crate::status::Status;
use crate::volume::ask::Ask;
use crate::volume::id::DirId;
use crate::volume::member::{MemberId, MemberSet};
use crate::volume::transaction::{Duty, TxId};

/// What came of it.
pub(super) struct Completed {
    /// Members that have not finished what they prepared.
    pub(super) unfinished: MemberSet,
    /// Whether anything is left to do.
    pub(super) is_complete: bool,
    /// What is to be asked once the answer is on its way.
    pub(super) after: Vec<Call>,
}

impl Completed {
    /// The same, and then these.
    pub(super) fn and_then(mut self, calls: Vec<Call>) -> Self {
        self.after.extend(calls);
        self
    }

    /// The end of an operation that did what it was to do, whatever duties are left.
    pub(super) fn into_end(self) -> End {
        End { result: Ok(None), after: self.after }
    }
}

/// Does the duties of a committed transaction, together with calls that belong to it.
pub(super) async fn complete(
    members: &Members,
    tx: TxId,
    coordinator: MemberId,
    duties: Vec<Duty>,
    others: Vec<Call>,
) -> Completed {
    let mut completed =
        Completed { unfinished: MemberSet::EMPTY, is_complete: true, after: Vec::new() };
    let simple: Vec<(Duty, Call)> =
        duties.iter().filter_map(|duty| Some((*duty, call(*duty, tx)?))).collect();
    let calls = simple.iter().map(|(_, call)| call.clone()).chain(others).collect();
    let told = members.ask_all(calls).await;
    for ((duty, _), told) in simple.iter().zip(&told) {
        if *told != Told::Done {
            completed.is_complete = false;
            if let Duty::Finish { member } = duty {
                completed.unfinished = completed.unfinished.with(*member);
            }
        }
    }
    let refreshed = duties.iter().find_map(|duty| match duty {
        Duty::Refresh { id } => Some(*id),
        _ => None,
    });
    if let Some(id) = refreshed {
        // The intent of a refresh has no other duties, and the directory's home keeps it.
        completed.is_complete &= refresh(members, tx, id).await;
    } else if completed.is_complete && !duties.is_empty() {
        completed.after.push(Call { member: coordinator, ask: Ask::Forget { tx, version: None } });
    }
    completed
}

/// The duty as a question; a refresh is several.
fn call(duty: Duty, tx: TxId) -> Option<Call> {
    match duty {
        Duty::Finish { member } => Some(Call { member, ask: Ask::Finish { tx } }),
        Duty::RemoveBody { member, link } => Some(Call { member, ask: Ask::RemoveBody { link } }),
        Duty::Refresh { .. } => None,
    }
}

/// Gives the copies of a directory the attributes that it has at home; `false` where one does not
/// have them yet.
async fn refresh(members: &Members, tx: TxId, id: DirId) -> bool {
    for _ in 0..COPY_TRIES_MAX {
        let (version, calls) = match members.ask(id.home(), Ask::ReadCopy { id }).await {
            Told::Copy { attr, copies, .. } => {
                let set = |member| Call { member, ask: Ask::SetCopy { id, attr: attr.clone() } };
                (Some(attr.version), copies.iter().map(set).collect())
            }
            // Its copies went with it.
            Told::Failed(Status::Stale) => (None, Vec::new()),
            _ => return false,
        };
        if members.ask_all(calls).await.iter().any(|told| *told != Told::Done) {
            return false;
        }
        match members.ask(id.home(), Ask::Forget { tx, version }).await {
            Told::Changed => {}
            told => return told == Told::Done,
        }
    }
    false
}
