//! rename(2): the record moves, the file stays where it lies.
//!
//! One member's work where it arbitrates both names, unless a directory gets another parent or is
//! replaced. Else both names are held, what has to change elsewhere is prepared, and the arbiter of
//! the new name commits by placing the record; then the old name goes, within the same operation:
//! for a moment both are there, as rename(2) allows.
//!
//! Everybody takes what he needs in one order, so that nobody waits for each other in a circle:
//! names, by member, directory and name; the shape of the tree; parents; seals.
//!
//! A directory must not become its own ancestor. So a move to another parent is first prepared
//! where the directory is at home, and then the ancestors of the new parent are looked at: of two
//! moves that would make a circle together at least one meets what the other has prepared, and
//! waits.

use super::completion::{Completed, complete};
use super::copy::ask_with_copy;
use super::exchange::exchange;
use super::seal::seal;
use super::transaction::{Earlier, Transaction};
use super::{Call, End, Members, Told, touch};
use crate::attr::FileKind;
use crate::handle::Handle;
use crate::limits::DIR_DEPTH_MAX;
use crate::status::Status;
use crate::volume::ask::{Ask, Change, Purpose};
use crate::volume::id::DirId;
use crate::volume::member::{MemberId, Owner, member_of};
use crate::volume::record::{LinkId, Named, Pointer, Record};
use crate::volume::transaction::{Place, Preparation, TxId};

/// renameat2(2).
const RENAME_NOREPLACE: u32 = 1;
/// renameat2(2).
const RENAME_EXCHANGE: u32 = 2;

/// Old and new name.
#[derive(Clone)]
pub(super) struct Names {
    pub(super) from: Place,
    pub(super) to: Place,
}

/// What old and new name stand for.
struct Records {
    from: Record,
    to: Option<Record>,
    /// What the old name loses is prepared.
    is_leaving: bool,
}

pub(super) async fn rename(
    members: &Members,
    tx: TxId,
    names: Names,
    flags: u32,
    link: LinkId,
) -> End {
    let is_exchange = flags == RENAME_EXCHANGE;
    if !matches!(flags, 0 | RENAME_NOREPLACE | RENAME_EXCHANGE) {
        return Status::InvalidArgument.into();
    }
    let (from, to) = (names.from.arbiter(), names.to.arbiter());
    if from == to {
        let Names { from: old, to: new } = names.clone();
        let ask = Ask::Rename { tx, from: old, to: new, flags };
        match ask_with_copy(members, &names.to, ask).await {
            Told::Renamed { duties, moved } => {
                let calls = touches(&names).into_iter().chain(moved.into_iter().map(renamed));
                return complete(members, tx, to, duties, calls.collect()).await.into_end();
            }
            Told::Committed { duties } => {
                return complete(members, tx, to, duties, touches(&names)).await.into_end();
            }
            Told::Elsewhere if !is_exchange => {}
            Told::Elsewhere => return Status::InvalidArgument.into(),
            other => return other.failure_of_all().into(),
        }
    }
    let mut transaction = Transaction::new(members, tx, to);
    match transaction.take_over().await {
        Earlier::Nothing => {}
        Earlier::Committed(tx, duties) => {
            let completed = complete(members, tx, to, duties, touches(&names)).await;
            return end_of(completed, &names);
        }
        Earlier::Unknown(end) => return end,
    }
    let ended = if is_exchange {
        exchange(&mut transaction, &names, link).await
    } else {
        on_several(&mut transaction, &names, flags, link).await
    };
    match ended {
        Ok(end) | Err(Stop::End(end)) => end,
        Err(Stop::Refused(status)) => match transaction.refuse(status, touches(&names)).await {
            Ok(completed) => end_of(completed, &names),
            Err(end) => end,
        },
    }
}

/// Why it does not go on.
pub(super) enum Stop {
    /// Something was refused: what was prepared is to be undone.
    Refused(Status),
    /// It is at its end.
    End(End),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Stop::Refused(status)
    }
}

async fn on_several(
    transaction: &mut Transaction<'_>,
    names: &Names,
    flags: u32,
    link: LinkId,
) -> Result<End, Stop> {
    let records = hold(transaction, names, link).await?;
    let to_handle = records.to.map(|to| to.what.handle());
    if to_handle.is_some() && flags & RENAME_NOREPLACE != 0 {
        return Err(Status::Exists.into());
    }
    if to_handle == Some(records.from.what.handle()) {
        return Ok(transaction.abandon());
    }
    check(&records)?;
    if let Some(id) = records.from.what.spread()
        && names.from.dir != names.to.dir
    {
        reparent(transaction, id, names.to.dir).await?;
    }
    if let Some(replaced) = records.to.and_then(|to| to.what.spread()) {
        seal(transaction, replaced).await?;
    }
    let Names { from, to } = names.clone();
    let is_on_one = from.arbiter() == to.arbiter();
    let change = if is_on_one {
        Change::Move { from, to, replaced: to_handle }
    } else {
        // The hold of the old name may have ended with its member's life, and another be there now.
        if !records.is_leaving && leave(transaction, from, link).await? != records.from {
            return Err(Status::Busy.into());
        }
        let pointer = pointer(&records.from.what, link);
        Change::Place { place: to, pointer, uid: records.from.uid, replaced: to_handle }
    };
    let duties = transaction.commit(change).await.map_err(Stop::End)?;
    let (members, tx) = (transaction.members(), transaction.tx());
    let coordinator = transaction.coordinator();
    let moved = records.from.what.spread().map(renamed);
    let calls = touches(names).into_iter().chain(moved).collect();
    let mut completed = complete(members, tx, coordinator, duties, calls).await;
    completed.after.extend(transaction.lets_go());
    Ok(end_of(completed, names))
}

/// The end of one that is committed.
pub(super) fn end_of(completed: Completed, names: &Names) -> End {
    let from = names.from.arbiter();
    if from != names.to.arbiter() && completed.unfinished.contains(from) {
        // It is done, and yet the old name may be seen a while longer.
        return End { result: Err(Status::InDoubt), after: completed.after };
    }
    completed.into_end()
}

/// Holds both names, the lower member's first; where the old name's is the higher, what is prepared
/// there holds it.
async fn hold(
    transaction: &mut Transaction<'_>,
    names: &Names,
    link: LinkId,
) -> Result<Records, Status> {
    let (from, to) = (names.from.clone(), names.to.clone());
    let order =
        |place: &Place| (place.arbiter(), place.dir.as_bytes().to_vec(), place.name.clone());
    if from.arbiter() > to.arbiter() {
        let to = hold_name(transaction, to, Purpose::Replace).await?;
        let from = leave(transaction, from, link).await?;
        Ok(Records { from, to, is_leaving: true })
    } else if order(&from) < order(&to) {
        let from = hold_name(transaction, from, Purpose::Take).await?;
        let to = hold_name(transaction, to, Purpose::Replace).await?;
        Ok(Records { from: from.ok_or(Status::NotFound)?, to, is_leaving: false })
    } else {
        let to = hold_name(transaction, to, Purpose::Replace).await?;
        let from = hold_name(transaction, from, Purpose::Take).await?;
        Ok(Records { from: from.ok_or(Status::NotFound)?, to, is_leaving: false })
    }
}

pub(super) async fn hold_name(
    transaction: &mut Transaction<'_>,
    place: Place,
    purpose: Purpose,
) -> Result<Option<Record>, Status> {
    let tx = transaction.tx();
    transaction.holds_on(place.arbiter());
    let ask = Ask::Hold { tx, place: place.clone(), purpose };
    match ask_with_copy(transaction.members(), &place, ask).await {
        Told::Record(record) => Ok(record),
        other => Err(other.failure()),
    }
}

async fn leave(
    transaction: &mut Transaction<'_>,
    place: Place,
    link: LinkId,
) -> Result<Record, Status> {
    let promise = transaction.prepare(place.arbiter(), Preparation::Leave { place, link }).await?;
    promise.record.ok_or(Status::NotFound)
}

/// What rename(2) refuses, and what cannot be done: a directory that lies on one member as a whole
/// stays there, as one does where a file system ends.
fn check(records: &Records) -> Result<(), Status> {
    let is_dir = |record: &Record| record.what.kind() == FileKind::Directory;
    let lies_whole = |record: &Record| is_dir(record) && record.what.spread().is_none();
    if let Some(to) = &records.to {
        match (is_dir(&records.from), is_dir(to)) {
            (true, false) => return Err(Status::NotDirectory),
            (false, true) => return Err(Status::IsDirectory),
            _ => {}
        }
    }
    let is_whole = lies_whole(&records.from) || records.to.as_ref().is_some_and(lies_whole);
    if is_whole { Err(Status::CrossDevice) } else { Ok(()) }
}

/// Prepares that a directory moves to `parent`, unless that is below it.
async fn reparent(
    transaction: &mut Transaction<'_>,
    id: DirId,
    parent: Handle,
) -> Result<(), Status> {
    let (members, tx) = (transaction.members(), transaction.tx());
    transaction.holds_on(TREE_MEMBER);
    match members.ask(TREE_MEMBER, Ask::HoldTree { tx }).await {
        Told::Done => {}
        other => return Err(other.failure()),
    }
    transaction.prepare(id.home(), Preparation::Reparent { id, parent }).await?;
    let mut above = parent;
    for _ in 0..DIR_DEPTH_MAX {
        let dir = match member_of(&above) {
            Owner::Spread(dir) if dir == id => return Err(Status::InvalidArgument),
            Owner::Spread(dir) if !dir.is_root() => dir,
            // Above a directory that lies on one member as a whole are only such.
            _ => return Ok(()),
        };
        above = match members.ask(dir.home(), Ask::Parent { id: dir }).await {
            Told::Parent(parent) => parent,
            Told::Failed(Status::Stale) => return Err(Status::NotFound),
            other => return Err(other.failure()),
        };
    }
    Err(Status::Loop)
}

/// The member that keeps moves of directories from waiting for each other in a circle.
const TREE_MEMBER: MemberId = 0;

/// What the new name is to lead to.
pub(super) fn pointer(what: &Named, link: LinkId) -> Pointer {
    match *what {
        Named::Pointer(pointer) => pointer,
        Named::Body { handle, kind } => Pointer::File { handle, kind, link },
    }
}

/// A directory that has another name gets its time of last status change.
pub(super) fn renamed(id: DirId) -> Call {
    Call { member: id.home(), ask: Ask::Renamed { id } }
}

/// Both directories get their times, each once.
pub(super) fn touches(names: &Names) -> Vec<Call> {
    let mut touches: Vec<Call> = [&names.from, &names.to].into_iter().filter_map(touch).collect();
    touches.dedup();
    touches
}
