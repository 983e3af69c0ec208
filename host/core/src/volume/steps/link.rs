//! link(2): one member's work where the file lies on the arbiter of the new name. Else the file
//! gets a hidden name where it lies, and the new name is a pointer to that.

use super::completion::complete;
use super::copy::ask_with_copy;
use super::transaction::{Earlier, Transaction, refused};
use super::{End, Members, Told, touch};
use crate::handle::Handle;
use crate::status::Status;
use crate::volume::ask::{Ask, Change, Purpose};
use crate::volume::member::{Owner, member_of};
use crate::volume::record::{LinkId, Pointer};
use crate::volume::transaction::{Place, Preparation, TxId};

pub(super) async fn link(
    members: &Members,
    tx: TxId,
    handle: Handle,
    place: Place,
    link: LinkId,
) -> End {
    let arbiter = place.arbiter();
    match member_of(&handle) {
        Owner::Spread(_) => Status::NotPermitted.into(),
        Owner::Member(member) if member == arbiter => on_one(members, handle, place).await,
        Owner::Member(_) => on_two(members, tx, handle, place, link).await,
    }
}

async fn on_one(members: &Members, handle: Handle, place: Place) -> End {
    match ask_with_copy(members, &place, Ask::Link { handle, place: place.clone() }).await {
        Told::Made(entry) => {
            members.ask_all(touch(&place).into_iter().collect()).await;
            Ok(Some(Box::new(entry))).into()
        }
        other => other.failure_of_all().into(),
    }
}

async fn on_two(members: &Members, tx: TxId, handle: Handle, place: Place, link: LinkId) -> End {
    let arbiter = place.arbiter();
    let mut transaction = Transaction::new(members, tx, arbiter);
    let touched = touch(&place).into_iter().collect();
    match transaction.take_over().await {
        Earlier::Nothing => {}
        Earlier::Committed(tx, duties) => {
            return complete(members, tx, arbiter, duties, touched).await.into_end();
        }
        Earlier::Unknown(end) => return end,
    }
    transaction.holds_on(arbiter);
    let hold = Ask::Hold { tx, place: place.clone(), purpose: Purpose::Make };
    match ask_with_copy(members, &place, hold).await {
        Told::Record(None) => {}
        Told::Record(Some(_)) => return refused(&transaction, Status::Exists, touched).await,
        other => return refused(&transaction, other.failure(), touched).await,
    }
    let part = Preparation::Link { handle, link };
    let record = match transaction.prepare(member_of(&handle).home(), part).await {
        Ok(promise) => promise.record,
        Err(status) => return refused(&transaction, status, touched).await,
    };
    let Some(record) = record else { return transaction.abort(Status::BadFrame) };
    let pointer = Pointer::File { handle, kind: record.what.kind(), link };
    let change = Change::Place { place: place.clone(), pointer, uid: record.uid, replaced: None };
    let duties = match transaction.commit(change).await {
        Ok(duties) => duties,
        Err(end) => return end,
    };
    complete(members, tx, arbiter, duties, touched).await.into_end()
}
