//! How a transaction is led: prepared, and then committed or aborted.
//!
//! What must hold: a transaction that may be committed is never aborted. While its commit was not
//! asked for it is not; and where the coordinator says that it does not hold its name, it is
//! neither committed nor will it be.

use super::completion::{Completed, complete};
use super::{Asked, Call, End, Members, Told};
use crate::status::Status;
use crate::volume::ask::{Ask, Change};
use crate::volume::member::{MemberId, MemberSet};
use crate::volume::record::Record;
use crate::volume::transaction::{Duty, Preparation, TxId};

/// A transaction that is not committed yet.
pub(super) struct Transaction<'a> {
    members: &'a Members,
    tx: TxId,
    coordinator: MemberId,
    /// Where something is, or may be, held or prepared.
    taking_part: MemberSet,
    /// Where something is prepared.
    prepared: MemberSet,
}

/// What a promise told.
pub(super) struct Promise {
    /// What the name stands for, or the file.
    pub(super) record: Option<Record>,
    /// The members with copies, of a seal at the home.
    pub(super) copies: MemberSet,
}

/// What came of an operation when it was asked for before.
pub(super) enum Earlier {
    /// Nothing, and nothing will: it is carried out now.
    Nothing,
    /// It was committed by this transaction, which has to do this yet.
    Committed(TxId, Vec<Duty>),
    /// The operation ends like this, for nobody knows.
    Unknown(End),
}

impl<'a> Transaction<'a> {
    pub(super) fn new(members: &'a Members, tx: TxId, coordinator: MemberId) -> Self {
        let none = MemberSet::EMPTY;
        Self { members, tx, coordinator, taking_part: none, prepared: none }
    }

    pub(super) fn members(&self) -> &'a Members {
        self.members
    }

    pub(super) fn tx(&self) -> TxId {
        self.tx
    }

    pub(super) fn coordinator(&self) -> MemberId {
        self.coordinator
    }

    /// What came of the operation, where its client had asked for it before.
    pub(super) async fn take_over(&self) -> Earlier {
        let Some(Asked { cause, is_again: true }) = self.members.asked else {
            return Earlier::Nothing;
        };
        let ask = Ask::TakeOver { tx: self.tx, cause };
        match self.members.ask(self.coordinator, ask).await {
            Told::TakenOver { committed: None } => Earlier::Nothing,
            Told::TakenOver { committed: Some((tx, duties)) } => Earlier::Committed(tx, duties),
            // It may well have been done before.
            _ => Earlier::Unknown(Status::InDoubt.into()),
        }
    }

    /// Something is about to be held on a member.
    pub(super) fn holds_on(&mut self, member: MemberId) {
        self.taking_part = self.taking_part.with(member);
    }

    /// Asks one member for a promise.
    pub(super) async fn prepare(
        &mut self,
        member: MemberId,
        part: Preparation,
    ) -> Result<Promise, Status> {
        let mut promises = self.prepare_all(MemberSet::of(member), part).await?;
        promises.pop().ok_or(Status::BadFrame)
    }

    /// Asks several members for the same promise, at once; in the order of the members.
    pub(super) async fn prepare_all(
        &mut self,
        on: MemberSet,
        part: Preparation,
    ) -> Result<Vec<Promise>, Status> {
        let (tx, coordinator) = (self.tx, self.coordinator);
        self.taking_part = on.iter().fold(self.taking_part, MemberSet::with);
        self.prepared = on.iter().fold(self.prepared, MemberSet::with);
        let ask = Ask::Prepare { tx, coordinator, part };
        let calls = on.iter().map(|member| Call { member, ask: ask.clone() }).collect();
        let told = self.members.ask_all(calls).await;
        let promise = |told| match told {
            Told::Prepared { record, copies } => Ok(Promise { record, copies }),
            other => Err(other.failure()),
        };
        // What a member refuses says more than that another is away.
        let mut lost = None;
        let mut promises = Vec::new();
        for promise in told.into_iter().map(promise) {
            match promise {
                Ok(promise) => promises.push(promise),
                Err(Status::Unavailable) => lost = Some(Status::Unavailable),
                Err(status) => return Err(status),
            }
        }
        lost.map_or(Ok(promises), Err)
    }

    /// Commits; the duties that come of it.
    ///
    /// # Errors
    ///
    /// The end of the operation, where it is not committed or nobody knows.
    pub(super) async fn commit(&mut self, change: Change) -> Result<Vec<Duty>, End> {
        let (tx, coordinator) = (self.tx, self.coordinator);
        let cause = self.members.asked.map(|asked| asked.cause);
        let ask = Ask::Commit { tx, change, prepared: self.prepared, cause };
        let mut told = self.members.ask(coordinator, ask.clone()).await;
        let is_repeated = told == Told::Lost;
        if is_repeated {
            told = self.members.ask(coordinator, ask).await;
        }
        match told {
            Told::Committed { duties } => Ok(duties),
            // Who finds what it left asks the coordinator.
            Told::Lost => Err(Status::InDoubt.into()),
            Told::NotHeld if is_repeated => Err(self.abort_in_doubt().await),
            Told::NotHeld => Err(self.abort(Status::Busy)),
            // Whoever has taken it over since may have done it.
            _ if self.members.asked.is_some_and(|asked| asked.is_again) => {
                Err(self.abort(Status::InDoubt))
            }
            other => Err(self.abort(other.failure())),
        }
    }

    /// What the members are told, once it is committed, that hold something and prepared nothing.
    pub(super) fn lets_go(&self) -> Vec<Call> {
        let finish = |member| Call { member, ask: Ask::Finish { tx: self.tx } };
        let holds =
            |member: &MemberId| *member != self.coordinator && !self.prepared.contains(*member);
        self.taking_part.iter().filter(holds).map(finish).collect()
    }

    /// The end of an operation whose commit was not asked for, or was refused.
    pub(super) fn abort(&self, status: Status) -> End {
        End { result: Err(status), after: self.aborts() }
    }

    /// The end of an operation that was refused before its commit was asked for. Where it was asked before,
    /// somebody else may have taken it over since, and done it: then that is how it ended, with these
    /// calls that belong to it.
    pub(super) async fn refuse(&self, status: Status, calls: Vec<Call>) -> Result<Completed, End> {
        match self.take_over().await {
            Earlier::Nothing => Err(self.abort(status)),
            Earlier::Unknown(_) => Err(self.abort(Status::InDoubt)),
            Earlier::Committed(tx, duties) => {
                let completed = complete(self.members, tx, self.coordinator, duties, calls).await;
                Ok(completed.and_then(self.aborts()))
            }
        }
    }

    /// The end of an operation that turns out to have nothing to do.
    pub(super) fn abandon(&self) -> End {
        End { result: Ok(None), after: self.aborts() }
    }

    fn aborts(&self) -> Vec<Call> {
        let abort = |member| Call { member, ask: Ask::Abort { tx: self.tx } };
        self.taking_part.iter().map(abort).collect()
    }

    /// The commit was asked for, and there was no answer; since then the coordinator has not got
    /// it. Either it never was, or somebody else has brought it to its end: then nothing is left of
    /// what was prepared.
    async fn abort_in_doubt(&self) -> End {
        let prepared = |call: &Call| self.prepared.contains(call.member);
        let calls: Vec<Call> = self.aborts().into_iter().filter(prepared).collect();
        let told = self.members.ask_all(calls).await;
        let was_there = |told: &Told| *told == Told::Aborted { was_there: true };
        let is_undone = !told.is_empty() && told.iter().all(was_there);
        let status = if is_undone { Status::Busy } else { Status::InDoubt };
        self.abort(status)
    }
}

/// As [`Transaction::refuse`], for what needs no more than to be complete.
pub(super) async fn refused(
    transaction: &Transaction<'_>,
    status: Status,
    calls: Vec<Call>,
) -> End {
    match transaction.refuse(status, calls).await {
        Ok(completed) => completed.into_end(),
        Err(end) => end,
    }
}
